"""Honest streams beside a flood of new keys: latency of their answers with and without it, over a real mosquitto.

Twenty watches send five messages a second each. A broken or hostile publisher sends, thousands of times a second, a
message of a key that was never seen before: ``bad/<random>/imu``. The application runs as ``edge-runtime run`` with the
example's bundle on the first core; broker, publishers and subscriber share the last one.
"""

from __future__ import annotations

import select
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import orjson

from benchmarks.bench_wake_words import broker, wait_for
from benchmarks.load import FIRST_SLOT, cpu_seconds, nested_json
from benchmarks.models import RATE_HZ, signals
from benchmarks.programs import on_first_core
from benchmarks.report import Goal, Report
from edge_runtime.io.mqtt.packets import (
    PUBACK,
    V311,
    Connect,
    PacketParser,
    Subscribe,
    SubscribeFilter,
    encode_ack,
    encode_connect,
    encode_publish,
    encode_subscribe,
)

KEYS: Final = 20
HONEST_PER_S: Final = 100
SAMPLES: Final = 50
"""In a message: every one but a key's first completes a window."""
TICK_S: Final = 0.005
BUNDLE: Final = Path("examples/exercise-watch/watch.edge")
GOAL_MS: Final = 50.0
RECORDED: Final = 100
"""Messages of a key before its signal repeats."""
PATIENCE_S: Final = 10.0


@dataclass(frozen=True)
class Flood:
    """The traffic of the publisher of new keys: one message of each."""

    name: str
    per_s: int = 0
    samples: int = 0
    """Of a message: with 50 it opens a window, with 100 it completes one."""


ALONE: Final = Flood("no flood")
FLOODS: Final = (
    ALONE,
    Flood("3,000/s, each opens a window", 3_000, 50),
    Flood("3,000/s, each completes one", 3_000, 100),
    Flood("12,000/s, each completes one", 12_000, 100),
)
GOALS: Final = FLOODS[1:3]


@dataclass
class Outcome:
    """The figures of one run."""

    latencies_ms: list[float]
    missing: int
    cpu_s: float
    refused: int = 0

    def quantile(self, q: float) -> float:
        """Return a quantile of the latency, milliseconds."""
        return float(np.quantile(self.latencies_ms, q)) if self.latencies_ms else float("inf")


def application(port: int, qos: int) -> str:
    """Write the configuration: the example's, with every answer local."""
    return f"""
[model]
bundle = "{BUNDLE.resolve()}"
unsigned = "allow"

[broker.local]
url = "mqtt://127.0.0.1:{port}"

[[source]]
type = "mqtt"
broker = "local"
topics = ["+/+/imu"]
key = "{{1}}"
qos = {qos}

[source.codec]
type = "json"

[[sink]]
type = "mqtt"
broker = "local"
topic = "edge/{{key}}/prediction"
qos = {qos}
"""


class Peer:
    """A client of the broker on a bare socket, so that this side costs little.

    Args:
        port: the broker's.
        name: its client id.
    """

    def __init__(self, port: int, name: str) -> None:
        self.sock = socket.create_connection(("127.0.0.1", port))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.sock.sendall(encode_connect(Connect(name)))
        self._parser = PacketParser(V311, 2**24)
        self._ids = 0
        while not self._parser.feed(self.sock.recv(4096)):
            pass
        self.sock.setblocking(False)
        self._out = bytearray()

    def publish(self, topic: bytes, payload: bytes, qos: int) -> None:
        """Queue a message; `flush` sends it."""
        self._ids = self._ids % 65_535 + 1
        self._out += encode_publish(topic, payload, qos, self._ids if qos else 0)

    def flush(self) -> None:
        """Send what the kernel takes, and read the acknowledgements away."""
        try:
            while self._out:
                del self._out[: self.sock.send(self._out)]
        except BlockingIOError:
            pass

    def read(self) -> list[Any]:
        """Parse what is there."""
        try:
            return self._parser.feed(self.sock.recv(2**18))
        except BlockingIOError:
            return []


