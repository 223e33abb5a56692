"""The files that the export tools write are the same bytes as when their digests were recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.edge_export.golden import RECORDED, TOOLS, digest, model, models_for, versions

_GOLDEN: dict[str, Any] = json.loads(RECORDED.read_text())

pytestmark = pytest.mark.skipif(
    versions() != _GOLDEN["versions"],
    reason=f"the digests were recorded with {_GOLDEN['versions']}, which other releases do not promise to repeat",
)


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_writes_the_recorded_bytes(tool: str) -> None:
    assert {name: digest(tool, name) for name in models_for(tool)} == _GOLDEN["digests"][tool]


@pytest.mark.parametrize("tool", TOOLS)
def test_a_tool_leaves_the_given_model_alone(tool: str) -> None:
    for name in models_for(tool):
        before = model(name).SerializeToString(deterministic=True)
        digest(tool, name)
        assert model(name).SerializeToString(deterministic=True) == before, name
