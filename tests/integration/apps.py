"""Files of applications for processes: a broker, an answer sink, and a cloud where it is wanted."""

from __future__ import annotations

from pathlib import Path

APP = """
drain_timeout_s = {drain}
[model]
unsigned = "allow"
bundle = "{bundle}"
variant = "onnx-fp32"
[broker.b]
url = "{broker}"
client_id = "under-test"
[[source]]
type = "mqtt"
broker = "b"
topics = ["watch/+/imu"]
[[sink]]
type = "{sink}"
{where}
"""
CLOUD = """
[gate]
threshold = {threshold}
[cloud]
url = "{cloud}"
model = "teacher"
[outbox]
path = "outbox.db"
"""
MQTT_SINK = 'broker = "b"\ntopic = "answers/{key}"'


def app_file(
    folder: Path,
    bundle: Path,
    broker: str,
    *,
    cloud: str = "",
    sink: str = "jsonl",
    drain: float = 10.0,
    more: str = "",
) -> Path:
    where = {"jsonl": 'path = "answers.jsonl"', "mqtt": MQTT_SINK}[sink]
    text = APP.format(bundle=bundle, broker=broker, sink=sink, where=where, drain=drain)
    if cloud:
        text += CLOUD.format(cloud=cloud, threshold=0.9)
    path = folder / "app.toml"
    path.write_text(text + more)
    return path
