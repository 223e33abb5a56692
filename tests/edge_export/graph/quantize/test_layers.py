"""Layers as matrices: what numpy multiplies is what onnxruntime convolves."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from edge_export.graph.onnx_graph.model import from_proto, numbers
from edge_export.graph.onnx_graph.run import answers, observe
from edge_export.graph.quantize.layers import Layer, layers
from edge_export.graph.quantize.write import prepare
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper

from edge_runtime.errors import ConfigError
from tests.edge_export.graphs import GraphBuilder, windows


@given(
    kernel=st.integers(1, 4),
    stride=st.integers(1, 3),
    dilation=st.integers(1, 2),
    pads=st.tuples(st.integers(0, 3), st.integers(0, 3)),
    group=st.sampled_from([1, 2, 4]),
    flat=st.booleans(),
)
@settings(derandomize=True, deadline=None, max_examples=40)
def test_columns_times_matrix_is_the_convolution(
    kernel: int, stride: int, dilation: int, pads: tuple[int, int], group: int, flat: bool
) -> None:
    sizes = (17,) if flat else (11, 9)
    spatial = len(sizes)
    b = GraphBuilder(4, *sizes)
    t = b.conv(
        "window",
        4,
        8,
        *(kernel,) * spatial,
        group=group,
        strides=[stride] * spatial,
        dilations=[dilation] * spatial,
        pads=[pads[0]] * spatial + [pads[1]] * spatial,
    )
    model, x = b.model(t), windows(3, 4, *sizes)
    check(model, x)


@pytest.mark.parametrize("auto_pad", ["SAME_UPPER", "SAME_LOWER", "VALID"])
@pytest.mark.parametrize(("kernel", "stride"), [(3, 1), (4, 2), (5, 3)])
def test_padding_that_follows_from_the_sizes(auto_pad: str, kernel: int, stride: int) -> None:
    b = GraphBuilder(2, 19)
    check(b.model(b.conv("window", 2, 3, kernel, strides=[stride], auto_pad=auto_pad)), windows(2, 2, 19))


def check(model: onnx.ModelProto, x: np.ndarray) -> None:
    (layer,) = layers(from_proto(model).graph)
    assert layer.bias is not None
    check_matrix(layer)
    columns = layer.columns(x)
    assert columns.shape[1] == layer.positions(x)
    np.testing.assert_array_equal(layer.columns(x, 3), columns[:, ::3])
    product = columns @ layer.matrix().swapaxes(1, 2)
    expected = answers(model, x)
    flat = product.transpose(1, 0, 2).reshape(len(x), -1, expected.shape[1])
    got = np.moveaxis(flat, 2, 1).reshape(expected.shape)
    bias = numbers(layer.bias).reshape(1, -1, *[1] * (expected.ndim - 2))
    np.testing.assert_allclose(got + bias, expected, atol=1e-5)


def check_matrix(layer: Layer) -> None:
    weights, matrix = layer.weights, layer.matrix()
    assert matrix.shape[0] * matrix.shape[1] == layer.outputs
    layer.change_matrix(2 * matrix)
    np.testing.assert_array_equal(layer.weights, 2 * weights)
    layer.change_matrix(matrix)


def test_dense_layers_of_both_orders_are_found() -> None:
    b = GraphBuilder(1, 6)
    flat = b.node("Flatten", "window")
    one = b.dense(flat, 6, 5)
    two = b.node("MatMul", one, b.weights(5, 4))
    three = b.node("Gemm", two, b.weights(4, 3))
    scaled = b.node("Gemm", three, b.weights(3, 3), alpha=2.0)
    found = layers(from_proto(b.model(scaled)).graph)
    assert [(layer.operator, layer.outputs_first) for layer in found] == [
        ("Gemm", True),
        ("MatMul", False),
        ("Gemm", False),
    ]
    for layer in found:
        check_matrix(layer)


def test_weights_that_two_layers_share_are_left_alone() -> None:
    b = GraphBuilder(1, 4)
    shared = b.weights(4, 4)
    t = b.node("MatMul", b.node("MatMul", b.node("Flatten", "window"), shared), shared)
    assert layers(from_proto(b.model(t)).graph) == ()


def test_a_tensor_that_is_not_there_is_named() -> None:
    b = GraphBuilder(2, 8)
    model = b.model(b.conv("window", 2, 2, 3))
    with pytest.raises(ConfigError, match="computes no tensor 'elsewhere'"):
        next(observe(model, ["elsewhere"], windows(1, 2, 8)))


def test_a_model_that_does_not_run_says_why_in_one_line() -> None:
    b = GraphBuilder(2, 8)
    model = prepare(b.model(b.conv("window", 2, 2, 3)))
    with pytest.raises(ConfigError, match="does not run the model") as failed:
        next(observe(model, [model.graph.output[0].name], windows(1, 3, 8)))
    assert "\n" not in str(failed.value)
    model.graph.input.append(helper.make_tensor_value_info("second", 1, [1]))
    with pytest.raises(ConfigError, match="one input, not 2"):
        next(observe(model, [], windows(1, 2, 8)))
