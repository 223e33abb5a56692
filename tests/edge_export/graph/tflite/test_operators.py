"""Every operator the TensorFlow Lite writer knows, one small graph each: the same numbers as onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tests.edge_export.graph.tflite.compare import Net, operators, same
from tests.edge_export.graph.tflite.unary import UNARY


@pytest.mark.parametrize("behind", ["plain", "convolution"])
@pytest.mark.parametrize("name", UNARY)
def test_an_operator_on_one_operand(name: str, behind: str) -> None:
    """In ONNX's layout, and in the one with channels last behind a convolution."""
    b = Net(4, 10)
    t = b.conv("window", 4, 4, 3) if behind == "convolution" else "window"
    written = same(b.finish(UNARY[name](b, t)))
    if "GELU formula" in name:
        assert "GELU" in operators(written)
    assert "TRANSPOSE" not in operators(written) or behind == "convolution"


BINARY = ["Add", "Sub", "Mul", "Div", "Max", "Min"]


@pytest.mark.parametrize("operator", BINARY)
@pytest.mark.parametrize("behind", ["plain", "convolution", "mixed"])
def test_an_operator_on_two_operands(operator: str, behind: str) -> None:
    b = Net(4, 10)
    left = b.conv("window", 4, 4, 1) if behind != "plain" else b.node("Neg", "window")
    right = b.conv("window", 4, 4, 1) if behind == "convolution" else b.node("Abs", "window")
    if operator == "Div":
        right = b.node("Add", b.node("Abs", right), b.number(1))
    same(b.finish(b.node(operator, left, right)))


@pytest.mark.parametrize("operator", BINARY)
@pytest.mark.parametrize("shape", [(), (1,), (10,), (4, 1), (1, 4, 10), (4, 10)])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("behind", ["plain", "convolution"])
def test_an_operator_with_a_constant(operator: str, shape: tuple[int, ...], first: bool, behind: str) -> None:
    b = Net(4, 10)
    t = b.conv("window", 4, 4, 1) if behind == "convolution" else "window"
    t = b.node("Add", b.node("Abs", t), b.number(1))
    fixed = b.constant((np.abs(b.random.standard_normal(shape)) + 1).astype(np.float32))
    same(b.finish(b.node(operator, fixed, t) if first else b.node(operator, t, fixed)))


def test_operands_of_different_ranks() -> None:
    b = Net(4, 10)
    row = b.node("ReduceMean", "window", b.ints(0, 1), keepdims=0)
    t = b.node("Mul", b.conv("window", 4, 4, 1), row)
    same(b.finish(b.node("Add", t, b.constant(np.ones((2, 1, 4, 10), np.float32)))))


def test_operators_on_many_operands() -> None:
    b = Net(4, 10)
    parts = ["window", b.node("Abs", "window"), b.node("Neg", "window")]
    same(b.finish(*(b.node(operator, *parts) for operator in ("Sum", "Mean", "Max", "Min"))))


def test_comparisons_choices_and_logic() -> None:
    b = Net(4, 10)
    other = b.node("Mul", "window", b.number(-0.5))
    conditions = [
        b.node(operator, "window", other) for operator in ("Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Equal")
    ]
    both = b.node("And", conditions[0], b.node("Not", conditions[2]))
    either = b.node("Or", both, b.node("Greater", "window", b.number(1)))
    chosen = b.node("Where", either, "window", b.number(0))
    counted = b.node("Cast", either, to=TensorProto.FLOAT)
    same(b.finish(*conditions, chosen, b.node("Where", conditions[0], b.number(2), other), counted))


def test_casts_and_places() -> None:
    b = Net(4, 10)
    t = b.node("ArgMax", "window", axis=2, keepdims=0)
    kept = b.node("ArgMin", b.conv("window", 4, 4, 1), axis=1)
    turned = b.node("Cast", t, to=TensorProto.FLOAT)
    same(b.finish(t, kept, turned, b.node("Mod", b.node("Cast", t, to=TensorProto.INT32), b.constant(np.int32(3)))))


