"""From a source's configuration to the source."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol

from edge_runtime.clock import Clock
from edge_runtime.errors import ConfigError
from edge_runtime.io.codecs.config import CodecConfig, load_codec
from edge_runtime.io.codecs.document_config import DocumentConfig
from edge_runtime.io.sources import Source
from edge_runtime.io.sources.decoding import Decoder, Notices
from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.schema import OneOf, Packaged

if TYPE_CHECKING:
    from edge_runtime.io.mqtt.config import BrokerConfig
    from edge_runtime.io.sources.channel_topics import ChannelOrigin
    from edge_runtime.io.sources.mqtt import BrokerSubscriber, MqttSourceConfig
    from edge_runtime.io.sources.recording import RecordingConfig
    from edge_runtime.io.sources.stdin import StdinConfig

    class _OtherConfig(Protocol):
        """Settings of a source of another package, told apart by whatever name it has."""

        type: Literal["of another package"]

    SourceConfig = MqttSourceConfig | RecordingConfig | StdinConfig | _OtherConfig
else:
    SourceConfig = OneOf(
        "type", "", "edge_runtime.sources",
        mqtt="edge_runtime.io.sources.mqtt:MqttSourceConfig",
        recording="edge_runtime.io.sources.recording:RecordingConfig",
        stdin="edge_runtime.io.sources.stdin:StdinConfig",
        serial=Packaged("edge_devices.sources.serial:SerialConfig", 'pip install "edge-runtime[serial]" edge-devices'),
        iio=Packaged("edge_devices.sources.iio:IioConfig", "pip install edge-devices"),
        alsa=Packaged("edge_devices.sources.alsa:AlsaConfig", "pip install edge-devices"),
    )  # fmt: skip


HEADER_BYTES: Final = 2**17
"""Largest topic and properties of a message, about."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class SourceParts:
    """Parts of the application that a source of another package is made of, by ``make_source(config, parts)``.

    Attributes:
        name: the source's name in messages and metrics.
        contract: channels and rate of the model.
        decoder: makes the decoder of messages of a codec; raises ConfigError where it does not fit the channels.
        metrics: receives its counts.
        clock: source of time.
    """

    name: str
    contract: InputContract
    decoder: Callable[[CodecConfig], Decoder]
    metrics: Metrics
    clock: Clock


def build_source(
    config: SourceConfig,
    *,
    name: str,
    contract: InputContract,
    broker_clients: Mapping[str, BrokerSubscriber],
    metrics: Metrics,
    clock: Clock,
    live: bool = True,
) -> Source:
    """Make a source. It opens nothing before `Source.open`.

    Args:
        config: the source's type and settings.
        name: the source's name in messages and metrics.
        contract: channels and rate that its codec must produce.
        broker_clients: brokers by name.
        metrics: receives its counts.
        clock: source of time.
        live: see `edge_runtime.io.sources.mqtt.make_source`.

    Raises:
        ConfigError: the codec's library is missing, or its settings do not fit the channels.
    """
    notices = Notices(metrics, name)

    def decoder(codec: CodecConfig) -> Decoder:
        return Decoder(
            load_codec(codec, contract.channels, rate_hz=contract.rate_hz, notice=notices, frame=contract.frame),
            metrics,
            clock,
        )

    if config.type == "mqtt":
        from edge_runtime.io.sources.mqtt import make_source  # noqa: PLC0415 - only what the application names

        broker = broker_clients[config.broker]
        return make_source(config, broker, contract, metrics, clock, name=name, live=live)
    if config.type == "recording":
        from edge_runtime.io.sources.recording import RecordingSource  # noqa: PLC0415

        return RecordingSource(config, contract, metrics, clock, name=name)
    if config.type == "stdin":
        from edge_runtime.io.sources.stdin import StdinSource  # noqa: PLC0415

        return StdinSource(config, decoder(config.codec), clock=clock, name=name)
    parts = SourceParts(name=name, contract=contract, decoder=decoder, metrics=metrics, clock=clock)
    found: Any = SourceConfig
    made: Source = found.module(config.type).make_source(config, parts)
    return made


def with_room(broker: BrokerConfig, name: str, sources: Sequence[SourceConfig]) -> BrokerConfig:
    """Return a broker's settings with room for pictures, where its largest message is the default and they need more.

    A broker that speaks MQTT 5 keeps larger messages to itself, so nothing here could count them.
    """
    own = [one.codec for one in sources if one.type == "mqtt" and one.broker == name and one.codec.type == "frame"]
    needed = max((codec.max_bytes + HEADER_BYTES for codec in own), default=0)
    defaults = {field.name: field.default for field in dataclasses.fields(broker)}
    if broker.max_packet_bytes != defaults["max_packet_bytes"] or needed <= broker.max_packet_bytes:
        return broker
    return dataclasses.replace(broker, max_packet_bytes=needed)


