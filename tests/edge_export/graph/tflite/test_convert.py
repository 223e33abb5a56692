"""ONNX to TensorFlow Lite: the same numbers on the other engine, or a clear refusal."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter
from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise
from edge_export.graph.quantize import Scheme, quantize
from edge_export.graph.tflite.convert import convert
from edge_export.graph.tflite.errors import UnsupportedNodeError
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from edge_runtime.errors import ConfigError
from edge_runtime.model.bundle.model_files import check
from tests.edge_export.graph.tflite.compare import Net, same
from tests.edge_export.graphs import GraphBuilder, device_net, onnx_answers, operators, tflite_answers, windows


def int8(model: onnx.ModelProto, x: np.ndarray, **scheme: Any) -> onnx.ModelProto:
    return canonicalise(quantize(canonicalise(model), x, Scheme(activations="int8", **scheme)))


def same_float(model: onnx.ModelProto, x: np.ndarray) -> bytes:
    """Convert and compare, singly and in batches."""
    written = convert(model)
    expected = onnx_answers(model, x)
    np.testing.assert_allclose(tflite_answers(written, x), expected, atol=2e-5, rtol=1e-4)
    np.testing.assert_allclose(tflite_answers(written, x, batch=len(x)), expected, atol=2e-5, rtol=1e-4)
    return written


def steps_apart(model: onnx.ModelProto, x: np.ndarray) -> np.ndarray:
    """Differences between the exact answers of an int8 graph and LiteRT's, in steps of its last quantisation."""
    (last,) = [node for node in model.graph.node if model.graph.output[0].name in node.output]
    scale = next(numpy_helper.to_array(t) for t in model.graph.initializer if t.name == last.input[1])
    exact = onnx_answers(model, x, optimize=False)
    apart: np.ndarray = np.abs(tflite_answers(convert(model), x) - exact) / float(scale)
    return apart


def test_the_device_net_is_the_same_in_floats() -> None:
    written = same_float(device_net(), windows(16, 3, 40))
    check(written, "tflite")


@given(st.data())
@settings(max_examples=40, deadline=None, derandomize=True)
def test_any_convolution_is_the_same_in_floats(data: st.DataObject) -> None:
    flat = data.draw(st.booleans(), label="1-D")
    axes = 1 if flat else 2
    pick = data.draw
    kernel = pick(st.lists(st.integers(1, 5), min_size=axes, max_size=axes), label="kernel")
    strides = pick(st.lists(st.integers(1, 3), min_size=axes, max_size=axes), label="strides")
    pads = pick(st.lists(st.integers(0, 3), min_size=2 * axes, max_size=2 * axes), label="pads")
    # LiteRT's kernels take dilation only at stride 1.
    dilations = pick(st.lists(st.integers(1, 3), min_size=axes, max_size=axes)) if strides == [1] * axes else [1] * axes
    depthwise, channels = pick(st.booleans(), label="depthwise"), pick(st.integers(2, 5), label="channels")
    after = channels * pick(st.integers(1, 2)) if depthwise else pick(st.integers(1, 6))
    sizes = (24,) if flat else (13, 17)
    b = GraphBuilder(channels, *sizes, seed=pick(st.integers(0, 99)))
    t = b.conv(
        "window", channels, after, *kernel, group=channels if depthwise else 1,
        strides=strides, pads=pads, dilations=dilations,
    )  # fmt: skip
    activation = pick(st.sampled_from(["", "Relu", "Clip"]))
    if activation == "Clip":
        t = b.node("Clip", t, b.constant(np.float32(0)), b.constant(np.float32(6)))
    elif activation:
        t = b.node(activation, t)
    same_float(b.model(t), windows(3, channels, *sizes))


def test_pools_means_and_reshapes_are_the_same_in_floats() -> None:
    x = windows(4, 4, 12, 16)
    b = GraphBuilder(4, 12, 16)
    t = b.node("MaxPool", "window", kernel_shape=[3, 3], strides=[2, 2], pads=[0, 0, 1, 1])
    t = b.node("AveragePool", t, kernel_shape=[2, 2], strides=[1, 2])
    t = b.node("Transpose", t, perm=[0, 2, 3, 1])
    t = b.node("Reshape", t, b.constant(np.array([0, -1, 4])))
    t = b.node("Transpose", t, perm=[0, 2, 1])
    t = b.node("Squeeze", b.node("GlobalAveragePool", t), b.constant(np.array([2])))
    t = b.node("MatMul", t, b.weights(4, 3))
    t = b.node("Unsqueeze", t, b.constant(np.array([1])))
    same_float(b.model(b.node("Flatten", t)), x)


