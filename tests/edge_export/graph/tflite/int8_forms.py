"""Operators between quantised tensors, in the forms that the writer knows."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx

from tests.edge_export.graph.tflite.compare import (
    Net,
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
