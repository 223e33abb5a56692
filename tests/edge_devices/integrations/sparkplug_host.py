"""A stand-in for the broker's client, and a host that holds what an edge node publishes against the specification."""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, cast

from edge_runtime.base.system import protobuf
from edge_runtime.base.system.loop import Loop
from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.io.mqtt.outbound_queue import Message
from edge_runtime.io.mqtt.presence import Presence
from edge_runtime.io.sinks import Described
from edge_runtime.types import Done
from tests.edge_runtime.io.codecs.sparkplug_messages import block, number, payload
from tests.edge_runtime.manifests import manifest

DESCRIBED = Described(manifest(), manifest().output.labels, ("fall",))


class Metric(NamedTuple):
    """A metric as it is in the bytes."""

    name: str | None
    alias: int | None
    time_ms: int | None
    datatype: int | None
    historical: bool
    value: Any
    """None: null."""
    unit: str


class Payload(NamedTuple):
    """A payload as it is in the bytes."""

    time_ms: int | None
    seq: int | None
    metrics: list[Metric]


def read_payload(data: bytes) -> Payload:
    """Take the bytes apart."""
    found: dict[int, Any] = {}
    metrics = []
    for one, _, value in protobuf.fields(memoryview(data)):
        if one == 2:
            assert isinstance(value, memoryview)
            metrics.append(_metric(value))
        else:
            found[one] = value
    return Payload(found.get(1), found.get(3), metrics)


def _metric(view: memoryview) -> Metric:
    found = {one: value for one, _, value in protobuf.fields(view)}
    value: Any = None
    if 13 in found:
        (value,) = struct.unpack("<d", found[13])  # type: ignore[arg-type]
    elif 14 in found:
        value = bool(found[14])
    elif 15 in found:
        value = str(found[15], "utf-8")  # type: ignore[arg-type]
    else:
        value = found.get(11)
    assert (value is None) == (found.get(7) == 1), "a value and is_null exclude each other"
    name = str(found[1], "utf-8") if 1 in found else None  # type: ignore[arg-type]
    get: Callable[[int], Any] = found.get
    return Metric(name, get(2), get(3), get(4), bool(get(5)), value, _unit(get(9)))


def _unit(properties: memoryview | None) -> str:
    if properties is None:
        return ""
    found = {one: value for one, _, value in protobuf.fields(properties)}
    assert bytes(cast("memoryview", found[1])) == b"engUnit"
    assert isinstance(found[2], memoryview)
    return str({one: value for one, _, value in protobuf.fields(found[2])}[8], "utf-8")  # type: ignore[arg-type]


class Seen(NamedTuple):
    """A value that the host took: of a birth or of data, and whether it is the past."""

    device: str
    metric: str
    value: Any
    time_ms: int | None
    historical: bool


@dataclass
class Host:
    """A host application: holds every message against the specification, and remembers what it learnt."""

    group: str = "plant"
    node: str = "line-1"
    seq: int | None = None
    bd_seq: int | None = None
    alive: dict[str, dict[int, tuple[str, int]]] = field(default_factory=dict)
    """Of each device (the node's own is empty) that is alive: name and type by alias."""
    live: dict[tuple[str, str], Any] = field(default_factory=dict)
    """Value of each metric of each device that holds now."""
    seen: list[Seen] = field(default_factory=list)
    verbs: list[str] = field(default_factory=list)
    births_owed: bool = False

    def take(self, topic: str, data: bytes) -> None:
        space, group, verb, node, *rest = topic.split("/")
        assert (space, group, node) == ("spBv1.0", self.group, self.node)
        device = "/".join(rest)
        assert bool(device) == verb.startswith("D")
        assert "/" not in device
        found = read_payload(data)
        assert found.time_ms is not None
        self.verbs.append(f"{verb} {device}".strip())
        if verb == "NDEATH":
            self._node_died(found)
            return
        if verb == "NBIRTH":
            self.seq, self.alive, self.live = -1, {}, {}
        assert self.seq is not None, "data before any birth"
        self.seq = (self.seq + 1) % 256
        assert found.seq == self.seq, "a sequence number is missing"
        if verb in ("NBIRTH", "DBIRTH"):
            self._born(device, found)
        elif verb == "DDEATH":
            del self.alive[device]
            self.live = {key: value for key, value in self.live.items() if key[0] != device}
        else:
            self._told(device, found)

    def _node_died(self, found: Payload) -> None:
        assert found.seq is None
        (metric,) = found.metrics
        assert (metric.name, metric.datatype) == ("bdSeq", 4)
        if metric.value == self.bd_seq:
            self.seq, self.alive, self.live = None, {}, {}

    def _born(self, device: str, found: Payload) -> None:
        assert device not in self.alive, "born twice"
        taken = {alias for aliases in self.alive.values() for alias in aliases}
        aliases: dict[int, tuple[str, int]] = {}
        for metric in found.metrics:
            assert metric.name is not None
            assert metric.datatype is not None
            assert metric.time_ms is not None
            assert not metric.historical
            if metric.name == "Node Control/Rebirth":
                assert (metric.alias, metric.value, metric.datatype) == (None, False, 11)
                continue
            assert metric.alias is not None
            assert metric.alias not in taken | aliases.keys(), "an alias belongs to one metric of the node"
            aliases[metric.alias] = metric.name, metric.datatype
            self._set(device, metric.name, metric)
        self.alive[device] = aliases
        if not device:
            self.bd_seq = self.live["", "bdSeq"]

    def _told(self, device: str, found: Payload) -> None:
        assert device in self.alive, "data before its birth"
        for metric in found.metrics:
            assert metric.name is None
            assert metric.datatype is None
            assert metric.alias is not None
            assert metric.time_ms is not None
            name, _ = self.alive[device][metric.alias]
            self._set(device, name, metric)

    def _set(self, device: str, name: str, metric: Metric) -> None:
        self.seen.append(Seen(device, name, metric.value, metric.time_ms, metric.historical))
        if not metric.historical:
            self.live[device, name] = metric.value

    def values(self, metric: str, device: str | None = None) -> list[Any]:
        """Every value of a metric that was said and is not null, in order."""
        return [
            one.value
            for one in self.seen
            if one.metric == metric and one.value is not None and device in (None, one.device)
        ]


