"""Float16: close answers, float32 at both ends, and no silent overflow."""

from __future__ import annotations

import numpy as np
import onnx
from edge_export.onnx_graph.graph import answers
from edge_export.onnx_graph.passes.canonicalise import clean
from edge_export.quantize.half import to_half
from edge_export.quantize.weights4 import size_of
from edge_export.quantize.write import prepare
from onnx import TensorProto

from tests.edge_export.graphs import GraphBuilder, device_net, onnx_answers, windows


def test_it_answers_alike_in_half_the_bytes() -> None:
    b = GraphBuilder(3, 40)
    t = b.node("Relu", b.conv("window", 3, 64, 7))
    t = b.node("Flatten", b.node("GlobalAveragePool", b.node("Relu", b.conv(t, 64, 64, 5))))
    model, x = prepare(b.model(b.node("Softmax", b.dense(t, 64, 6), axis=1))), windows(64, 3, 40)
    half = to_half(model, x)
    onnx.checker.check_model(half.model, full_check=True)
    np.testing.assert_allclose(onnx_answers(half.model, x), answers(model, x), atol=2e-3)
    assert half.float32_nodes == ()
    assert size_of(half.model).file < 0.55 * size_of(model).file
    for info in (*half.model.graph.input, *half.model.graph.output):
        assert info.type.tensor_type.elem_type == TensorProto.FLOAT


def test_physical_units_beyond_float16_stay_in_float32() -> None:
    """Air pressure in pascal, brought to 1 by the graph's own first node."""
    b = GraphBuilder(1, 32)
    t = b.node("Div", b.node("Sub", "window", b.constant(np.float32(1000))), b.constant(np.float32(1e5)))
    model = prepare(b.model(b.node("Relu", b.conv(t, 1, 4, 5))))
    x = (101_325 + 500 * windows(32, 1, 32)).astype(np.float32)
    half = to_half(model, x)
    assert half.float32_nodes
    assert "Conv" not in {node.op_type for node in model.graph.node if node.name in half.float32_nodes}
    np.testing.assert_allclose(onnx_answers(half.model, x), answers(model, x), atol=5e-3)


def test_a_constant_beyond_float16_keeps_its_reader_in_float32() -> None:
    b = GraphBuilder(1, 8)
    t = b.node("Mul", b.node("Mul", "window", b.constant(np.float32(1e-6))), b.constant(np.float32(1e6)))
    model, x = prepare(b.model(b.node("Relu", t))), windows(4, 1, 8)
    half = to_half(model, x)
    assert len(half.float32_nodes) == 1
    np.testing.assert_allclose(onnx_answers(half.model, x), answers(model, x), rtol=0.1, atol=0.1)


def test_the_device_s_net_keeps_its_answers() -> None:
    model, x = prepare(clean(device_net())), windows(64, 3, 40)
    given = onnx_answers(to_half(model, x).model, x)
    np.testing.assert_array_equal(given.argmax(axis=1), answers(model, x).argmax(axis=1))
