"""Slim files answer with the same bits, in fewer bytes, and every reader still takes them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import pytest
from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise
from edge_export.graph.quantize import Scheme, quantize
from edge_export.graph.tflite.convert import convert
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from tests.edge_export.graphs import GraphBuilder, device_net, minimise, onnx_answers, onnx_operators, windows


def quantised(**scheme: Any) -> onnx.ModelProto:
    return canonicalise(quantize(canonicalise(device_net()), windows(64, 3, 40), Scheme(**scheme)))


@pytest.mark.parametrize("activations", ["uint8", "int8"])
@pytest.mark.parametrize("per_channel", [True, False])
@pytest.mark.parametrize("optimize", [True, False])
def test_integers_give_the_same_bits(activations: Literal["uint8", "int8"], per_channel: bool, optimize: bool) -> None:
    model, x = quantised(activations=activations, per_channel=per_channel), windows(32, 3, 40, seed=5)
    smaller = minimise(model)
    onnx.checker.check_model(smaller, full_check=True)
    np.testing.assert_array_equal(
        onnx_answers(smaller, x, optimize=optimize), onnx_answers(model, x, optimize=optimize)
    )


@pytest.mark.parametrize("activations", ["uint8", "int8"])
@pytest.mark.parametrize("per_channel", [True, False])
def test_onnxruntime_still_runs_integer_kernels(
    activations: Literal["uint8", "int8"], per_channel: bool, tmp_path: Path
) -> None:
    model = quantised(activations=activations, per_channel=per_channel)
    found = onnx_operators(minimise(model), tmp_path)
    assert found == onnx_operators(model, tmp_path)
    assert found["QLinearConv"] == 3


def test_floats_give_the_same_bits() -> None:
    model, x = canonicalise(device_net()), windows(32, 3, 40)
    np.testing.assert_array_equal(onnx_answers(minimise(model), x), onnx_answers(model, x))


@given(st.data())
@settings(max_examples=25, deadline=None, derandomize=True)
def test_settings_other_than_the_defaults_stay(data: st.DataObject) -> None:
    pick = data.draw
    kernel, strides, dilations = (pick(st.integers(1, 3), label=each) for each in ("kernel", "strides", "dilations"))
    pads, group = pick(st.lists(st.integers(0, 2), min_size=2, max_size=2)), pick(st.sampled_from([1, 2]))
    b = GraphBuilder(4, 20)
    t = b.conv(
        "window", 4, 6, kernel, group=group, strides=[strides], pads=pads, dilations=[dilations], kernel_shape=[kernel]
    )
    t = b.node("MaxPool", t, kernel_shape=[2], strides=[pick(st.integers(1, 2), label="pool")])
    model, x = b.model(b.node("Softmax", t, axis=pick(st.sampled_from([-1, 1]), label="axis"))), windows(2, 4, 20)
    smaller = minimise(model)
    np.testing.assert_array_equal(onnx_answers(smaller, x), onnx_answers(model, x))
    kept = {attribute.name for attribute in smaller.graph.node[0].attribute}
    assert ("group" in kept, "strides" in kept, "pads" in kept) == (group != 1, strides != 1, any(pads))
    assert "kernel_shape" not in kept


def test_the_caller_s_names_stay_and_the_others_are_short_and_unlike() -> None:
    model = minimise(quantised(activations="uint8"))
    graph = model.graph
    assert [info.name for info in (*graph.input, *graph.output)] == ["window", device_net().graph.output[0].name]
    made = [name for node in graph.node for name in node.output] + [tensor.name for tensor in graph.initializer]
    assert len(set(made)) == len(made)
    assert all(1 <= len(name) <= 2 and name.isalpha() for name in made if name != graph.output[0].name)
    assert not any(node.name for node in graph.node)


def test_an_inner_name_never_takes_that_of_an_output() -> None:
    b = GraphBuilder(2, 4)
    model = b.model(b.node("Relu", b.node("Relu", "window")))
    for names in (*(node.output for node in model.graph.node), *(node.input for node in model.graph.node)):
        names[:] = ["a" if name == model.graph.output[0].name else name for name in names]
    model.graph.output[0].name = "a"
    x = windows(1, 2, 4)
    np.testing.assert_array_equal(onnx_answers(minimise(model), x), np.maximum(x, 0))


def test_slimming_twice_changes_nothing_and_the_argument_stays() -> None:
    model = quantised(activations="int8")
    before = model.SerializeToString()
    once = minimise(model)
    assert minimise(once).SerializeToString() == once.SerializeToString()
    assert model.SerializeToString() == before


def test_an_integer_file_loses_a_third() -> None:
    model = quantised(activations="uint8")
    assert len(minimise(model).SerializeToString()) < 0.67 * len(model.SerializeToString())


def test_the_tensorflow_lite_file_is_the_same() -> None:
    model = quantised(activations="int8")
    assert convert(minimise(model), compact=True) == convert(model, compact=True)


def test_equal_constants_are_stored_once_however_they_were_written() -> None:
    b = GraphBuilder(3, 8)
    numbers = np.array([1.5, 2.5, 3.5], np.float32)
    one, two = (b.constant(numbers.reshape(3, 1)) for _ in range(2))
    b.constants.append(helper.make_tensor("typed", TensorProto.FLOAT, [3, 1], numbers.tolist()))
    other = b.constant(numbers.reshape(1, 3, 1))
    t = b.node("Add", b.node("Sub", b.node("Mul", "window", one), two), "typed")
    model = b.model(b.node("Mul", t, other))
    smaller, x = minimise(model), windows(2, 3, 8)
    assert [list(tensor.dims) for tensor in smaller.graph.initializer] == [[3, 1], [1, 3, 1]]
    np.testing.assert_array_equal(onnx_answers(smaller, x), onnx_answers(model, x))


def _convolution(bias: np.ndarray, readers: int = 1) -> onnx.ModelProto:
    """A convolution with an integer bias, as quantisers write it."""
    b = GraphBuilder(1, 6)
    step, zero = b.constant(np.float32(0.5)), b.constant(np.int8(0))
    weights = b.node("DequantizeLinear", b.constant(np.ones((2, 1, 1), np.int8)), step, zero)
    own = b.constant(np.float32(0.25))
    addend = b.node("DequantizeLinear", b.constant(bias.astype(np.int32)), own, b.constant(np.int32(0)))
    results = []
    for _ in range(readers):
        t = b.node("DequantizeLinear", b.node("QuantizeLinear", "window", step, zero), step, zero)
        results.append(b.node("Conv", t, weights, addend))
    t = results[0] if readers == 1 else b.node("Add", *results)
    return b.model(t)


def test_a_bias_is_stored_as_plain_numbers_where_the_integers_come_back() -> None:
    model = minimise(_convolution(np.array([3, -70000])))
    plain = [numpy_helper.to_array(tensor) for tensor in model.graph.initializer if list(tensor.dims) == [2]]
    np.testing.assert_array_equal(plain, [np.array([0.75, -17500], np.float32)])


@pytest.mark.parametrize(
    ("bias", "readers"), [([2**24 + 1, 0], 1), ([3, 4], 2)], ids=["not exact in float32", "read twice"]
)
def test_other_biases_stay_integers(bias: list[int], readers: int) -> None:
    model = _convolution(np.array(bias), readers)
    smaller, x = minimise(model), windows(2, 1, 6)
    kept = [
        numpy_helper.to_array(tensor) for tensor in smaller.graph.initializer if tensor.data_type == TensorProto.INT32
    ]
    assert any(np.array_equal(array, bias) for array in kept)
    np.testing.assert_array_equal(onnx_answers(smaller, x), onnx_answers(model, x))


def test_a_graph_with_graphs_inside_is_left_as_it_is() -> None:
    inner = helper.make_graph(
        [helper.make_node("Identity", ["window"], ["same"], name="inner")],
        "inner",
        [],
        [helper.make_tensor_value_info("same", TensorProto.FLOAT, None)],
    )
    graph = helper.make_graph(
        [helper.make_node("If", ["yes"], ["result"], then_branch=inner, else_branch=inner, name="outer")],
        "outer",
        [helper.make_tensor_value_info("window", TensorProto.FLOAT, ["batch", 2])],
        [helper.make_tensor_value_info("result", TensorProto.FLOAT, ["batch", 2])],
        [numpy_helper.from_array(np.array(True), "yes")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)
    assert minimise(model).SerializeToString() == model.SerializeToString()
