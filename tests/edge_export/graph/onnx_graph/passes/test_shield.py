"""A layer that was left in float stays in float on the device."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import numpy as np
import pytest
from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise
from edge_export.graph.quantize import Scheme, quantize

from tests.edge_export.graphs import GraphBuilder, device_net, minimise, onnx_answers, onnx_operators, shield, windows


@pytest.mark.parametrize("activations", ["uint8", "int8"])
@pytest.mark.parametrize("kept", ["Conv_3", "Conv_5"])
def test_onnxruntime_computes_a_float_layer_in_float(
    kept: str, activations: Literal["uint8", "int8"], tmp_path: Path
) -> None:
    x = windows(64, 3, 40)
    model = canonicalise(quantize(canonicalise(device_net()), x, Scheme(activations=activations, exclude=(kept,))))
    shielded = minimise(shield(model))
    found = onnx_operators(shielded, tmp_path)
    assert (found["QLinearConv"], found["Conv"] + found["FusedConv"]) == (2, 1)
    exact = onnx_answers(model, x, optimize=False)
    np.testing.assert_array_equal(onnx_answers(shielded, x, optimize=False), exact)
    np.testing.assert_allclose(onnx_answers(shielded, x), exact, atol=1e-6)


def test_a_float_product_stays_one(tmp_path: Path) -> None:
    b = GraphBuilder(6, 8)
    t = b.node("MatMul", "window", b.weights(8, 12))
    t = b.node("Relu", b.node("Add", b.node("MatMul", t, b.weights(12, 8)), b.weights(8)))
    model, x = b.model(b.node("MatMul", t, b.weights(8, 5))), windows(32, 6, 8)
    middle = model.graph.node[1].name
    quantised = canonicalise(quantize(canonicalise(model), x, Scheme(activations="int8", exclude=(middle,))))
    shielded = shield(quantised)
    exact = onnx_answers(quantised, x, optimize=False)
    np.testing.assert_array_equal(onnx_answers(shielded, x, optimize=False), exact)
    assert onnx_operators(shielded, tmp_path).keys() & {"MatMul", "Gemm"}


@pytest.mark.parametrize("exclude", [(), ("Conv_1",)], ids=["all in integers", "no integers in front"])
def test_nothing_is_added_where_nothing_is_in_danger(exclude: tuple[str, ...]) -> None:
    model = canonicalise(
        quantize(canonicalise(device_net()), windows(64, 3, 40), Scheme(activations="int8", exclude=exclude))
    )
    assert shield(model).SerializeToString() == model.SerializeToString()


def test_a_float_model_stays_as_it_is() -> None:
    model = canonicalise(device_net())
    assert shield(model).SerializeToString() == model.SerializeToString()
