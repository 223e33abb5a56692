"""Answers to a plant's SCADA, as a Sparkplug B edge node: a device for each key, its metrics from the answers.

`edge_devices.integrations.sparkplug_node` decides what is said in which order; this connects it to a broker and to the
time.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import ClassVar, Final, Literal

import orjson

from edge_devices.integrations.sparkplug_bdseq import BirthDeathSequence, file_beside
from edge_devices.integrations.sparkplug_metrics import definitions, of_predictions, time_s, values
from edge_devices.integrations.sparkplug_node import Device, EdgeNode, Outgoing
from edge_devices.integrations.sparkplug_payload import REBIRTH, Value, death, milliseconds
from edge_runtime._version import __version__
from edge_runtime.base.system.barrier import Barrier
from edge_runtime.base.system.loop import Loop, Timer
from edge_runtime.clock import Clock
from edge_runtime.errors import InputError
from edge_runtime.io.codecs.sparkplug import parse_metrics
from edge_runtime.io.mqtt.client import BrokerClient
from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.io.mqtt.outbound_queue import Message
from edge_runtime.io.mqtt.packets import Publish
from edge_runtime.io.sinks import Described
from edge_runtime.io.sinks.build import SinkParts
from edge_runtime.io.sinks.guard import SinkPolicy
from edge_runtime.metrics import Metrics
from edge_runtime.types import Answer, Done, Prediction

_UNDER_WAY: Final = 32
"""Messages handed to the broker's queue at a time. The rest waits here, where it has no sequence number yet."""
_EARLY_S: Final = 1e-3
"""By which a timer may be early, as sums of floating point are."""
_LOOKS_S: Final = 1.0
"""How often silent devices are looked for."""
_ID = re.compile(r"[^/+#\0-\x1f\x7f-\x9f]{1,128}")
_BOOLEAN_VALUE: Final = 14
"""Field of a metric in Sparkplug's protobuf."""
_MAX_STATE_BYTES: Final = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class SparkplugSinkConfig(SinkPolicy):
    """Settings of answers as a Sparkplug B edge node.

    Raises:
        ValueError: an id that cannot stand in a topic, or a number out of its range.
    """

    ALONE: ClassVar[str] = "an edge node has one connection: use mqtt, or leave workers out"
    """Reason why several workers cannot have it."""

    type: Literal["sparkplug"] = "sparkplug"
    broker: str
    """Name of a ``[broker.NAME]`` table of its own: its connection carries the node's death as its Will."""
    group: str
    """Group id."""
    node: str
    """Edge node id. Group and node together belong to one application alone."""
    max_hz: float = 1.0
    """Predictions of a key published a second, the newest of those that came; events, corrections and final messages
    are always published. 0: everything is."""
    scores: bool = True
    """A metric for the score of each label, up to 256 labels."""
    max_keys: int = 1000
    """Devices at a time; beyond it, the one silent for longest dies (DDEATH)."""
    retire_s: float = 3600.0
    """A device that has not answered for so long dies (DDEATH); 0: none does for that."""
    host: str = ""
    """Id of the primary host application. With one, nothing is born before it says that it is online, and the node
    leaves the broker when it says that it is not (``spBv1.0/STATE/HOST``). Empty: it waits for no host."""

    def __post_init__(self) -> None:
        SinkPolicy.__post_init__(self)
        for name, text in (("group", self.group), ("node", self.node), ("host", self.host or "none")):
            if not _ID.fullmatch(text):
                raise ValueError(f"{name} must be 1 to 128 characters, without /, +, # and control characters")
        if not 0 <= self.max_hz <= 1000:
            raise ValueError("max_hz must be 0 to 1000")
        if not 1 <= self.max_keys <= 100_000:
            raise ValueError("max_keys must be 1 to 100000")
        if self.retire_s < 0:
            raise ValueError("retire_s must not be negative")


def check_broker(config: SparkplugSinkConfig, broker: BrokerConfig, users: Sequence[str]) -> None:
    """Refuse a broker whose connection cannot be that of an edge node.

    Args:
        config: the sink's settings.
        broker: the one that it names.
        users: names of the brokers of all sources and sinks, and of updates; one stands once for each use.

    Raises:
        ValueError: what to change.
    """
    table = f"[broker.{config.broker}]"
    if broker.status_topic:
        raise ValueError(
            f"{table} has a status_topic, and a connection has one Will, which Sparkplug needs for NDEATH; "
            "take status_topic out, or give the Sparkplug sink a [broker.NAME] of its own"
        )
    if broker.clean_start is False:
        raise ValueError(f"{table} has clean_start = false; Sparkplug begins without an earlier session: take it out")
    if users.count(config.broker) > 1:
        raise ValueError(
            f"{table} carries the NDEATH of a Sparkplug edge node and comes and goes with it, so nothing else may use "
            "it; add a second [broker.NAME] with the same url for the others"
        )