@pytest.mark.parametrize("rank", [2, 3, 4])
@pytest.mark.parametrize("keep", [0, 1])
@pytest.mark.parametrize("operator", ["ReduceMean", "ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd"])
def test_reductions_over_any_axes(operator: str, keep: int, rank: int) -> None:
    sizes = (5, 6, 4)[: rank - 1]
    for axes in ([1], [-1], [1, 2], [2], [2, 3], [1, 3], [3], [1, 2, 3]):
        if max(axes) >= rank:
            continue
        for behind in ("plain", "convolution"):
            b = Net(*sizes)
            t = "window"
            if behind == "convolution":
                if rank == 2:
                    continue
                t = b.conv("window", 5, 5, *[1] * (rank - 2))
            same(b.finish(b.node(operator, t, b.ints(*axes), keepdims=keep)))


@pytest.mark.parametrize(
    "operator", ["ReduceL1", "ReduceL2", "ReduceSumSquare", "ReduceLogSumExp", "ReduceLogSum", "ReduceMax"]
)
@pytest.mark.parametrize("opset", [13, 20])
def test_composite_reductions_in_both_operator_sets(operator: str, opset: int) -> None:
    b = Net(4, 10, opset=opset)
    t = b.node("Abs", b.conv("window", 4, 4, 3))
    if opset == 13:
        results = [b.node(operator, t, axes=[1], keepdims=keep) for keep in (0, 1)]
    else:
        results = [b.node(operator, t, b.ints(1), keepdims=keep) for keep in (0, 1)]
    same(b.finish(*results))


def test_reductions_over_everything_or_nothing() -> None:
    b = Net(4, 10, batch=1)
    nothing = b.node("ReduceSum", "window", keepdims=1, noop_with_empty_axes=1)
    same(b.finish(b.node("ReduceSum", "window", keepdims=0), nothing), open_batch=False)


@pytest.mark.parametrize("axis", [1, 2, 3])
@pytest.mark.parametrize("operator", ["Softmax", "LogSoftmax"])
@pytest.mark.parametrize("behind", ["plain", "convolution"])
def test_softmax_over_any_axis(operator: str, axis: int, behind: str) -> None:
    b = Net(4, 5, 6)
    t = b.conv("window", 4, 4, 1, 1) if behind == "convolution" else "window"
    same(b.finish(b.node(operator, t, axis=axis)))


def test_softmax_of_old_operator_sets() -> None:
    b = Net(7, opset=11)
    same(b.finish(b.node("Softmax", "window"), b.node("LogSoftmax", "window")))


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("exclusive", [0, 1])
@pytest.mark.parametrize("reverse", [0, 1])
def test_running_sums(axis: int, exclusive: int, reverse: int) -> None:
    b = Net(4, 10)
    fixed = b.constant(np.array(axis, np.int64))
    results = [
        b.node("CumSum", t, fixed, exclusive=exclusive, reverse=reverse) for t in ("window", b.conv("window", 4, 4, 1))
    ]
    same(b.finish(*results))


@pytest.mark.parametrize("opset", [17, 20])
def test_normalisations(opset: int) -> None:
    b = Net(4, 10, opset=opset)
    layer = b.node("LayerNormalization", "window", b.weights(10), b.weights(10))
    both = b.node("LayerNormalization", "window", b.weights(4, 10), axis=1, epsilon=1e-3)
    instance = b.node("InstanceNormalization", b.conv("window", 4, 4, 3), b.weights(4), b.weights(4))
    spread = b.constant(np.array([0.5, 1, 2, 3], np.float32))
    batch = b.node("BatchNormalization", b.conv("window", 4, 4, 3), *(b.weights(4) for _ in range(3)), spread)
    length = b.node("LpNormalization", "window", axis=1, p=2)
    same(b.finish(layer, both, instance, batch, length))


def test_newer_normalisations() -> None:
    b = Net(4, 10, opset=23)
    same(b.finish(b.node("RMSNormalization", "window", b.weights(10))))


@pytest.mark.parametrize("behind", ["plain", "convolution"])
def test_slices(behind: str) -> None:
    b = Net(4, 10)
    t = b.conv("window", 4, 4, 1) if behind == "convolution" else "window"
    bounds = [
        ((1,), (9,), (2,), (1,)),
        ((0,), (10,), (2,), (3,)),
        ((-3,), (1000,), (2,), (1,)),
        ((1, 2), (3, 8), (1, 2), (1, 2)),
        ((-1,), (-1000,), (2,), (-1,)),
        ((3, 8), (0, 2), (1, 2), (-1, -2)),
        ((0,), (4,), (1,), (1,)),
    ]
    same(b.finish(*(b.node("Slice", t, *(b.ints(*each) for each in bound)) for bound in bounds)))


