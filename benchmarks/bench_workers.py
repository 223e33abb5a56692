"""Windows per CPU second of several workers beside one process, and what a message of another worker costs.

A stand-in for a broker sends all messages to each worker as fast as it takes them (QoS 1), so that every process works
without a pause: a real broker has to keep up with one copy for each worker. First the shares of all workers are worked
off one after another, each by a process that has the machine to itself (``--machine I/N``, the same code): what sharing
costs. Then, for as many workers as there are processors, all at once, the parent included: what the processors share
(caches, two threads of a core) is in it, too. Each run is made with few messages and with many, and the difference is
stated, so starting and loading cost nothing. Medians over rounds, of the ratio to one process in the same round.

    python -m benchmarks workers
    python benchmarks/bench_workers.py --rounds 3 --windows 4000 --workers 1 2
"""

from __future__ import annotations

import argparse
import os
import signal
import socket
import statistics
import struct
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson

from benchmarks.report import Report, machine
from edge_runtime.io.mqtt import packets
from edge_runtime.tools.bench.feeder import answer

BUNDLE = Path(__file__).resolve().parents[1] / "examples" / "exercise-watch" / "watch.edge"
RATE_HZ, HOP, CHANNELS, KEYS = 50.0, 50, 6, 64
NO_KEY = "256/256"
SMALL = 0.2
"""Part of the messages of the large run that the small one has."""

APP = """
name = "bench"
[model]
bundle = "{bundle}"
unsigned = "allow"
variant = "{variant}"
check_interval_s = 0.0
[gate]
threshold = 0.0
[broker.b]
url = "{url}"
[[source]]
type = "mqtt"
broker = "b"
topics = ["watch/+/imu"]
codec = {{ type = "{codec}" }}
[[sink]]
type = "jsonl"
path = "answers.jsonl"
"""


class Cost(NamedTuple):
    """CPU of one run."""

    cpu_s: float
    windows: int
    foreign: int


