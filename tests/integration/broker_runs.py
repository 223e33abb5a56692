"""An application behind a broker that may come and go, and its answers where the broker stays."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edge_runtime.tools.demo.broker.broker import Broker
from tests.integration.running import Message, Publisher, cut, interleave, load_model, predictions, running, streams

KEYS, SAMPLES = 4, 1200

APP = """
[model]
unsigned = "allow"
bundle = "unused.edge"
[broker.b]
url = "mqtt://127.0.0.1:{port}"
protocol = "{protocol}"
client_id = "under-test"
[[source]]
type = "mqtt"
broker = "b"
topics = ["watch/+/imu"]
qos = {qos}
[[sink]]
type = "jsonl"
path = "{path}"
"""


def feed(seed: int = 2) -> list[Message]:
    rng = np.random.default_rng(seed)
    return interleave(rng, [cut(stream, lambda: int(rng.integers(4, 16))) for stream in streams(KEYS, SAMPLES)])


def undisturbed(bundle: Path, folder: Path, messages: list[Message]) -> list[dict[str, object]]:
    """The same messages over a broker that stays."""
    with Broker() as broker, Publisher(broker.port) as publisher:
        text = APP.format(port=broker.port, protocol="5", qos=1, path="undisturbed.jsonl")
        with running(text, folder, load_model(bundle, "onnx-fp32")) as app:
            publisher.reach(app)
            publisher.send(messages)
            app.until(lambda: app.counts["samples_total"] >= KEYS * SAMPLES)
            assert app.stop()
    return predictions(folder / "undisturbed.jsonl")
