"""Readings from an MQTT broker."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Literal

from edge_runtime.clock import Clock, SystemClock
from edge_runtime.codecs.config import CodecConfig
from edge_runtime.codecs.json import JsonConfig
from edge_runtime.metrics import Metrics
from edge_runtime.mqtt.client import BrokerClient
from edge_runtime.mqtt.packets import Publish, parse_shared_subscription, topic_matches, validate_topic_filter
from edge_runtime.mqtt.recent import Recent
from edge_runtime.mqtt.wire import MalformedPacket
from edge_runtime.sources import Deliver
from edge_runtime.sources.decoding import Decoder
from edge_runtime.system.loop import Loop
from edge_runtime.types import Done

_KEYS: Final = 65_536
"""Topics whose key is cached; more than one device is expected to have."""
_LEVEL: Final = re.compile(r"\{(-?\d{1,4})\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttSourceConfig:
    """Settings of an MQTT source: topics, QoS, keys and codec.

    Raises:
        ValueError: no topic, a malformed one, or a key that cannot be taken from a topic.
    """

    type: Literal["mqtt"] = "mqtt"
    broker: str
    """Name of a ``[broker.NAME]`` table."""
    topics: tuple[str, ...]
    """Topic filters, for example ``watch/+/imu``."""
    qos: int = 1
    """At which messages are asked for: 0, 1 or 2. With 1 and 2, one is acknowledged when its consequences are safe."""
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
        if not self.topics:
            raise ValueError("topics must name at least one topic filter, for example 'sensors/+'")
        for topic in self.topics:
            try:
                validate_topic_filter(topic)
                if self.share:
                    validate_topic_filter(f"$share/{self.share}/{topic}")
            except MalformedPacket as error:
                raise ValueError(f"topic filter '{topic}' cannot be subscribed to: {error}") from error
        if self.share and ("/" in self.share or any(topic.startswith("$share/") for topic in self.topics)):
            raise ValueError("share is a plain group name, and its topics are written without $share/")
        self._check_qos()
        if self.key not in {"wildcards", "topic", "payload"} and (
            not _LEVEL.search(self.key) or set("{}") & set(_LEVEL.sub("", self.key))
        ):
            raise ValueError(
                f"key must be wildcards, topic, payload or a template of topic levels such as '{{1}}', got '{self.key}'"
            )

    def _check_qos(self) -> None:
        for topic, qos in [("qos", self.qos), *self.topic_qos.items()]:
            if qos not in {0, 1, 2}:
                raise ValueError(f"qos must be 0, 1 or 2, got {qos} for {topic}")
        for topic in self.topic_qos:
            if topic not in self.topics:
                raise ValueError(f"topic_qos names '{topic}', which is not among topics")

    def filters(self) -> list[tuple[str, int]]:
        """List the filters to subscribe to, with the QoS of each."""
        group = f"$share/{self.share}/" if self.share else ""
        return [(group + topic, self.topic_qos.get(topic, self.qos)) for topic in self.topics]


def key_of(config: MqttSourceConfig) -> Callable[[bytes], str | None]:
    """Make the function from topic to key; it returns None for a topic that gives no key or was not asked for."""
    filters = []
    for topic in config.topics:
        shared = parse_shared_subscription(topic)
        filters.append(topic.encode() if shared is None else shared[1])
    template = config.key

    def from_levels(topic: bytes) -> str | None:
        levels = topic.decode().split("/")
        try:
            return _LEVEL.sub(lambda match: levels[int(match[1])], template)
        except IndexError:
            return None

    def key(topic: bytes) -> str | None:
        matching = next((one for one in filters if topic_matches(one, topic)), None)
        if matching is None:
            return None
        if template == "payload":
            return ""
        if template == "topic":
            return topic.decode()
        return _wildcards(matching, topic) if template == "wildcards" else from_levels(topic)

    return key


def _wildcards(topic_filter: bytes, topic: bytes) -> str:
    levels = topic.decode().split("/")
    parts: list[str] = []
    for i, pattern in enumerate(topic_filter.split(b"/")):
        if pattern == b"#":
            parts += levels[i:]
        elif pattern == b"+":
            parts.append(levels[i])
    return "/".join(parts) or topic.decode()


class MqttSource:
    """Subscribes, decodes what arrives together, and acknowledges it when the pipeline says that it is safe.

    A message that cannot be decoded is counted and acknowledged like any other: sent again, it would be no better.

    Args:
        config: what to subscribe to.
        broker_client: the broker; shared with others.
        decoder: from payloads to readings.
        metrics: counts topics that give no key.
        clock: when messages arrived.
        name: as it appears in messages and metrics.
    """

    def __init__(
        self,
        config: MqttSourceConfig,
        broker_client: BrokerClient,
        decoder: Decoder,
        metrics: Metrics,
        *,
        clock: Clock | None = None,
        name: str = "mqtt",
    ) -> None:
        self.name = name
        self._config = config
        self._broker_client = broker_client
        self._decode = decoder
        self._metrics = metrics
        self._clock = clock or SystemClock()
        self._key_of = key_of(config)
        self._keys: Recent[bytes, str | None] = Recent(self._key, _KEYS)
        self._strangers = False  # a topic without a key was met
        self._deliver: Deliver | None = None

    def open(self, loop: Loop, deliver: Deliver) -> None:
        """Subscribe, and keep trying while the broker is away."""
        self._deliver = deliver
        self._broker_client.subscribe(self._config.filters(), self._receive)
        self._broker_client.open(loop)

    def pause(self) -> None:
        """Take nothing new; acknowledgements still go out."""
        self._broker_client.pause()

    def close(self) -> None:
        """Disconnect from the broker. May be called twice."""
        if self._deliver is not None:
            self._deliver = None
            self._broker_client.close(0.0)

    @property
    def finished(self) -> bool:
        """Never: a broker may always send more."""
        return False

    def _receive(self, publishes: list[Publish], received: float, done: Done | None) -> None:
        keys = self._keys
        messages: list[tuple[str, bytes]] = [(keys[publish[0]], publish[1]) for publish in publishes]  # type: ignore[misc]
        if self._strangers:
            messages = [message for message in messages if message[0] is not None]
            self._metrics.dropped["unexpected_topic"] += len(publishes) - len(messages)
        readings = self._decode(messages, self._clock.wall())
        if readings and self._deliver is not None:
            self._deliver(readings, received, done)
        elif done is not None:
            done()

    def _key(self, topic: bytes) -> str | None:
        key = self._key_of(topic)
        if key is None:
            self._strangers = True
        return key
