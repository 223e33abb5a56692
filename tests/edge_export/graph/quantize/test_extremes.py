"""Constants at the ends of the floats: masks that stay in float, damage that is refused, in every format."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from edge_export.graph.onnx_graph.model import from_proto
from edge_export.graph.quantize.checks import fault_of
from edge_export.graph.quantize.select import quantised

from tests.edge_export.graph.quantize.masks import STEPS, WIDTH, attention
from tests.edge_export.hostile import edge_export

LARGEST = float(np.finfo(np.float32).max)


@pytest.mark.parametrize("by", ["Add", "Where"])
@pytest.mark.parametrize("masked", [-np.inf, -LARGEST, -1e9])
def test_a_mask_and_its_softmax_stay_in_float_and_the_products_do_not(masked: float, by: str) -> None:
    graph = from_proto(attention(masked, by=by)).graph
    assert quantised(graph) == {"query", "values"}
    assert not fault_of(graph)


@pytest.mark.parametrize("weight", [np.nan, np.inf, -np.inf])
def test_a_weight_that_is_not_finite_is_refused_beside_a_mask_that_may_be(weight: float) -> None:
    assert (
        fault_of(from_proto(attention(-np.inf, weight=weight)).graph)
        == "1 values of 'w' (read by query) are not finite"
    )


@pytest.mark.slow
@pytest.mark.parametrize("masked", [-np.inf, -LARGEST])
def test_every_variant_of_a_masked_attention_is_made_in_both_formats(masked: float, tmp_path: Path) -> None:
    onnx.save(attention(masked), str(tmp_path / "m.onnx"))
    (tmp_path / "data").mkdir()
    for k in range(3):
        x = np.random.default_rng(k).normal(size=(32, STEPS, WIDTH)).astype(np.float32)
        np.savez(tmp_path / "data" / f"r{k}.npz", x=x)
    options = ["--recording", str(tmp_path / "data"), "-o", str(tmp_path / "q")]
    options += ["--format", "tflite", "--format", "onnx"]
    done = edge_export("quantize", str(tmp_path / "m.onnx"), *options)
    assert done.code == 0, done.said
    report = (tmp_path / "q" / "quantize-report.md").read_text()
    for name in ("int8", "int8-tflite", "int8-dynamic", "fp32-tflite"):
        row = next(line for line in report.splitlines() if line.startswith(f"| {name} "))
        assert "does not run" not in row
        assert float(row.split("|")[4].strip().split()[0]) > 25, row
