"""The other side of the wire: a stand-in for a broker that sends prepared messages and checks every answer.

It speaks just enough MQTT for one program under test that subscribes and publishes over one connection or several. All
messages are encoded before the clock starts and lie in one piece of memory, so that this side costs little; answers
are kept as they came and read after the clock has stopped.

The program under test is another process. Its CPU time is read from here, through the clock that POSIX gives every
process (`clock_getcpuclockid`, 2.6), so it needs no measuring code of its own and may be anything that speaks MQTT.
"""

from __future__ import annotations

import hashlib
import itertools
import select
import socket
import struct
import time
from bisect import bisect
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson

from benchmarks.models import NETS, RATE_HZ, Net, signals
from edge_runtime.io.mqtt.packets import (
    CONNECT,
    PUBACK,
    SUBSCRIBE,
    V5,
    V311,
    Packet,
    PacketParser,
    decode_connect,
    encode_ack,
    encode_publish,
)
from edge_runtime.tools.bench.feeder import RESULTS, answer

Floats = npt.NDArray[np.float32]
Encode = Callable[[float, Floats], bytes]

FIRST_SLOT: Final = 85_000_000_000 // 64 * 64
"""Grid point of every stream's first sample, a moment in 2023 at 50 Hz. It divides by every network's hop, so that a
program that counts windows from the first sample cuts the same ones as a program that counts them from the epoch."""

SAMPLES: Final = 50
"""In a message, unless a traffic says otherwise."""
SEND_BYTES: Final = 256 * 1024
RECEIVE_BYTES: Final = 256 * 1024
SILENCE_S: Final = 10.0
"""A program that gives no answer for so long has stopped."""


def raw(t: float, values: Floats) -> bytes:
    """Eight bytes of time, then little-endian float32."""
    return struct.pack("<d", t) + values.tobytes()


def nested_json(t: float, values: Floats) -> bytes:
    """One list per sample, about 2.2 KB for 50 samples of 6 channels."""
    return orjson.dumps({"t": t, "values": values}, option=orjson.OPT_SERIALIZE_NUMPY)


class Row(NamedTuple):
    """Part of an answer that is compared."""

    label: str
    scores: tuple[float, ...]


def checksum(rows: dict[str, Row]) -> str:
    """Digest of all rows by id, scores rounded to five decimals; to seven first, as edge-runtime publishes them."""
    digest = hashlib.sha256()
    for name in sorted(rows):
        label, scores = rows[name]
        digest.update(orjson.dumps([name, label, [round(round(score, 7), 5) for score in scores]]))
    return digest.hexdigest()[:16]


def difference(left: dict[str, Row], right: dict[str, Row]) -> str:
    """In words, how two sets of rows differ; empty when ids and labels agree and no score is 1e-5 apart."""
    if left.keys() != right.keys():
        return f"{len(left.keys() ^ right.keys())} rows are in one of them only"
    labels = sum(left[name].label != right[name].label for name in left)
    if labels:
        return f"{labels} labels differ"
    worst = max((abs(a - b) for name in left for a, b in zip(left[name].scores, right[name].scores, strict=True)))
    return f"scores differ by up to {worst:.2g}" if worst > 1e-5 else ""


class Traffic:
    """Messages of many streams in turn, and which message completes which window.

    Args:
        streams: keys.
        messages: messages of each stream.
        samples: samples in a message.
        encode: makes a payload of stamp and values.
        distinct: streams with a signal of their own; the others repeat them, which keeps a large traffic small.
        net: whose windows and channels.
    """

    def __init__(
        self,
        streams: int,
        messages: int,
        encode: Encode,
        *,
        samples: int = SAMPLES,
        distinct: int | None = None,
        net: Net = NETS["cnn_m"],
    ) -> None:
        self.streams, self.messages, self.samples, self.net = streams, messages, samples, net
        distinct = min(streams, distinct or streams)
        values = np.round(signals(distinct, messages * samples, net.channels), 4)
        self.topics = [b"sensors/d%05d/raw" % stream for stream in range(streams)]
        self.keys = [f"d{stream:05d}" for stream in range(streams)]
        self.payloads: list[bytes] = []
        for i in range(messages):
            t = (FIRST_SLOT + i * samples) / RATE_HZ
            block = [encode(t, values[s, i * samples : (i + 1) * samples]) for s in range(distinct)]
            self.payloads += itertools.islice(itertools.cycle(block), streams)
        self._blobs: dict[tuple[int, int], tuple[bytes, list[int]]] = {}

    def __len__(self) -> int:
        return len(self.payloads)

    @property
    def payload_bytes(self) -> int:
        """Mean size of a payload."""
        return sum(map(len, self.payloads)) // len(self.payloads)

    def completed_by(self, messages: int) -> dict[str, int]:
        """Window id to the index of the message that completes it, for the first `messages` messages."""
        completing: dict[str, int] = {}
        for stream, key in enumerate(self.keys):
            held = len(range(stream, messages, self.streams)) * self.samples
            for start in range(0, held - self.net.window + 1, self.net.hop):
                last = (start + self.net.window - 1) // self.samples
                completing[f"{key}@{FIRST_SLOT + start}"] = last * self.streams + stream
        return completing

    def blob(self, version: int, qos: int) -> tuple[bytes, list[int]]:
        """All PUBLISH packets in one piece, and where each begins (with the end as one more entry)."""
        if (version, qos) not in self._blobs:
            topics = itertools.cycle(self.topics)
            packets = [
                encode_publish(topic, payload, qos, i % 65_535 + 1 if qos else 0, version=version)
                for i, (topic, payload) in enumerate(zip(topics, self.payloads, strict=False))
            ]
            offsets = [0, *itertools.accumulate(map(len, packets))]
            self._blobs[version, qos] = b"".join(packets), offsets
        return self._blobs[version, qos]


