"""Answers to an MQTT broker."""

from __future__ import annotations

import hashlib
import re
import string
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Literal

from edge_runtime.base.system.loop import Loop
from edge_runtime.io.mqtt.client import BrokerClient
from edge_runtime.io.mqtt.outbound_queue import Message
from edge_runtime.io.mqtt.packets import V5, encode_message_properties
from edge_runtime.io.mqtt.recent import Recent
from edge_runtime.io.mqtt.topics import MAX_TOPIC_BYTES
from edge_runtime.io.sinks.guard import SinkPolicy
from edge_runtime.metrics import Metrics
from edge_runtime.types import Answer, Done, Event, Prediction

FIELDS: Final = ("key", "label", "model", "route", "variant")
"""What a topic template may name."""
EVENT_FIELDS: Final = ("key", "event", "kind", "label", "model", "route")
"""The same for the topic of events."""

_TOPICS: Final = 65_536
_LONG: Final = 128
"""Characters of a value above which it may be shortened, where the topic would be longer than MQTT allows."""

_MOST_BYTES: Final = 12 * _LONG // 2 + 2 + 64
"""Of a value that was shortened: 64 characters of at most 4 bytes, each as ``%XX``, and the digest."""

# What a value may not put into a topic: our own escape, wildcards, separators, what brokers refuse as a character
# (MQTT 5 section 1.5.4: surrogates, controls, non-characters).
_FORBIDDEN: Final = "%+#\0-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef" + "".join(
    chr(plane << 16 | last) for plane in range(17) for last in (0xFFFE, 0xFFFF)
)
_UNSAFE: Final = re.compile(f"[/{_FORBIDDEN}]")
_UNSAFE_IN_MODEL: Final = re.compile(f"[{_FORBIDDEN}]")


@dataclass(frozen=True, slots=True, kw_only=True)
class MqttSinkConfig(SinkPolicy):
    """Settings of answers over MQTT: topics, QoS and retention.

    Raises:
        ValueError: a template that cannot become a topic, or a QoS that does not exist.
    """

    type: Literal["mqtt"] = "mqtt"
    broker: str
    """Name of a ``[broker.NAME]`` table."""
    topic: str = "edge/{key}/prediction"
    """Template; may name ``{key}``, ``{label}``, ``{model}``, ``{route}`` and ``{variant}``. Each value is one topic
    level: ``/``, ``+``, ``#`` and ``%`` in it are percent-encoded (see `encode_value`), so the key ``a/b`` is published
    on ``edge/a%2Fb/prediction``."""
    corrections_topic: str = ""
    """The same for corrections and final messages, where they should go elsewhere."""
    events_topic: str = ""
    """Template for events; may name ``{key}``, ``{event}``, ``{kind}`` (``start`` or ``end``), ``{label}``, ``{model}``
    and ``{route}``. Empty: `topic` with ``event`` as its last level, as in ``edge/{key}/event``."""
    qos: int = 1
    """With 2 no answer comes twice while this process runs and the broker keeps its session; connections may come and
    go. If the broker forgets the session, over websockets and with ``receive = "paho"`` it is, as 1, at least once."""
    retain: bool = False
    only: Literal["", "events"] = ""
    """``events`` publishes events and nothing else: a model that answers 33 times a second has little to say in most of
    them. Empty: everything."""
    properties: bool = True
    """With MQTT 5: the prediction's id as correlation data, and ``id``, ``route`` and ``model`` as user properties."""

    def __post_init__(self) -> None:
        SinkPolicy.__post_init__(self)
        if self.qos not in {0, 1, 2}:
            raise ValueError(f"qos must be 0, 1 or 2, got {self.qos}")
        for name in ("topic", "corrections_topic", "events_topic"):
            template = getattr(self, name)
            if template or name == "topic":
                try:
                    fields_of(template, EVENT_FIELDS if name == "events_topic" else FIELDS)
                except ValueError as error:
                    raise ValueError(f"{name} '{template}': {error}") from error


def fields_of(template: str, known: Sequence[str] = FIELDS) -> list[str]:
    """List the fields that a topic template names, in order.

    Args:
        template: the topic.
        known: fields that it may name.

    Raises:
        ValueError: an unknown field, a format, a wildcard, or no valid topic to begin with.
    """
    fields = []
    for text, name, format_spec, conversion in string.Formatter().parse(template):
        if set(text) & set("+#\0"):
            raise ValueError("a topic to publish to has no wildcards (+ and #) and no NUL")
        if name is None:
            continue
        if name not in known or format_spec or conversion:
            raise ValueError(f"knows only {', '.join('{' + one + '}' for one in known)}")
        fields.append(name)
    if len(template.encode()) + len(fields) * _MOST_BYTES > MAX_TOPIC_BYTES:
        raise ValueError(f"a topic to publish to has at most {MAX_TOPIC_BYTES:,} bytes; make it shorter")
    if not template or template.startswith("$"):
        raise ValueError("a topic to publish to is not empty and does not begin with $")
    return fields


