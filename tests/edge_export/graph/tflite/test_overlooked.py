"""What a lowering once overlooked: now right, or refused with the reason."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from edge_export.graph.tflite.convert import convert
from edge_export.graph.tflite.errors import UnsupportedNodeError
from edge_export.graph.tflite.watch import Watched
from onnx import TensorProto, helper

from edge_runtime.errors import ConfigError
from tests.edge_export.graph.tflite.compare import Net, on_onnx, on_tflite, same
from tests.edge_export.graph.tflite.lower.recurrent_layers import layer


def computed_axes(b: Net) -> str:
    return b.node("Cast", b.node("ReduceMax", "window", keepdims=0), to=TensorProto.INT64)


@pytest.mark.parametrize(
    "operator", ["ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSum", "ReduceLogSumExp", "ReduceSum", "ReduceMax"]
)
def test_axes_that_are_computed_are_refused(operator: str) -> None:
    b = Net(4, 6, batch=1)
    axes = b.node("Reshape", computed_axes(b), b.ints(1))
    with pytest.raises(UnsupportedNodeError, match=f"{operator}.*axes must be constant"):
        convert(b.finish(b.node(operator, "window", axes), strict=False))


def test_an_attribute_that_nothing_reads_is_refused() -> None:
    b = Net(4, 6)
    steps = b.node("Transpose", "window", perm=[2, 0, 1])
    answer = layer(b, "GRU", steps, inputs=4, hidden=5, direction="forward", activation_alpha=[0.3, 0.2])[0]
    with pytest.raises(UnsupportedNodeError, match=r"GRU.*activation_alpha = \[0.3\d*, 0.2\d*\] has no form"):
        convert(b.finish(answer))


def test_what_was_read_of_a_node_is_known() -> None:
    made = helper.make_node("Conv", ["x", "w", "b"], ["y"], strides=[2], group=1, auto_pad="VALID")
    node = Watched(made, 20)
    assert [node.input[0], *node.input[1:2]] == ["x", "w"]
    with pytest.raises(UnsupportedNodeError, match=r"input 2 \('b'\)"):
        node.refuse_overlooked()
    assert list(node.input)[2] == "b"
    with pytest.raises(UnsupportedNodeError, match=r"strides|auto_pad"):
        node.refuse_overlooked()
    assert node.settings.get("strides") == [2]
    with pytest.raises(UnsupportedNodeError, match="auto_pad = VALID"):
        node.refuse_overlooked()
    assert "auto_pad" in node.settings
    node.refuse_overlooked()  # group is at its default


@pytest.mark.parametrize("mode", ["linear", "cubic"])
@pytest.mark.parametrize("extra", [{"antialias": 1}, {"exclude_outside": 1}, {}])
def test_every_way_of_resizing(mode: str, extra: dict[str, int]) -> None:
    if mode == "linear" and "exclude_outside" in extra:
        pytest.skip("of cubic interpolation alone")
    b = Net(1, 8, 10)
    scales = b.constant(np.array([1, 1, 0.5, 0.75], np.float32))
    same(b.finish(b.node("Resize", "window", "", scales, mode=mode, **extra)))


def test_a_crop_needs_its_region() -> None:
    settings = {"coordinate_transformation_mode": "tf_crop_and_resize", "mode": "linear", "extrapolation_value": 7.0}
    b = Net(1, 8, 10, batch=1)
    region = b.constant(np.array([0, 0, 0.2, -0.4, 1, 1, 0.9, 1.2], np.float32))
    same(b.finish(b.node("Resize", "window", region, "", b.ints(1, 1, 5, 6), **settings)), open_batch=False)
    b = Net(1, 8, 10, batch=1)
    b.input("region", [8])
    with pytest.raises(UnsupportedNodeError, match="region of interest must be constant"):
        convert(b.finish(b.node("Resize", "window", "region", "", b.ints(1, 1, 5, 6), **settings)))


def test_dropout_in_training_is_refused_and_is_nothing_else() -> None:
    b = Net(3, 8)
    training = b.constant(np.array(True))
    with pytest.raises(UnsupportedNodeError, match="evaluation mode"):
        convert(b.finish(b.node("Dropout", "window", b.number(0.5), training)))
    b = Net(3, 8, batch=1)
    same(b.finish(*b.nodes_of("Dropout", "window", outputs=2)), open_batch=False)


@pytest.mark.parametrize(("start", "end"), [(0, 1), (0, 2), (0, 5), (0, 1000), (-1, 2**31)])
def test_a_bound_on_the_batch_closes_it(start: int, end: int) -> None:
    b = Net(3, 8)
    bounds = b.ints(start), b.ints(end), b.ints(0)
    same(b.finish(b.node("Neg", b.node("Slice", "window", *bounds))), open_batch=False)


def test_the_whole_batch_stays_open() -> None:
    b = Net(3, 8)
    same(b.finish(b.node("Slice", "window", b.ints(0), b.ints(2**31 - 1), b.ints(0))))


INTEGERS = ["Add", "Sub", "Mul", "Div", "Equal", "Less", "Greater", "GreaterOrEqual", "PRelu"]


@pytest.mark.parametrize("operator", INTEGERS)
def test_integers_without_a_step_are_refused(operator: str) -> None:
    inputs = [helper.make_tensor_value_info(name, TensorProto.INT8, [2, 3]) for name in ("a", "b")]
    answer = helper.make_empty_tensor_value_info("c")
    graph = helper.make_graph([helper.make_node(operator, ["a", "b"], ["c"])], "g", inputs, [answer])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    with pytest.raises(ConfigError, match=r"int8 without a quantisation step|contradict each other"):
        convert(model)


def test_a_vector_of_zeros_is_normalised_to_zeros() -> None:
    for p in (1, 2):
        b = Net(4, 6, batch=1)
        model = b.finish(b.node("LpNormalization", "window", axis=-1, p=p))
        window = np.zeros((1, 4, 6), np.float32)
        window[0, 1] = [3, 0, -4, 0, 0, 0]
        answer = on_tflite(convert(model), {"window": window})[0]
        np.testing.assert_allclose(answer, on_onnx(model, {"window": window})[0], rtol=1e-6)
        assert not answer[0, 0].any()


def test_scalars_are_written() -> None:
    b = Net(4, 6, batch=1)
    peak = b.node("ReduceMax", "window")
    flat = b.node("Reshape", peak, b.constant(np.zeros(0, np.int64)))
    squeezed = b.node("Add", b.node("Squeeze", peak), b.number(1))
    same(b.finish(flat, squeezed, b.node("Mul", "window", flat)), open_batch=False)


@pytest.mark.parametrize("behind", ["plain", "convolution"])
def test_one_slope_serves_all_channels(behind: str) -> None:
    b = Net(4, 10)
    t = b.conv("window", 4, 4, 3) if behind == "convolution" else "window"
    written = same(b.finish(b.node("PRelu", t, b.constant(np.array([0.25], np.float32)))))
    assert np.full(4 if behind == "convolution" else 10, 0.25, np.float32).tobytes() in written


def test_a_step_that_is_not_the_one_before_is_refused() -> None:
    b = Net(3, 8)
    zero = b.constant(np.int8(0))
    stored = b.node("QuantizeLinear", "window", b.number(0.02), zero)
    with pytest.raises(UnsupportedNodeError, match="scale or zero point is not that of the QuantizeLinear"):
        convert(b.finish(b.node("Relu", b.node("DequantizeLinear", stored, b.number(0.03), zero))))


@pytest.mark.parametrize("groups", [1, 2, 4])
def test_a_norm_of_groups_between_convolutions(groups: int) -> None:
    b = Net(3, 8, opset=21)
    t = b.node("GroupNormalization", b.conv("window", 3, 4, 3), b.weights(4), b.weights(4), num_groups=groups)
    t = b.node("GroupNormalization", b.conv(t, 4, 4, 3), b.weights(4), b.weights(4), num_groups=groups)
    same(b.finish(b.node("Relu", t), strict=False), rtol=1e-4)


def test_indices_from_the_end() -> None:
    b = Net(4, 6, batch=1)
    b.input("places", [5], TensorProto.INT64)
    model = b.finish(b.node("Gather", "window", "places", axis=2))
    inputs = {"window": np.arange(24, dtype=np.float32).reshape(1, 4, 6), "places": np.array([-1, 0, 5, -6, 2])}
    np.testing.assert_array_equal(on_tflite(convert(model), inputs)[0], on_onnx(model, inputs)[0])


def test_constants_that_contradict_the_batch_close_it() -> None:
    b = Net(3, 8)
    same(b.finish(b.node("Reshape", "window", b.ints(1, 24))), open_batch=False)


def test_weights_listed_as_inputs_are_weights() -> None:
    b = Net(3, 8, opset=11)
    model = b.finish(b.node("Conv", "window", b.weights(4, 3, 3)))
    model.ir_version = 3
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, list(tensor.dims)))
    onnx.checker.check_model(model)
    x = np.random.default_rng(0).standard_normal((1, 3, 8)).astype(np.float32)
    answer = on_tflite(convert(model), {"window": x})[0]
    np.testing.assert_allclose(answer, on_onnx(model, {"window": x})[0], atol=1e-5)


def test_defaults_of_an_operator_that_is_written_out_hold() -> None:
    """The inliner drops attributes that the node leaves at their defaults: here the axes."""
    b = Net(3, 4, 5, batch=1)
    standard, shrunk = b.node("MeanVarianceNormalization", "window"), b.node("Shrink", "window")
    same(b.finish(standard, shrunk, strict=False), open_batch=False, rtol=1e-4)
