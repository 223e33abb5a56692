"""Honest pictures beside costly ones: latency of their answers with and without them, over a real mosquitto.

Twenty cameras send five small JPEGs a second each. Another publisher sends 20 messages a second that cost more than any
of theirs: a PNG of 4 kB that states a million rows, or a JPEG of 3840 x 2160 pixels. The application runs as
``edge-runtime run`` on the first core; broker, publishers and subscriber share the last one.
"""

from __future__ import annotations

import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import defaultdict, deque
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import orjson

from benchmarks.bench_wake_words import broker, wait_for
from benchmarks.floods import GOAL_MS, HONEST_PER_S, KEYS, PATIENCE_S, TICK_S, Peer
from benchmarks.programs import on_first_core
from benchmarks.report import Goal, Report
from edge_runtime.io.mqtt.packets import V311, Subscribe, SubscribeFilter, encode_subscribe
from edge_runtime.manifest import Channel
from edge_runtime.manifest.frames import Frame, frame_names
from tests.edge_runtime.base.media.pictures import jpeg, picture, tall_png
from tests.models import tiny_bundle

COSTLY_PER_S: Final = 20
FRAME: Final = Frame(height=6, width=8)
SECONDS: Final = 6.0


def application(bundle: Path, port: int) -> str:
    """Write the configuration."""
    return f"""
[model]
bundle = "{bundle}"
unsigned = "allow"
[broker.local]
url = "mqtt://127.0.0.1:{port}"
[[source]]
type = "mqtt"
broker = "local"
topics = ["cam/+/jpg"]
[source.codec]
type = "frame"
[[sink]]
type = "mqtt"
broker = "local"
topic = "edge/{{key}}/prediction"
qos = 0
"""


def run(costly: bytes, bundle: Path, folder: Path) -> tuple[list[float], int, float]:
    """Run the application once; returns latencies in ms, answers that are missing, and megabytes at most."""
    with on_first_core():
        pass  # we, and the broker that we start, go to the last core
    with broker(folder) as port:
        config = folder / "app.toml"
        config.write_text(application(bundle, port))
        with (folder / "log").open("w+b") as log, on_first_core():
            app = subprocess.Popen([sys.executable, "-m", "edge_runtime", "run", str(config)], stdout=log, stderr=log)
        try:
            wait_for(folder, b"cam/+/jpg", app)
            latencies, missing = _play(port, costly)
            status = Path(f"/proc/{app.pid}/status").read_text()
        finally:
            app.send_signal(signal.SIGTERM)
            app.wait(60)
    return latencies, missing, next(int(x.split()[1]) / 1024 for x in status.splitlines() if x.startswith("VmHWM"))


def _play(port: int, costly: bytes) -> tuple[list[float], int]:
    publisher, stranger, hears = (Peer(port, one) for one in ("honest", "costly", "hears"))
    hears.sock.sendall(encode_subscribe(Subscribe(1, (SubscribeFilter(b"edge/+/prediction", 0),)), V311))
    small, waiting, latencies = jpeg(picture(60, 80)), defaultdict[str, deque[float]](deque), list[float]()
    began, sent, bad = time.monotonic(), 0, 0
    while (passed := time.monotonic() - began) < SECONDS or (any(waiting.values()) and passed < SECONDS + PATIENCE_S):
        while sent < min(passed, SECONDS) * HONEST_PER_S:
            key = f"w{sent % KEYS}"
            publisher.publish(f"cam/{key}/jpg".encode(), small, 0)
            waiting[key].append(time.monotonic())
            sent += 1
        while costly and bad < min(passed, SECONDS) * COSTLY_PER_S:
            stranger.publish(b"cam/bad/jpg", costly, 0)
            bad += 1
        for one in (publisher, stranger):
            one.flush()
        if select.select([hears.sock], [], [], TICK_S)[0]:
            now = time.monotonic()
            for key in (orjson.loads(item[1])["key"] for item in hears.read() if len(item) > 2):
                if waiting[key]:
                    latencies.append((now - waiting[key].popleft()) * 1e3)
    for one in (publisher, stranger, hears):
        one.sock.close()
    return latencies, sent - len(latencies)


def costly(quick: bool) -> Iterator[Report]:
    """Latency of honest keys; the kinds take turns."""
    kinds = {"none": b"", "PNG of a million rows": tall_png(), "JPEG, 3840 x 2160": jpeg(picture(2160, 3840))}
    found: dict[str, list[tuple[list[float], int, float]]] = {name: [] for name in kinds}
    with tempfile.TemporaryDirectory() as name:
        bundle = tiny_bundle(
            Path(name) / "camera.edge",
            sensor=[Channel(name=one, unit="1") for one in frame_names("rgb")],
            window=FRAME.pixels,
            rate_hz=1000.0 * FRAME.pixels,
            input_contract={"frame": FRAME},
        )
        for turn in range(1 if quick else 3):
            for kind, payload in kinds.items():
                folder = Path(name) / f"{turn} {len(payload)}"
                folder.mkdir()
                found[kind].append(run(payload, bundle, folder))
    report = Report(
        f"{KEYS} honest cameras, {HONEST_PER_S} pictures/s, beside {COSTLY_PER_S} costly ones a second",
        ("costly", "p50 ms", "p99 ms", "missing", "MB"),
    )
    p99 = {}
    for kind, outcomes in found.items():
        p50, p99[kind] = (
            statistics.median(float(np.quantile(one, q)) if one else float("inf") for one, _, _ in outcomes)
            for q in (0.5, 0.99)
        )
        report.rows.append((kind, p50, p99[kind], sum(one for _, one, _ in outcomes), max(mb for _, _, mb in outcomes)))
    for kind in list(kinds)[1:]:
        more = p99[kind] - p99["none"]
        report.goals.append(Goal(f"p99 ms beside {kind}, less that alone", more, GOAL_MS, at_most=True))
    yield report
