"""Choice of the codec, by the ``type`` of its configuration."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from edge_runtime.errors import ConfigError
from edge_runtime.io.codecs import Codec, Notice
from edge_runtime.io.codecs.coarse_stamps import SpreadingCodec
from edge_runtime.io.codecs.conversion import check_stated, converted
from edge_runtime.io.codecs.placed import PlacedCodec
from edge_runtime.manifest import Channel
from edge_runtime.manifest.frames import Frame
from edge_runtime.schema import OneOf

if TYPE_CHECKING:
    from edge_runtime.io.codecs.cbor import CborConfig
    from edge_runtime.io.codecs.csv import CsvConfig
    from edge_runtime.io.codecs.frame import FrameConfig
    from edge_runtime.io.codecs.influx import InfluxConfig
    from edge_runtime.io.codecs.json import JsonConfig
    from edge_runtime.io.codecs.msgpack import MsgpackConfig
    from edge_runtime.io.codecs.pcm import PcmConfig
    from edge_runtime.io.codecs.raw import RawConfig
    from edge_runtime.io.codecs.senml import SenmlConfig
    from edge_runtime.io.codecs.sparkplug import SparkplugConfig

    @dataclasses.dataclass(frozen=True)
    class _OtherConfig:
        """Settings of a codec of another package, whatever its name is."""

        max_bytes: int
        type: Literal["of another package"]

    CodecConfig = (
        JsonConfig | MsgpackConfig | CborConfig | RawConfig | PcmConfig | FrameConfig | SenmlConfig | InfluxConfig
        | CsvConfig | SparkplugConfig | _OtherConfig
    )  # fmt: skip
else:
    CodecConfig = OneOf(
        "type", "", "edge_runtime.codecs",
        json="edge_runtime.io.codecs.json:JsonConfig",
        msgpack="edge_runtime.io.codecs.msgpack:MsgpackConfig",
        cbor="edge_runtime.io.codecs.cbor:CborConfig",
        raw="edge_runtime.io.codecs.raw:RawConfig",
        pcm="edge_runtime.io.codecs.pcm:PcmConfig",
        frame="edge_runtime.io.codecs.frame:FrameConfig",
        senml="edge_runtime.io.codecs.senml:SenmlConfig",
        influx="edge_runtime.io.codecs.influx:InfluxConfig",
        csv="edge_runtime.io.codecs.csv:CsvConfig",
        sparkplug="edge_runtime.io.codecs.sparkplug:SparkplugConfig",
    )  # fmt: skip


def is_text(config: CodecConfig) -> bool:
    """Return whether messages of a codec are text, in which no line end can stand."""
    return config.type in ("json", "csv", "influx") or (config.type == "senml" and config.encoding == "json")


def load_codec(
    config: CodecConfig,
    channels: Sequence[Channel],
    *,
    rate_hz: float = 0.0,
    notice: Notice | None = None,
    frame: Frame | None = None,
) -> Codec:
    """Make the codec that a configuration asks for; no other one is imported.

    Args:
        config: the codec's type and settings.
        channels: the model's channels, in order; messages bring no masks (`Channel.mask_of`).
        rate_hz: the model's own sample rate, by which messages without a stamp are dated back from their arrival; 0
            gives their first sample the arrival time.
        notice: told of messages that lack the default time field, which then count as taken on arrival; None: such a
            message is refused.
        frame: the frame of a model that takes pictures.

    Raises:
        ConfigError: the library it needs is not installed, or the configuration does not fit the channels.
    """
    sent = [channel.name for channel in channels if not channel.mask_of]
    if len(sent) < len(channels):  # the windows make the others
        (codec,) = load_parts(config, channels, [sent], rate_hz=rate_hz, notice=notice)
        return codec
    names = [channel.name for channel in channels]
    if len(set(names)) != len(names) or not names:
        raise ConfigError(f"codec {config.type}: channel names must differ and there must be one; got {names}")
    codec = _load(config, channels, names, rate_hz, notice, frame)
    step_s: float = getattr(config, "time_step_s", 0.0)
    own_hz: float = getattr(config, "rate_hz", 0.0) or rate_hz
    return SpreadingCodec(codec, step_s, 1 / own_hz if own_hz else 0.0) if step_s else codec


def load_parts(
    config: CodecConfig,
    channels: Sequence[Channel],
    groups: Sequence[Sequence[str]],
    *,
    rate_hz: float = 0.0,
    notice: Notice | None = None,
) -> list[Codec]:
    """Make a codec for each of several kinds of messages that bring a part of the channels, as topics of their own do.

    Args:
        config: settings of all of them; what they map or state of a channel counts where that channel comes.
        channels: the model's channels, in order.
        groups: channels that each kind of message brings.
        rate_hz: the model's own sample rate, as in `load_codec`.
        notice: callback, as in `load_codec`.

    Raises:
        ConfigError: as `load_codec`, or a group names what is no channel.
    """
    names = [channel.name for channel in channels]
    brought = [name for group in groups for name in group]
    if unknown := [name for name in brought if name not in names]:
        raise ConfigError(f"channels names {', '.join(unknown)}; the model's channels are {', '.join(names)}")
    check_stated(config.type, getattr(config, "units", {}), [one for one in channels if one.name in brought])
    codecs: list[Codec] = []
    for group in groups:
        columns = [place for place, name in enumerate(names) if name in group]
        codec = load_codec(_narrowed(config, group), [channels[i] for i in columns], rate_hz=rate_hz, notice=notice)
        codecs.append(codec if len(columns) == len(names) else PlacedCodec(codec, columns))
    return codecs


def _narrowed(config: CodecConfig, names: Sequence[str]) -> CodecConfig:
    """Return a configuration without what it says of other channels."""
    said = {key: getattr(config, key, {}) for key in ("channels", "units")}
    changes: dict[str, Any] = {
        key: {name: value for name, value in table.items() if name in names} for key, table in said.items() if table
    }
    return dataclasses.replace(config, **changes)


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class CodecParts:
    """Parts of the application that a codec of another package is made of, by ``make_codec(config, parts)``.

    Attributes:
        channels: the model's channels that messages bring, in order.
        rate_hz: the model's sample rate; 0: unknown.
        notice: callback, as in `load_codec`.
    """

    channels: Sequence[Channel]
    rate_hz: float
    notice: Notice | None


def _load(
    config: CodecConfig,
    channels: Sequence[Channel],
    names: Sequence[str],
    rate_hz: float,
    notice: Notice | None,
    frame: Frame | None,
) -> Codec:
    if config.type == "frame":
        from edge_runtime.io.codecs.frame import FrameCodec  # noqa: PLC0415

        return FrameCodec(config, frame)
    if config.type == "raw":
        from edge_runtime.io.codecs.raw import RawCodec, in_units_of  # noqa: PLC0415

        return RawCodec(in_units_of(config, channels), names, rate_hz)
    if config.type == "pcm":
        from edge_runtime.io.codecs.pcm import PcmCodec  # noqa: PLC0415

        return PcmCodec(config, names, rate_hz, notice)
    if config.type == "influx":
        from edge_runtime.io.codecs.influx import InfluxCodec  # noqa: PLC0415

        return converted(InfluxCodec(config, names, rate_hz, notice), config.units, channels)
    if config.type == "sparkplug":
        from edge_runtime.io.codecs.sparkplug import SparkplugCodec  # noqa: PLC0415

        return converted(SparkplugCodec(config, channels, notice), config.units, channels)
    if config.type == "senml":
        from edge_runtime.io.codecs.senml import SenmlCodec  # noqa: PLC0415

        return SenmlCodec(config, channels, notice)
    if config.type == "csv":
        from edge_runtime.io.codecs.csv import load_csv  # noqa: PLC0415

        return load_csv(config, channels, rate_hz, notice)
    if config.type in ("json", "msgpack", "cbor"):
        codec = _load_document_codec(config, names, rate_hz, notice)
        return converted(codec, config.stated_units(names), channels, config.brings(names))
    found: Any = CodecConfig
    made: Codec = found.module(config.type).make_codec(
        config, CodecParts(channels=channels, rate_hz=rate_hz, notice=notice)
    )
    return made


def _load_document_codec(
    config: JsonConfig | MsgpackConfig | CborConfig, names: Sequence[str], rate_hz: float, notice: Notice | None
) -> Codec:
    if config.type == "json":
        from edge_runtime.io.codecs.json import JsonCodec  # noqa: PLC0415

        return JsonCodec(config, names, rate_hz, notice)
    if config.type == "msgpack":
        from edge_runtime.io.codecs.msgpack import MsgpackCodec  # noqa: PLC0415

        return MsgpackCodec(config, names, rate_hz, notice)
    from edge_runtime.io.codecs.cbor import CborCodec  # noqa: PLC0415

    return CborCodec(config, names, rate_hz, notice)
