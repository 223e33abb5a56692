"""The way of a message with plain numbers of all channels: as few calls as before there were any other messages."""

from __future__ import annotations

import sys
from typing import Any

import orjson
import pytest

from edge_runtime.io.codecs.config import load_codec
from edge_runtime.io.codecs.json import JsonConfig
from edge_runtime.manifest import Channel

CHANNELS = tuple(Channel(name=name, unit="g") for name in ("ax", "ay", "az"))
READ = ["matrix", "samples", "stamps", "check_stamp"]
THREE = ["_as_list"] * 3
MAPPING = {channel.name: channel.name for channel in CHANNELS}


def calls(config: JsonConfig, document: Any) -> list[str]:
    """Python functions that decoding a message calls."""
    codec, payload = load_codec(config, CHANNELS, rate_hz=50.0), orjson.dumps(document)
    codec.decode("k", payload, 1.7e9)  # caches
    seen: list[str] = []

    def note(frame: Any, event: str, _argument: Any) -> None:
        if event == "call":
            seen.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        codec.decode("k", payload, 1.7e9)
    finally:
        sys.setprofile(None)
    return [name for name in seen if name not in ("<listcomp>", "<lambda>", "<genexpr>")]


@pytest.mark.parametrize(
    ("config", "document", "expected"),
    [
        (
            JsonConfig(),
            {"t": 5.0, "values": [[1, 2, 3], [4, 5, 6]]},
            ["decode", "_read_own", "matrix", "samples", "_stamp", "stamps", "check_stamp"],
        ),
        (
            JsonConfig(channels=MAPPING, time="ts"),
            {"ts": 5.0, "ax": 1, "ay": 2, "az": 3},
            ["decode", "_read_mapped", "_row", *THREE, "matrix", "samples", "_stamp", "stamps", "check_stamp"],
        ),
        (
            JsonConfig(channels=MAPPING, samples="."),
            [{"t": 5.0, "ax": 1, "ay": 2, "az": 3}],
            ["decode", "_read_mapped", "_read_objects", "_itself", "_row", *READ],
        ),
    ],
    ids=["own", "mapped", "objects"],
)
def test_plain_messages_cost_the_calls_they_always_cost(config: JsonConfig, document: Any, expected: list[str]) -> None:
    assert calls(config, document) == expected