@pytest.mark.parametrize("opset", [11, 17, 20])
def test_splits(opset: int) -> None:
    b = Net(6, 10, opset=opset)
    t = b.conv("window", 6, 6, 1)
    if opset == 11:
        parts = b.nodes_of("Split", t, outputs=2, axis=1, split=[2, 4])
        equal = b.nodes_of("Split", "window", outputs=2, axis=2)
    else:
        parts = b.nodes_of("Split", t, b.ints(2, 4), outputs=2, axis=1)
        settings = {"num_outputs": 3} if opset == 20 else {}
        equal = b.nodes_of("Split", "window", outputs=3, axis=1, **settings)
    same(b.finish(*parts, *equal[:1]))


def test_concatenations() -> None:
    b = Net(4, 10)
    conv = b.conv("window", 4, 3, 1)
    mixed = b.node("Concat", conv, "window", axis=1)
    along = b.node("Concat", "window", b.node("Neg", "window"), axis=-1)
    same(b.finish(mixed, along, b.node("Concat", conv, conv, axis=1)))


def test_a_constant_part_closes_the_batch() -> None:
    b = Net(4, 10)
    token = b.weights(1, 4, 1)
    same(b.finish(b.node("Concat", token, b.conv("window", 4, 4, 1), axis=2)), open_batch=False)


@pytest.mark.parametrize("behind", ["plain", "convolution"])
def test_gathers(behind: str) -> None:
    b = Net(4, 10)
    t = b.conv("window", 4, 4, 1) if behind == "convolution" else "window"
    results = [
        b.node("Gather", t, b.constant(np.array(index, np.int64)), axis=axis)
        for index, axis in ((-1, 2), (0, 1), ([2, 0, 0], 1), ([-1, 3], 2), ([[0, 1], [2, 3]], 1))
    ]
    same(b.finish(*results))


def test_tables_and_computed_places() -> None:
    b = Net(4, 10)
    best = b.node("ArgMax", "window", axis=2, keepdims=0)
    same(b.finish(b.node("Gather", b.weights(10, 6), best, axis=0)))


@pytest.mark.parametrize("behind", ["plain", "convolution"])
@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_pads(mode: str, behind: str) -> None:
    b = Net(4, 10)
    t = b.conv("window", 4, 4, 1) if behind == "convolution" else "window"
    first = b.node("Pad", t, b.ints(0, 0, 3, 0, 0, 2), mode=mode)
    second = b.node("Pad", t, b.ints(0, 1, 0, 0, 2, 4), *([b.number(1.5)] if mode == "constant" else []), mode=mode)
    third = b.node("Pad", t, b.ints(2, 0), "", b.ints(2), mode=mode)
    cut = b.node("Pad", t, b.ints(0, 0, -2, 0, 0, -3), mode=mode)
    same(b.finish(first, second, third, cut))


def test_repetitions() -> None:
    b = Net(4, 1)
    grown = b.node("Expand", "window", b.ints(1, 4, 6))
    raised = b.node("Expand", "window", b.ints(2, 1, 4, 3))
    tiled = b.node("Tile", "window", b.ints(1, 2, 3))
    nothing = b.node("Expand", "window", b.ints(1, 1))
    same(b.finish(grown, raised, tiled, nothing))


def test_a_repeated_batch_is_closed() -> None:
    b = Net(4, 6, batch=1)
    same(b.finish(b.node("Tile", "window", b.ints(2, 1, 1))), open_batch=False)


def test_reshapes() -> None:
    b = Net(4, 6)
    t = b.conv("window", 4, 8, 1)
    results = [
        b.node("Reshape", t, b.ints(0, 2, -1)),
        b.node("Reshape", t, b.ints(-1, 4, 2, 6)),
        b.node("Reshape", b.node("Unsqueeze", t, b.ints(2)), b.ints(0, 48)),
        b.node("Squeeze", b.node("Unsqueeze", t, b.ints(-1)), b.ints(3)),
        b.node("Flatten", t),
        b.node("Reshape", t, b.ints(-1, 6)),
    ]
    same(b.finish(*results))


