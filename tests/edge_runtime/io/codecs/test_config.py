"""Choosing a codec, and the libraries that are extras."""

from __future__ import annotations

import sys
from typing import Any

import cbor2
import pytest

from edge_runtime.errors import ConfigError
from edge_runtime.io.codecs.cbor import CborConfig
from edge_runtime.io.codecs.config import load_codec
from edge_runtime.io.codecs.json import JsonConfig
from edge_runtime.io.codecs.msgpack import MsgpackConfig
from edge_runtime.io.codecs.raw import RawConfig
from edge_runtime.io.codecs.senml import SenmlConfig
from edge_runtime.manifest import Channel

CHANNELS = tuple(Channel(name=name, unit="g") for name in ("ax", "ay"))


@pytest.mark.parametrize(
    ("module", "config"),
    [("ormsgpack", MsgpackConfig()), ("cbor2", CborConfig()), ("cbor2", SenmlConfig(encoding="cbor"))],
)
def test_a_missing_library_is_named_with_the_line_that_installs_it(
    module: str, config: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(ConfigError, match=r'pip install "edge-runtime\[codecs\]"'):
        load_codec(config, CHANNELS)


def test_json_senml_needs_no_cbor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cbor2", None)
    assert load_codec(SenmlConfig(), CHANNELS).name == "senml"


def test_a_cbor2_that_cannot_refuse_tags_is_refused_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    def loads(_data: bytes) -> Any:
        return 0

    monkeypatch.setattr(cbor2, "loads", loads)
    with pytest.raises(ConfigError, match="cbor2 6 or newer"):
        load_codec(CborConfig(), CHANNELS)


def test_channels_need_names_that_differ() -> None:
    with pytest.raises(ConfigError, match="must differ"):
        load_codec(RawConfig(), (CHANNELS[0], CHANNELS[0]))
    with pytest.raises(ConfigError, match="must be one"):
        load_codec(RawConfig(), ())


def test_messages_bring_no_masks() -> None:
    """A mask says whether another channel is missing; the windows make it."""
    channels = (
        Channel(name="seen", unit="1", mask_of="a"),
        Channel(name="a", unit="g", missing="last"),
        Channel(name="b", unit="g"),
    )
    codec = load_codec(JsonConfig(channels={"a": "x", "b": "y"}), channels)
    (reading,) = codec.decode("k", b'{"t": 5, "x": 1, "y": 2}', 0.0)
    assert (reading.channels, reading.values.tolist()) == ((1, 2), [[1, 2]])
