"""Cross-layer equalisation: scale channels between two layers so that both layers' weights fill their ranges.

A ReLU, a pool and a mean commute with positive factors per channel, so a channel may leave one layer divided by a
factor that the next layer's weights multiply in again: the network computes the same, and rounding loses less. Worth
most with one weight scale per layer and for depthwise convolutions, whose channels differ by orders of magnitude.

Source: Nagel et al. 2019, "Data-Free Quantization Through Weight Equalization and Bias Correction" (arXiv:1906.04721),
section 4.1. Their third step, absorbing high biases, is left out: it changes what zero-padded convolutions compute.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from edge_export.graph.onnx_graph.examples import Windows
from edge_export.graph.onnx_graph.model import change, from_proto, name_of, numbers, shapes_of, sole_reader, to_proto
from edge_export.graph.onnx_graph.run import observe
from edge_export.graph.quantize.layers import Layer, layers

_POINTWISE = frozenset({"Identity", "LeakyRelu", "Relu"})
_COMMUTE = _POINTWISE | frozenset(
    {
        "AveragePool",
        "Flatten",
        "GlobalAveragePool",
        "GlobalMaxPool",
        "MaxPool",
        "ReduceMean",
        "Reshape",
        "Squeeze",
    }
)
_ROUNDS = 40
_CLOSE_ENOUGH = 1e-3
_LARGEST_FACTOR = 1e4
"""A channel that is all but dead is not blown up beyond this in all: its bias would rule the activations' range."""

