"""Operators that treat every frame alike and alone: elementwise, normalisation, products over other axes."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx

from edge_export.graph.streaming.frames import Frames, Reach
from edge_export.graph.streaming.step import FrameStep, Rule, copied
from edge_export.graph.streaming.window_graph import WindowGraph, attributes

_UNARY = (
    "Abs", "Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "BitwiseNot", "Cast", "Ceil", "Celu", "Clip", "Cos",
    "Cosh", "Dropout", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid", "HardSwish", "Identity", "IsInf",
    "IsNaN", "LeakyRelu", "Log", "Mish", "Neg", "Not", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign",
    "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Swish", "Tan", "Tanh", "ThresholdedRelu",
)  # fmt: skip

_BROADCAST = (
    "Add", "And", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "Div", "Equal", "Greater", "GreaterOrEqual", "Less",
    "LessOrEqual", "Max", "Mean", "Min", "Mod", "Mul", "Or", "Pow", "PRelu", "Sub", "Sum", "Where", "Xor",
)  # fmt: skip

_REDUCTIONS = (
    "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceProd",
    "ReduceSum", "ReduceSumSquare",
)  # fmt: skip


def _unary(_: WindowGraph, node: onnx.NodeProto, timed: Mapping[int, Frames]) -> FrameStep | None:
    if set(timed) != {0} or (node.op_type == "Dropout" and len(node.output) > 1):
        return None
    return _alike(timed[0])


def _alike(frames: Frames) -> FrameStep:
    # A state has the batch in front; a tensor that has it elsewhere comes from one that can be kept.
    return FrameStep(reach=Reach(), axis=frames.axis, batch=frames.batch, build=copied, keeps=frames.batch == 0)


def _broadcast(graph: WindowGraph, node: onnx.NodeProto, timed: Mapping[int, Frames]) -> FrameStep | None:
    shapes = [graph.shapes[name] for name in node.input]
    rank = max(map(len, shapes))
    # Broadcasting counts axes from the back.
    axes = {frames.axis - len(shapes[position]) for position, frames in timed.items()}
    batches = {frames.batch - len(shapes[position]) for position, frames in timed.items()}
    lengths = {frames.length for frames in timed.values()}
    if len(axes) != 1 or len(batches) != 1 or len(lengths) != 1:
        return None
    (axis,), (batch,) = axes, batches
    for position, shape in enumerate(shapes):
        # What differs from frame to frame but does not move with them makes the same sample mean different things.
        if position not in timed and len(shape) >= -axis and shape[axis] != 1:
            return None
    return FrameStep(reach=Reach(), axis=rank + axis, batch=rank + batch, build=copied, keeps=rank + batch == 0)


def _batch_normalization(_: WindowGraph, node: onnx.NodeProto, timed: Mapping[int, Frames]) -> FrameStep | None:
    if set(timed) != {0} or timed[0].axis == 1 or attributes(node).get("training_mode", 0):
        return None
    return _alike(timed[0])


def _along_axis(graph: WindowGraph, node: onnx.NodeProto, timed: Mapping[int, Frames]) -> FrameStep | None:
    """Softmax and what else works along one axis."""
    rank = len(graph.shapes[node.input[0]])
    # Before operator set 13 Softmax flattened what lies behind the axis; such sets are refused.
    if set(timed) != {0} or attributes(node).get("axis", -1) % rank == timed[0].axis:
        return None
    return _alike(timed[0])


def _layer_normalization(graph: WindowGraph, node: onnx.NodeProto, timed: Mapping[int, Frames]) -> FrameStep | None:
    first = attributes(node).get("axis", -1) % len(graph.shapes[node.input[0]])
    if set(timed) != {0} or max(timed[0].axis, timed[0].batch) >= first or len(node.output) > 1:
        return None
    return _alike(timed[0])


def _reduction(graph: WindowGraph, node: onnx.NodeProto, timed: Mapping[int, Frames]) -> FrameStep | None:
    settings = attributes(node)
    given = settings["axes"] if "axes" in settings else graph.constant(node, 1)
    if set(timed) != {0} or given is None or not len(given):
        return None
    rank, frames = len(graph.shapes[node.input[0]]), timed[0]
    axes = {int(axis) % rank for axis in np.atleast_1d(given)}
    if frames.axis in axes or frames.batch in axes:
        return None
    axis, batch = frames.axis, frames.batch
    if not settings.get("keepdims", 1):
        axis -= sum(a < axis for a in axes)
        batch -= sum(a < batch for a in axes)
    return FrameStep(reach=Reach(), axis=axis, batch=batch, build=copied, keeps=batch == 0)


def _matmul(graph: WindowGraph, node: onnx.NodeProto, timed: Mapping[int, Frames]) -> FrameStep | None:
    if len(timed) != 1:
        return None
    (position, frames), *_ = timed.items()
    shape, other = graph.shapes[node.input[position]], graph.shapes[node.input[1 - position]]
    summed = len(shape) - 1 if position == 0 else len(shape) - 2
    if len(shape) < 3 or len(other) != 2 or summed in (frames.axis, frames.batch):
        return None
    return _alike(frames)


def _quantize(graph: WindowGraph, node: onnx.NodeProto, timed: Mapping[int, Frames]) -> FrameStep | None:
    if set(timed) != {0}:
        return None
    settings, frames = attributes(node), timed[0]
    if graph.shapes[node.input[1]] not in ((), (1,)):
        axis = settings.get("axis", 1) % len(graph.shapes[node.input[0]])
        if axis == frames.axis or settings.get("block_size", 0):
            return None
    # Integers are kept, not the floats they stand for: a state of a quarter of the bytes, and the convolution behind
    # it still sees DequantizeLinear as its own input, which is how engines recognise an integer one.
    keeps = node.op_type == "QuantizeLinear" and frames.batch == 0
    return FrameStep(reach=Reach(), axis=frames.axis, batch=frames.batch, build=copied, keeps=keeps)


RULES: dict[str, Rule] = {
    **dict.fromkeys(_UNARY, _unary),
    **dict.fromkeys(_BROADCAST, _broadcast),
    **dict.fromkeys(_REDUCTIONS, _reduction),
    "BatchNormalization": _batch_normalization,
    "DequantizeLinear": _quantize,
    "LayerNormalization": _layer_normalization,
    "LogSoftmax": _along_axis,
    "LpNormalization": _along_axis,
    "MatMul": _matmul,
    "QuantizeLinear": _quantize,
    "Softmax": _along_axis,
}
