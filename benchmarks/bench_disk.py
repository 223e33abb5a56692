"""Bytes that a running application writes to its disk, by durability and rate: what a memory card wears by.

One key, QoS 1, two samples of six channels in a JSON message (some 120 bytes), answers over MQTT, no hard cases. Each
figure is ``write_bytes`` of ``/proc/PID/io`` over a minute, times 1,440: pages that this process had the kernel write.
What the file system writes for itself (its journal) and what the card's controller rewrites come on top.

    python -m benchmarks disk [--seconds 60] [--rates 1 20 200] [--folder DIR]
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import orjson
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from benchmarks.report import machine
from edge_runtime.tools.demo.broker.broker import Broker

BUNDLE = Path(__file__).resolve().parents[1] / "examples" / "exercise-watch" / "watch.edge"
PATIENCE_S = 60.0
DAY_S = 86_400.0
RATE_HZ, HOP, SAMPLES = 50.0, 50, 2
APP = """
{durability}
[model]
bundle = "{bundle}"
unsigned = "allow"
[gate]
threshold = 0.0
[broker.b]
url = "{url}"
[[source]]
type = "mqtt"
broker = "b"
topics = ["watch/+/imu"]
qos = 1
[[sink]]
type = "mqtt"
broker = "b"
topic = "edge/{{key}}/prediction"
{tables}
"""
MODES = {
    "window": ("", ""),
    "reading": ('durability = "reading"', '[reading_log]\npath = "readings.db"'),
    "reading, commit_wait_ms = 100": (
        'durability = "reading"',
        '[reading_log]\npath = "readings.db"\ncommit_wait_ms = 100',
    ),
    "reading, commit_wait_ms = 1000": (
        'durability = "reading"',
        '[reading_log]\npath = "readings.db"\ncommit_wait_ms = 1000',
    ),
}


def written(pid: int) -> int:
    """Return the bytes that a process had written to disks so far (proc(5))."""
    lines = Path(f"/proc/{pid}/io").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


def until(condition: Callable[[], object], what: str) -> None:
    """Wait for a condition."""
    end = time.monotonic() + PATIENCE_S
    while not condition():
        if time.monotonic() > end:
            raise RuntimeError(what)
        time.sleep(0.05)


def measure(folder: Path, mode: str, rate: float, seconds: float) -> tuple[float, float]:
    """Return bytes a second, and messages a second that were answered."""
    durability, tables = MODES[mode]
    values = np.random.default_rng(1).normal(0, 0.5, (SAMPLES, 6)).round(4).tolist()
    with Broker() as broker, (folder / "log").open("wb") as log:
        text = APP.format(durability=durability, bundle=BUNDLE, url=broker.url, tables=tables)
        (folder / "app.toml").write_text(text)
        command = [sys.executable, "-m", "edge_runtime", "run", "app.toml"]
        process = subprocess.Popen(command, cwd=folder, stdout=log, stderr=log)
        answered = [0]
        client = paho.Client(CallbackAPIVersion.VERSION2, "sensor")
        client.on_message = lambda *_: answered.__setitem__(0, answered[0] + 1)
        try:
            client.connect("127.0.0.1", broker.port)
            client.loop_start()
            client.subscribe("edge/+/prediction")
            until(lambda: "connected to" in (folder / "log").read_text(), "the application does not connect")
            time.sleep(1.0)
            begin = time.monotonic()
            before, first, sent = 0, -1, 0
            while (now := time.monotonic() - begin) < seconds + 5:
                if first < 0 and now >= 5:  # what starting costs is over
                    before, first = written(process.pid), answered[0]
                t = 1_700_000_000.0 + sent * SAMPLES / RATE_HZ
                client.publish("watch/wrist/imu", orjson.dumps({"t": t, "values": values}), 1)
                sent += 1
                time.sleep(max(0.0, begin + sent / rate - time.monotonic()))
            if answered[0] == first:
                raise RuntimeError(f"nothing was answered: {(folder / 'log').read_text()}")
            return (written(process.pid) - before) / seconds, (answered[0] - first) * HOP / SAMPLES / seconds
        finally:
            client.loop_stop()
            process.terminate()
            process.wait(PATIENCE_S)


def main() -> None:
    """Print a line for each durability and rate."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--rates", type=float, nargs="+", default=[1.0, 20.0, 200.0])
    parser.add_argument("--folder", type=Path, help="on the disk that is to be measured")
    options = parser.parse_args()
    print(f"{machine()}\n\n| durability | messages/s sent, answered | bytes a message | a day |\n|---|---|---|---|")
    for mode in MODES:
        for rate in options.rates:
            with tempfile.TemporaryDirectory(dir=options.folder) as folder:
                per_s, messages = measure(Path(folder), mode, rate, options.seconds)
            print(
                f"| {mode} | {rate:g}, {messages:.1f} | {per_s / messages:,.0f} | {per_s * DAY_S / 1e9:.2f} GB |",
                flush=True,
            )


if __name__ == "__main__":
    main()
