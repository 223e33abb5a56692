"""The one graph type, `onnx_ir.Model`: reading, transforming and writing ONNX models by it.

Nodes and values know each other there (`Value.producer`, `Value.uses`), so that no pass keeps tables of names.
`to_proto` gives the bytes that the protobuf classes would, less the info of initializers, which repeats them.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper

from edge_runtime.errors import ConfigError, one_line

Array = npt.NDArray[Any]

STANDARD = ""
"""Domain of ONNX's own operators; onnx-ir reads its other name, ``ai.onnx``, as this one."""


MOST_BYTES = 2**31
"""Of a file: protobuf reads no larger message."""

_WHOLE = (onnx.TensorProto.INT32, onnx.TensorProto.INT64)
_FOLLOWED = 1 << 16

MOST_NODES = 100_000
"""Twenty times the largest network that a board was seen to run."""


class UnsuitableModelError(ConfigError, ir.passes.PreconditionError):
    """A pass does not take a model; the message says what to change."""


class InvalidModelError(ConfigError, ir.passes.PostconditionError):
    """A model that is not a valid one, before its passes or behind them."""


def transform(model: onnx.ModelProto, *passes: ir.passes.PassBase) -> onnx.ModelProto:
    """Run passes over a copy of a model, one after the other.

    Args:
        model: any ONNX model with its data inside; not changed.
        passes: the passes in the order in which they run.

    Returns:
        A new model; the given one where no pass changed anything.

    Raises:
        ConfigError: a pass does not take the model (`UnsuitableModelError`), or the model cannot be read.
    """
    graph, modified = from_proto(model), False
    for each in passes:
        result = each(graph)
        graph, modified = result.model, modified or result.modified
    return to_proto(graph) if modified else model


def from_proto(model: onnx.ModelProto) -> ir.Model:
    """Read a model as a graph that shares nothing with it. Sparse tensors become dense ones.

    Raises:
        ConfigError: a damaged file: an initializer twice, an attribute without a type or of an unknown one.
    """
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for graph in graphs_in(copy.graph):
        _put_right(graph)
    try:
        return ir.serde.deserialize_model(copy)
    except ir.serde.SerdeError as error:
        cause: BaseException = error
        while cause.__cause__ is not None:
            cause = cause.__cause__
        raise ConfigError(f"the ONNX model cannot be read: {one_line(cause)}") from error


def _put_right(graph: onnx.GraphProto) -> None:
    """Make sparse tensors dense, and refuse damage: onnx-ir drops both without a word, or fails when it writes."""
    graph.initializer.extend(_dense(tensor) for tensor in graph.sparse_initializer)
    del graph.sparse_initializer[:]
    names = Counter(tensor.name for tensor in graph.initializer)
    if twice := [name for name, count in names.items() if count > 1]:
        raise InvalidModelError(f"not a valid ONNX model: initializer {twice[0]!r} is there twice")
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        if attribute.type == onnx.AttributeProto.UNDEFINED:
            raise InvalidModelError(f"not a valid ONNX model: attribute {attribute.name!r} has no type")
        if attribute.type == onnx.AttributeProto.SPARSE_TENSOR:  # of a Constant
            attribute.CopyFrom(helper.make_attribute("value", _dense(attribute.sparse_tensor)))


def to_proto(model: ir.Model) -> onnx.ModelProto:
    """Write a graph as the ONNX model that was read, less the info of initializers and outputs that repeats them."""
    written = ir.to_proto(model)
    for field in ("producer_name", "producer_version", "domain"):
        # onnx-ir leaves empty strings out, also where the file has them.
        if (value := getattr(model, field)) is not None:
            setattr(written, field, value)
    for graph in graphs_in(written.graph):
        stored = {tensor.name for tensor in graph.initializer}
        infos = [info for info in graph.value_info if info.name not in stored]
        copies = [onnx.ValueInfoProto.FromString(info.SerializeToString()) for info in infos]
        del graph.value_info[:]
        graph.value_info.extend(copies)
    return written


def graphs_in(graph: onnx.GraphProto) -> Iterator[onnx.GraphProto]:
    """Yield a graph and those inside its nodes, at any depth."""
    yield graph
    for node in graph.node:
        for attribute in node.attribute:
            for inner in [attribute.g] if attribute.HasField("g") else attribute.graphs:
                yield from graphs_in(inner)


