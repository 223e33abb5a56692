"""Operators between DequantizeLinear and QuantizeLinear become int8, with the integers of the ONNX graph to a step."""

from __future__ import annotations

import numpy as np
import pytest
from edge_export.graph.tflite.convert import convert
from edge_export.graph.tflite.errors import UnsupportedNodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from edge_runtime.errors import ConfigError
from tests.edge_export.graph.tflite.compare import (
    Net,
    is_open,
    last_steps,
    on_onnx,
    on_tflite,
    operators,
    random_inputs,
    steps_apart,
)
from tests.edge_export.graph.tflite.int8_forms import FORMS, Make, between, matrix, one, two
from tests.edge_export.graphs import windows


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
