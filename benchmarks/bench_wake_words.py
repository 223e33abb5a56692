"""Streams of microWakeWord that one core answers, through the whole application and through the pipeline alone.

    python -m benchmarks wake-words        # needs the models that lie beside a development checkout (EDGE_SHARED)
    python -m benchmarks.bench_wake_words --seconds 10 --streams 1000 --only features

A step each 30 ms and stream. The application runs as ``edge-runtime run`` on the first core; a real mosquitto, and a
publisher that keeps to the clock, on the last one. Its CPU time is read from outside: all threads, MQTT, decoding,
windows, states, model, answers and the event rule. Streams a core are those whose steps take one second of CPU a second
at that load, from the first message to the last answer; steps that were not answered do not count.
"""

from __future__ import annotations

import argparse
import signal as signals
import socket
import struct
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import orjson

from benchmarks import wake_word
from benchmarks.load import cpu_seconds
from benchmarks.programs import on_first_core
from benchmarks.report import Goal, Report, machine, median_of, spread
from edge_runtime.io.mqtt.packets import encode_publish

GOALS = {("features", 0.3): 3_500, ("features", 1.0): 5_000, ("sound", 0.3): 1_500}
BATCH = 64
BUDGET_MS = 20.0
DISTINCT = 32
"""Streams with a signal of their own."""
MOSQUITTO = Path("/usr/sbin/mosquitto")


class Case(NamedTuple):
    """Traffic, and the answers that are published."""

    kind: str
    message_s: float
    streams: int
    answers: str
    """``all`` are published, or ``events`` alone."""


class Outcome(NamedTuple):
    """Figures of one run."""

    cpu_s: float
    answered: int
    """Windows."""
    expected: int
    p99_ms: float
    dropped: dict[str, int]

    @property
    def streams(self) -> float:
        """Streams a core."""
        return self.answered * wake_word.STEPS * wake_word.STEP_S / self.cpu_s

    @property
    def us_a_step(self) -> float:
        return 1e6 * wake_word.STEP_S / self.streams


# -- the application -------------------------------------------------------------------------------------------------


def application(bundle: Path, port: int, case: Case) -> str:
    """Configuration of the application."""
    codec = 'type = "raw"' if case.kind == "features" else 'type = "pcm"'
    only = 'only = "events"' if case.answers == "events" else ""
    return f"""
[model]
bundle = "{bundle}"
unsigned = "allow"
max_batch = {BATCH}
latency_budget_ms = {BUDGET_MS}

[broker.bench]
url = "mqtt://127.0.0.1:{port}"

[[source]]
type = "mqtt"
broker = "bench"
topics = ["wake/+"]
qos = 0

[source.codec]
{codec}
time = "f64"

[[sink]]
type = "mqtt"
broker = "bench"
topic = "results/{{key}}"
qos = 0
{only}
"""