def read_model(data: bytes, file: str) -> onnx.ModelProto:
    """Parse an ONNX file.

    Raises:
        ConfigError: it is none, or more than this package works on.
    """
    if len(data) > MOST_BYTES:
        raise ConfigError(f"{file}: has {len(data):,} bytes; an ONNX file holds {MOST_BYTES:,} at most")
    try:
        model = onnx.load_model_from_string(data)
    except Exception as error:  # the parser raises types of its own library
        raise ConfigError(f"{file}: not a usable ONNX model: {one_line(error)}") from error
    nodes = sum(len(graph.node) for graph in graphs_in(model.graph))
    if nodes > MOST_NODES:
        raise ConfigError(f"{file}: has {nodes:,} nodes; at most {MOST_NODES:,} are worked on")
    return model


def _dense(sparse: onnx.SparseTensorProto) -> onnx.TensorProto:
    """Fill a tensor with its zeros: indices are (n,) places in the flat tensor or (n, rank) coordinates."""
    values, indices = numpy_helper.to_array(sparse.values), numpy_helper.to_array(sparse.indices)
    if math.prod(sparse.dims) > MOST_BYTES:
        raise InvalidModelError(f"a sparse constant of the sizes {list(sparse.dims)} is larger than a file may be")
    made = np.zeros(tuple(sparse.dims), values.dtype)
    places = np.ravel_multi_index(tuple(indices.T), made.shape) if indices.ndim == 2 else indices
    made.reshape(-1)[places] = values
    return numpy_helper.from_array(made, sparse.values.name)


def has_subgraphs(graph: ir.Graph) -> bool:
    """Say whether any node holds a graph of its own: a choice or a loop."""
    return any(map(_subgraphs, graph))


def _subgraphs(node: ir.Node) -> list[ir.Graph]:
    one = [each.as_graph() for each in node.attributes.values() if each.type == ir.AttributeType.GRAPH]
    several = [each.as_graphs() for each in node.attributes.values() if each.type == ir.AttributeType.GRAPHS]
    return [*one, *itertools.chain.from_iterable(several)]


def constant(value: ir.Value | None) -> Array | None:
    """Return the numbers of an initializer, not to be written into; None for any other value."""
    if value is None or not value.is_initializer() or value.const_value is None:
        return None
    return value.const_value.numpy()


def numbers(value: ir.Value) -> Array:
    """Return the numbers of a value that is known to be an initializer, not to be written into."""
    array = constant(value)
    assert array is not None
    return array


def change(value: ir.Value, array: Array) -> None:
    """Give an initializer other numbers, which are stored in its type."""
    stored = np.asarray(array, numbers(value).dtype, order="C")
    value.const_value = ir.tensor(stored, name=value.name)


def name_of(named: ir.Value | ir.Node) -> str:
    """Return a name, empty where there is none."""
    return named.name or ""


def add_constant(graph: ir.Graph, name: str, array: Array) -> ir.Value:
    """Add an initializer, under a number behind its name where that is taken."""
    value = initializer(free_name(graph, name), array)
    graph.register_initializer(value)
    return value


def free_name(graph: ir.Graph, name: str) -> str:
    """Return a name that no value of a graph has: with a number behind it where it is taken."""
    values = itertools.chain(graph.inputs, graph.initializers.values(), *(node.outputs for node in graph))
    taken = {value.name for value in values}
    names = itertools.chain([name], (f"{name}_{count}" for count in itertools.count(1)))
    return next(free for free in names if free not in taken)


def initializer(name: str, array: Array) -> ir.Value:
    """Make an initializer that is in no graph yet."""
    tensor = ir.tensor(np.asarray(array, order="C"), name=name)
    return ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(array.shape), const_value=tensor)


def apply(kind: str, inputs: list[ir.Value | None], result: str, *, name: str = "", **attributes: Any) -> ir.Node:
    """Make a node of ONNX's own operators with one result of a given name; it is in no graph yet."""
    return ir.node(kind, inputs, attributes, outputs=[ir.Value(name=result)], name=name)