def test_branches_that_meet_again_are_the_same_in_floats() -> None:
    b = GraphBuilder(4, 20)
    left, right = b.conv("window", 4, 4, 3, pads=[1, 1]), b.conv("window", 4, 4, 1)
    t = b.node("Sub", b.node("Mul", b.node("Relu", b.node("Add", left, right)), left), right)
    t = b.node("Add", b.constant(np.arange(4, dtype=np.float32).reshape(4, 1)), t)
    t = b.node("ReduceMean", t, b.constant(np.array([-1])), keepdims=1)
    same_float(b.model(b.node("Flatten", t)), windows(4, 4, 20))


@pytest.mark.parametrize("seed", range(3))
def test_the_quantised_device_net_is_the_same_to_a_step(seed: int) -> None:
    x = windows(200, 3, 40, seed=seed)
    model = int8(device_net(seed=seed), x)
    written = convert(model)
    exact, answered = onnx_answers(model, x, optimize=False), tflite_answers(written, x)
    # A logit that lies between two steps may be rounded either way.
    assert (np.abs(answered - exact).max(axis=1) > 1e-5).mean() < 0.05
    assert np.abs(answered - exact).max() < 0.05
    assert (answered.argmax(axis=1) == exact.argmax(axis=1)).mean() > 0.99
    np.testing.assert_array_equal(tflite_answers(written, x, batch=50), answered)


def test_the_body_is_int8_and_its_edges_are_float() -> None:
    model = int8(device_net(), windows(64, 3, 40))
    names = operators(convert(model))
    assert names[:2] == ["MUL", "QUANTIZE"]
    assert names[-3:] == ["DEQUANTIZE", "MUL", "SOFTMAX"]
    assert names.count("QUANTIZE") == names.count("DEQUANTIZE") == 1
    # One step for each convolution and the dense layer: every activation is fused.
    assert sum(name.endswith("CONV_2D") for name in names) == 4
    assert not {"RELU", "PAD"} & set(names)


@given(st.data())
@settings(max_examples=15, deadline=None, derandomize=True)
def test_any_quantised_convolution_is_the_same_to_a_step(data: st.DataObject) -> None:
    pick = data.draw
    kernel, stride = pick(st.integers(1, 7), label="kernel"), pick(st.integers(1, 3), label="stride")
    pads = [pick(st.integers(0, 3)), pick(st.integers(0, 3))]
    depthwise, relu = pick(st.booleans(), label="depthwise"), pick(st.booleans(), label="relu")
    seed = pick(st.integers(0, 99))
    b = GraphBuilder(6, 30, seed=seed)
    t = b.conv("window", 6, 6, kernel, group=6 if depthwise else 1, strides=[stride], pads=pads)
    t = b.node("Relu", t) if relu else t
    x = windows(32, 6, 30, seed=seed)
    apart = steps_apart(int8(b.model(t), x), x)
    assert apart.max() < 1.01
    assert (apart > 0.01).mean() < 0.01


def test_quantised_pools_sums_and_dense_layers_are_the_same_to_a_step() -> None:
    x = windows(64, 4, 16, 12)
    b = GraphBuilder(4, 16, 12)
    t = b.node("Relu", b.conv("window", 4, 8, 3, 3, pads=[1, 1, 1, 1]))
    t = b.node("MaxPool", t, kernel_shape=[2, 2], strides=[2, 2])
    t = b.node("Add", t, b.conv(t, 8, 8, 1, 1))
    t = b.node("AveragePool", t, kernel_shape=[2, 2], strides=[2, 2])
    t = b.dense(b.node("Flatten", t), 8 * 4 * 3, 5)
    apart = steps_apart(int8(b.model(t), x), x)
    # LiteRT's integer average pool rounds its sum, ONNX's reference a quotient: a step here and there, 96 times summed.
    assert apart.max() < 3.01
    assert apart.mean() < 1