def payloads(case: Case) -> list[list[bytes]]:
    """Messages of each distinct stream, without their stamps; they are sent in a circle."""
    rate = wake_word.RATE_HZ[case.kind]
    n = round(case.message_s * rate)
    count = max(2, round(3 / case.message_s))
    values = wake_word.signal(case.kind, min(DISTINCT, case.streams), -(-count * n // wake_word.STEP[case.kind]))
    if case.kind == "sound":
        values = (values * 32768).astype("<i2")
    return [[one[k * n : (k + 1) * n].tobytes() for k in range(count)] for one in values]


def publish(port: int, case: Case, seconds: float) -> int:
    """Send messages evenly over the time, each when it is due; returns how many of each stream."""
    bodies = payloads(case)
    sock = socket.create_connection(("127.0.0.1", port))
    sock.sendall(bytes.fromhex("100d00044d515454040200000001") + b"p")
    assert sock.recv(4)[:1] == b"\x20"
    topics = [b"wake/k%05d" % k for k in range(case.streams)]
    first = 1_700_000_001.0  # where windows of 300 ms begin
    messages = round(seconds / case.message_s)
    began = time.monotonic()
    for i in range(messages):
        stamp = struct.pack("<d", first + i * case.message_s)
        for at in range(0, case.streams, 64):
            due = began + (i + at / case.streams) * case.message_s
            if (wait := due - time.monotonic()) > 0:
                time.sleep(wait)
            packets = [
                encode_publish(topics[k], stamp + bodies[k % len(bodies)][i % len(bodies[0])], 0, 0)
                for k in range(at, min(at + 64, case.streams))
            ]
            sock.sendall(b"".join(packets))
    sock.close()
    return messages


@contextmanager
def broker(folder: Path) -> Iterator[int]:
    """Run mosquitto on a free port of loopback."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = int(free.getsockname()[1])
    config = folder / "mosquitto.conf"
    config.write_text(
        f"listener {port} 127.0.0.1\nallow_anonymous true\nmax_queued_messages 1000000\nset_tcp_nodelay true\n"
        "log_dest stderr\nlog_type subscribe\n"
    )
    with (
        (folder / "broker.log").open("wb") as log,
        subprocess.Popen([str(MOSQUITTO), "-c", str(config)], stderr=log) as process,
    ):
        try:
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port)).close()
                    break
                except OSError:
                    time.sleep(0.05)
            yield port
        finally:
            process.terminate()


def run(case: Case, bundle: Path, seconds: float) -> Outcome:
    """Run the application once."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with on_first_core():
            pass  # we, and the broker that we start, go to the last core
        with broker(folder) as port:
            config = folder / "app.toml"
            config.write_text(application(bundle, port, case))
            with (folder / "figures").open("w+b") as figures, (folder / "log").open("w+b") as log:
                command = [sys.executable, "-m", "edge_runtime", "run", str(config), "--json"]
                with on_first_core():
                    app = subprocess.Popen(command, stdout=figures, stderr=log)
                try:
                    wait_for(folder, b"wake/+", app)
                    cpu = cpu_seconds(app.pid)
                    own = [sys.executable, "-m", "benchmarks.bench_wake_words", "--publish", str(port)]
                    subprocess.run([*own, orjson.dumps([*case, seconds]).decode()], check=True)
                    _wait_until_idle(app.pid)
                    cpu = cpu_seconds(app.pid) - cpu
                finally:
                    app.send_signal(signals.SIGTERM)
                    app.wait(30)
                figures.seek(0)
                found: dict[str, Any] = orjson.loads(figures.read())
    return _outcome(case, found, cpu, seconds)


def _outcome(case: Case, found: dict[str, Any], cpu_s: float, seconds: float) -> Outcome:
    samples = round(seconds / case.message_s) * round(case.message_s * wake_word.RATE_HZ[case.kind])
    windows = samples // (wake_word.STEPS * wake_word.STEP[case.kind])
    expected = case.streams * (windows - 1)  # the first one fills the sliding mean
    counts = found["counts"]
    p99 = found["latency_ms"]["total"]["p99"]
    return Outcome(cpu_s, counts.get("predictions_total", 0), expected, p99, found["dropped"])


def wait_for(folder: Path, topic: bytes, process: subprocess.Popen[bytes]) -> None:
    """Wait until the application has subscribed, as the broker tells it."""
    until = time.monotonic() + 60
    while topic not in (folder / "broker.log").read_bytes():
        if process.poll() is not None or time.monotonic() > until:
            raise RuntimeError(f"the application did not start: {(folder / 'log').read_text()[-2000:]}")
        time.sleep(0.05)


def _wait_until_idle(pid: int) -> None:
    """Wait until all that was sent is answered: on a busy machine a broker may rest for half a second in between."""
    spent, quiet = -1.0, 0
    while quiet < 3:
        now = cpu_seconds(pid)
        quiet = quiet + 1 if now - spent <= 0.02 else 0
        spent = now
        time.sleep(0.5)


# -- the figures -----------------------------------------------------------------------------------------------------


def report(cases: Sequence[Case], seconds: float, rounds: int) -> Report:
    """Measure the application with each case, in turns; least, median and most of the rounds."""
    table = Report(
        f"microWakeWord through the application, one core, a step each {1e3 * wake_word.STEP_S:.0f} ms, QoS 0",
        ("signal", "message s", "published", "streams", "us a step", "streams a core", "answered %", "p99 ms", "lost"),
    )
    with tempfile.TemporaryDirectory() as name:
        bundles = {
            kind: wake_word.wake_word_bundle(Path(name) / f"{kind}.edge", kind)
            for kind in {case.kind for case in cases}
        }
        found: dict[Case, list[Outcome]] = {case: [] for case in cases}
        for _ in range(rounds):
            for case in cases:
                found[case].append(run(case, bundles[case.kind], seconds))
    for case, outcomes in found.items():
        dropped = sum((Counter(one.dropped) for one in outcomes), Counter[str]())
        lost = ", ".join(f"{reason} {count}" for reason, count in dropped.items())
        share = min(100 * one.answered / one.expected for one in outcomes)
        table.rows.append(
            (
                *_words(case),
                case.streams,
                spread([one.us_a_step for one in outcomes], 1),
                spread([one.streams for one in outcomes]),
                share,
                spread([one.p99_ms for one in outcomes]),
                lost or "0",
            )
        )
        if goal := GOALS.get((case.kind, case.message_s)):
            text = f"{case.kind} in messages of {case.message_s:g} s, {case.answers} published: streams a core"
            table.goals.append(Goal(text, median_of([one.streams for one in outcomes]), goal))
    return table


def _words(case: Case) -> tuple[str, float, str]:
    return case.kind, case.message_s, case.answers


def main() -> int:
    """Run all cases and print a table; or publish, as a process of its own."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=8.0)
    parser.add_argument("--streams", type=int, default=0, help="0: 1,500 of features, 600 of sound")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", choices=("features", "sound"))
    parser.add_argument("--publish", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.publish:
        *case, seconds = orjson.loads(options.publish[1])
        publish(int(options.publish[0]), Case(*case), seconds)
        return 0
    if not wake_word.MODEL.is_file():
        print(f"no model {wake_word.MODEL}; set EDGE_SHARED to the folder with data and models")
        return 0
    if not MOSQUITTO.is_file():
        print(f"no {MOSQUITTO}; install mosquitto")
        return 0
    print("\n".join(f"{key}: {value}" for key, value in machine().items()))
    cases = [
        Case(kind, message_s, options.streams or (1_500 if kind == "features" else 600), answers)
        for kind, message_s in (("features", 0.3), ("features", 1.0), ("sound", 0.3), ("sound", 1.0))
        for answers in ("events", "all")
        if options.only in (None, kind)
    ]
    print(report(cases, options.seconds, options.rounds).text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
