"""Models with every order of axes, each with the card and the numbers that are right for it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

T, F, H = 10, 4, 5
CARD = """
name = "axes"
origin = { name = "made up", source = "this test", licence = "CC0" }
signal = { rate_hz = 10, channels = [CHANNELS] }

[[stages]]
INPUTS

[task]
type = "vector"
publish = "rows"
"""

Window = np.ndarray
Sizes = Sequence[str | int]


def made(sizes: Sizes, *nodes: onnx.NodeProto, outputs: int = 1, more: Sequence[Any] = ()) -> onnx.ModelProto:
    """Return a model from x to y; names of its constants say what they are."""
    random = np.random.default_rng(0)
    floats = {
        "kernel": random.normal(size=(3, 1, 3, 3)),
        "kernel1": random.normal(size=(3, 1, 5)),
        "w": random.normal(size=(1, 4 * H, F)),
        "r": random.normal(size=(1, 4 * H, H)),
        "dense": random.normal(size=(F, 3)),
    }
    whole = {"sizes": [1, 1, T, F], "a0": [0], "a1": [1], "a01": [0, 1], "a02": [0, 2], "a12": [1, 2], "last": [-1]}
    constants = [numpy_helper.from_array(array.astype(np.float32), name) for name, array in floats.items()]
    constants += [numpy_helper.from_array(np.array(axes, np.int64), name) for name, axes in whole.items()]
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, sizes), *more],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [f"y{k}" for k in range(outputs)])],
        constants,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def node(kind: str, inputs: str, output: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, inputs.split(), [output], **attributes)


def image(*before: onnx.NodeProto, end: str = "m") -> list[onnx.NodeProto]:
    """Convolve over two axes of "u" (N, 1, a, b), which is not the same when the axes are swapped or joined."""
    return [
        *before,
        node("Conv", "u kernel", "c", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
        node("Relu", "c", "k"),
        node("ReduceMean", "k", end, axes=[2, 3], keepdims=0),
    ]


def lstm(*before: onnx.NodeProto, of: str = "x") -> list[onnx.NodeProto]:
    return [*before, helper.make_node("LSTM", [of, "w", "r"], ["", "h"], hidden_size=H), node("Squeeze", "h a0", "y")]


class Case(NamedTuple):
    model: onnx.ModelProto
    inputs: str
    """Of the card."""
    tensor: Callable[[Window], np.ndarray]
    """One window (rows, columns) as the model wants it."""
    channels: int = F


ROWS, FLIPPED = 'rows = 10, layout = "samples-first"', 'rows = 10, layout = "channels-first"'
UP, SQUEEZED = node("Unsqueeze", "x a01", "u"), node("Squeeze", "m a0", "y")
EVENED = made(
    ["n", "t", F],
    node("ReduceMean", "x", "mean", axes=[0, 1], keepdims=1),
    node("Sub", "x mean", "v"),
    *image(node("Unsqueeze", "v a1", "u"), end="y"),
    outputs=2,
)
"""Evens the level out over all of its input, so its rows depend on each other in every axis."""
CASES = {
    "[T, F]": Case(made(["T", "F"], *image(UP), SQUEEZED), ROWS, lambda w: w),
    "[T, T], one name for both": Case(made(["T", "T"], *image(UP), SQUEEZED), ROWS, lambda w: w),
    "[10, 4]": Case(made([T, F], *image(UP), SQUEEZED), f"{ROWS}, batch = -1", lambda w: w),
    "[F, T]": Case(made(["F", "T"], *image(UP), SQUEEZED), FLIPPED, lambda w: w.T),
    "[T, F], more rows than an engine takes windows": Case(
        made(["T", "F"], *image(UP), SQUEEZED), ROWS.replace("10", "100"), lambda w: w
    ),
    "[T, F] to [T, 3]": Case(
        made(["T", "F"], node("MatMul", "x dense", "d"), node("CumSum", "d zero", "y"), outputs=2),
        f"{ROWS} }}]\noutputs = [{{ rows = 10",
        lambda w: w,
    ),
    "[T, 4], which needs three rows": Case(
        made(
            ["t", F],
            UP,
            node("Conv", "u kernel", "c", kernel_shape=[3, 3]),
            node("ReduceMax", "c", "m", axes=[2, 3], keepdims=0),
            SQUEEZED,
        ),
        ROWS,
        lambda w: w,
    ),
    "[N, T, F]": Case(
        made(["n", "t", "f"], *image(node("Unsqueeze", "x a1", "u"), end="y"), outputs=2), ROWS, lambda w: w[None]
    ),
    "[N, F, T]": Case(
        made(["n", "f", "t"], *image(node("Unsqueeze", "x a1", "u"), end="y"), outputs=2), FLIPPED, lambda w: w.T[None]
    ),
    "[1, 1, F, T]": Case(
        made([1, 1, "f", "t"], *image(node("Identity", "x", "u"), end="y"), outputs=2),
        FLIPPED,
        lambda w: w.T[None, None],
    ),
    "[1, T, F, 1]": Case(
        made([1, "t", "f", 1], *image(node("Transpose", "x", "u", perm=[0, 3, 1, 2]), end="y"), outputs=2),
        ROWS,
        lambda w: w[None, :, :, None],
    ),
    "[T, B, F] of an LSTM": Case(made(["t", "b", F], *lstm(), outputs=2), ROWS, lambda w: w[:, None]),
    "[T, B, F], the order of axes not said": Case(
        made(["t", "b", F], *lstm(), outputs=2), "rows = 10", lambda w: w[:, None]
    ),
    "[10, 1, 4] of an LSTM": Case(made([T, 1, F], *lstm(), outputs=2), ROWS, lambda w: w[:, None]),
    "[B, T, F] of an LSTM": Case(
        made(["b", "t", F], *lstm(node("Transpose", "x", "s", perm=[1, 0, 2]), of="s"), outputs=2),
        ROWS,
        lambda w: w[None],
    ),
    "[8, 10, 4]": Case(
        made([8, T, F], *image(node("Unsqueeze", "x a1", "u"), end="y"), outputs=2),
        ROWS,
        lambda w: np.concatenate([w[None], np.zeros((7, T, F), np.float32)]),
    ),
    "[40]": Case(made([T * F], node("Reshape", "x sizes", "u"), *image(), SQUEEZED), ROWS, np.ravel),
    "[T], mono": Case(
        made(
            ["t"],
            node("Unsqueeze", "x a01", "u"),
            node("Conv", "u kernel1", "c"),
            node("ReduceMax", "c", "m", axes=[2], keepdims=0),
            SQUEEZED,
        ),
        "rows = 64",
        lambda w: w[:, 0],
        channels=1,
    ),
    "[N, T, F] beside a vector without a batch": Case(
        made(
            ["n", "t", "f"],
            node("Mul", "x gain", "g"),
            *image(node("Unsqueeze", "g a1", "u"), end="y"),
            outputs=2,
            more=[helper.make_tensor_value_info("gain", TensorProto.FLOAT, [F])],
        ),
        f'name = "x", {ROWS} }}, {{ name = "gain", value = [0.5, 1, 2, 4]',
        lambda w: w[None],
    ),
}
