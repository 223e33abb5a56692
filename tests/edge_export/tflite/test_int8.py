"""Operators between DequantizeLinear and QuantizeLinear become int8, with the integers of the ONNX graph to a step."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from edge_export.tflite.convert import convert
from edge_export.tflite.errors import UnsupportedNodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from edge_runtime.errors import ConfigError
from tests.edge_export.graphs import windows
from tests.edge_export.tflite.compare import (
    Net,
    is_open,
    last_steps,
    on_onnx,
    on_tflite,
    operators,
    random_inputs,
    steps_apart,
)

Make = Callable[[Net, str], str]


def between(make: Make, *sizes: int, low: float = -4, high: float = 4, seed: int = 0) -> onnx.ModelProto:
    """An operator with int8 before and behind it."""
    b = Net(*(sizes or (4, 10)), seed=seed)
    t = make(b, b.quantized("window", -4, 4))
    return b.finish(b.quantized(t, low, high))


def one(operator: str, **attributes: object) -> Make:
    return lambda b, t: b.node(operator, t, **attributes)


def other(b: Net, t: str) -> str:
    """A second activation of another step."""
    return b.quantized(b.node("Mul", t, b.number(0.7)), -2.5, 2.7)


def two(operator: str) -> Make:
    return lambda b, t: b.node(operator, t, other(b, t))


def convolution(axis: int | None, group: int = 1, **settings: object) -> Make:
    def make(b: Net, t: str) -> str:
        weights = b.random.standard_normal((8, 4 // group, 3)).astype(np.float32) / 3
        return b.node("Conv", t, b.parameter(weights, axis), b.weights(8), group=group, **settings)

    return make


def transposed(b: Net, t: str) -> str:
    weights = b.random.standard_normal((4, 3, 3)).astype(np.float32) / 3
    return b.node("ConvTranspose", t, b.parameter(weights, 1), b.weights(3), strides=[2], pads=[1, 1])


def matrix(axis: int | None) -> Make:
    def make(b: Net, t: str) -> str:
        return b.node("MatMul", t, b.parameter(b.random.standard_normal((10, 6)).astype(np.float32) / 3, axis))

    return make


def batch_matrix(b: Net, t: str) -> str:
    return b.node("MatMul", t, b.quantized(b.node("Transpose", t, perm=[0, 2, 1]), -4, 4))


def clip6(b: Net, t: str) -> str:
    return b.node("Clip", t, b.number(0), b.number(6))


# operator, range of the result, largest difference in steps, largest share of answers that differ at all
FORMS: dict[str, tuple[Make, tuple[float, float], float]] = {
    "ADD": (two("Add"), (-6, 6), 1),
    "ADD of a constant": (lambda b, t: b.node("Add", t, b.parameter(b.weights_of(4, 1))), (-6, 6), 1),
    "ADD of a number": (lambda b, t: b.node("Add", t, b.number(0.37)), (-4, 4.3), 1),
    "SUB": (two("Sub"), (-3, 3), 1),
    "MUL": (two("Mul"), (-8, 8), 1),
    "MUL by a number": (lambda b, t: b.node("Mul", t, b.number(-0.37)), (-1.5, 1.5), 1),
    "MAXIMUM": (two("Max"), (-2, 4), 1),
    "MINIMUM": (two("Min"), (-4, 2), 1),
    "CONCATENATION": (lambda b, t: b.node("Concat", t, other(b, t), axis=1), (-4, 4), 1),
    "CONCATENATION with a constant": (
        lambda b, t: b.node("Concat", t, b.parameter(b.weights_of(1, 4, 3)), axis=2), (-4, 4), 1,
    ),
    "MAX_POOL_2D": (one("MaxPool", kernel_shape=[3], strides=[2], pads=[1, 1]), (-4, 4), 0),
    "MAX_POOL_2D, padded": (one("MaxPool", kernel_shape=[3], strides=[2], pads=[2, 0]), (-4, 4), 0),
    "AVERAGE_POOL_2D": (one("AveragePool", kernel_shape=[2], strides=[2]), (-4, 4), 1),
    "MEAN": (one("GlobalAveragePool"), (-3, 3), 1),
    "SUM": (lambda b, t: b.node("ReduceSum", t, b.ints(2)), (-20, 20), 1),
    "REDUCE_MAX": (lambda b, t: b.node("ReduceMax", t, b.ints(2), keepdims=0), (-3, 4), 1),
    "LOGISTIC": (one("Sigmoid"), (0, 1), 1),
    "TANH": (one("Tanh"), (-1, 1), 1),
    "SOFTMAX": (one("Softmax", axis=2), (0, 1), 1),
    "SOFTMAX over channels": (one("Softmax", axis=1), (0, 1), 1),
    "RELU": (one("Relu"), (0, 4), 1),
    "RELU6": (clip6, (0, 6), 1),
    "LEAKY_RELU": (one("LeakyRelu", alpha=0.1), (-0.4, 4), 1),
    "HARD_SWISH": (one("HardSwish"), (-0.4, 4), 1),
    "ELU": (one("Elu"), (-1, 4), 1),
    "GELU": (one("Gelu"), (-0.2, 4), 1),
    "ABS": (one("Abs"), (0, 4), 1),
    "PAD": (lambda b, t: b.node("Pad", t, b.ints(0, 0, 2, 0, 1, 3)), (-4, 4), 0),
    "PADV2": (lambda b, t: b.node("Pad", t, b.ints(0, 0, 2, 0, 1, 3), b.number(1.5)), (-4, 4), 1),
    "MIRROR_PAD": (lambda b, t: b.node("Pad", t, b.ints(0, 0, 2, 0, 0, 3), mode="reflect"), (-4, 4), 0),
    "GATHER, edge": (lambda b, t: b.node("Pad", t, b.ints(0, 0, 2, 0, 0, 3), mode="edge"), (-4, 4), 0),
    "RESHAPE": (lambda b, t: b.node("Reshape", t, b.ints(0, -1)), (-4, 4), 0),
    "TRANSPOSE": (one("Transpose", perm=[0, 2, 1]), (-4, 4), 0),
    "TRANSPOSE, rescaled": (one("Transpose", perm=[0, 2, 1]), (-2, 3), 0),
    "STRIDED_SLICE": (lambda b, t: b.node("Slice", t, b.ints(1), b.ints(9), b.ints(2), b.ints(3)), (-4, 4), 0),
    "GATHER": (lambda b, t: b.node("Gather", t, b.constant(np.array(3)), axis=2), (-4, 4), 0),
    "TILE": (lambda b, t: b.node("Tile", t, b.ints(1, 2, 1)), (-4, 4), 0),
    "CONV_2D": (convolution(0, pads=[1, 1]), (-6, 6), 1),
    "CONV_2D, one scale": (convolution(None, pads=[2, 0], strides=[2]), (-6, 6), 1),
    "CONV_2D, dilated": (convolution(0, dilations=[2], pads=[4, 0]), (-6, 6), 1),
    "CONV_2D, grouped": (convolution(0, group=2, pads=[1, 1]), (-6, 6), 1),
    "DEPTHWISE_CONV_2D": (convolution(0, group=4, pads=[1, 1]), (-6, 6), 1),
    "TRANSPOSE_CONV": (transposed, (-6, 6), 1),
    "CONV_2D for a dense layer": (matrix(1), (-8, 8), 1),
    "FULLY_CONNECTED": (matrix(None), (-8, 8), 1),
    "BATCH_MATMUL": (batch_matrix, (-20, 60), 1),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_an_int8_operator(name: str) -> None:
    make, (low, high), most = FORMS[name]
    model = between(make, low=low, high=high)
    written = convert(model)
    expected = name.split(maxsplit=1)[0].rstrip(",")
    assert expected in operators(written)
    # Nothing but the edges is float.
    edges = operators(written)
    assert edges.count("DEQUANTIZE") == 1
    for seed in range(5):
        apart = steps_apart(model, random_inputs(model, 1, seed, 1.5))
        assert apart.max() < most + 0.01, f"{apart.max()} steps apart"
    if is_open(written):
        inputs = random_inputs(model, 4, 7)
        whole = on_tflite(written, inputs, 4)[0]
        rows = [on_tflite(written, {k: v[i : i + 1] for k, v in inputs.items()})[0] for i in range(4)]
        np.testing.assert_array_equal(whole, np.concatenate(rows))


@pytest.mark.parametrize(
    ("make", "operator"),
    [
        (two("Div"), "DIV"),
        (one("Exp"), "EXP"),
        (lambda b, t: b.node("Clip", t, b.number(-1), b.number(2)), "MAXIMUM"),
        (one("Softmax", axis=2), "SOFTMAX"),
        (one("AveragePool", kernel_shape=[3], pads=[2, 0]), "MUL"),
    ],
)
def test_what_int8_cannot_do_is_float_between_integers(make: Make, operator: str) -> None:
    """The last two have an int8 form, but not one as fine as the graph's own step, or as its share of the padding."""
    model = between(lambda b, t: make(b, b.node("Add", b.node("Abs", t), b.number(1))), low=0, high=0.5)
    written = operators(convert(model))
    assert operator in written
    assert written.count("QUANTIZE") >= 2
    assert steps_apart(model).max() < 1.01


