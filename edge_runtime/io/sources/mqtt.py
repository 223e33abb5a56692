"""Readings from an MQTT broker."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TYPE_CHECKING, Final, Literal, Protocol

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import Clock, SystemClock
from edge_runtime.io.codecs.config import CodecConfig, load_codec, load_parts
from edge_runtime.io.codecs.json import JsonConfig
from edge_runtime.io.mqtt.packets import Publish, validate_topic_filter
from edge_runtime.io.mqtt.recent import Recent
from edge_runtime.io.mqtt.routing import KeyOf, Receive
from edge_runtime.io.mqtt.wire import MalformedPacket
from edge_runtime.io.sources import Deliver
from edge_runtime.io.sources.channel_topics import LEVEL, check_channels, check_levels, filter_of, wildcards
from edge_runtime.io.sources.decoding import Decoder, Notices
from edge_runtime.io.sources.retained import Retained, split
from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.types import Done, Reading

if TYPE_CHECKING:
    from edge_runtime.io.sources.beside import Beside, Way

_KEYS: Final = 65_536
"""Topics whose key is cached; more than one device is expected to have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttSourceConfig:
    """Settings of an MQTT source: topics, QoS, keys and codec.

    Raises:
        ValueError: no topic, a malformed one, a key that cannot be taken from a topic, or topics of channels that do
            not fit together.
    """

    type: Literal["mqtt"] = "mqtt"
    broker: str
    """Name of a ``[broker.NAME]`` table."""
    topics: tuple[str, ...] = ()
    """Topic filters, for example ``watch/+/imu``."""
    channels: dict[str, str] = field(default_factory=dict)
    """Instead of `topics`: channel name of the model to the topic filter that brings it, for example
    ``{temperature = "+/temperature/state", humidity = "+/humidity/state"}``. A message is then a bare number, or what
    the codec says; several channels may share a filter."""
    retained: Literal["ignore", "hold"] = "ignore"
    """Rule for messages that the broker kept from before the subscription, which are no samples of now. ``ignore``
    counts them. ``hold`` takes one as the last known value if its payload has a time, or if its channels' rule is
    ``previous``."""
    qos: int = 1
    """QoS of the subscription: 0, 1 or 2. With 1 and 2, a message is acknowledged when its consequences are safe."""
    topic_qos: dict[str, int] = field(default_factory=dict)
    """QoS for single filters of `topics` that differ from `qos`."""
    share: str = ""
    """Name of a group that shares the messages (``$share/GROUP/...``): each goes to one member. All messages of a key
    should reach the same member, which is up to the broker; most go round robin."""
    key: str = "wildcards"
    """Key of a reading. ``wildcards``: the parts of the topic that the filter's wildcards stand for, joined by
    ``/``; the whole topic where the filter has none. ``topic``: the whole topic. ``payload``: the codec finds it.
    Otherwise a template of topic levels, counted from 0, or from the end with -1: ``{1}`` or ``{0}-{-1}``."""
    codec: CodecConfig = field(default_factory=JsonConfig)

    def __post_init__(self) -> None:
        if not self.patterns:
            raise ValueError("topics must name at least one topic filter, for example 'sensors/+'")
        if self.topics and self.channels:
            raise ValueError("topics and channels both say what to subscribe to: use one of them")
        for topic in self.patterns:
            try:
                validate_topic_filter(topic)
                if self.share:
                    validate_topic_filter(f"$share/{self.share}/{topic}")
            except MalformedPacket as error:
                raise ValueError(f"topic filter '{topic}' cannot be subscribed to: {error}") from error
        if self.share and ("/" in self.share or any(topic.startswith("$share/") for topic in self.patterns)):
            raise ValueError("share is a plain group name, and its topics are written without $share/")
        self._check_qos()
        if self.key not in {"wildcards", "topic", "payload"} and (
            not LEVEL.search(self.key) or set("{}") & set(LEVEL.sub("", self.key))
        ):
            raise ValueError(
                f"key must be wildcards, topic, payload or a template of topic levels such as '{{1}}', got '{self.key}'"
            )
        check_levels(self.patterns, self.key)
        check_channels(self.channels, self.key)

    @property
    def patterns(self) -> tuple[str, ...]:
        """Topic filters, whichever setting names them, each once."""
        return self.topics or tuple(dict.fromkeys(self.channels.values()))

    def _check_qos(self) -> None:
        for topic, qos in [("qos", self.qos), *self.topic_qos.items()]:
            if qos not in {0, 1, 2}:
                raise ValueError(f"qos must be 0, 1 or 2, got {qos} for {topic}")
        for topic in self.topic_qos:
            if topic not in self.patterns:
                raise ValueError(f"topic_qos names '{topic}', which is not among topics")

    def filters(self) -> list[tuple[str, int]]:
        """List the filters to subscribe to, with the QoS of each."""
        group = f"$share/{self.share}/" if self.share else ""
        return [(group + topic, self.topic_qos.get(topic, self.qos)) for topic in self.patterns]