def brings_parts(config: SourceConfig) -> bool:
    """Return whether a source's readings may hold some of the channels only."""
    if config.type == "recording" and (config.mqtt or config.partial):
        return config.partial or any(map(brings_parts, config.mqtt))
    topics = config.type == "mqtt" and config.channels
    return bool(topics or getattr(getattr(config, "codec", None), "partial", False))


def require_channels(configs: Sequence[SourceConfig], contract: InputContract) -> None:
    """Refuse sources that do not bring every channel between them, to one key: no window would ever be whole.

    Args:
        configs: all sources of an application.
        contract: the model's contract; a channel that says whether another one is missing is made, not brought.

    Raises:
        ConfigError: names the channels or topics, and what to write.
    """
    names = [channel.name for channel in contract.channels if not channel.mask_of]
    brought = {name for config in configs for name in _brings(config, names)}
    if lacking := [name for name in names if name not in brought]:
        raise ConfigError(
            f"no source brings {', '.join(lacking)}: add to channels under [[source]] the topic, or under "
            "[source.codec] the field, that has it"
        )
    if any(config.type == "mqtt" or (config.type == "recording" and config.mqtt) for config in configs):
        from edge_runtime.io.sources.channel_topics import check_meeting  # noqa: PLC0415 - MQTT, only where it is used

        masked = {channel.mask_of for channel in contract.channels}  # a window may do without them
        origins = [origin for config in configs for origin in _origins(config, names)]
        check_meeting(origins, frozenset(names) - masked)


def _origins(config: SourceConfig, names: Sequence[str]) -> list[ChannelOrigin]:
    """Return what brings channels: the topic filters of a source, each for itself, or the source."""
    from edge_runtime.io.sources.channel_topics import ANY_KEY, ChannelOrigin, keys_of, without_group  # noqa: PLC0415

    if config.type == "recording" and config.mqtt:
        return [origin for one in config.mqtt for origin in _origins(one, names)]
    if config.type != "mqtt":
        return [ChannelOrigin("", ANY_KEY, frozenset(_brings(config, names)))]
    # Other codecs may make keys of their own.
    key = config.key if isinstance(config.codec, DocumentConfig) else "payload"
    by_topic = {
        pattern: [name for name, topic in config.channels.items() if topic == pattern] or _brings(config, names)
        for pattern in config.patterns
    }
    return [
        ChannelOrigin(plain := without_group(one), keys_of(plain, key), frozenset(by_topic[one])) for one in by_topic
    ]


def _brings(config: SourceConfig, names: Sequence[str]) -> Collection[str]:
    """Return the channels that a source may bring."""
    if config.type == "recording":
        return {name for one in config.mqtt for name in _brings(one, names)} if config.mqtt else names
    if config.type == "mqtt" and config.channels:
        return config.channels
    codec = getattr(config, "codec", None)
    return codec.brings(names) if isinstance(codec, DocumentConfig) else names


def as_recording(sources: Sequence[SourceConfig], files: Sequence[Path]) -> RecordingConfig:
    """Return the settings by which files are read as live sources read what they receive.

    Args:
        sources: an application's sources: mqtt sources for captured messages, or one other.
        files: the files to be played.

    Raises:
        ConfigError: there is none, they are of several kinds, or what such a source receives is not kept in files.
    """
    from edge_runtime.io.sources.recording import RecordingConfig  # noqa: PLC0415 - only where files are played

    mqtt = tuple(source for source in sources if source.type == "mqtt")
    if mqtt and len(mqtt) == len(sources):
        return RecordingConfig(files=tuple(files), mqtt=mqtt)
    if len(sources) != 1:
        raise ConfigError(
            f"{len(sources)} [[source]] tables: keep the one that the files are of, or several of type mqtt"
        )
    (source,) = sources
    if source.type == "recording":
        return dataclasses.replace(source, files=tuple(files), speed=0.0)
    lines: Any = source
    if getattr(lines, "by_lines", False):
        return RecordingConfig(files=tuple(files), format="lines", key=lines.key, codec=lines.codec)
    raise ConfigError(
        f"what a source of type {source.type} receives cannot be read from a file; write [[source]] of type recording"
    )
