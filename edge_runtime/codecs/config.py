"""Choice of the codec, by the ``type`` of its configuration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from edge_runtime.codecs import Codec
from edge_runtime.errors import ConfigError
from edge_runtime.manifest import Channel
from edge_runtime.schema import OneOf

if TYPE_CHECKING:
    from edge_runtime.codecs.cbor import CborConfig
    from edge_runtime.codecs.json import JsonConfig
    from edge_runtime.codecs.msgpack import MsgpackConfig
    from edge_runtime.codecs.raw import RawConfig
    from edge_runtime.codecs.senml import SenmlConfig

    CodecConfig = JsonConfig | MsgpackConfig | CborConfig | RawConfig | SenmlConfig
else:
    CodecConfig = OneOf(
        json="edge_runtime.codecs.json:JsonConfig",
        msgpack="edge_runtime.codecs.msgpack:MsgpackConfig",
        cbor="edge_runtime.codecs.cbor:CborConfig",
        raw="edge_runtime.codecs.raw:RawConfig",
        senml="edge_runtime.codecs.senml:SenmlConfig",
    )


def is_text(config: CodecConfig) -> bool:
    """Return whether messages of a codec are text, in which no line end can stand."""
    return config.type == "json" or (config.type == "senml" and config.encoding == "json")


def load_codec(config: CodecConfig, channels: Sequence[Channel], *, rate_hz: float = 0.0) -> Codec:
    """Make the codec that a configuration asks for; no other one is imported.

    Args:
        config: which one, and how.
        channels: the model's channels, in order.
        rate_hz: the model's own sample rate, by which messages without a stamp are dated back from their arrival; 0
            gives their first sample the arrival time.

    Raises:
        ConfigError: the library it needs is not installed, or the configuration does not fit the channels.
    """
    names = [channel.name for channel in channels]
    if len(set(names)) != len(names) or not names:
        raise ConfigError(f"codec {config.type}: channel names must differ and there must be one; got {names}")
    if config.type == "json":
        from edge_runtime.codecs.json import JsonCodec  # noqa: PLC0415

        return JsonCodec(config, names, rate_hz)
    if config.type == "msgpack":
        from edge_runtime.codecs.msgpack import MsgpackCodec  # noqa: PLC0415

        return MsgpackCodec(config, names, rate_hz)
    if config.type == "cbor":
        from edge_runtime.codecs.cbor import CborCodec  # noqa: PLC0415

        return CborCodec(config, names, rate_hz)
    if config.type == "raw":
        from edge_runtime.codecs.raw import RawCodec  # noqa: PLC0415

        return RawCodec(config, names, rate_hz)
    from edge_runtime.codecs.senml import SenmlCodec  # noqa: PLC0415

    return SenmlCodec(config, channels)