def test_parts_of_an_int8_split() -> None:
    b = Net(4, 10)
    parts = b.nodes_of("Split", b.quantized("window", -4, 4), outputs=2, axis=1, num_outputs=2)
    model = b.finish(b.quantized(parts[0], -4, 4), b.quantized(parts[1], -2, 2))
    assert operators(convert(model)).count("SPLIT") == 1
    inputs = random_inputs(model, 1)
    for answer, exact in zip(on_tflite(convert(model), inputs), on_onnx(model, inputs), strict=True):
        np.testing.assert_allclose(answer, exact, atol=1e-6)


@given(st.data())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_any_int8_convolution_is_the_same_to_a_step(data: st.DataObject) -> None:
    pick = data.draw
    axes = pick(st.integers(1, 2), label="axes")
    kernel = pick(st.lists(st.integers(1, 5), min_size=axes, max_size=axes), label="kernel")
    strides = pick(st.lists(st.integers(1, 3), min_size=axes, max_size=axes), label="strides")
    dilations = pick(st.lists(st.integers(1, 3), min_size=axes, max_size=axes), label="dilations")
    pads = pick(st.lists(st.integers(0, 3), min_size=2 * axes, max_size=2 * axes), label="pads")
    groups = pick(st.sampled_from([1, 2, 6]), label="groups")
    axis = pick(st.sampled_from([0, None]), label="scales along")
    after = groups * pick(st.integers(1, 3), label="outputs per group")
    seed = pick(st.integers(0, 99), label="seed")
    b = Net(6, *((24,) if axes == 1 else (13, 17)), seed=seed)
    weights = b.random.standard_normal((after, 6 // groups, *kernel)).astype(np.float32)
    weights /= np.float32(np.sqrt(weights[0].size))
    t = b.node(
        "Conv", b.quantized("window", -3, 5), b.parameter(weights, axis), b.weights(after),
        group=groups, strides=strides, dilations=dilations, pads=pads,
    )  # fmt: skip
    model = b.finish(b.quantized(t, *sorted(pick(st.sampled_from([(-5, 5), (0, 4), (-1, 7)]), label="range"))))
    apart = steps_apart(model, random_inputs(model, 1, seed))
    assert apart.max() < 1.01
    assert (apart > 0.01).mean() < 0.01


def net_with_states(b: Net) -> tuple[str, str]:
    """A hop of a streaming convolution: what it remembers goes in and out."""
    state = b.quantized(b.input("state", [1, 4, 2]), -4, 4)
    t = b.quantized("window", -4, 4)
    whole = b.quantized(b.node("Concat", state, t, axis=2), -4, 4)
    weights = b.random.standard_normal((5, 4, 3)).astype(np.float32) / 3
    result = b.quantized(b.node("Conv", whole, b.parameter(weights, 0), b.weights(5)), -6, 6)
    kept = b.quantized(b.node("Slice", whole, b.ints(-2), b.ints(2**40), b.ints(2)), -4, 4)
    return result, kept


def test_int8_states_go_in_and_out() -> None:
    b = Net(4, 3, batch=1)
    model = b.finish(*net_with_states(b))
    written = convert(model, io="int8")
    assert not {"QUANTIZE", "DEQUANTIZE"} & set(operators(written))
    inputs = random_inputs(model, 1)
    step = np.float32(8 / 255)
    stored = {
        name: np.clip(np.rint(array / step) + np.rint(-128 + 4 / step), -128, 127).astype(np.int8)
        for name, array in inputs.items()
    }
    answers, exact = on_tflite(written, stored), on_onnx(model, inputs)
    assert all(answer.dtype == np.int8 for answer in answers)
    zeros = [np.rint(-128 + 6 / np.float32(12 / 255)), np.rint(-128 + 4 / step)]
    for answer, reference, scale, zero in zip(answers, exact, last_steps(model), zeros, strict=True):
        assert np.abs((answer - zero) * scale - reference).max() <= 1.01 * scale
    floats = on_tflite(convert(model), inputs)
    for answer, reference in zip(floats, exact, strict=True):
        np.testing.assert_allclose(answer, reference, atol=0.05)


def test_int8_files_are_smaller_than_float_ones() -> None:
    def net(*, stored: bool) -> bytes:
        b = Net(16, 32)
        t, before = b.quantized("window", -4, 4) if stored else "window", 16
        for _ in range(4):
            array = b.weights_of(64, before, 5) / 18
            t = b.node("Conv", t, b.parameter(array, 0) if stored else b.constant(array), b.weights(64), pads=[2, 2])
            t, before = b.quantized(t, -4, 4) if stored else b.node("Relu", t), 64
        return convert(b.finish(t))

    assert len(net(stored=True)) < 0.3 * len(net(stored=False))


def test_two_readers_with_one_step_share_an_int8_input() -> None:
    b = Net(4, 10)
    step = b.constant(np.float32(0.05)), b.constant(np.int8(3))
    first, second = (b.node("DequantizeLinear", b.node("QuantizeLinear", "window", *step), *step) for _ in range(2))
    model = b.finish(b.quantized(b.node("Add", first, second), -6, 6))
    assert operators(convert(model, io="int8")) == ["ADD"]


def test_a_requantised_tensor_is_one_operator() -> None:
    b = Net(4, 10)
    model = b.finish(b.quantized(b.quantized("window", -4, 4), -2, 2))
    assert operators(convert(model)) == ["QUANTIZE", "QUANTIZE", "DEQUANTIZE"]
    assert steps_apart(model).max() < 0.01


def test_other_integers_are_refused_with_the_remedy() -> None:
    b = Net(4, 10, opset=21)
    step = b.constant(np.float32(0.05)), b.constant(np.int16(3))
    t = b.node("DequantizeLinear", b.node("QuantizeLinear", "window", *step), *step)
    with pytest.raises((UnsupportedNodeError, ConfigError), match="quantise the model as s8s8"):
        convert(b.finish(b.node("Relu", t)))


def test_scales_along_another_axis_are_refused() -> None:
    model = between(matrix(0), low=-8, high=8)
    with pytest.raises(UnsupportedNodeError, match="must run along the outputs"):
        convert(model)


def test_a_float_layer_may_stand_between_integers() -> None:
    """A layer that an accuracy loop has kept in float."""
    b = Net(4, 10)
    t = b.conv(b.quantized("window", -4, 4), 4, 8, 3)
    model = b.finish(b.quantized(t, -6, 6))
    written = operators(convert(model))
    assert written.count("QUANTIZE") == written.count("DEQUANTIZE") == 2
    x = {"window": windows(1, 4, 10)}
    np.testing.assert_allclose(on_tflite(convert(model), x)[0], on_onnx(model, x)[0], atol=0.05)


def test_four_bit_weights_are_written_as_bytes() -> None:
    b = Net(4, 10, opset=21)
    stored = b.random.integers(-7, 8, (8, 4, 3))
    names = ["w", "scale", "zero"]
    b.constants += [
        helper.make_tensor(names[0], TensorProto.INT4, stored.shape, stored.ravel().tolist()),
        helper.make_tensor(names[1], TensorProto.FLOAT, [8], np.linspace(0.05, 0.1, 8).tolist()),
        helper.make_tensor(names[2], TensorProto.INT4, [8], [0] * 8),
    ]
    weights = b.node("DequantizeLinear", *names, axis=0)
    model = b.finish(b.quantized(b.node("Conv", b.quantized("window", -4, 4), weights, b.weights(8)), -6, 6))
    assert "CONV_2D" in operators(convert(model))
    assert steps_apart(model).max() < 1.01


def test_scales_per_block_are_refused() -> None:
    b = Net(4, 10, opset=21)
    stored, scale = b.constant(np.ones((10, 6), np.int8)), b.constant(np.ones((2, 6), np.float32))
    weights = b.node("DequantizeLinear", stored, scale, b.constant(np.zeros((2, 6), np.int8)), axis=0, block_size=5)
    with pytest.raises(UnsupportedNodeError, match="scales per block"):
        convert(b.finish(b.node("MatMul", "window", weights)))
