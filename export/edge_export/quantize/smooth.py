"""SmoothQuant: move outliers of activations behind a layer normalisation into the weights that read them.

A transformer's few loud channels leave all others few steps. The normalisation's own scale and offset per channel can
divide them down, and the weights of the products behind multiply them up again: the network computes the same.

Source: Xiao et al. 2022, "SmoothQuant" (arXiv:2211.10438), eq. 4, folded into the normalisation as in their section 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir

from edge_export.onnx_graph.examples import Windows
from edge_export.onnx_graph.model import change, constant, from_proto, name_of, numbers, sole_reader, to_proto
from edge_export.onnx_graph.run import observe
from edge_export.quantize.checks import check_windows
from edge_export.quantize.layers import Layer, layers
from edge_runtime.errors import ConfigError

Float64 = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Smoothed:
    """A model with smoothed activations.

    Attributes:
        model: computes what the model before did, up to rounding of float32.
        normalisations: names of the nodes that were folded into, with the products that read each.
    """

    model: onnx.ModelProto
    normalisations: tuple[tuple[str, tuple[str, ...]], ...]


def smooth(model: onnx.ModelProto, windows: Windows, *, alpha: float = 0.5) -> Smoothed:
    """Smooth behind every normalisation that nothing but products with constant weights reads.

    Args:
        model: as `edge_export.quantize.write.prepare` gives it.
        windows: (n, ...) inputs, from training groups.
        alpha: how much of the difficulty moves into the weights, 0 to 1 (theirs: 0.5 for most, more for loud models).

    Raises:
        ConfigError: alpha is out of bounds.
    """
    if not 0 <= alpha <= 1:
        raise ConfigError(f"alpha must lie within 0 and 1, not at {alpha}")
    check_windows(windows)
    copy = from_proto(model)
    found = _smoothable(copy.graph)
    loudest = _loudest(model, [name_of(each.result) for each in found], windows) if found else {}
    for each in found:
        factors = _factors(loudest[name_of(each.result)], each.products, alpha)
        for value in each.constants:
            change(value, numbers(value) / factors)
        for product in each.products:
            product.change_matrix(product.matrix() * factors)
    return Smoothed(
        model=to_proto(copy) if found else model,
        normalisations=tuple((each.name, tuple(product.name for product in each.products)) for each in found),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Smoothable:
    """End of a normalisation.

    Attributes:
        name: of its last node.
        result: what it writes.
        constants: scale and offset per channel of the last axis, which divide the result.
        products: all that read the result's numbers.
    """

    name: str
    result: ir.Value
    constants: tuple[ir.Value, ...]
    products: tuple[Layer, ...]


def _smoothable(graph: ir.Graph) -> list[_Smoothable]:
    """Find where a scale per channel lies in front of products alone.

    1. A LayerNormalization over the last axis.
    2. A Mul by and an Add of one number per channel: what operator sets below 17 write at a normalisation's end.
    """
    by_node = {layer.node: layer for layer in layers(graph) if layer.operator != "Conv"}
    found = []
    for node in graph:
        constants = _normalised(node) if node.op_type == "LayerNormalization" else _affine(node)
        products = _products(node.outputs[0], by_node) if constants else []
        if products and all(numbers(value).size == products[0].matrix().shape[-1] for value in constants):
            name, result = name_of(node), node.outputs[0]
            found.append(_Smoothable(name=name, result=result, constants=constants, products=tuple(products)))
    return found


def _normalised(node: ir.Node) -> tuple[ir.Value, ...]:
    """Rule 1."""
    own = tuple(value for value in node.inputs[1:3] if value is not None)
    return own if node.attributes.get_int("axis", -1) == -1 and all(map(_own_constant, own)) else ()


def _affine(node: ir.Node) -> tuple[ir.Value, ...]:
    """Rule 2: the constants of an Add and of the Mul that only it reads."""
    offset, scaled = _operands(node) if node.op_type == "Add" else (None, None)
    before = scaled.producer() if scaled is not None and sole_reader(scaled) is node else None
    scale, _ = _operands(before) if before is not None and before.op_type == "Mul" else (None, None)
    return (scale, offset) if scale is not None and offset is not None else ()


def _operands(node: ir.Node) -> tuple[ir.Value | None, ir.Value | None]:
    """(one number per channel, the other operand) of a Mul or Add; (None, None) where there is none such."""
    for own, other in (node.inputs, reversed(node.inputs)):
        if own is not None and other is not None and _own_constant(own) and constant(other) is None:
            array = numbers(own)
            if array.ndim and array.size == array.shape[-1]:
                return own, other
    return None, None


def _own_constant(value: ir.Value) -> bool:
    return constant(value) is not None and sole_reader(value) is not None


def _products(value: ir.Value, by_node: Mapping[ir.Node, Layer]) -> list[Layer]:
    """List the products that read a value; none where anything else reads its numbers, too."""
    readers = [use.node for use in value.uses() if use.node.op_type != "Shape"]
    products = [by_node[reader] for reader in readers if reader in by_node and reader.inputs[0] is value]
    return products if len(products) == len(readers) and not value.is_graph_output() else []


def _loudest(model: onnx.ModelProto, names: Iterable[str], windows: Windows) -> Mapping[str, Float64]:
    """Measure the largest value of each channel of some tensors, (channels,) by name."""
    loudest: dict[str, Float64] = {}
    for values in observe(model, names, windows):
        for name, array in values.items():
            peak = np.abs(array.astype(np.float64)).reshape(-1, array.shape[-1]).max(axis=0)
            loudest[name] = np.maximum(loudest.get(name, peak), peak)
    return loudest


def _factors(activation: Float64, products: Iterable[Layer], alpha: float) -> Float64:
    """Divide the difficulty of each channel between what a normalisation writes and the weights behind it (eq. 4)."""
    reach = np.max([np.abs(product.matrix()[0]).max(axis=0) for product in products], 0)
    alive = (activation > 0) & (reach > 0)
    factors = np.ones(len(reach))
    factors[alive] = activation[alive] ** alpha / reach[alive].astype(np.float64) ** (1 - alpha)
    return factors
