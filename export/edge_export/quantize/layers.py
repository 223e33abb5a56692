"""Layers that multiply by constant weights, seen as matrices: what rounding, saturation and scaling work on."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import onnx

from edge_export.onnx_graph.graph import Array, Net, attributes


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A convolution or dense layer with constant weights.

    A layer multiplies rows of values by columns of weights. ``matrix`` and ``columns`` bring both into that form:
    (groups, outputs per group, inputs) and (groups, positions, inputs), so that the answer before the bias is
    ``columns @ matrix^T`` in each group.

    Attributes:
        name: of the node.
        operator: ``Conv``, ``Gemm`` or ``MatMul``.
        source: tensor it reads.
        weight: its constant.
        bias: its constant, or None.
        result: tensor it writes, before any activation.
        groups: of a convolution, otherwise 1.
        outputs_first: whether the weights' first axis is the output (convolutions, Gemm with transB).
        strides, dilations, pads: of a convolution, in ONNX's order.
        auto_pad: ONNX's word for padding that follows from the sizes, or ``NOTSET``.
    """

    name: str
    operator: str
    source: str
    weight: str
    bias: str | None
    result: str
    groups: int = 1
    outputs_first: bool = True
    strides: tuple[int, ...] = ()
    dilations: tuple[int, ...] = ()
    pads: tuple[int, ...] = ()
    auto_pad: str = "NOTSET"

    @property
    def output_axis(self) -> int:
        """Axis of the weights that counts outputs."""
        return 0 if self.outputs_first else 1

    def matrix(self, weights: Array) -> Array:
        """Arrange stored weights as (groups, outputs per group, inputs)."""
        rows = weights if self.outputs_first else weights.T
        return rows.reshape(self.groups, rows.shape[0] // self.groups, -1)

    def weights(self, matrix: Array, shape: tuple[int, ...]) -> Array:
        """Undo `matrix`."""
        if self.outputs_first:
            return matrix.reshape(shape)
        return np.ascontiguousarray(matrix.reshape(shape[1], shape[0]).T)

    def per_output(self, factors: Array, rank: int) -> Array:
        """Shape (outputs,) to multiply weights of this rank."""
        shape = [1] * rank
        shape[self.output_axis] = -1
        return factors.reshape(shape)

    def columns(self, x: Array, kernel: tuple[int, ...], *, fill: float = 0) -> Array:
        """Arrange values as (groups, positions, inputs): what each output position multiplies.

        Args:
            x: (batch, channels, ...) for a convolution, (..., inputs) for a dense layer.
            kernel: spatial sizes of a convolution's weights, empty for a dense layer.
            fill: value of the padding.
        """
        if self.operator != "Conv":
            return x.reshape(1, -1, x.shape[-1])
        axes = tuple(range(2, x.ndim))
        padded = np.pad(x, ((0, 0), (0, 0), *self._margins(x.shape[2:], kernel)), constant_values=fill)
        reach = tuple((size - 1) * step + 1 for size, step in zip(kernel, self.dilations, strict=True))
        view = np.lib.stride_tricks.sliding_window_view(padded, reach, axis=axes)
        every = tuple(slice(None, None, step) for step in self.strides)
        inside = tuple(slice(None, None, step) for step in self.dilations)
        view = view[(slice(None), slice(None), *every, *inside)]
        # (batch, channels, *positions, *kernel) to (groups, batch * positions, channels per group * kernel)
        spatial, count = len(kernel), x.shape[1] // self.groups
        view = view.reshape(x.shape[0], self.groups, count, *view.shape[2:])
        order = (1, 0, *range(3, 3 + spatial), 2, *range(3 + spatial, 3 + 2 * spatial))
        return view.transpose(order).reshape(self.groups, -1, count * math.prod(kernel))

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


def layers(net: Net) -> tuple[Layer, ...]:
    """Every layer with constant float weights that only it reads, in graph order.

    A Gemm that scales or transposes its input, and a MatMul of more than two axes of weights, is left out.
    """
    found = []
    for node in net.graph.node:
        if node.op_type not in {"Conv", "Gemm", "MatMul"} or not net.is_constant(node.input[1]):
            continue
        weight = node.input[1]
        if len(net.readers(weight)) != 1 or net.constant(weight).dtype != np.float32:
            continue
        bias = node.input[2] if len(node.input) > 2 and node.input[2] else None
        if bias is not None and not net.is_constant(bias):
            continue
        if (layer := layer_of(node, bias, net.constant(weight).ndim)) is not None:
            found.append(layer)
    return tuple(found)


def layer_of(node: onnx.NodeProto, bias: str | None, rank: int) -> Layer | None:
    given = attributes(node)
    name, operator, source, weight, result = node.name, node.op_type, node.input[0], node.input[1], node.output[0]
    if operator == "Conv":
        spatial = rank - 2
        return Layer(
            name=name,
            operator=operator,
            source=source,
            weight=weight,
            bias=bias,
            result=result,
            groups=int(given.get("group", 1)),
            strides=tuple(given.get("strides", [1] * spatial)),
            dilations=tuple(given.get("dilations", [1] * spatial)),
            pads=tuple(given.get("pads", [0] * 2 * spatial)),
            auto_pad=given.get("auto_pad", b"NOTSET").decode(),
        )
    plain = given.get("alpha", 1.0) == 1.0 and given.get("beta", 1.0) == 1.0 and not given.get("transA", 0)
    if rank != 2 or not plain:
        return None
    outputs_first = operator == "Gemm" and bool(given.get("transB", 0))
    return Layer(
        name=name,
        operator=operator,
        source=source,
        weight=weight,
        bias=bias,
        result=result,
        outputs_first=outputs_first,
    )


def kernel_of(net: Net, layer: Layer) -> tuple[int, ...]:
    """Spatial sizes of a convolution's weights, empty for a dense layer."""
    return tuple(net.constant(layer.weight).shape[2:]) if layer.operator == "Conv" else ()
