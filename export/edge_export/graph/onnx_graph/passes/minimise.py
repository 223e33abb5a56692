"""Minimal ONNX files, the last step before one ships: the same answers in fewer bytes.

In a network of some thousand numbers, names, settings and quantisation steps take as much room as the numbers. What
is left out here a reader restores by the definition of ONNX: attributes at their defaults, zero points of 0, names of
nodes. Equal constants are stored once. A bias stored as integers needs a step per output beside it; onnxruntime makes
the integers from the plain numbers when it loads the file (since 1.21), and a bias is only stored so where that gives
the same integers again. Float weights that are whole numbers, or exact in half precision, as the tables of a front end
can be, are stored in a quarter or half of their width, and widened again when the file is loaded.
"""

from __future__ import annotations

import itertools
import string
from collections import Counter
from collections.abc import Hashable, Iterator

import numpy as np
import onnx
import onnx_ir as ir

from edge_export.graph.onnx_graph.exact_downcast import exact_downcast
from edge_export.graph.onnx_graph.model import (
    STANDARD,
    Array,
    add_constant,
    apply,
    constant,
    drop_unread_constants,
    forget_shapes,
    has_subgraphs,
    rename,
    sole_reader,
)

_LISTS = {"dilations": 1, "pads": 0, "strides": 1}
"""Settings of a convolution that are lists, and what fills them by default. Its kernel's sizes are its weights'."""

_RAW = frozenset({np.dtype(kind) for kind in ("float32", "float16", "int8", "uint8", "int32", "int64")})