def messages(windows: int, samples: int, codec: str) -> list[tuple[str, bytes]]:
    """Messages of `samples` samples for all keys in turns, about `windows` windows in all."""
    rng = np.random.default_rng(1)
    signal_ = rng.normal(0, 0.5, (4096, CHANNELS)).astype(np.float32)
    found = []
    for turn in range(max(3, windows // KEYS + 1) * HOP // samples):
        for key in range(KEYS):
            at = (key * 97 + turn * samples) % (len(signal_) - samples)
            t, values = 1_700_000_000.0 + turn * samples / RATE_HZ, signal_[at : at + samples]
            payload = (
                struct.pack("<d", t) + values.tobytes()
                if codec == "raw"
                else orjson.dumps({"t": t, "values": values.astype(float).round(4).tolist()})
            )
            found.append((f"watch/device-{key:02d}/imu", payload))
    return found


class Feeder:
    """A broker that does nothing but send: each subscriber gets all of it, as fast as it takes it, and acknowledges it.

    It costs next to nothing, so that the application waits for nothing, on a machine of few cores too.
    """

    def __init__(self, feed: Sequence[tuple[str, bytes]]) -> None:
        self._data = b"".join(
            packets.encode_publish(topic.encode(), payload, 1, i % 65_535 + 1, version=packets.V5)
            for i, (topic, payload) in enumerate(feed)
        )
        self._wanted = 4 * len(feed)  # bytes of their PUBACKs
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"mqtt://127.0.0.1:{self._server.getsockname()[1]}"
        self.finished = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                threading.Thread(target=self._serve, args=self._server.accept()[:1], daemon=True).start()

    def _serve(self, conn: socket.socket) -> None:
        parser = packets.PacketParser(None)
        with conn:
            conn.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            subscribed = False
            while not subscribed:
                for packet in parser.feed(conn.recv(65_536)):
                    assert len(packet) == 2
                    conn.sendall(answer(packet, packets.V5, 1))
                    subscribed |= packet[0] == packets.SUBSCRIBE
            threading.Thread(target=conn.sendall, args=(self._data,), daemon=True).start()
            acked = 0
            while acked < self._wanted and (got := conn.recv(65_536)):
                acked += len(got)
            self.finished += acked >= self._wanted
            while conn.recv(65_536):
                pass

    def close(self) -> None:
        self._server.close()


def run(folder: Path, workers: int, feed: Sequence[tuple[str, bytes]], codec: str, *options: str) -> Cost:
    """One run: the application starts, works all off, and is stopped."""
    command = [sys.executable, "-m", "edge_runtime", "run", "app.toml", "--workers", str(workers), "--json", *options]
    for old in folder.glob("answers*"):
        old.unlink()
    feeder = Feeder(feed)
    (folder / "app.toml").write_text(APP.format(bundle=BUNDLE, variant="onnx-int8-u8s8", url=feeder.url, codec=codec))
    try:
        with Application(command, folder) as application:
            application.until(lambda: feeder.finished >= workers)
            return application.stop()
    finally:
        feeder.close()


class Application:
    """``edge-runtime run`` as a process whose CPU time, with that of its workers, is known at its end."""

    def __init__(self, command: Sequence[str], folder: Path) -> None:
        self._log = folder / "app.log"
        self._out = folder / "app.out"
        with self._log.open("wb") as log, self._out.open("wb") as out:
            environment = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[1])}
            self._process = subprocess.Popen(command, stdout=out, stderr=log, cwd=folder, env=environment)

    def __enter__(self) -> Application:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.returncode is None:
            self._process.kill()

    def until(self, condition: object, seconds: float = 600.0) -> None:
        end = time.monotonic() + seconds
        while not condition():  # type: ignore[operator]
            if time.monotonic() > end or self._process.poll() is not None:
                raise RuntimeError(f"did not come about: {self._log.read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self) -> Cost:
        self._process.send_signal(signal.SIGTERM)
        _, _, usage = os.wait4(self._process.pid, 0)  # with that of the workers, which it has waited for
        self._process.returncode = 0
        figures = orjson.loads(self._out.read_bytes())
        counts = figures["counts"]
        return Cost(
            usage.ru_utime + usage.ru_stime,
            counts.get("predictions_total", 0),
            counts.get("foreign_messages_total", 0),
        )


def measure(workers: Sequence[int], rounds: int, windows: int, samples: int, codec: str) -> Report:
    """Measure all numbers of workers in turns, each beside one process of the same round."""
    report = Report(
        f"workers: {samples} samples a message, codec {codec}, {KEYS} keys",
        ("workers", "windows per CPU second", "of one process", "all at once, of one process"),
    )
    feeds = [messages(round(windows * part), samples, codec) for part in (SMALL, 1.0)]
    alone: dict[int, list[float]] = {number: [] for number in workers}
    at_once: dict[int, list[float]] = {number: [] for number in workers}
    foreign: list[float] = []
    with tempfile.TemporaryDirectory() as name:

        def difference(number: int, *options: str) -> Cost:
            small, large = (run(Path(name), number, feed, codec, *options) for feed in feeds)
            return Cost(large.cpu_s - small.cpu_s, large.windows - small.windows, large.foreign - small.foreign)

        def cost(number: int) -> float:
            parts = [difference(1, "--machine", f"{part}/{number}") for part in range(1, number + 1)]
            return sum(one.cpu_s for one in parts) / sum(one.windows for one in parts)

        for at in range(rounds):
            for number in workers:
                alone[number].append(cost(number))
                if 1 < number <= (os.cpu_count() or 1):
                    both = difference(number)
                    at_once[number].append(both.cpu_s / both.windows)
                print(f"  round {at}, {number} workers: {1e6 * alone[number][-1]:.1f} us a window", flush=True)
            dropped = difference(1, "--machine", NO_KEY)
            assert not dropped.windows, "this machine has a key after all"
            foreign.append(dropped.cpu_s / dropped.foreign)
    one = alone[workers[0]]
    for number in workers:
        report.rows.append(
            (number, 1 / statistics.median(alone[number]), _of(one, alone[number]), _of(one, at_once[number]))
        )
    report.notes.append(f"a message of another worker: {1e6 * statistics.median(foreign):.2f} us")
    return report


def _of(one: Sequence[float], costs: Sequence[float]) -> float | None:
    """Median over the rounds of one process's cost by this one."""
    return statistics.median(a / b for a, b in zip(one, costs, strict=True)) if costs else None


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--windows", type=int, default=20_000)
    parser.add_argument("--samples", type=int, nargs="+", default=[50, 5], help="in a message")
    parser.add_argument("--codec", default="json", choices=("json", "raw"))
    options = parser.parse_args()
    print("\n".join(f"{key}: {value}" for key, value in machine().items()))
    for samples in options.samples:
        print(measure(options.workers, options.rounds, options.windows, samples, options.codec).text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
