"""From the tables that a configuration file may hold, and that the documentation shows, to sources."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from edge_runtime import schema
from edge_runtime.app.config import AppConfig
from edge_runtime.base.system import toml
from edge_runtime.clock import SystemClock
from edge_runtime.io.sources.build import build_source, with_room
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics

ROOT = Path(__file__).resolve().parents[4]
CONTRACT = InputContract(channels=(Channel(name="a", unit="1"),), rate_hz=1000, window=10, hop=5)


def documented() -> list[str]:
    """The `[[source]]` tables of docs/sources.md."""
    text = (ROOT / "docs" / "sources.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```toml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    return [block[block.index("[[source]]") :] for block in blocks if "[[source]]" in block]


@pytest.mark.parametrize("text", documented())
def test_every_source_that_the_documentation_shows_can_be_built(text: str) -> None:
    if 'type = "serial"' in text:
        pytest.importorskip("serial", reason='needs pyserial: pip install "edge-runtime[serial]"')
    config = schema.load(AppConfig, {"model": {"bundle": "x.edge"}, "sink": [{"type": "stdout"}], **toml.loads(text)})
    source = build_source(
        config.source[0], name="source[0]", contract=CONTRACT, broker_clients={}, metrics=Metrics(), clock=SystemClock()
    )
    assert source.name == "source[0]"
    assert not source.finished
    source.close()


def test_the_documentation_shows_all_three() -> None:
    assert [toml.loads(text)["source"][0]["type"] for text in documented()] == ["serial", "iio", "alsa"]


@pytest.mark.parametrize(
    ("broker", "codec", "expected"),
    [
        ({}, {"type": "frame"}, 8 * 2**20 + 2**17),
        ({}, {"type": "frame", "max_bytes": 1000}, 2**20),
        ({"max_packet_bytes": 5000}, {"type": "frame"}, 5000),
        ({}, {"type": "json"}, 2**20),
    ],
)
def test_a_broker_has_room_for_pictures_unless_it_says_otherwise(
    broker: dict[str, int], codec: dict[str, Any], expected: int
) -> None:
    config = schema.load(
        AppConfig,
        {
            "model": {"bundle": "x.edge"},
            "sink": [{"type": "stdout"}],
            "broker": {"b": {"url": "mqtt://localhost", **broker}, "other": {"url": "mqtt://localhost"}},
            "source": [{"type": "mqtt", "broker": "b", "topics": ["cam/+"], "codec": codec}],
        },
    )
    assert with_room(config.broker["b"], "b", config.source).max_packet_bytes == expected
    assert with_room(config.broker["other"], "other", config.source) is config.broker["other"]