class Minimise(ir.passes.InPlacePass):
    """Leave out what a reader restores by the definition of ONNX.

    A model with graphs inside its nodes is left as it is: names inside and outside would have to agree.
    """

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the graph; inputs and outputs keep their names."""
        graph = model.graph
        if has_subgraphs(graph):
            return ir.passes.PassResult(model, modified=False)
        forget_shapes(graph)
        _drop_zero_points(graph)
        _plain_biases(graph)
        for node in graph:
            _drop_defaults(node, model.opset_imports.get(STANDARD, 0))
        _share_constants(graph)
        _downcast_weights(graph)
        drop_unread_constants(graph)
        for value in graph.initializers.values():
            _pack(value)
        _shorten_names(graph)
        return ir.passes.PassResult(model, modified=True)


def _drop_zero_points(graph: ir.Graph) -> None:
    """Zero points of 0 of weights and biases. onnxruntime fuses a dense layer only where its weights have one."""
    for node in graph:
        if node.op_type != "DequantizeLinear" or len(node.inputs) < 3 or constant(node.inputs[0]) is None:
            continue
        fused = all(
            reader.op_type == "Conv" or (reader.op_type == "Gemm" and reader.inputs[2:] == node.outputs)
            for reader in node.outputs[0].consumers()
        )
        zero_point = constant(node.inputs[2])
        if fused and zero_point is not None and not zero_point.any():
            node.resize_inputs(2)


def _plain_biases(graph: ir.Graph) -> None:
    """Biases as floats where onnxruntime makes the same integers of them."""
    for node in graph:
        bias = node.inputs[2] if node.op_type in {"Conv", "Gemm"} and len(node.inputs) > 2 else None
        source = bias.producer() if bias is not None and sole_reader(bias) is not None else None
        real = None if source is None else _real_bias(node, source)
        if bias is not None and source is not None and real is not None:
            node.replace_input_with(2, add_constant(graph, f"{bias.name}_plain", real))
            graph.remove(source, safe=True)


def _real_bias(node: ir.Node, source: ir.Node) -> Array | None:
    """Compute the reals of a bias without zero points, if window, weights and bias have constant steps."""
    steps = [step for step in map(_step, node.inputs) if step is not None]
    stored = constant(source.inputs[0])
    if stored is None or len(steps) < 3 or len(source.inputs) > 2:
        return None
    return _same_integers(stored, *steps)


def _step(value: ir.Value | None) -> Array | None:
    """Return the constant step of what a DequantizeLinear computes; None for anything else."""
    source = value.producer() if value is not None else None
    return constant(source.inputs[1]) if source is not None and source.op_type == "DequantizeLinear" else None


def _same_integers(stored: Array, window: Array, weights: Array, own: Array) -> Array | None:
    """Return the reals of a bias, if dividing them by the steps of window and weights gives its integers."""
    if stored.dtype != np.int32:
        return None
    real: Array = stored.astype(np.float32) * own
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.rint(real / (window * weights))
    return real if np.array_equal(found, stored) else None


def _drop_defaults(node: ir.Node, opset: int) -> None:
    """Drop settings that say what they would be anyway."""
    defaults = {}
    if node.domain == STANDARD:
        schema = onnx.defs.get_schema(node.op_type, opset)
        defaults = {
            name: ir.from_proto(entry.default_value).value
            for name, entry in schema.attributes.items()
            if entry.default_value.type
        }
    for name, attribute in list(node.attributes.items()):
        usual = name in defaults and attribute.value == defaults[name]
        if node.op_type == "Conv":
            filled = name in _LISTS and all(each == _LISTS[name] for each in attribute.as_ints())
            usual |= name == "kernel_shape" or filled
        if usual:
            del node.attributes[name]


def _share_constants(graph: ir.Graph) -> None:
    """One tensor for all that have the same type, sizes and content."""
    first: dict[Hashable, ir.Value] = {}
    for value in graph.initializers.values():
        tensor = value.const_value
        if tensor is None or value.is_graph_input() or value.is_graph_output():
            continue
        text = tensor.dtype == ir.DataType.STRING
        content = tuple(tensor.numpy().ravel().tolist()) if text else tensor.tobytes()
        kept = first.setdefault((tensor.dtype, tuple(tensor.shape), content), value)
        if kept is not value:
            ir.convenience.replace_all_uses_with(value, kept)


def _downcast_weights(graph: ir.Graph) -> None:
    """Weights in fewer bits where those hold them exactly; every reader folds the cast of a constant when it loads."""
    casts: dict[ir.Value, ir.Node] = {}
    for node in list(graph):
        if node.op_type not in {"Conv", "Gemm", "MatMul"} or (weights := constant(node.inputs[1])) is None:
            continue
        value = node.inputs[1]
        assert value is not None  # it is a constant
        if value not in casts and (narrow := exact_downcast(weights)) is not None:
            stored = add_constant(graph, f"{value.name}_narrow", narrow)
            casts[value] = apply("Cast", [stored], f"{value.name}_wide", to=ir.DataType.FLOAT.value)
        if value in casts:
            node.replace_input_with(1, casts[value].outputs[0])
    if casts:
        graph.insert_before(graph[0], list(casts.values()))


def _pack(value: ir.Value) -> None:
    """Numbers as bytes, which are mostly shorter than a list of numbers."""
    tensor = value.const_value
    if isinstance(tensor, ir.serde.TensorProtoTensor) and not tensor.raw.HasField("raw_data"):
        array = tensor.numpy()
        if array.dtype in _RAW:
            value.const_value = ir.tensor(array, name=value.name)


def _shorten_names(graph: ir.Graph) -> None:
    """Names of tensors in the order of their use, the shortest for the most used; none for nodes."""
    uses: Counter[ir.Value] = Counter()
    for node in graph:
        node.name = ""
        uses.update(value for value in (*node.inputs, *node.outputs) if value is not None and value.name)
    fixed = {value.name for value in (*graph.inputs, *graph.outputs)}
    free = (name for name in _names() if name not in fixed)
    rename(graph, {value: next(free) for value, _ in uses.most_common() if value.name not in fixed})


def _names() -> Iterator[str]:
    """Yield a, b, ..., Z, aa, ab, ..."""
    for length in itertools.count(1):
        for letters in itertools.product(string.ascii_letters, repeat=length):
            yield "".join(letters)