def only_input(model: ir.Model) -> ir.Value:
    """Return the one input that is no constant.

    Raises:
        UnsuitableModelError: there is none, or more than one.
    """
    inputs = [value for value in model.graph.inputs if not value.is_initializer()]
    if len(inputs) != 1:
        raise UnsuitableModelError(f"need a model with one input, not {len(inputs)}")
    return inputs[0]


def sizes_of(value: ir.Value) -> list[int | None]:
    """Return the sizes of a value by axis, None where open; no axes where its shape is not known."""
    return [size if isinstance(size, int) else None for size in value.shape or ()]


def shapes_of(model: ir.Model) -> dict[str, list[int | None]]:
    """Return sizes by axis, None where open, by the name of every value that shape inference understands."""
    graph = inferred(to_proto(model)).graph
    types = {info.name: info.type.tensor_type for info in (*graph.input, *graph.value_info, *graph.output)}
    return {
        name: [dim.dim_value if dim.HasField("dim_value") else None for dim in kind.shape.dim]
        for name, kind in types.items()
        if kind.HasField("shape")
    }


def inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    """Note the shapes that can be known; the model as it is where its own contradict each other."""
    try:
        return onnx.shape_inference.infer_shapes(model, data_prop=not _grows(model.graph))
    except Exception:  # noqa: BLE001 - of C++; who needs the shapes infers them strictly, and says what is wrong
        return model


def _grows(graph: onnx.GraphProto) -> bool:
    """Say whether following whole numbers through a graph would make more than `_FOLLOWED`: Concat can double them."""
    counts = {
        one.name: math.prod(one.dims) for one in graph.initializer if one.data_type in _WHOLE and len(one.dims) < 2
    }
    for node in graph.node:
        read = [counts.get(name, 1) for name in node.input]
        made = sum(read) if node.op_type == "Concat" else max(read, default=1)
        if made > _FOLLOWED:
            return True
        counts.update(dict.fromkeys(node.output, made))
    return False


def forget_shapes(graph: ir.Graph) -> None:
    """Drop type and shape of every value between the inputs and the outputs: stale ones make quantisers fail."""
    for value in itertools.chain.from_iterable(node.outputs for node in graph):
        if not value.is_graph_output():
            value.type = value.shape = None


def drop_unread(graph: ir.Graph) -> bool:
    """Remove nodes and initializers that neither a node nor the caller reads; say whether there were any."""
    before = len(graph)
    for node in reversed(graph):
        if not any(value.uses() or value.is_graph_output() for value in node.outputs):
            remove(graph, node)
    return drop_unread_constants(graph) or len(graph) < before


def drop_unread_constants(graph: ir.Graph) -> bool:
    """Remove initializers that neither a node nor the caller reads; say whether there were any."""
    unread = [name for name, value in graph.initializers.items() if not (value.uses() or value.is_graph_output())]
    for name in unread:
        del graph.initializers[name]
    return bool(unread)


def remove(graph: ir.Graph, node: ir.Node) -> None:
    """Remove a node whose results nothing reads; what the graphs inside it read loses these readers."""
    for inner in itertools.chain.from_iterable(map(ir.Graph.all_nodes, _subgraphs(node))):
        inner.resize_inputs(0)
    graph.remove(node, safe=True)


def rename(graph: ir.Graph, names: Mapping[ir.Value, str]) -> None:
    """Rename values of a graph all at once; initializers keep their order."""
    stored = list(graph.initializers.values())
    graph.initializers.clear()  # a name may be taken by one that gets another
    for value, name in names.items():
        value.name = name
    for value in stored:
        graph.register_initializer(value)


def sole_reader(value: ir.Value) -> ir.Node | None:
    """Return the only node that reads a value, once; None where there are more, or the caller reads it too."""
    uses = list(value.uses())
    return uses[0].node if len(uses) == 1 and not value.is_graph_output() else None


def final_softmax(model: ir.Model) -> ir.Node:
    """Return the Softmax that computes the first output.

    Raises:
        UnsuitableModelError: something else computes it.
    """
    output = model.graph.outputs[0]
    node = output.producer()
    if node is None or node.op_type != "Softmax":
        found = "nothing" if node is None else node.op_type
        raise UnsuitableModelError(
            f"the output {output.name!r} comes from {found}, not from a Softmax; end the graph with one"
        )
    return node