def run(flood: Flood, qos: int, seconds: float) -> Outcome:
    """Run the application once, with the honest keys and one flood."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with on_first_core():
            pass  # we, and the broker that we start, go to the last core
        with broker(folder) as port:
            config = folder / "app.toml"
            config.write_text(application(port, qos))
            with (folder / "figures").open("w+b") as figures, (folder / "log").open("w+b") as log:
                command = [sys.executable, "-m", "edge_runtime", "run", str(config), "--json"]
                with on_first_core():
                    app = subprocess.Popen(command, stdout=figures, stderr=log)
                try:
                    wait_for(folder, b"+/+/imu", app)
                    turn, cpu_s = _Turn(port, flood, qos, seconds), cpu_seconds(app.pid)
                    turn.play()
                    latencies = [*turn.latencies_ms.values()]
                    outcome = Outcome(latencies, len(turn.sent) - len(latencies), cpu_seconds(app.pid) - cpu_s)
                finally:
                    app.send_signal(signal.SIGTERM)
                    app.wait(60)
                figures.seek(0)
                found = orjson.loads(figures.read())
                outcome.refused = found["dropped"].get("new_topic", 0)
                return outcome


class _Turn:
    """The traffic of one run: what is due is published, what is answered is timed."""

    def __init__(self, port: int, flood: Flood, qos: int, seconds: float) -> None:
        self._flood, self._qos, self._seconds = flood, qos, seconds
        self._publisher, self._flooder, self._subscriber = (Peer(port, one) for one in ("honest", "flood", "hears"))
        wanted = Subscribe(1, (SubscribeFilter(b"edge/+/prediction", qos),))
        self._subscriber.sock.sendall(encode_subscribe(wanted, V311))
        self._rng = np.random.default_rng()
        self._values = np.round(signals(KEYS, RECORDED * SAMPLES, 6), 4)
        self._bad = nested_json(FIRST_SLOT / RATE_HZ, self._values[0, : flood.samples])
        self._honest = self._flooded = 0
        self.sent: dict[str, float] = {}
        self.latencies_ms: dict[str, float] = {}

    def play(self) -> None:
        """Publish for as long as it takes; then wait for what is missing, `PATIENCE_S` at most."""
        began = time.monotonic()
        until = began + self._seconds
        while (now := time.monotonic()) < until + 0.5 or self._waits(now - until):
            passed = min(now, until) - began
            self._publish(int(passed * HONEST_PER_S), int(passed * self._flood.per_s))
            peers = {one.sock: one for one in (self._publisher, self._flooder, self._subscriber)}
            for sock in select.select([*peers], [], [], TICK_S)[0]:
                if peers[sock] is self._subscriber:
                    self._hear(time.monotonic())
                else:
                    peers[sock].read()
        for one in (self._publisher, self._flooder, self._subscriber):
            one.sock.close()

    def _waits(self, since_s: float) -> bool:
        return len(self.latencies_ms) < len(self.sent) and since_s < PATIENCE_S

    def _publish(self, honest: int, flooded: int) -> None:
        while self._honest < honest:
            at, key = divmod(self._honest, KEYS)
            first = at % RECORDED * SAMPLES
            stamp = (FIRST_SLOT + at * SAMPLES) / RATE_HZ
            payload = nested_json(stamp, self._values[key, first : first + SAMPLES])
            self._publisher.publish(b"watch/w%d/imu" % key, payload, self._qos)
            if at:
                self.sent[f"w{key}@{FIRST_SLOT + (at - 1) * SAMPLES}"] = time.monotonic()
            self._honest += 1
        while self._flooded < flooded:
            self._flooder.publish(b"bad/%s/imu" % self._rng.bytes(8).hex().encode(), self._bad, self._qos)
            self._flooded += 1
        self._publisher.flush()
        self._flooder.flush()

    def _hear(self, now: float) -> None:
        publishes = [item for item in self._subscriber.read() if len(item) > 2]
        for publish in publishes:
            if publish[0].startswith(b"edge/w"):
                name = orjson.loads(publish[1])["id"]
                if name in self.sent:
                    self.latencies_ms.setdefault(name, (now - self.sent[name]) * 1e3)
        if acks := [publish[2] for publish in publishes if publish[3]]:
            self._subscriber.sock.send(encode_ack(PUBACK, acks))


def floods(quick: bool) -> Iterator[Report]:
    """Latency of honest keys, of each turn's answers; the floods take turns."""
    turns, seconds = (3 if quick else 5), 4.0
    for qos in (0, 1):
        found: dict[Flood, list[Outcome]] = {flood: [] for flood in FLOODS}
        for _ in range(turns):
            for flood in FLOODS:
                found[flood].append(run(flood, qos, seconds))
        report = Report(
            f"{KEYS} honest keys, {HONEST_PER_S} messages/s, beside new keys; QoS {qos}; ms as least / median / most",
            ("flood", "p50 ms", "p99 ms", "core busy %", "honest missing", "flood refused"),
        )
        for flood, outcomes in found.items():
            busy = 100 * statistics.median(one.cpu_s for one in outcomes) / seconds
            report.rows.append(
                (
                    flood.name,
                    *(_spread([one.quantile(q) for one in outcomes]) for q in (0.5, 0.99)),
                    busy,
                    sum(one.missing for one in outcomes),
                    sum(one.refused for one in outcomes),
                )
            )
        report.goals = [
            Goal(
                f"p99 ms, QoS {qos}, {one.name}", max(turn.quantile(0.99) for turn in found[one]), GOAL_MS, at_most=True
            )
            for one in GOALS
        ]
        yield report


def _spread(values: list[float]) -> str:
    return " / ".join(f"{value:.3g}" for value in (min(values), statistics.median(values), max(values)))