def key_of(config: MqttSourceConfig) -> Callable[[bytes], str | None]:
    """Make the function from topic to key; it returns None for a topic that gives no key or was not asked for."""
    find = filter_of(config.patterns)
    template = config.key

    def from_levels(topic: bytes) -> str | None:
        levels = topic.decode().split("/")
        try:
            return LEVEL.sub(lambda match: levels[int(match[1])], template)
        except IndexError:
            return None

    def key(topic: bytes) -> str | None:
        matching = find(topic)
        if matching is None:
            return None
        if template == "payload":
            return ""
        if template == "topic":
            return topic.decode()
        return wildcards(matching, topic) if template == "wildcards" else from_levels(topic)

    return key


class BrokerSubscriber(Protocol):
    """Part of `edge_runtime.io.mqtt.client.BrokerClient` that a source needs."""

    def subscribe(self, filters: Sequence[tuple[str, int]], receive: Receive, key_of: KeyOf | None = None) -> object:
        """Ask for messages; those of a key are handed over in the order of arrival."""
        ...

    def open(self, loop: Loop) -> None:
        """Connect."""
        ...

    def pause(self) -> None:
        """Take nothing new."""
        ...

    def close(self, timeout_s: float) -> None:
        """Disconnect."""
        ...


class MqttSource:
    """Subscribes, decodes what arrives together, and acknowledges it when the pipeline says that it is safe.

    A message that cannot be decoded is counted and acknowledged like any other: sent again, it would be no better.

    Args:
        config: what to subscribe to.
        broker_client: the broker; shared with others.
        decoder: decoder of payloads; with `MqttSourceConfig.channels`, one for each topic filter.
        metrics: counts topics that give no key, and retained messages.
        clock: source of the times of arrival.
        name: the source's name in messages and metrics.
        contract: the model's contract; its channels' rules decide on retained messages.
        beside: takes messages that are costly to decode; None: all are decoded on the loop.
    """

    finished = False
    """Never: a broker may always send more."""

    def __init__(
        self,
        config: MqttSourceConfig,
        broker_client: BrokerSubscriber,
        decoder: Decoder | Mapping[str, Decoder],
        metrics: Metrics,
        *,
        clock: Clock | None = None,
        name: str = "mqtt",
        contract: InputContract | None = None,
        beside: Beside | None = None,
    ) -> None:
        self.name = name
        self._config = config
        self._broker_client = broker_client
        self._metrics = metrics
        self._beside = beside
        self._clock = clock or SystemClock()
        self._key_of = key_of(config)
        self._keys: Recent[bytes, str | None] = Recent(self._key, _KEYS)
        self._strangers = False  # a topic without a key was met
        self._deliver: Deliver | None = None
        self._retained = Retained(config.retained == "hold", contract, metrics)
        self._decoder = decoder if isinstance(decoder, Decoder) else None
        if not isinstance(decoder, Decoder):
            by_filter = {one.encode(): decoder[one] for one in config.patterns}
            find = filter_of(config.patterns)
            self._decoders: Recent[bytes, Decoder] = Recent(lambda topic: by_filter[find(topic) or b""], _KEYS)

    def open(self, loop: Loop, deliver: Deliver) -> None:
        """Subscribe, and keep trying while the broker is away."""
        self._deliver = deliver
        if self._beside is not None:
            self._beside.open(loop, deliver)
        self._broker_client.subscribe(self._config.filters(), self._receive, self._order_of)
        self._broker_client.open(loop)

    def pause(self) -> None:
        """Take nothing new; acknowledgements still go out."""
        self._broker_client.pause()

    def close(self) -> None:
        """Disconnect from the broker. May be called twice."""
        if self._deliver is not None:
            self._deliver = None
            if self._beside is not None:
                self._beside.close()
            self._broker_client.close(0.0)

    def _receive(self, publishes: list[Publish], received: float, done: Done | None) -> None:
        keys, decoder = self._keys, self._decoder
        wall, beside = self._clock.wall(), self._beside
        if beside is not None and beside.may_take(publishes):
            publishes, done = beside.part(publishes, self._way_of, received, wall, done)
        messages = [(keys[publish[0]], publish[1]) for publish in publishes if not publish[4]]
        if decoder is not None and len(messages) == len(publishes) and not self._strangers:
            readings = decoder(messages, wall)  # type: ignore[arg-type] # no stranger, so no key is None
        else:
            live, retained = split(publishes)
            readings = self._retained.decode(retained, wall, self._decode) + self._decode(live, wall)
        if readings and self._deliver is not None:
            self._deliver(readings, received, done)
        elif done is not None:
            done()

    def _decode(self, publishes: Sequence[Publish], wall: float) -> list[Reading]:
        """Decode messages in order, of topics that have a key; those of one filter that follow each other together."""
        keys = self._keys
        known = [(key, publish) for publish in publishes if (key := keys[publish[0]]) is not None]
        self._metrics.dropped["unexpected_topic"] += len(publishes) - len(known)
        if self._decoder is not None:
            return self._decoder([(key, publish[1]) for key, publish in known], wall)
        readings: list[Reading] = []
        for decoder, run in groupby(known, lambda one: self._decoders[one[1][0]]):
            readings += decoder([(key, publish[1]) for key, publish in run], wall)
        return readings

    def _order_of(self, topic: bytes) -> str | None:
        """Name the key whose order a topic's messages keep; of parts with keys of their own, one for all topics."""
        key = self._key_of(topic)
        parts = self._config.channels or getattr(self._config.codec, "partial", False)
        return None if not key and not parts else key

    def _way_of(self, topic: bytes) -> Way | None:
        if (key := self._keys[topic]) is None:
            return None
        order = self._order_of(topic)
        return key, topic.decode() if order is None else order, self._decoder or self._decoders[topic]

    def _key(self, topic: bytes) -> str | None:
        key = self._key_of(topic)
        if key is None:
            self._strangers = True
        return key


