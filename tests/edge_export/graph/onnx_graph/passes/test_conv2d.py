"""Conv1d written as Conv2d: the same answers for any network, and only where there is something to gain."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise
from edge_export.graph.onnx_graph.passes.conv2d import as_conv2d
from edge_export.graph.quantize import Scheme, quantize
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from tests.edge_export.graphs import GraphBuilder, device_net, minimise, onnx_answers, onnx_operators, windows

CHANNELS, SAMPLES = 4, 24


class Signal:
    """A tensor (batch, channels, samples) of a graph that grows."""

    def __init__(self, b: GraphBuilder, name: str, channels: int, samples: int) -> None:
        self.b, self.name, self.channels, self.samples = b, name, channels, samples

    def then(self, name: str, channels: int | None = None, samples: int | None = None) -> Signal:
        return Signal(self.b, name, channels or self.channels, samples or self.samples)


Step = Callable[[Signal, st.DataObject], Signal]


def convolution(x: Signal, data: st.DataObject) -> Signal:
    kernel, stride, dilation = (data.draw(st.integers(1, high)) for high in (5, 3, 2))
    left, right = (data.draw(st.integers(0, 3)) for _ in range(2))
    group = data.draw(st.sampled_from([count for count in (1, 2, x.channels) if x.channels % count == 0]))
    outputs = x.channels * data.draw(st.integers(1, 2))
    reach = (kernel - 1) * dilation + 1
    if x.samples + left + right < reach:
        left = reach
    name = x.b.conv(
        x.name,
        x.channels,
        outputs,
        kernel,
        group=group,
        strides=[stride],
        dilations=[dilation],
        pads=[left, right],
    )
    return x.then(name, outputs, (x.samples + left + right - reach) // stride + 1)


def same_convolution(x: Signal, data: st.DataObject) -> Signal:
    where = data.draw(st.sampled_from(["SAME_UPPER", "SAME_LOWER"]))
    stride = data.draw(st.integers(1, 2))
    name = x.b.conv(x.name, x.channels, x.channels, 3, auto_pad=where, strides=[stride])
    return x.then(name, samples=-(-x.samples // stride))


def transposed(x: Signal, data: st.DataObject) -> Signal:
    stride, more = data.draw(st.sampled_from([(1, 0), (2, 0), (2, 1)]))
    weights = x.b.weights(x.channels, x.channels, 3)
    name = x.b.node("ConvTranspose", x.name, weights, strides=[stride], pads=[1, 1], output_padding=[more])
    return x.then(name, samples=(x.samples - 1) * stride + 1 + more)


def pool(x: Signal, data: st.DataObject) -> Signal:
    kind = data.draw(st.sampled_from(["MaxPool", "AveragePool"]))
    if x.samples < 2:
        return x
    more = {"count_include_pad": 1} if kind == "AveragePool" else {}
    # onnxruntime 1.31 fuses a Pad into the pool behind it, and then refuses the sum of their margins.
    before = x.b.node("Tanh", x.name)
    name = x.b.node(kind, before, kernel_shape=[2], strides=[2], pads=[1, 1], **more)
    return x.then(name, samples=x.samples // 2 + 1)


def activation(x: Signal, data: st.DataObject) -> Signal:
    kind = data.draw(st.sampled_from(["Relu", "HardSwish", "Sigmoid", "LeakyRelu", "Tanh", "Clip", "PRelu", "Elu"]))
    if kind == "Clip":
        return x.then(x.b.node("Clip", x.name, x.b.constant(np.float32(0)), x.b.constant(np.float32(6))))
    if kind == "PRelu":
        return x.then(x.b.node("PRelu", x.name, x.b.weights(x.channels, 1)))
    return x.then(x.b.node(kind, x.name))


def normalisation(x: Signal, data: st.DataObject) -> Signal:
    scale, bias, mean = (x.b.weights(x.channels) for _ in range(3))
    spread = x.b.constant(x.b.random.uniform(0.5, 2, x.channels).astype(np.float32))
    return x.then(x.b.node("BatchNormalization", x.name, scale, bias, mean, spread))


def constant_operand(x: Signal, data: st.DataObject) -> Signal:
    shape = data.draw(st.sampled_from([(), (1,), (x.samples,), (x.channels, 1), (1, x.channels, x.samples)]))
    value = x.b.constant(x.b.random.uniform(0.5, 1.5, shape).astype(np.float32))
    return x.then(x.b.node(data.draw(st.sampled_from(["Add", "Mul", "Sub", "Div", "Max"])), x.name, value))


def residual(x: Signal, data: st.DataObject) -> Signal:
    other = x.b.conv(x.name, x.channels, x.channels, 1)
    return x.then(x.b.node(data.draw(st.sampled_from(["Add", "Mul"])), other, x.name))


def squeeze_and_excite(x: Signal, data: st.DataObject) -> Signal:
    if data.draw(st.booleans()):
        mean = x.b.node("GlobalAveragePool", x.name)
        gate = x.b.node("HardSigmoid", x.b.conv(mean, x.channels, x.channels, 1))
    else:
        mean = x.b.node("ReduceMean", x.name, x.b.constant(np.array([-1])), keepdims=0)
        gate = x.b.node("Sigmoid", x.b.dense(mean, x.channels, x.channels))
        gate = x.b.node("Unsqueeze", gate, x.b.constant(np.array([2])))
    return x.then(x.b.node("Mul", x.name, gate))


def joined(x: Signal, data: st.DataObject) -> Signal:
    other = x.b.conv(x.name, x.channels, x.channels, 1)
    if data.draw(st.booleans()):
        return x.then(x.b.node("Concat", x.name, other, axis=data.draw(st.sampled_from([1, -2]))), 2 * x.channels)
    return x.then(x.b.node("Concat", x.name, other, axis=data.draw(st.sampled_from([2, -1]))), samples=2 * x.samples)


def padded(x: Signal, data: st.DataObject) -> Signal:
    mode = data.draw(st.sampled_from(["constant", "edge"]))
    if data.draw(st.booleans()):
        name = x.b.node("Pad", x.name, x.b.constant(np.array([0, 0, 2, 0, 0, 1])), mode=mode)
    else:
        axes = x.b.constant(np.array([-1]))
        name = x.b.node("Pad", x.name, x.b.constant(np.array([2, 1])), "", axes, mode=mode)
    return x.then(name, samples=x.samples + 3)


def cut(x: Signal, data: st.DataObject) -> Signal:
    axis = data.draw(st.sampled_from([1, 2, -1]))
    begin, end, where = (x.b.constant(np.array([n])) for n in (1, 2**31, axis))
    if (x.channels if axis == 1 else x.samples) < 2:
        return x
    name = x.b.node("Slice", x.name, begin, end, where)
    return x.then(name, x.channels - 1) if axis == 1 else x.then(name, samples=x.samples - 1)


def transpose(x: Signal, data: st.DataObject) -> Signal:
    turned = x.b.node("Transpose", x.name, perm=[0, 2, 1])
    return x.then(x.b.node("Transpose", x.b.node("Relu", turned), perm=[0, 2, 1]))


STEPS: list[Step] = [
    *(convolution, same_convolution, transposed, pool, activation, normalisation, constant_operand, residual),
    *(squeeze_and_excite, joined, padded, cut, transpose),
]
ENDS = ("global pool", "mean", "max", "flatten", "reshape", "reshape by places", "as it is")


def finished(x: Signal, end: str) -> onnx.ModelProto:
    b = x.b
    if end == "global pool":
        return b.model(b.node("Squeeze", b.node("GlobalAveragePool", x.name), b.constant(np.array([2]))))
    if end in ("mean", "max"):
        return b.model(b.node(f"Reduce{end.title()}", x.name, b.constant(np.array([2])), keepdims=int(end == "max")))
    if end == "flatten":
        return b.model(b.node("Flatten", x.name))
    if end.startswith("reshape"):
        shape = [0, -1] if end == "reshape" else [0, -1, 0]
        return b.model(b.node("Reshape", x.name, b.constant(np.array(shape))))
    return b.model(b.node("Identity", x.name))


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_network_answers_as_before_for_any_batch(data: st.DataObject) -> None:
    b = GraphBuilder(CHANNELS, SAMPLES, seed=data.draw(st.integers(0, 2**16)))
    signal = convolution(Signal(b, "window", CHANNELS, SAMPLES), data)
    for step in data.draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=6)):
        signal = step(signal, data)
    model = finished(signal, data.draw(st.sampled_from(ENDS)))
    if data.draw(st.booleans()):
        model = minimise(canonicalise(model))  # equal constants become one
    changed = canonicalise(as_conv2d(model))
    assert not any(len(t.dims) == 3 and t.name in weights_of(changed) for t in changed.graph.initializer)
    for batch in (1, 3):
        x = windows(batch, CHANNELS, SAMPLES)
        wanted = onnx_answers(model, x)
        np.testing.assert_allclose(onnx_answers(changed, x), wanted, rtol=0, atol=2e-6 * max(1, np.abs(wanted).max()))


def weights_of(model: onnx.ModelProto) -> set[str]:
    return {node.input[1] for node in model.graph.node if "Conv" in node.op_type}


def test_normalisation_by_instance_needs_no_third_axis() -> None:
    """Not among the steps above: over a few like samples it makes rounding as large as the answer."""
    b = GraphBuilder(CHANNELS, SAMPLES)
    flow = b.node("InstanceNormalization", b.conv("window", CHANNELS, 8, 3), b.weights(8), b.weights(8))
    model = b.model(b.node("Relu", flow))
    changed = as_conv2d(model)
    assert [node.op_type for node in changed.graph.node][-2:] == ["Relu", "Squeeze"]
    x = windows(3, CHANNELS, SAMPLES)
    np.testing.assert_allclose(onnx_answers(changed, x), onnx_answers(model, x), rtol=0, atol=1e-5)


def test_a_constant_that_serves_several_inputs_changes_in_one_of_them() -> None:
    b = GraphBuilder(CHANNELS, SAMPLES)
    two = b.constant(np.array([2]))
    cut = b.node("Slice", b.conv("window", CHANNELS, 8, 3), two, b.constant(np.array([1 << 31])), two, two)
    model = b.model(b.node("Relu", cut))
    x = windows(3, CHANNELS, SAMPLES)
    np.testing.assert_allclose(onnx_answers(as_conv2d(model), x), onnx_answers(model, x), rtol=0, atol=1e-6)


def test_axes_are_added_once_and_taken_away_by_the_pool() -> None:
    kinds = [node.op_type for node in as_conv2d(canonicalise(device_net())).graph.node]
    assert kinds.count("Unsqueeze") == 1
    assert kinds == [
        "Mul",
        "Unsqueeze",
        *["Conv", "Relu"] * 3,
        "GlobalAveragePool",
        "Squeeze",
        "Gemm",
        "Mul",
        "Softmax",
    ]


def test_onnxruntime_computes_what_was_conv1d_in_blocks_of_channels(tmp_path: Path) -> None:
    b = GraphBuilder(8, 64)
    flow = b.node("Relu", b.conv(b.node("Relu", b.conv("window", 8, 32, 5)), 32, 32, 5))
    model = b.model(b.node("GlobalAveragePool", flow))
    (tmp_path / "before").mkdir()
    (tmp_path / "after").mkdir()
    assert onnx_operators(model, tmp_path / "before")["ReorderOutput"] == 0
    assert onnx_operators(as_conv2d(model), tmp_path / "after")["ReorderOutput"] > 0


@pytest.mark.parametrize("opset", [11, 12, 13, 17])
def test_older_operator_sets_keep_their_axes_as_attributes(opset: int) -> None:
    b = GraphBuilder(CHANNELS, SAMPLES)
    flow = b.node("ReduceMean", b.node("Relu", b.conv("window", CHANNELS, 8, 3)), axes=[2], keepdims=0)
    graph = helper.make_graph(
        b.nodes,
        "model",
        [helper.make_tensor_value_info("window", TensorProto.FLOAT, b.shape)],
        [helper.make_tensor_value_info(flow, TensorProto.FLOAT, ["batch", 8])],
        b.constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    changed = as_conv2d(model)
    onnx.checker.check_model(changed, full_check=True)
    x = windows(3, CHANNELS, SAMPLES)
    np.testing.assert_allclose(onnx_answers(changed, x), onnx_answers(model, x), rtol=0, atol=1e-6)


def test_weights_that_a_node_computes_get_the_axis_there() -> None:
    b = GraphBuilder(CHANNELS, SAMPLES)
    half = b.constant(b.random.standard_normal((8, CHANNELS, 3)).astype(np.float16))
    model = b.model(b.node("Conv", "window", b.node("Cast", half, to=TensorProto.FLOAT)))
    changed = as_conv2d(model)
    assert [node.op_type for node in changed.graph.node].count("Unsqueeze") == 2
    x = windows(2, CHANNELS, SAMPLES)
    np.testing.assert_allclose(onnx_answers(changed, x), onnx_answers(model, x), rtol=0, atol=1e-6)


def test_what_has_nothing_to_gain_stays_as_it_is() -> None:
    b = GraphBuilder(CHANNELS, SAMPLES)
    dense = b.model(b.dense(b.node("Flatten", "window"), CHANNELS * SAMPLES, 3))
    net = canonicalise(device_net())
    integers = quantize(net, windows(16, 3, 40), Scheme(activations="uint8"))
    for model in (dense, integers, as_conv2d(net)):
        assert as_conv2d(model) is model