class SparkplugSink:
    """Publishes answers as an edge node, and is the `edge_runtime.io.mqtt.presence.Presence` of its broker's client.

    Args:
        config: the edge node's settings.
        broker_client: the broker, for this sink alone.
        metrics: counts births, coalesced predictions and drops.
        clock: monotonic for the rate, wall for the time of payloads.
        describe: what the model that answers has to say.
        bd_seq_file: file of the birth and death sequence, kept over restarts; None: it is not kept.
        name: the sink's name in messages and metrics.
    """

    def __init__(
        self,
        config: SparkplugSinkConfig,
        broker_client: BrokerClient,
        metrics: Metrics,
        clock: Clock,
        *,
        describe: Callable[[], Described],
        bd_seq_file: Path | None = None,
        name: str = "sparkplug",
    ) -> None:
        self.name = name
        self._config = config
        self._broker_client = broker_client
        self._metrics = metrics
        self._clock = clock
        self._describe = describe
        self._bd_seq = BirthDeathSequence(bd_seq_file)
        self._barrier = Barrier("sparkplug", metrics)
        broker = broker_client.config
        self._most_under_way = max(1, min(_UNDER_WAY, broker.queue_messages - 1))
        self._node = EdgeNode(
            max_keys=config.max_keys,
            max_records=broker.queue_messages,
            max_bytes=broker.queue_bytes,
            runtime=__version__,
        )
        self._described: Described | None = None
        self._empty: dict[str, Value] = {}  # a prediction that says nothing
        self._model = ""
        self._under_way = 0
        self._connection = 0  # counts those that were lost
        self._pumping = False
        self._host_online = False
        self._host_ms = 0
        self._loop: Loop | None = None
        self._timer: Timer | None = None
        broker_client.present(self)

    # -- as a sink -----------------------------------------------------------------------------------------------------

    def open(self, loop: Loop) -> None:
        """Connect, and keep trying while the broker is away."""
        self._loop = loop
        self._define()
        config, listen = self._config, self._broker_client.listen
        listen([(f"spBv1.0/{config.group}/NCMD/{config.node}", 1)], self._command, self._barrier)
        if config.host:
            listen([(f"spBv1.0/STATE/{config.host}", 1)], self._host_state, self._barrier)
        if config.retire_s:
            self._timer = loop.call_every(_LOOKS_S, self._retire)
        self._broker_client.open(loop, publish_qos=1)

    def send(self, answers: Sequence[Answer], done: Done | None) -> None:
        """Publish, or keep for the device's next turn.

        `done` is called when all are written to the socket. A prediction that waits for its turn counts as handed over:
        a newer one may take its place.
        """
        waits = _Countdown(len(answers), done)
        for answer in answers:
            if isinstance(answer, Prediction):
                self._define()
                self._predicted(answer, waits.one)
            else:
                self._reported(answer, waits.one)
            self._pump()
        if not answers and done is not None:
            done()

    def close(self, timeout_s: float) -> None:
        """Hand over what is queued and the death, within the time given. May be called twice."""
        if self._loop is None:
            return
        for device in self._node.devices:
            self._release(device)
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
        if not self._node.in_session:
            self._give_up()
        self._broker_client.close(timeout_s)

    # -- what is said --------------------------------------------------------------------------------------------------

    def _define(self) -> None:
        """Follow what answers may hold: an update or an example that was added changes it."""
        described, before = self._describe(), self._described
        if before is not None and described.manifest is before.manifest and described[1:] == before[1:]:
            return  # manifests are large, and compared for each prediction
        self._described = described
        defined = definitions(described, scores=self._config.scores)
        self._empty = of_predictions(defined)
        self._model = described.manifest.model
        self._node.define(defined, self._model)

    def _predicted(self, answer: Prediction, done: Done) -> None:
        """Take a prediction at the rate of its key: at once when it is its turn, else the newest at its next turn."""
        now_s = self._clock.monotonic()
        device = self._node.device(answer.key, now_s)
        # An answer of the bundle before, which waited for the disk, has scores of labels that are not there any more.
        labels = self._described.labels if self._described is not None and answer.model == self._model else ()
        found, time_ms = self._empty | values(answer, labels), milliseconds(answer.end)
        if now_s >= device.held_until and device.held is None:
            self._take(device, found, time_ms, done)
            return
        if device.held is not None:
            self._metrics.counts["sparkplug_coalesced_total"] += 1
        elif self._loop is not None:
            self._loop.call_later(device.held_until - now_s, partial(self._turn, device))
        device.held = found, time_ms
        done()

    def _reported(self, answer: Answer, done: Done) -> None:
        """Take what is no prediction; never held back, but after the prediction before it."""
        device = self._node.device(answer.key, self._clock.monotonic())
        self._release(device)
        time_ms = milliseconds(time_s(answer, self._clock.wall()))
        self._node.put(device, values(answer, ()), time_ms, done)

    def _take(self, device: Device, found: Mapping[str, Value], time_ms: int, done: Done | None) -> None:
        if self._config.max_hz:
            device.held_until = self._clock.monotonic() + 1 / self._config.max_hz
        self._node.put(device, found, time_ms, done)

    def _turn(self, device: Device) -> None:
        if self._clock.monotonic() >= device.held_until - _EARLY_S:  # else an event has moved its turn
            self._release(device)

    def _release(self, device: Device) -> None:
        if device.held is not None and self._loop is not None:
            found, time_ms = device.held
            self._take(device, found, time_ms, None)
            self._pump()

    def _retire(self) -> None:
        self._node.retire_silent(self._clock.monotonic() - self._config.retire_s)
        self._pump()

    def _pump(self) -> None:
        """Hand messages to the broker's queue, a few at a time."""
        if self._pumping:
            return
        if self._node.dropped:
            self._metrics.dropped["publish_queue_full"] += self._node.dropped
            self._node.dropped = 0
        self._pumping = True
        try:
            while self._under_way < self._most_under_way:
                outgoing = self._node.next(milliseconds(self._clock.wall()))
                if outgoing is None:
                    return
                self._publish(outgoing)
        finally:
            self._pumping = False

    def _publish(self, outgoing: Outgoing) -> None:
        if outgoing.verb == "NBIRTH":
            self._metrics.counts["sparkplug_births_total"] += 1
        self._under_way += 1
        message = Message(self._topic(outgoing.verb, outgoing.device), outgoing.payload)
        self._broker_client.publish([message], partial(self._written, self._connection, outgoing))

    def _written(self, connection: int, outgoing: Outgoing) -> None:
        if connection == self._connection:
            self._under_way -= 1
            self._node.written(outgoing)
            self._pump()

    def _topic(self, verb: str, device: str = "") -> bytes:
        node = f"spBv1.0/{self._config.group}/{verb}/{self._config.node}"
        return (f"{node}/{device}" if device else node).encode()

    # -- as the presence of the connection -----------------------------------------------------------------------------

    def will(self) -> Message:
        """Return the NDEATH of the connection that begins."""
        self._bd_seq.advance()
        return self.farewell()

    def accepted(self) -> None:
        """Be born, if the primary host is there or there is none."""
        self._host_online, self._host_ms = False, 0
        if not self._config.host:
            self._begin()

    def lost(self) -> None:
        """Keep what is not known to be written for the next connection."""
        self._connection += 1
        self._under_way = 0
        self._node.end()
        if self._loop is None:
            self._give_up()

    def farewell(self) -> Message:
        """Return the NDEATH of this connection."""
        payload = death(self._bd_seq.value, milliseconds(self._clock.wall()))
        return Message(self._topic("NDEATH"), payload, b"", 1)

    def _begin(self) -> None:
        self._node.begin(self._bd_seq.value)
        self._pump()

    def _give_up(self) -> None:
        """Count what cannot be handed over any more."""
        self._metrics.dropped["publish_not_sent"] += self._node.abandon()

    # -- what others say -----------------------------------------------------------------------------------------------

    def _command(self, publish: Publish) -> None:
        """Take an NCMD: ``Node Control/Rebirth`` is all that can be asked for."""
        try:
            _, metrics = parse_metrics(publish[1])
        except InputError:
            self._metrics.dropped["sparkplug_command_malformed"] += 1
            return
        for metric in metrics:
            field, _, content = metric.value or (0, 0, 0)
            asks = metric.name == REBIRTH and field == _BOOLEAN_VALUE and isinstance(content, int) and content
            if asks and self._node.in_session:
                self._node.rebirth()
        self._pump()

    def _host_state(self, publish: Publish) -> None:
        """Take the primary host's state; one that is older than the last does not count (5.5 and 5.14)."""
        found = _state_of(publish[1])
        if found is None:
            self._metrics.dropped["sparkplug_state_malformed"] += 1
            return
        online, time_ms = found
        if time_ms < self._host_ms:
            return
        self._host_ms = time_ms
        if online == self._host_online:
            return
        self._host_online = online
        if online:
            self._begin()
        elif self._loop is not None:
            self._loop.call_soon(self._broker_client.renew)


class _Countdown:
    """Calls back once when all of them are through."""

    def __init__(self, count: int, done: Done | None) -> None:
        self._left = count
        self._done = done

    def one(self) -> None:
        self._left -= 1
        if not self._left and self._done is not None:
            self._done()


def _state_of(payload: bytes) -> tuple[bool, int] | None:
    """Return whether the host is online, and since when, milliseconds; None where it is not what 3.0 writes."""
    try:
        found = orjson.loads(payload) if len(payload) <= _MAX_STATE_BYTES else None
    except orjson.JSONDecodeError:
        return None
    if not isinstance(found, dict):
        return None
    online, time_ms = found.get("online"), found.get("timestamp")
    if not isinstance(online, bool) or not isinstance(time_ms, int) or isinstance(time_ms, bool):
        return None
    return online, time_ms


def make_sink(config: SparkplugSinkConfig, parts: SinkParts) -> SparkplugSink:
    """Make the sink; see `edge_runtime.io.sinks.build`."""
    kept = None if parts.state is None else file_beside(parts.state, config.group, config.node)
    client = parts.broker_clients[config.broker]
    return SparkplugSink(
        config, client, parts.metrics, parts.clock, describe=parts.describe, bd_seq_file=kept, name=parts.name
    )