def test_a_requantised_pool_keeps_its_numbers() -> None:
    """A pool whose QuantizeLinear has another step than its input: LiteRT's kernel cannot do both at once."""
    b = GraphBuilder(2, 16)
    steps = [b.constant(number) for number in (np.float32(0.05), np.int8(3), np.float32(0.11), np.int8(-9))]
    t = b.node("DequantizeLinear", b.node("QuantizeLinear", "window", *steps[:2]), *steps[:2])
    t = b.node("AveragePool", t, kernel_shape=[2], strides=[2])
    t = b.node("DequantizeLinear", b.node("QuantizeLinear", t, *steps[2:]), *steps[2:])
    model, x = b.model(t), windows(16, 2, 16)
    assert operators(convert(model)).count("QUANTIZE") == 2
    assert (np.abs(tflite_answers(convert(model), x) - onnx_answers(model, x, optimize=False)) / 0.11).max() < 1.01


def test_int8_outside_gives_the_integers_inside() -> None:
    x = windows(64, 3, 40)
    b = GraphBuilder(3, 40)
    t = b.node("Relu", b.conv("window", 3, 8, 5, pads=[2, 2]))
    model = int8(b.model(b.dense(b.node("Flatten", b.node("GlobalAveragePool", t)), 8, 4)), x)
    floats = tflite_answers(convert(model), x)
    written = convert(model, io="int8")
    assert not {"QUANTIZE", "DEQUANTIZE"} & set(operators(written))
    parameters = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    last = model.graph.node[-1]
    first = next(node for node in model.graph.node if "window" in node.input)
    scale, zero = parameters[first.input[1]], int(parameters[first.input[2]])
    stored = np.clip(np.rint(x / scale) + zero, -128, 127).astype(np.int8)
    scale, zero = parameters[last.input[1]], int(parameters[last.input[2]])
    np.testing.assert_allclose((tflite_answers(written, stored) - np.float32(zero)) * scale, floats, atol=1e-6)


def test_int8_outside_needs_quantisation_at_both_ends() -> None:
    model = int8(device_net(), windows(64, 3, 40))
    with pytest.raises(ConfigError, match="int8 input needs"):
        convert(model, io="int8")
    b = GraphBuilder(3, 8)
    step = b.constant(np.float32(0.1)), b.constant(np.int8(0))
    t = b.node("Relu", b.node("DequantizeLinear", b.node("QuantizeLinear", "window", *step), *step))
    with pytest.raises(ConfigError, match="int8 output needs"):
        convert(b.model(t), io="int8")


def test_the_same_graph_gives_the_same_bytes() -> None:
    x = windows(64, 3, 40)
    assert convert(int8(device_net(), x)) == convert(int8(device_net(), x))


def test_an_unknown_operator_is_named() -> None:
    b = GraphBuilder(3, 3)
    with pytest.raises(UnsupportedNodeError, match=r"node 'Det_0' \(Det\)") as caught:
        convert(b.model(b.node("Det", "window")))
    assert (caught.value.node, caught.value.op_type) == ("Det_0", "Det")


def dilated_pool() -> onnx.ModelProto:
    b = GraphBuilder(4, 8)
    return b.model(b.node("MaxPool", "window", kernel_shape=[2], dilations=[2]))


def computed_kernel() -> onnx.ModelProto:
    b = GraphBuilder(4, 8)
    kernel = b.node(
        "Reshape",
        b.node("Slice", "window", *(b.constant(np.array([i])) for i in (0, 1))),
        b.constant(np.array([4, 4, 2])),
    )
    return b.model(b.node("Conv", b.weights(1, 4, 8), kernel))


def automatic_size() -> onnx.ModelProto:
    b = GraphBuilder(4, 8)
    return b.model(b.node("ConvTranspose", "window", b.weights(4, 2, 3), auto_pad="SAME_UPPER"))


def computed_bounds() -> onnx.ModelProto:
    b = GraphBuilder(4, 8)
    end = b.node("Reshape", b.node("ArgMax", b.node("Flatten", "window"), axis=1), b.constant(np.array([-1])))
    first = b.node("Slice", end, b.constant(np.array([0])), b.constant(np.array([1])))
    return b.model(b.node("Sum", b.node("Pad", "window", b.node("Concat", *[first] * 6, axis=0))))


@pytest.mark.parametrize(
    "make",
    [
        dilated_pool,
        computed_kernel,
        automatic_size,
        computed_bounds,
    ],
)
def test_what_has_no_form_is_refused_and_named(make: Any) -> None:
    with pytest.raises(UnsupportedNodeError, match="cannot be written as TensorFlow Lite"):
        convert(make())


