"""Model files that are made to do harm, or damaged: one line, no signal, no traceback, bounded memory."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from edge_export.graph.onnx_graph.normalise import normalise

from tests.edge_export import hostile
from tests.edge_export.graph.quantize.masks import attention
from tests.edge_export.hostile import Ended, edge_export

BOMBS = hostile.bombs()
MOST_BYTES = 5 * 2**29
"""Peak that is allowed: `memory_for` gives a small model .7 to 1.7 GB, by the processors."""
CARD = """
name = "h"
origin = { name = "made up", source = "this test", licence = "CC0" }
signal = { rate_hz = 10, channels = [CHANNELS] }
[[stages]]
inputs = [{ rows = ROWS }]
[task]
type = "vector"
"""


def commands(folder: Path, model: Path, rows: int, width: int) -> list[list[str]]:
    named = ", ".join(f'{{ name = "c{k}", low = -1, high = 1 }}' for k in range(width))
    (folder / "card.toml").write_text(CARD.replace("CHANNELS", named).replace("ROWS", str(rows)))
    (folder / "data").mkdir(exist_ok=True)
    for k in range(3):
        x = np.random.default_rng(k).normal(size=(8, rows, width) if rows > 1 else (8, width)).astype(np.float32)
        np.savez(folder / "data" / f"r{k}.npz", x=x)
    return [
        ["card", str(model)],
        ["pack", str(model), "--card", str(folder / "card.toml"), "-o", str(folder / "o.edge")],
        ["quantize", str(model), "--recording", str(folder / "data"), "-o", str(folder / "q"), "--seconds", "5"],
    ]


def assert_harmless(ended: Ended, command: list[str]) -> None:
    assert ended.code in (0, 1, 2), (command, ended)
    assert ended.peak_bytes < MOST_BYTES, (command, ended)
    if ended.code:
        assert re.fullmatch(r"edge-export: [^\n]+", ended.said), (command, ended)


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_a_small_file_that_asks_for_all_memory_is_one_line(name: str, tmp_path: Path) -> None:
    model = tmp_path / "bomb.onnx"
    model.write_bytes(BOMBS[name].SerializeToString())
    for command in commands(tmp_path, model, 1, 4):
        ended = edge_export(*command)
        assert_harmless(ended, command)
        if command[0] != "card":
            assert ended.code, (command, ended)
            assert str(model) in ended.said, (command, ended)


@pytest.mark.parametrize("name", [name for name in BOMBS if name not in ("a cycle", "many nodes", "data elsewhere")])
def test_no_constant_is_computed_that_is_larger_than_a_file_should_be(name: str) -> None:
    form = normalise(BOMBS[name])
    assert form.ByteSize() < 2**25


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(8))
def test_a_file_with_other_bytes_is_worked_on_or_refused_in_one_line(seed: int, tmp_path: Path) -> None:
    random = np.random.default_rng(seed)
    data = bytearray(attention(-np.inf).SerializeToString())
    for place in random.integers(0, len(data), 1 + seed % 4):
        data[place] = int(random.integers(0, 256))
    if seed % 3 == 2:
        del data[int(random.integers(0, len(data))) :]
    model = tmp_path / "mutant.onnx"
    model.write_bytes(bytes(data))
    for command in commands(tmp_path, model, 8, 16):
        assert_harmless(edge_export(*command), command)
