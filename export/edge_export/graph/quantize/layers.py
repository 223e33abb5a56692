"""Layers that multiply by constant weights, seen as matrices: what rounding, saturation and scaling work on."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import onnx_ir as ir

from edge_export.graph.onnx_graph.model import Array, change, constant, name_of, numbers, sole_reader

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A convolution or dense layer with constant weights.

    A layer multiplies rows of values by columns of weights. ``matrix`` and ``columns`` bring both into that form:
    (groups, outputs per group, inputs) and (groups, positions, inputs), so that the answer before the bias is
    ``columns @ matrix^T`` in each group.

    Attributes:
        node: a ``Conv``, ``Gemm`` or ``MatMul``.
        groups: of a convolution, otherwise 1.
        outputs_first: whether the weights' first axis is the output (convolutions, Gemm with transB).
        strides, dilations, pads: of a convolution, in ONNX's order.
        auto_pad: ONNX's word for padding that follows from the sizes, or ``NOTSET``.
    """

    node: ir.Node
    groups: int = 1
    outputs_first: bool = True
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    auto_pad: str = "NOTSET"

    @property
    def name(self) -> str:
        """Name of the node."""
        return name_of(self.node)

    @property
    def operator(self) -> str:
        """Kind of the node."""
        return self.node.op_type

    @property
    def source(self) -> ir.Value:
        """Tensor that it reads."""
        return _given(self.node.inputs[0])

    @property
    def weight(self) -> ir.Value:
        """Constant that holds its weights."""
        return _given(self.node.inputs[1])

    @property
    def bias(self) -> ir.Value | None:
        """Constant that it adds, or None."""
        return self.node.inputs[2] if len(self.node.inputs) > 2 else None

    @property
    def result(self) -> ir.Value:
        """Tensor that it writes, before any activation."""
        return self.node.outputs[0]

    @property
    def weights(self) -> Array:
        """Numbers of its weights as the graph holds them now; not to be written into."""
        return numbers(self.weight)

    @property
    def kernel(self) -> tuple[int, ...]:
        """Spatial sizes of a convolution's weights, empty for a dense layer."""
        return self.weights.shape[2:]

    @property
    def outputs(self) -> int:
        """Number of outputs."""
        return int(self.weights.shape[self.output_axis])

    @property
    def output_axis(self) -> int:
        """Axis of the weights that counts outputs."""
        return 0 if self.outputs_first else 1

    def matrix(self) -> Array:
        """Arrange the weights as (groups, outputs per group, inputs)."""
        weights = self.weights
        rows = weights if self.outputs_first else weights.T
        return rows.reshape(self.groups, rows.shape[0] // self.groups, -1)

    def change_matrix(self, matrix: Array) -> None:
        """Give the layer other weights, arranged as `matrix` gives them."""
        shape = self.weights.shape
        change(self.weight, matrix.reshape(shape) if self.outputs_first else matrix.reshape(shape[::-1]).T)

    def per_output(self, factors: Array) -> Array:
        """Shape (outputs,) to multiply the weights."""
        shape = [1] * self.weights.ndim
        shape[self.output_axis] = -1
        return factors.reshape(shape)

    def positions(self, x: Array) -> int:
        """Count the positions that `columns` arranges."""
        if self.operator != "Conv":
            return int(x.size // x.shape[-1])
        margins, sizes = self._margins(x.shape[2:], self.kernel), x.shape[2:]
        padded = (size + sum(margin) for size, margin in zip(sizes, margins, strict=True))
        places = zip(padded, self._reach, self.strides, strict=True)
        return math.prod([len(x), *((size - reach) // step + 1 for size, reach, step in places)])

    def columns(self, x: Array, every: int = 1) -> Array:
        """Arrange values as (groups, positions, inputs): what each output position multiplies.

        Args:
            x: (batch, channels, ...) for a convolution, (..., inputs) for a dense layer.
            every: take each how many-th position; the others are not copied.
        """
        if self.operator != "Conv":
            return x.reshape(1, -1, x.shape[-1])[:, ::every]
        axes, spatial = tuple(range(2, x.ndim)), x.ndim - 2
        padded = np.pad(x, ((0, 0), (0, 0), *self._margins(x.shape[2:], self.kernel)))
        view = np.lib.stride_tricks.sliding_window_view(padded, self._reach, axis=axes)
        strides = tuple(slice(None, None, step) for step in self.strides)
        inside = tuple(slice(None, None, step) for step in self.dilations)
        view = np.moveaxis(view[(slice(None), slice(None), *strides, *inside)], 1, 1 + spatial)
        # (batch, *positions, channels, *kernel) to (positions, groups, channels per group * kernel)
        sizes = view.shape[: 1 + spatial]
        rows = view[np.unravel_index(np.arange(0, math.prod(sizes), every), sizes)]
        return np.ascontiguousarray(rows.reshape(len(rows), self.groups, -1).swapaxes(0, 1))

    @property
    def _reach(self) -> tuple[int, ...]:
        return tuple((size - 1) * step + 1 for size, step in zip(self.kernel, self.dilations, strict=True))

    def _margins(self, sizes: tuple[int, ...], kernel: tuple[int, ...]) -> list[tuple[int, int]]:
        if self.auto_pad == "VALID":
            return [(0, 0)] * len(sizes)
        if self.auto_pad == "NOTSET":
            half = len(self.pads) // 2
            return list(zip(self.pads[:half], self.pads[half:], strict=True))
        margins = []
        for size, length, stride, dilation in zip(sizes, kernel, self.strides, self.dilations, strict=True):
            total = max(0, (math.ceil(size / stride) - 1) * stride + (length - 1) * dilation + 1 - size)
            less, more = total // 2, total - total // 2
            margins.append((less, more) if self.auto_pad == "SAME_UPPER" else (more, less))
        return margins


def layers(graph: ir.Graph) -> tuple[Layer, ...]:
    """Find every layer with constant float weights that only it reads, in graph order.

    A Gemm that scales or transposes its input, and a MatMul of more than two axes of weights, is left out.
    """
    return tuple(layer for node in graph if (layer := _layer_of(node)) is not None)


def _layer_of(node: ir.Node) -> Layer | None:
    if node.op_type not in {"Conv", "Gemm", "MatMul"}:
        return None
    weights, *biases = node.inputs[1:]
    array = constant(weights)
    if array is None or array.dtype != np.float32 or sole_reader(_given(weights)) is None:
        return None
    if any(bias is not None and constant(bias) is None for bias in biases):
        return None
    given = node.attributes
    if node.op_type == "Conv":
        spatial = array.ndim - 2
        return Layer(
            node=node,
            groups=given.get_int("group", 1),
            strides=tuple(given.get_ints("strides", [1] * spatial)),
            dilations=tuple(given.get_ints("dilations", [1] * spatial)),
            pads=tuple(given.get_ints("pads", [0] * 2 * spatial)),
            auto_pad=given.get_string("auto_pad", "NOTSET"),
        )
    plain = given.get_float("alpha", 1.0) == given.get_float("beta", 1.0) == 1.0 and not given.get_int("transA", 0)
    if array.ndim != 2 or not plain:
        return None
    return Layer(node=node, outputs_first=bool(given.get_int("transB", 0)))


def _given(found: _T | None) -> _T:
    assert found is not None  # `layers` leaves out nodes that lack it
    return found
