"""The last step before an ONNX file ships: the same answers in fewer bytes.

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
from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edge_export.onnx_graph.exact_downcast import narrowed
from edge_export.onnx_graph.graph import Array, Net, attributes

_LISTS = {"dilations": 1, "pads": 0, "strides": 1}
"""Settings of a convolution that are lists, and what fills them by default. Its kernel's sizes are its weights'."""

_RAW = frozenset({np.dtype(kind) for kind in ("float32", "float16", "int8", "uint8", "int32", "int64")})


def slim(model: onnx.ModelProto) -> onnx.ModelProto:
    """Leave out what a reader restores by itself.

    Args:
        model: cleaned (`edge_export.onnx_graph.canonicalise`), float or with QuantizeLinear/DequantizeLinear pairs.

    Returns:
        A new model whose answers are the same bits; inputs and outputs keep their names. One with graphs inside its
        nodes is left as it is: names inside and outside would have to agree.
    """
    net = Net(model)
    if any(attribute.HasField("g") or attribute.graphs for node in net.graph.node for attribute in node.attribute):
        return net.model
    del net.graph.value_info[:]
    _drop_zero_points(net)
    _plain_biases(net)
    for node in net.graph.node:
        _drop_defaults(node, net)
    _share_constants(net)
    net.index()
    _narrow_weights(net)
    net.drop_unread_constants()
    for tensor in net.graph.initializer:
        _pack(tensor)
    _shorten_names(net.graph)
    return net.model


def _drop_zero_points(net: Net) -> None:
    """Zero points of 0 of weights and biases. onnxruntime fuses a dense layer only where its weights have one."""
    for node in net.graph.node:
        if node.op_type != "DequantizeLinear" or len(node.input) < 3 or not net.is_constant(node.input[0]):
            continue
        readers = net.readers(node.output[0])
        fused = all(
            reader.op_type == "Conv" or (reader.op_type == "Gemm" and reader.input[2:] == node.output)
            for reader in readers
        )
        if fused and net.is_constant(node.input[2]) and not net.constant(node.input[2]).any():
            del node.input[2:]


def _plain_biases(net: Net) -> None:
    """Biases as floats where onnxruntime makes the same integers of them."""
    gone = []
    for node in net.graph.node:
        if node.op_type not in {"Conv", "Gemm"} or len(node.input) < 3:
            continue
        sources = [net.producers.get(name) for name in node.input]
        if any(source is None or source.op_type != "DequantizeLinear" for source in sources):
            continue
        window, weights, bias = (list(source.input) for source in sources if source is not None)
        scales = [net.constant(each[1]) for each in (window, weights, bias) if net.is_constant(each[1])]
        if len(bias) > 2 or len(scales) < 3 or not net.is_constant(bias[0]) or net.sole_reader(node.input[2]) is None:
            continue
        real = _same_integers(net.constant(bias[0]), *scales)
        if real is not None:
            gone.append(node.input[2])
            node.input[2] = net.store(f"{node.input[2]}_plain", real)
    kept = [node for node in net.graph.node if node.output[0] not in gone]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in kept]
    del net.graph.node[:]
    net.graph.node.extend(copies)
    net.index()


def _same_integers(stored: Array, window: Array, weights: Array, own: Array) -> Array | None:
    """The reals of a bias, if a reader that divides them by the steps of window and weights finds its integers."""
    if stored.dtype != np.int32:
        return None
    real: Array = stored.astype(np.float32) * own
    with np.errstate(divide="ignore", invalid="ignore"):
        found = np.rint(real / (window * weights))
    return real if np.array_equal(found, stored) else None


def _drop_defaults(node: onnx.NodeProto, net: Net) -> None:
    """Settings that say what they would be anyway."""
    versions = {entry.domain: entry.version for entry in net.model.opset_import}
    defaults = {}
    if node.domain in ("", "ai.onnx"):
        schema = onnx.defs.get_schema(node.op_type, max(versions.get("", 0), versions.get("ai.onnx", 0)))
        defaults = {
            name: helper.get_attribute_value(entry.default_value)
            for name, entry in schema.attributes.items()
            if entry.default_value.type
        }
    for name, value in attributes(node).items():
        usual = name in defaults and value == defaults[name]
        if node.op_type == "Conv":
            usual |= name == "kernel_shape" or (name in _LISTS and all(each == _LISTS[name] for each in value))
        if usual:
            place = next(i for i, attribute in enumerate(node.attribute) if attribute.name == name)
            del node.attribute[place]


def _share_constants(net: Net) -> None:
    """One tensor for all that have the same type, sizes and content."""
    first: dict[bytes, str] = {}
    same: dict[str, str] = {}
    open_to_callers = {info.name for info in (*net.graph.input, *net.graph.output)}
    for tensor in net.graph.initializer:
        if tensor.name in open_to_callers:
            continue
        bare = onnx.TensorProto.FromString(tensor.SerializeToString())
        bare.ClearField("name")
        _pack(bare)
        same[tensor.name] = first.setdefault(bare.SerializeToString(deterministic=True), tensor.name)
    for node in net.graph.node:
        node.input[:] = [same.get(name, name) for name in node.input]


def _narrow_weights(net: Net) -> None:
    """Weights in fewer bits where those hold them exactly; every reader folds the cast of a constant when it loads."""
    casts = {}
    for node in net.graph.node:
        if node.op_type not in {"Conv", "Gemm", "MatMul"} or not net.is_constant(node.input[1]):
            continue
        name = node.input[1]
        if name not in casts and (narrow := narrowed(net.constant(name))) is not None:
            stored = net.store(f"{name}_narrow", narrow)
            casts[name] = helper.make_node("Cast", [stored], [f"{name}_wide"], to=onnx.TensorProto.FLOAT)
        if name in casts:
            node.input[1] = casts[name].output[0]
    for cast in reversed(casts.values()):
        net.graph.node.insert(0, cast)
    net.index()


def _pack(tensor: onnx.TensorProto) -> None:
    """Numbers as bytes, which are mostly shorter than a list of numbers."""
    if tensor.HasField("raw_data") or tensor.data_type == onnx.TensorProto.STRING:
        return
    array = numpy_helper.to_array(tensor)
    if array.dtype in _RAW:
        tensor.CopyFrom(numpy_helper.from_array(array, tensor.name))


def _shorten_names(graph: onnx.GraphProto) -> None:
    """Names of tensors in the order of their use, the shortest for the most used; none for nodes."""
    uses: Counter[str] = Counter()
    for node in graph.node:
        node.ClearField("name")
        uses.update([*node.input, *node.output])
    fixed = {info.name for info in (*graph.input, *graph.output)} | {""}
    free = (name for name in _names() if name not in fixed)
    names = {name: name for name in fixed} | {n: next(free) for n, _ in uses.most_common() if n not in fixed}
    for node in graph.node:
        node.input[:] = [names[name] for name in node.input]
        node.output[:] = [names[name] for name in node.output]
    for tensor in graph.initializer:
        tensor.name = names[tensor.name]


def _names() -> Iterator[str]:
    """a, b, ..., Z, aa, ab, ..."""
    for length in itertools.count(1):
        for letters in itertools.product(string.ascii_letters, repeat=length):
            yield "".join(letters)
