"""Cross-layer equalisation: scale channels between two layers so that both layers' weights fill their ranges.

A ReLU, a pool and a mean commute with positive factors per channel, so a channel may leave one layer divided by a
factor that the next layer's weights multiply in again: the network computes the same, and rounding loses less. Worth
most with one weight scale per layer and for depthwise convolutions, whose channels differ by orders of magnitude.

Source: Nagel et al. 2019, "Data-Free Quantization Through Weight Equalization and Bias Correction" (arXiv:1906.04721),
section 4.1. Their third step, absorbing high biases, is left out: it changes what zero-padded convolutions compute.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx

from edge_export.data.dataset import Float32
from edge_export.onnx_graph.graph import Net, attributes, observe, shape_of
from edge_export.quantize.layers import Layer, layers

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


def equalize(model: onnx.ModelProto, windows: Float32 | None = None) -> Equalized:
    """Equalise every pair of layers with nothing but commuting operators between them.

    Args:
        model: as `edge_export.quantize.write.prepare` gives it.
        windows: (n, ...) inputs. With them, no channel's activations are scaled beyond the largest of its tensor, so
            that the activations' step does not grow for the sake of the weights. A few hundred are enough.

    A network that was trained for per-layer steps already may lose by it: a candidate to compare, not a default.
    """
    net = Net(model)
    found = layers(net)
    by_name = {layer.name: layer for layer in found}
    pairs = [(layer, by_name[after]) for layer in found if (after := _next(net, layer)) in by_name]
    limits = _largest(model, pairs, windows) if windows is not None and pairs else {}
    first: dict[str, Float64] = {layer.name: np.ones(_outputs(net, layer)) for layer, _ in pairs}
    before = _precision(net, pairs)
    for _ in range(_ROUNDS):
        furthest = 0.0
        for one, other in pairs:
            factors = _factors(_output_ranges(net, one), _input_ranges(net, other, _outputs(net, one)))
            total = first[one.name] * factors
            if (limit := limits.get(one.result)) is not None:
                # Divided by the factors so far, no channel may exceed the largest of the tensor as it was.
                total = np.maximum(total, limit / max(float(limit.max()), np.finfo(np.float64).tiny))
            total = np.clip(total, 1 / _LARGEST_FACTOR, _LARGEST_FACTOR)
            factors = total / first[one.name]
            first[one.name] = total
            _scale(net, one, other, factors)
            furthest = max(furthest, float(np.abs(np.log(factors)).max(initial=0.0)))
        if furthest < _CLOSE_ENOUGH:
            break
    return Equalized(
        model=net.model,
        pairs=tuple((one.name, other.name) for one, other in pairs),
        precision_before=before,
        precision_after=_precision(net, pairs),
    )


def _next(net: Net, layer: Layer) -> str:
    """Name of the node that alone reads what this layer writes, behind commuting operators; empty if there is none."""
    infos = net.infos()
    name = layer.result
    # A product's outputs lie on the last axis, which pools and reshapes do not keep.
    allowed = _POINTWISE if layer.operator == "MatMul" else _COMMUTE
    while (node := net.sole_reader(name)) is not None and node.op_type in allowed and node.input[0] == name:
        after = infos.get(node.output[0])
        if node.op_type == "LeakyRelu" and attributes(node).get("alpha", 0.01) < 0:
            return ""
        if node.op_type in {"Reshape", "Flatten", "Squeeze", "ReduceMean"} and not _keeps_channels(net, node, after):
            return ""
        name = node.output[0]
    if node is None or node.input[0] != name:
        return ""
    return str(node.name)


def _keeps_channels(net: Net, node: onnx.NodeProto, after: onnx.ValueInfoProto | None) -> bool:
    """Whether axis 1 stays the channels, or becomes (channels x the rest) with the channels outermost."""
    before = net.infos().get(node.input[0])
    if before is None or after is None:
        return False
    old, new = shape_of(before)[1:], shape_of(after)[1:]
    if not old or not new or any(size is None for size in (*old, *new)):
        return False
    sizes = [size or 0 for size in old]
    if node.op_type == "ReduceMean":
        return new[0] == sizes[0] and math.prod(size or 0 for size in new) == sizes[0]
    return new[0] == sizes[0] or (len(new) == 1 and new[0] == math.prod(sizes))


def _outputs(net: Net, layer: Layer) -> int:
    return int(net.constant(layer.weight).shape[layer.output_axis])


def _output_ranges(net: Net, layer: Layer) -> Float64:
    matrix = np.abs(layer.matrix(net.constant(layer.weight)).astype(np.float64))
    return np.asarray(matrix.max(axis=2).reshape(-1))


def _input_ranges(net: Net, layer: Layer, channels: int) -> Float64:
    matrix = np.abs(layer.matrix(net.constant(layer.weight)).astype(np.float64))
    groups, outputs, inputs = matrix.shape
    per_group = channels // groups
    return np.asarray(matrix.reshape(groups, outputs, per_group, inputs // per_group).max(axis=(1, 3)).reshape(-1))


def _factors(one: Float64, other: Float64) -> Float64:
    """Dividing the first by them and multiplying the second gives both the geometric mean (their eq. 11)."""
    alive = (one > 0) & (other > 0)
    return np.where(alive, np.sqrt(np.where(alive, one, 1.0) / np.where(alive, other, 1.0)), 1.0)


def _scale(net: Net, one: Layer, other: Layer, factors: Float64) -> None:
    weights = net.constant(one.weight)
    net.change(one.weight, (weights / one.per_output(factors, weights.ndim)).astype(np.float32))
    if one.bias is not None:
        net.change(one.bias, (net.constant(one.bias) / factors).astype(np.float32))
    weights = net.constant(other.weight)
    matrix = other.matrix(weights).astype(np.float64)
    groups, outputs, inputs = matrix.shape
    per_group = len(factors) // groups
    split = matrix.reshape(groups, outputs, per_group, inputs // per_group)
    scaled = (split * factors.reshape(groups, 1, per_group, 1)).reshape(matrix.shape)
    net.change(other.weight, other.weights(scaled, weights.shape).astype(np.float32))


def _largest(model: onnx.ModelProto, pairs: list[tuple[Layer, Layer]], windows: Float32) -> dict[str, Float64]:
    """Largest value of each channel that leaves the first layer of each pair, behind its ReLU if there is one."""
    net = Net(model)
    seen: dict[str, str] = {}
    for one, _ in pairs:
        reader = net.sole_reader(one.result)
        seen[one.result] = reader.output[0] if reader is not None and reader.op_type == "Relu" else one.result
    largest: dict[str, Float64] = {}
    for values in observe(model, seen.values(), windows):
        for (one, _), name in zip(pairs, (seen[one.result] for one, _ in pairs), strict=True):
            array = np.abs(values[name].astype(np.float64))
            axis = array.ndim - 1 if one.operator == "MatMul" else 1
            found = array.max(axis=tuple(a for a in range(array.ndim) if a != axis))
            largest[one.result] = np.maximum(largest.get(one.result, found), found)
    return largest


def _precision(net: Net, pairs: list[tuple[Layer, Layer]]) -> float:
    worst = 1.0
    for one, other in pairs:
        uses = [_output_ranges(net, one), _input_ranges(net, other, _outputs(net, one))]
        shares = [ranges / max(float(ranges.max()), np.finfo(np.float64).tiny) for ranges in uses]
        worst = min(worst, float(np.mean(shares[0] * shares[1])))
    return worst