@dataclass(slots=True)
class Outcome:
    """Measurements of one program in one run."""

    messages: int
    """In the measured part."""
    windows: int
    wall_s: float
    cpu_s: float
    rows: dict[str, Row] = field(repr=False)
    latencies_s: npt.NDArray[np.float64] = field(repr=False)
    """From handing a window's last message to the kernel to its answer, for the windows of the measured part."""
    repeated: int = 0
    """Answers with an id that had been there."""
    missing: int = 0
    version: int = V311

    @property
    def rate(self) -> float:
        """Messages a second."""
        return self.messages / self.wall_s

    @property
    def cpu_rate(self) -> float:
        """Messages a second of CPU: what an idle core would take, whatever else ran on this one."""
        return self.messages / self.cpu_s

    @property
    def cpu_us_per_message(self) -> float:
        return 1e6 * self.cpu_s / self.messages

    @property
    def cpu_us_per_window(self) -> float:
        return 1e6 * self.cpu_s / max(1, self.windows)

    def latency_ms(self, q: float) -> float:
        """Quantile of the latency."""
        return 1e3 * float(np.quantile(self.latencies_s, q)) if len(self.latencies_s) else float("nan")


class Stopped(RuntimeError):  # noqa: N818 - what happened, not whose fault it is
    """The program under test ended or fell silent."""


def cpu_seconds(pid: int) -> float:
    """User and system time of another process so far, all threads, exact to the nanosecond."""
    return time.clock_gettime((~pid << 3) | 2)  # MAKE_PROCESS_CPUCLOCK(pid, CPUCLOCK_SCHED) of the Linux kernel