class Client:
    """Stands in for `edge_runtime.io.mqtt.client.BrokerClient`: a test says when it connects, writes and loses."""

    def __init__(self, *, connected: bool = True, writes: bool = True, **config: Any) -> None:
        self.config = BrokerConfig(url="mqtt://127.0.0.1", **config)
        self.host = Host()
        self.takes: dict[str, Callable[[Any], None]] = {}
        self.qos: set[tuple[str, int, bool]] = set()
        self._connects_at_once = connected
        self._writes = writes
        self._presence: Presence | None = None
        self._queue: deque[tuple[Message, Done | None]] = deque()
        self._will: Message | None = None
        self.connected = False
        self.renewed = 0

    # -- for the sink --------------------------------------------------------------------------------------------------

    def present(self, presence: Presence) -> None:
        self._presence = presence

    def listen(self, filters: Sequence[tuple[str, int]], take: Callable[[Any], None], _barrier: object) -> None:
        assert [qos for _, qos in filters] == [1]
        self.takes |= {topic: take for topic, _ in filters}

    def open(self, _loop: Loop, *, publish_qos: int = 0) -> None:
        del publish_qos
        if self._connects_at_once:
            self.connect()

    def publish(self, messages: Sequence[Message], done: Done | None = None) -> None:
        (message,) = messages
        self._queue.append((message, done))
        if self._writes:
            self.write()

    def renew(self) -> None:
        self.renewed += 1
        self._queue.clear()
        self._deliver(self.presence.farewell())
        self.lose(will=False)

    def close(self, _timeout_s: float) -> None:
        if self.connected:
            self.write()
            self._deliver(self.presence.farewell())
            self.connected = False

    # -- for the test --------------------------------------------------------------------------------------------------

    @property
    def presence(self) -> Presence:
        assert self._presence is not None
        return self._presence

    def connect(self) -> None:
        self._will = self.presence.will()
        self.connected = True
        self.presence.accepted()

    def lose(self, *, will: bool = True) -> None:
        """The connection ends; the broker publishes the Will unless told not to."""
        self.connected = False
        self._queue.clear()
        if will and self._will is not None:
            self._deliver(self._will)
        self.presence.lost()

    def write(self, count: int = 10**9) -> None:
        """The network takes so many messages."""
        while self._queue and count:
            message, done = self._queue.popleft()
            self._deliver(message)
            count -= 1
            if done is not None:
                done()

    @property
    def queued(self) -> int:
        return len(self._queue)

    def say(self, topic: str, data: bytes) -> None:
        """Somebody publishes what the sink has subscribed to."""
        self.takes[topic]((topic.encode(), data, 0, 0, 0, None))

    def ask_for_rebirth(self) -> None:
        self.say("spBv1.0/plant/NCMD/line-1", REBIRTH)

    def _deliver(self, message: Message) -> None:
        verb = message.topic.split(b"/")[2].decode()
        self.qos.add((verb, message.qos, message.retain))
        self.host.take(message.topic.decode(), message.payload)


REBIRTH = payload(block(2, block(1, b"Node Control/Rebirth") + number(4, 11) + number(14, 1)), ms=1)