class MqttSink:
    """Publishes predictions and corrections as JSON, one message each.

    Args:
        config: topic and QoS.
        broker_client: the broker; shared with others.
        metrics: counts drops, and topics that had to be changed.
        name: the sink's name in messages and metrics.
    """

    def __init__(
        self, config: MqttSinkConfig, broker_client: BrokerClient, metrics: Metrics, *, name: str = "mqtt"
    ) -> None:
        self.name = name
        self._config = config
        self._broker_client = broker_client
        self._metrics = metrics
        self._topic = self._topics(config.topic)
        self._correction_topic = self._topics(config.corrections_topic) if config.corrections_topic else self._topic
        self._event_topic = self._topics(config.events_topic or _beside(config.topic), EVENT_FIELDS)
        self._tails: Recent[tuple[str, str], bytes] = Recent(_tail, 1024)
        self._opened = False

    def open(self, loop: Loop) -> None:
        """Connect, and keep trying while the broker is away."""
        self._opened = True
        self._broker_client.open(loop, publish_qos=self._config.qos)

    def send(self, answers: Sequence[Answer], done: Done | None) -> None:
        """Publish; `done` is called when the broker has all of them (QoS 0: when they are written to the socket)."""
        config = self._config
        if config.only:
            answers = [answer for answer in answers if isinstance(answer, Event)]
            if not answers:
                if done is not None:
                    done()
                return
        with_properties = config.properties and self._broker_client.version == V5
        messages = []
        for answer in answers:
            topic = self._topic_of(answer)
            properties = b""
            if with_properties:
                name = answer.id
                properties = encode_message_properties(correlation_data=name.encode(), user_properties=[("id", name)])
                properties += self._tails[answer.route, answer.model]
            messages.append(Message(topic, answer.to_json(), properties, config.qos, config.retain))
        self._broker_client.publish(messages, done, self._metrics.dropped)

    def close(self, timeout_s: float) -> None:
        """Hand over what is queued, within the time given. May be called twice."""
        if self._opened:
            self._opened = False
            self._broker_client.close(timeout_s)

    def _topic_of(self, answer: Answer) -> bytes:
        if isinstance(answer, Prediction):
            return self._topic(answer)
        return (self._event_topic if isinstance(answer, Event) else self._correction_topic)(answer)

    def _topics(self, template: str, allowed: Sequence[str] = FIELDS) -> Callable[[Answer], bytes]:
        """Build the function from an answer to its topic, which caches what it rendered."""
        fields = fields_of(template, allowed)
        if not fields:
            fixed = template.encode()
            return lambda _: fixed
        get: Callable[[Answer], Any] = attrgetter(*fields)
        known: Recent[Any, bytes] = Recent(lambda values: self._render(template, fields, values), _TOPICS)
        return lambda answer: known[get(answer)]

    def _render(self, template: str, fields: list[str], values: Any) -> bytes:
        texts = dict(zip(fields, (values,) if len(fields) == 1 else values, strict=True))
        topic = _fill(template, {name: encode_value(text, name) for name, text in texts.items()})
        if len(topic) > MAX_TOPIC_BYTES:
            topic = _fill(template, {name: encode_value(text, name, shorten=True) for name, text in texts.items()})
        if topic != template.format_map(texts).encode("utf-8", "surrogatepass"):
            self._metrics.counts["topics_sanitised_total"] += 1
        return topic


def _beside(topic: str) -> str:
    """Derive the topic of events from that of predictions; an event is of no variant."""
    levels = [level for level in topic.split("/")[:-1] if "{variant}" not in level]
    return "/".join([*levels, "event"])


def encode_value(text: str, name: str, *, shorten: bool = False) -> str:
    """Write a value so that it is one topic level, and no other value is written alike.

    1. ``%``, ``/``, ``+``, ``#`` and characters that brokers refuse become ``%XX`` for each byte of their UTF-8
       (RFC 3986 section 2.1), so ``w1/prediction`` cannot choose a deeper topic. The ``/`` of ``{model}`` stays: it
       parts name and version, and comes from the bundle.
    2. ``.`` and ``..``, which mean other folders to consumers that keep topics as files, become ``%2E`` and ``%2E%2E``.
    3. Nothing at all becomes ``%``, which rule 1 never leaves alone.
    4. A value of more than 128 characters becomes its first 64, ``%~`` and its SHA-256, if asked for.

    Args:
        text: the value.
        name: the field that it stands for.
        shorten: the topic would be longer than MQTT allows.
    """
    if not text:
        return "%"  # rule 3
    if text in {".", ".."}:
        return text.replace(".", "%2E")  # rule 2
    unsafe = _UNSAFE_IN_MODEL if name == "model" else _UNSAFE
    if shorten and len(text) > _LONG:  # rule 4
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
        return f"{unsafe.sub(_escape, text[: _LONG // 2])}%~{digest}"
    return unsafe.sub(_escape, text)  # rule 1


def _escape(match: re.Match[str]) -> str:
    return "".join(f"%{byte:02X}" for byte in match[0].encode("utf-8", "surrogatepass"))


def _fill(template: str, values: dict[str, str]) -> bytes:
    """Fill in the topic; a first level that begins with ``$`` would be the broker's own."""
    topic = template.format_map(values)
    return ("%24" + topic[1:] if topic.startswith("$") else topic).encode()


def _tail(of: tuple[str, str]) -> bytes:
    route, model = of
    return encode_message_properties(user_properties=[("route", route), ("model", model.replace("\0", "_"))])