def make_source(
    config: MqttSourceConfig,
    broker: BrokerSubscriber,
    contract: InputContract,
    metrics: Metrics,
    clock: Clock,
    *,
    name: str,
    live: bool = False,
) -> MqttSource:
    """Make a source with the decoders that it needs: one, or one for each topic filter that brings channels of its own.

    Args:
        config: what to subscribe to.
        broker: the broker's client, or what stands in for it.
        contract: channels and rate of the model.
        metrics: receives its counts.
        clock: source of the times of arrival.
        name: the source's name in messages and metrics.
        live: the loop turns while messages come, so costly ones may be decoded beside it.

    Raises:
        ConfigError: the codec's library is missing, or its settings or topics do not fit the channels.
    """
    notices = Notices(metrics, name)
    decoder: Decoder | dict[str, Decoder]
    if config.channels:
        groups = [[channel for channel, topic in config.channels.items() if topic == one] for one in config.patterns]
        codecs = load_parts(config.codec, contract.channels, groups, rate_hz=contract.rate_hz, notice=notices)
        decoder = {one: Decoder(codec, metrics, clock) for one, codec in zip(config.patterns, codecs, strict=True)}
    else:
        codecs = [
            load_codec(config.codec, contract.channels, rate_hz=contract.rate_hz, notice=notices, frame=contract.frame)
        ]
        decoder = Decoder(codecs[0], metrics, clock)
    beside: Beside | None = None
    if live:
        from edge_runtime.io.sources.beside import beside_the_loop  # noqa: PLC0415 - a file's messages do without

        beside = beside_the_loop(config.codec, contract, codecs, metrics, notices)
    return MqttSource(config, broker, decoder, metrics, clock=clock, name=name, contract=contract, beside=beside)