@pytest.mark.parametrize("behind", ["plain", "convolution"])
def test_transpositions(behind: str) -> None:
    b = Net(4, 5, 6)
    t = b.conv("window", 4, 4, 1, 1) if behind == "convolution" else "window"
    orders = ([0, 2, 3, 1], [0, 3, 1, 2], [0, 1, 3, 2], [2, 0, 1, 3], [3, 2, 1, 0])
    moved = [b.node("Transpose", t, perm=list(order)) for order in orders]
    same(b.finish(*moved, b.conv(moved[1], 6, 2, 1, 1), b.node("Transpose", moved[0], perm=[0, 3, 1, 2])))


def test_a_transposition_that_a_layout_already_is_costs_nothing() -> None:
    b = Net(4, 10)
    t = b.node("Transpose", b.conv("window", 4, 6, 3), perm=[0, 2, 1])
    t = b.node("Transpose", b.node("MatMul", t, b.weights(6, 5)), perm=[0, 2, 1])
    written = same(b.finish(b.node("GlobalAveragePool", b.conv(t, 5, 3, 3))))
    assert operators(written).count("TRANSPOSE") == 1  # the input's


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize("by", ["scales", "sizes"])
def test_resizing(mode: str, by: str) -> None:
    b = Net(3, 5, 8)
    if by == "scales":
        given = ["", b.constant(np.array([1, 1, 2, 1.5], np.float32))]
        results = [b.node("Resize", "window", *given, mode=mode)]
    else:
        fixed = Net(3, 5, 8, batch=1)
        results = [fixed.node("Resize", "window", "", "", fixed.ints(1, 3, 10, 4), mode=mode)]
        b = fixed
    same(b.finish(*results), open_batch=by == "scales")


def test_upsampling_in_one_dimension() -> None:
    b = Net(3, 8)
    scales = b.constant(np.array([1, 1, 2], np.float32))
    modes = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    same(b.finish(b.node("Resize", b.conv("window", 3, 3, 1), "", scales, mode="nearest", **modes)))


def test_dense_layers_of_any_rank() -> None:
    b = Net(4, 6)
    plain = b.node("MatMul", "window", b.weights(6, 5))
    biased = b.node("Relu", b.node("Add", b.weights(5), b.node("MatMul", "window", b.weights(6, 5))))
    flat = b.node("Gemm", b.node("Flatten", "window"), b.weights(24, 3))
    scalar = b.node("Gemm", b.node("Flatten", "window"), b.weights(24, 3), b.number(0.5))
    written = same(b.finish(plain, biased, flat, scalar))
    assert set(operators(written)) == {"FULLY_CONNECTED", "RESHAPE"}


def test_products_of_activations() -> None:
    b = Net(4, 6)
    turned = b.node("Transpose", "window", perm=[0, 2, 1])
    scores = b.node("MatMul", "window", turned)
    left = b.node("MatMul", b.weights(3, 4), "window")
    heads = b.node("Reshape", "window", b.ints(0, 2, 2, 6))
    deep = b.node("MatMul", heads, b.node("Transpose", heads, perm=[0, 1, 3, 2]))
    many = b.node("MatMul", heads, b.weights(2, 6, 3))
    same(b.finish(scores, left, deep, many))


def test_gemm_in_all_its_forms() -> None:
    b = Net(6, 6, batch=1)
    t = b.node("Squeeze", "window", b.ints(0))
    other = b.node("Neg", t)
    results = [
        b.node("Gemm", t, b.weights(6, 3), b.weights(3), alpha=0.5, beta=2.0),
        b.node("Gemm", t, other, transA=1, transB=1),
        b.node("Gemm", t, b.weights(6, 3), b.weights(6, 1)),
    ]
    same(b.finish(*results), open_batch=False)


def old_model(opset: int) -> onnx.ModelProto:
    b = Net(4, 10, opset=opset)
    t = b.node("Squeeze", b.node("ReduceMean", b.conv("window", 4, 4, 3), axes=[2], keepdims=1), axes=[2])
    return b.finish(b.node("Unsqueeze", t, axes=[1]))


def test_settings_that_were_attributes() -> None:
    same(old_model(11))


def test_a_pooled_value_is_flattened_at_once() -> None:
    b = Net(4, 10)
    t = b.node("Flatten", b.node("GlobalAveragePool", b.conv("window", 4, 6, 3)))
    written = same(b.finish(b.node("Gemm", t, b.weights(6, 3))))
    assert operators(written)[2:] == ["CONV_2D", "MEAN", "RESHAPE", "FULLY_CONNECTED"]