class _Peer:
    """A connection of the program under test."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self.parser = PacketParser(None, 4 * 2**20)
        self.replies = bytearray()
        """What waits for the end of the chunk that is being sent."""


class Load:
    """Listens on a free port of 127.0.0.1 and drives one program.

    Args:
        qos: of the messages sent; acknowledgements are awaited with at most `window` messages open.
        window: see `qos`.
    """

    def __init__(self, *, qos: int = 0, window: int = 1000) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._qos = qos
        self._window = window
        self._peers: list[_Peer] = []
        self._target: _Peer | None = None
        self._acknowledged = 0
        self._chunk = memoryview(b"")
        self._answers: list[tuple[float, bytes]] = []
        self.version = V311

    def close(self) -> None:
        for peer in self._peers:
            peer.sock.close()
        self._listener.close()

    def __enter__(self) -> Load:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def wait_for_subscriber(self, timeout_s: float = 30.0, alive: Callable[[], bool] = lambda: True) -> None:
        """Serve until the program under test has subscribed.

        Raises:
            Stopped: it did not in time.
        """
        deadline = time.monotonic() + timeout_s
        while self._target is None:
            if time.monotonic() > deadline or not alive():
                raise Stopped("the program under test did not subscribe")
            self._serve(0.05)

    def run(
        self, traffic: Traffic, pid: int, *, warm_up: int, rate: float | None = None, until: int | None = None
    ) -> Outcome:
        """Send all messages and wait for all answers.

        Args:
            traffic: what to send.
            pid: whose CPU time to read.
            warm_up: number of messages to send first; all are answered before the clock starts.
            rate: messages a second, evenly spaced; None: as fast as they are taken.
            until: number of messages to stop after; None: all.

        Raises:
            Stopped: no answer for `SILENCE_S`.
        """
        total = len(traffic) if until is None else until
        self._answers.clear()
        blob, offsets = traffic.blob(self.version, self._qos)
        expected = traffic.completed_by(total)
        first = sum(index < warm_up for index in expected.values())
        sent_at = np.zeros(total)
        self._send(blob, offsets, 0, warm_up, first, rate, sent_at)
        self._settle()
        cpu, began = cpu_seconds(pid), time.monotonic()
        self._send(blob, offsets, warm_up, total, len(expected), rate, sent_at)
        ended = self._answers[-1][0] if self._answers else time.monotonic()
        self._settle()
        cpu = cpu_seconds(pid) - cpu
        return self._outcome(expected, warm_up, total, sent_at, ended - began, cpu)

    # -- sending -----------------------------------------------------------------------------------------------------

    def _send(
        self,
        blob: bytes,
        offsets: Sequence[int],
        begin: int,
        end: int,
        answers: int,
        rate: float | None,
        sent_at: npt.NDArray[np.float64],
    ) -> None:
        """Send messages [begin, end) and serve until there are `answers` answers in all."""
        assert self._target is not None
        view = memoryview(blob)
        next_one = due = begin
        open_from = begin - self._acknowledged  # acknowledgements of this part count from here
        began = last_answer = time.monotonic()
        known = len(self._answers)
        while next_one < end or self._chunk or len(self._answers) < answers:
            now = time.monotonic()
            ready = end if rate is None else min(end, begin + int((now - began) * rate) + 1)
            if self._qos:
                ready = min(ready, open_from + self._acknowledged + self._window)
            if ready > due:
                sent_at[due:ready] = now
                due = ready
            if not self._chunk and next_one < due:
                until = min(due, max(next_one + 1, bisect(offsets, offsets[next_one] + SEND_BYTES) - 1))
                self._chunk = view[offsets[next_one] : offsets[until]]
                next_one = until
            if self._chunk:
                self._serve(0.0 if self._write() else 0.05, writing=True)
            else:
                wait = 0.05 if due == end or rate is None else began + (due - begin) / rate - now
                self._serve(max(0.0, wait))
            if len(self._answers) > known or next_one < end:
                known, last_answer = len(self._answers), now
            elif now - last_answer > SILENCE_S:
                break  # what is missing is counted by the caller

    def _write(self) -> bool:
        """Send of the chunk what the kernel takes; replies follow it, for they must not stand inside a packet."""
        assert self._target is not None
        try:
            self._chunk = self._chunk[self._target.sock.send(self._chunk) :]
        except BlockingIOError:
            return False
        if not self._chunk and self._target.replies:
            self._chunk = memoryview(bytes(self._target.replies))
            self._target.replies.clear()
        return True

    def _settle(self) -> None:
        """Let the program finish what it does behind the last answer (its last acknowledgements, its bookkeeping)."""
        self.serve_for(0.05)

    def serve_for(self, seconds: float) -> None:
        """Answer what the program sends, and send it nothing."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            self._serve(0.01)

    # -- serving -----------------------------------------------------------------------------------------------------

    def _serve(self, timeout_s: float, *, writing: bool = False) -> None:
        # select() and not epoll: its timeout is exact to the microsecond.
        wanted = [self._listener, *(peer.sock for peer in self._peers)]
        outgoing = [self._target.sock] if writing and self._target else []
        readable, _, _ = select.select(wanted, outgoing, [], timeout_s)
        for sock in readable:
            if sock is self._listener:
                accepted, _ = self._listener.accept()
                accepted.setblocking(False)
                accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                self._peers.append(_Peer(accepted))
                continue
            peer = next(peer for peer in self._peers if peer.sock is sock)
            self._receive(peer)

    def _receive(self, peer: _Peer) -> None:
        try:
            data = peer.sock.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        if not data:
            raise Stopped("the program under test closed its connection")
        now = time.monotonic()
        acknowledge: list[int] = []
        for item in peer.parser.feed(data):
            if len(item) == 2:
                self._control(peer, item)
                continue
            topic, payload, packet_id, qos, _, _ = item
            if qos:
                acknowledge.append(packet_id)
            if topic.startswith(RESULTS):
                self._answers.append((now, payload))
        if acknowledge:
            self._reply(peer, encode_ack(PUBACK, acknowledge))

    def _control(self, peer: _Peer, packet: Packet) -> None:
        first, body = packet
        if first == PUBACK:
            self._acknowledged += 1
            return
        if first == CONNECT:
            self.version = decode_connect(body).version
        if reply := answer(packet, peer.parser.version or V311, self._qos):
            self._reply(peer, reply)
        if first == SUBSCRIBE:
            self._target = peer

    def _reply(self, peer: _Peer, data: bytes) -> None:
        if peer is self._target and self._chunk:
            peer.replies += data
            return
        peer.sock.setblocking(True)
        peer.sock.sendall(data)
        peer.sock.setblocking(False)

    # -- reading the answers -----------------------------------------------------------------------------------------

    def _outcome(
        self,
        expected: dict[str, int],
        warm_up: int,
        total: int,
        sent_at: npt.NDArray[np.float64],
        wall_s: float,
        cpu_s: float,
    ) -> Outcome:
        rows: dict[str, Row] = {}
        latencies: list[float] = []
        ids: Counter[str] = Counter()
        for received, payload in self._answers:
            answer = orjson.loads(payload)
            name = answer["id"]
            ids[name] += 1
            rows[name] = Row(answer["label"], tuple(answer["scores"]))
            index = expected.get(name, -1)
            if index >= warm_up:
                latencies.append(received - sent_at[index])
        return Outcome(
            messages=total - warm_up,
            windows=sum(index >= warm_up for index in expected.values()),
            wall_s=wall_s,
            cpu_s=cpu_s,
            rows=rows,
            latencies_s=np.array(latencies),
            repeated=sum(ids.values()) - len(ids),
            missing=len(expected.keys() - rows.keys()),
            version=V5 if self.version == V5 else V311,
        )