def test_unsigned_activations_become_signed_ones() -> None:
    x = windows(32, 3, 40)
    unsigned = canonicalise(quantize(device_net(), x, Scheme(activations="uint8")))
    written = convert(unsigned)
    signed = operators(convert(canonicalise(quantize(device_net(), x, Scheme(activations="int8")))))
    assert operators(written) == signed
    np.testing.assert_allclose(tflite_answers(written, x), onnx_answers(unsigned, x), atol=0.02)


def test_unsigned_integers_that_something_else_reads_are_refused() -> None:
    b = Net(3, 8)
    zero = b.constant(np.uint8(128))
    stored = b.node("QuantizeLinear", "window", b.number(0.02), zero)
    turned = b.node("DequantizeLinear", b.node("Transpose", stored), b.number(0.02), zero)
    with pytest.raises(ConfigError, match="uint8"):
        convert(b.finish(turned))


def test_asymmetric_weights_are_refused() -> None:
    model = int8(device_net(), windows(32, 3, 40))
    for tensor in model.graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype == np.int8 and array.ndim == 1 and array.size == 8:
            tensor.CopyFrom(numpy_helper.from_array(array + np.int8(1), tensor.name))
    with pytest.raises(UnsupportedNodeError, match="zero point 0"):
        convert(model)


def test_several_inputs_and_outputs_keep_their_names_and_order() -> None:
    b = Net(3, 8)
    state = b.input("state", ["batch", 3, 2])
    whole = b.node("Concat", state, "window", axis=2)
    kept = b.node("Slice", whole, b.ints(-2), b.ints(2**40), b.ints(2))
    model = b.finish(kept, b.conv(whole, 3, 4, 3), b.node("Identity", state), b.node("Identity", kept))
    model.graph.output.append(model.graph.input[0])  # handed through
    written = same(model)
    interpreter = Interpreter(model_content=written)
    names = [
        [detail["name"] for detail in each()]
        for each in (interpreter.get_input_details, interpreter.get_output_details)
    ]
    assert names == [["window", "state"], [info.name for info in model.graph.output]]
    assert interpreter.get_signature_list() == {
        "serving_default": {"inputs": ["state", "window"], "outputs": sorted(names[1])}
    }


def test_an_output_that_no_input_reaches_is_a_constant() -> None:
    b = Net(3, 8, batch=1)
    answers = b.node("Relu", "window"), b.node("Identity", b.weights(1, 3)), b.node("Shape", "window")
    same(b.finish(*answers), open_batch=False)


def test_weights_that_are_no_numbers_are_refused_with_their_node() -> None:
    b = Net(3, 8)
    kernel = b.constant(np.full((2, 3, 3), np.nan, np.float32))
    with pytest.raises(ConfigError, match=r"read by node 'Conv_0' \(Conv\), holds NaN"):
        convert(b.finish(b.node("Conv", "window", kernel)))


def test_operator_sets_of_another_age_are_raised() -> None:
    b = Net(3, 8, opset=9)
    same(b.finish(b.node("Softmax", b.node("Relu", "window"), axis=1)))


def test_double_precision_is_refused() -> None:
    b = Net(3, 8)
    with pytest.raises(ConfigError, match="float64; export the model in float32"):
        convert(b.finish(b.node("Cast", "window", to=onnx.TensorProto.DOUBLE)))


def test_a_batch_that_the_graph_fixes_is_fixed_in_the_file() -> None:
    """Sizes written for one window, by an exporter that was not asked for an open batch."""
    b = Net(3, 8, batch=1)
    same(b.finish(b.node("Reshape", "window", b.ints(1, 24))), open_batch=False)


def test_sizes_unknown_before_the_run_are_refused() -> None:
    b = GraphBuilder(3, 8)
    b.shape[2] = "time"
    with pytest.raises(ConfigError, match="fixed sizes except the batch"):
        convert(b.model(b.node("Relu", b.conv("window", 3, 3, 3))))


def test_an_operator_of_another_domain_is_refused() -> None:
    """Optimisers replace nodes by their runtime's own, some under names that ONNX has too."""
    b = Net(3, 8)
    model = b.finish(b.node("Relu", b.node("Gelu", "window")))
    model.graph.node[0].domain = "com.microsoft"
    model.opset_import.append(onnx.helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(UnsupportedNodeError, match=r"\(Gelu\).* it is of 'com.microsoft'"):
        convert(model)