Float64 = npt.NDArray[np.float64]
_Shapes = Mapping[str, Sequence[int | None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Equalized:
    """A model whose channels were scaled.

    Attributes:
        model: computes what the model before did, up to rounding of float32.
        pairs: (layer, next layer) by node name, between which channels were scaled.
        precision_before: how much of its layer's range a channel's weights use on both sides, the products' mean over
            channels, of the worst pair: what the method maximises (their eq. 9). 1 where there is no pair.
        precision_after: the same afterwards.
    """

    model: onnx.ModelProto
    pairs: tuple[tuple[str, str], ...]
    precision_before: float
    precision_after: float


def equalize(model: onnx.ModelProto, windows: Windows | None = None) -> Equalized:
    """Equalise every pair of layers with nothing but commuting operators between them.

    Args:
        model: a model as `edge_export.graph.quantize.write.prepare` gives it.
        windows: (n, ...) inputs. With them, no channel's activations are scaled beyond the largest of its tensor, so
            that the activations' step does not grow for the sake of the weights. A few hundred are enough.

    A network that was trained for per-layer steps already may lose by it: a candidate to compare, not a default.
    """
    copy = from_proto(model)
    found = {layer.node: layer for layer in layers(copy.graph)}
    shapes = shapes_of(copy)
    pairs = [(layer, found[after]) for layer in found.values() if (after := _next(layer, shapes)) in found]
    limits = _largest(model, pairs, windows) if windows is not None and pairs else {}
    first: dict[str, Float64] = {layer.name: np.ones(layer.outputs) for layer, _ in pairs}
    before = _precision(pairs)
    for _ in range(_ROUNDS):
        furthest = 0.0
        for one, other in pairs:
            factors = _factors(_output_ranges(one), _input_ranges(other, one.outputs))
            total = first[one.name] * factors
            if (limit := limits.get(one.name)) is not None:
                # Divided by the factors so far, no channel may exceed the largest of the tensor as it was.
                total = np.maximum(total, limit / max(float(limit.max()), np.finfo(np.float64).tiny))
            total = np.clip(total, 1 / _LARGEST_FACTOR, _LARGEST_FACTOR)
            factors = total / first[one.name]
            first[one.name] = total
            _scale(one, other, factors)
            furthest = max(furthest, float(np.abs(np.log(factors)).max(initial=0.0)))
        if furthest < _CLOSE_ENOUGH:
            break
    return Equalized(
        model=to_proto(copy) if pairs else model,
        pairs=tuple((one.name, other.name) for one, other in pairs),
        precision_before=before,
        precision_after=_precision(pairs),
    )


def _next(layer: Layer, shapes: _Shapes) -> ir.Node | None:
    """Find the node that alone reads what this layer writes, behind commuting operators."""
    value = layer.result
    # A product's outputs lie on the last axis, which pools and reshapes do not keep.
    allowed = _POINTWISE if layer.operator == "MatMul" else _COMMUTE
    while (node := sole_reader(value)) is not None and node.op_type in allowed and node.inputs[0] is value:
        if node.op_type == "LeakyRelu" and node.attributes.get_float("alpha", 0.01) < 0:
            return None
        if node.op_type in {"Reshape", "Flatten", "Squeeze", "ReduceMean"} and not _keeps_channels(node, shapes):
            return None
        value = node.outputs[0]
    return node if node is not None and node.inputs[0] is value else None


def _keeps_channels(node: ir.Node, shapes: _Shapes) -> bool:
    """Say whether axis 1 stays the channels, or becomes (channels x the rest) with the channels outermost."""
    old, new = (shapes.get(name_of(value), [])[1:] for value in (node.inputs[0], node.outputs[0]) if value is not None)
    if not old or not new or any(size is None for size in (*old, *new)):
        return False
    sizes = [size or 0 for size in old]
    if node.op_type == "ReduceMean":
        return new[0] == sizes[0] and math.prod(size or 0 for size in new) == sizes[0]
    return new[0] == sizes[0] or (len(new) == 1 and new[0] == math.prod(sizes))


def _output_ranges(layer: Layer) -> Float64:
    matrix = np.abs(layer.matrix().astype(np.float64))
    return np.asarray(matrix.max(axis=2).reshape(-1))


def _by_input(layer: Layer, channels: int) -> Float64:
    """Arrange a layer's weights as (groups, outputs, channels per group, places of the kernel)."""
    matrix = layer.matrix().astype(np.float64)
    groups, outputs, _ = matrix.shape
    return matrix.reshape(groups, outputs, channels // groups, -1)


def _input_ranges(layer: Layer, channels: int) -> Float64:
    return np.asarray(np.abs(_by_input(layer, channels)).max(axis=(1, 3)).reshape(-1))


def _factors(one: Float64, other: Float64) -> Float64:
    """Dividing the first by them and multiplying the second gives both the geometric mean (their eq. 11)."""
    alive = (one > 0) & (other > 0)
    return np.where(alive, np.sqrt(np.where(alive, one, 1.0) / np.where(alive, other, 1.0)), 1.0)


def _scale(one: Layer, other: Layer, factors: Float64) -> None:
    change(one.weight, one.weights / one.per_output(factors))
    if one.bias is not None:
        change(one.bias, numbers(one.bias) / factors)
    split = _by_input(other, len(factors))
    other.change_matrix(split * factors.reshape(len(split), 1, -1, 1))


def _largest(model: onnx.ModelProto, pairs: list[tuple[Layer, Layer]], windows: Windows) -> dict[str, Float64]:
    """Measure the largest value of each channel that leaves the first layer of each pair, behind its ReLU if any.

    Returns:
        (channels,) by the layer's name.
    """
    seen: dict[str, str] = {}
    for one, _ in pairs:
        reader = sole_reader(one.result)
        seen[one.name] = name_of(reader.outputs[0] if reader is not None and reader.op_type == "Relu" else one.result)
    largest: dict[str, Float64] = {}
    for values in observe(model, seen.values(), windows):
        for one, _ in pairs:
            array = np.abs(values[seen[one.name]].astype(np.float64))
            axis = array.ndim - 1 if one.operator == "MatMul" else 1
            found = array.max(axis=tuple(a for a in range(array.ndim) if a != axis))
            largest[one.name] = np.maximum(largest.get(one.name, found), found)
    return largest


def _precision(pairs: list[tuple[Layer, Layer]]) -> float:
    worst = 1.0
    for one, other in pairs:
        uses = [_output_ranges(one), _input_ranges(other, one.outputs)]
        shares = [ranges / max(float(ranges.max()), np.finfo(np.float64).tiny) for ranges in uses]
        worst = min(worst, float(np.mean(shares[0] * shares[1])))
    return worst
