"""Preparation of an ONNX graph for the writers: sizes known, constants folded, composite operators taken apart.

It is done for two batch sizes. What differs between them tells which axis of each tensor grows with the batch, through
every reshape and transposition, and whether the batch can stay open in the file at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper, shape_inference

from edge_export.graph.onnx_graph.model import graphs_in, transform
from edge_export.graph.onnx_graph.normalise import normalise, opset_of
from edge_export.graph.onnx_graph.passes.decide import DecideChoices
from edge_export.graph.onnx_graph.passes.fold import fold_node, has_subgraph
from edge_export.graph.tflite.errors import UnsupportedNodeError
from edge_export.graph.tflite.lower.composites import COMPOSITES, lower
from edge_export.graph.tflite.lower.draft import Draft
from edge_export.graph.tflite.lower.functions import expand
from edge_export.graph.tflite.lower.patterns import DOMAIN, fuse, replace
from edge_export.graph.tflite.lower.signed import sign
from edge_runtime.errors import ConfigError, one_line

Array = npt.NDArray[Any]

_OTHER_BATCH = 3
_ROUNDS = 20
"""Folding uncovers sizes, sizes uncover what can be folded; real graphs settle in two to four rounds."""

_READ_SIZES = frozenset({"Reshape", "Expand", "Split", "Tile"})
"""Operators whose writers look at the sizes of their result, not at their constant input, which may name the batch."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Prepared:
    """A graph ready to be written.

    Attributes:
        graph: nodes in order, inputs and outputs, at a batch of 1.
        opset: version of ONNX's operator set.
        constants: fixed tensors by name.
        shapes: sizes by tensor name.
        dtypes: element types by tensor name.
        open_axes: axis that grows with the batch, by tensor name; empty where the batch is fixed.
    """

    graph: onnx.GraphProto
    opset: int
    constants: dict[str, Array]
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, np.dtype[Any]]
    open_axes: dict[str, int]


def prepare(model: onnx.ModelProto, written: AbstractSet[str]) -> Prepared:
    """Settle a graph at a batch of 1, and find out which axes are the batch's.

    Args:
        model: sizes fixed except the batch, which is the first axis of the first input or has the same name elsewhere.
        written: operators that have a writer.

    Raises:
        ConfigError: sizes unknown or contradictory, weights that are not numbers, an operator set that is too old.
    """
    model = normalise(model)
    opset = opset_of(model)
    names = _batch_names(model)
    _refuse_nan(model.graph)
    known = frozenset(written | COMPOSITES)
    one = _settle(model, names, 1, opset, known)
    open_axes: dict[str, int] = {}
    if names:
        try:
            open_axes = _open_axes(one, _settle(model, names, _OTHER_BATCH, opset, known))
        except ConfigError:
            # The graph holds for one window at a time: sizes written into it contradict any other batch.
            open_axes = {}
    return Prepared(
        graph=one.graph,
        opset=opset,
        constants=one.constants,
        shapes=one.shapes,
        dtypes=one.dtypes,
        open_axes=open_axes,
    )


def _batch_names(model: onnx.ModelProto) -> frozenset[str]:
    """Names of the sizes that stand for the batch; every other one must be a number."""
    names = set()
    sources = list(model.graph.input)
    for info in sources:
        dims = info.type.tensor_type.shape.dim
        if dims and not dims[0].dim_value:
            names.add(dims[0].dim_param)
    for info in sources:
        if not info.type.tensor_type.HasField("shape"):
            raise ConfigError(
                f"the shape of input {info.name!r} is not known; export with fixed sizes except the batch"
            )
        for dim in info.type.tensor_type.shape.dim:
            if not dim.dim_value and dim.dim_param not in names:
                label = dim.dim_param or "one without a name"
                raise ConfigError(
                    f"input {info.name!r} has an open size ({label}); export with fixed sizes except the batch"
                )
    return frozenset(names)


def _refuse_nan(graph: onnx.GraphProto) -> None:
    for tensor in graph.initializer:
        array = numpy_helper.to_array(tensor)
        if array.dtype.kind == "f" and np.isnan(array).any():
            reader = next((node for node in graph.node if tensor.name in node.input), None)
            where = "" if reader is None else f", read by node {reader.name or reader.output[0]!r} ({reader.op_type}),"
            raise ConfigError(f"tensor {tensor.name!r}{where} holds NaN; train again, or repair the model")


@dataclass(slots=True, kw_only=True)
class _Settled:
    graph: onnx.GraphProto
    constants: dict[str, Array]
    shapes: dict[str, tuple[int, ...]]
    dtypes: dict[str, np.dtype[Any]]
    refusals: list[UnsupportedNodeError] = field(default_factory=list)
    """Of the last round: a later one may know what an earlier one still calls computed."""


def _settle(model: onnx.ModelProto, names: frozenset[str], batch: int, opset: int, known: frozenset[str]) -> _Settled:
    model = _sized(model, names, batch)
    settled = _Settled(
        graph=model.graph,
        constants={tensor.name: _array(tensor) for tensor in model.graph.initializer},
        shapes={},
        dtypes={},
    )
    # Some operators with a body have no rule by which sizes pass through them: strict inference would stop there.
    while expand(model, shape_inference.infer_shapes(model, data_prop=True), known, opset):
        pass
    sign(settled.graph, settled.constants)
    _store(settled)
    for _ in range(_ROUNDS):
        inferred = _infer(model, settled)
        changed = _fold(model, settled) | _decide(model, settled)
        _drop_unread(settled.graph)
        changed |= fuse(settled.graph, settled.constants, settled.shapes, settled.dtypes)
        changed |= _lower(settled, opset)
        _store(settled)
        if not changed and not expand(model, inferred, known, opset):
            break
    if settled.refusals:
        raise settled.refusals[0]
    return settled


def _array(tensor: onnx.TensorProto) -> Array:
    """Read a constant; 4-bit integers as bytes, since the int8 operators compute the same with them."""
    array: Array = numpy_helper.to_array(tensor)
    return array.astype(np.int8) if tensor.data_type == onnx.TensorProto.INT4 else array


def _sized(model: onnx.ModelProto, names: frozenset[str], batch: int) -> onnx.ModelProto:
    """Fix the model's batch size, and drop the shapes that were noted for another one."""
    sized = onnx.ModelProto()
    sized.CopyFrom(model)
    for info in sized.graph.input:
        for dim in info.type.tensor_type.shape.dim:
            if not dim.dim_value and dim.dim_param in names:
                dim.dim_value = batch
    del sized.graph.value_info[:]
    sources = {info.name: info for info in sized.graph.input}
    for info in sized.graph.output:
        info.type.tensor_type.ClearField("shape")
        if info.name in sources:
            info.CopyFrom(sources[info.name])
    sized.opset_import.append(helper.make_opsetid(DOMAIN, 1))
    return sized


def _infer(model: onnx.ModelProto, settled: _Settled) -> onnx.ModelProto:
    try:
        whole = shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
    except shape_inference.InferenceError as error:
        if (inside := next(filter(has_subgraph, model.graph.node), None)) is not None:
            raise UnsupportedNodeError(inside, "it holds a graph of its own, as loops do") from error
        raise ConfigError(f"the model's shapes contradict each other: {one_line(error)}") from error
    inferred = whole.graph
    for info in (*inferred.input, *inferred.value_info, *inferred.output):
        kind = info.type.tensor_type
        if kind.elem_type:
            settled.dtypes[info.name] = np.dtype(helper.tensor_dtype_to_np_dtype(kind.elem_type))
        if kind.HasField("shape") and all(dim.HasField("dim_value") for dim in kind.shape.dim):
            settled.shapes[info.name] = tuple(dim.dim_value for dim in kind.shape.dim)
    for name, array in settled.constants.items():
        settled.shapes[name], settled.dtypes[name] = array.shape, array.dtype
    return whole


def _fold(model: onnx.ModelProto, settled: _Settled) -> bool:
    """Compute what depends on constants and sizes alone, and bypass nodes that change nothing."""
    graph, constants = settled.graph, settled.constants
    results = {info.name for info in graph.output}
    aliases: dict[str, str] = {}
    kept = []
    for node in graph.node:
        node.input[:] = [aliases.get(name, name) for name in node.input]
        if _changes_nothing(node, settled) and node.output[0] not in results:
            aliases[node.output[0]] = node.input[0]
        elif (folded := _folded(node, model, settled)) is not None:
            constants |= {name: array for name, array in zip(node.output, folded, strict=True) if name}
        else:
            kept.append(node)
    changed = len(kept) != len(graph.node)
    replace(graph.node, kept)
    return changed


def _changes_nothing(node: onnx.NodeProto, settled: _Settled) -> bool:
    if node.op_type == "Identity":
        return True
    before, after = settled.dtypes.get(node.input[0]) if node.input else None, settled.dtypes.get(node.output[0])
    return node.op_type == "Cast" and before is not None and before == after


def _folded(node: onnx.NodeProto, model: onnx.ModelProto, settled: _Settled) -> list[Array] | None:
    if node.op_type == "Shape" and node.input[0] in settled.shapes:
        bounds = {attribute.name: attribute.i for attribute in node.attribute}
        sizes = settled.shapes[node.input[0]][bounds.get("start", 0) : bounds.get("end")]
        return [np.array(sizes, np.int64)]
    if node.op_type == "Size" and node.input[0] in settled.shapes:
        return [np.array(np.prod(settled.shapes[node.input[0]]), np.int64)]
    return fold_node(node, settled.constants, model.opset_import)


def _decide(model: onnx.ModelProto, settled: _Settled) -> bool:
    """Take the branches of settled choices; their constants become the graph's."""
    if not any(node.op_type == "If" for node in settled.graph.node):
        return False
    _store(settled)
    if (decided := transform(model, DecideChoices())) is model:
        return False
    settled.graph.CopyFrom(decided.graph)
    for tensor in settled.graph.initializer:
        settled.constants.setdefault(tensor.name, _array(tensor))
    return True


def _drop_unread(graph: onnx.GraphProto) -> None:
    """Remove nodes and constants that nothing reads, from the end backwards."""
    read = {info.name for info in graph.output}
    kept = []
    for node in reversed(graph.node):
        if read.intersection(node.output):
            kept.append(node)
            for inner in graphs_in(onnx.GraphProto(node=[node])):
                read.update(*(each.input for each in inner.node), (info.name for info in inner.output))
    replace(graph.node, kept[::-1])
    tensors = [tensor for tensor in graph.initializer if tensor.name in read]
    if len(tensors) != len(graph.initializer):
        replace(graph.initializer, tensors)


def _lower(settled: _Settled, opset: int) -> bool:
    kept: list[onnx.NodeProto] = []
    changed = False
    settled.refusals.clear()
    parameters = set(settled.constants) | {
        node.output[0]
        for node in settled.graph.node
        if node.op_type == "DequantizeLinear" and node.input[0] in settled.constants
    }
    for node in settled.graph.node:
        draft = Draft(node, settled.constants, settled.shapes, settled.dtypes, parameters, opset)
        try:
            replaced = lower(draft)
            if replaced:
                draft.node.refuse_overlooked()
        except UnsupportedNodeError as error:
            settled.refusals.append(error)
            replaced = False
        if not replaced:
            kept.append(node)
            continue
        changed = True
        kept.extend(draft.nodes)
        settled.constants |= draft.added
        for name in draft.alike:
            kind = helper.np_dtype_to_tensor_dtype(settled.dtypes[node.output[0]])
            settled.graph.value_info.append(helper.make_tensor_value_info(name, kind, settled.shapes[node.output[0]]))
    replace(settled.graph.node, kept)
    return changed


def _store(settled: _Settled) -> None:
    """Put the constants into the graph, where shape inference reads them."""
    read = {name for node in settled.graph.node for name in node.input} | {info.name for info in settled.graph.output}
    present = {tensor.name for tensor in settled.graph.initializer}
    for name, array in settled.constants.items():
        if name in read and name not in present:
            settled.graph.initializer.append(numpy_helper.from_array(np.asarray(array), name))


def _open_axes(one: _Settled, other: _Settled) -> dict[str, int]:
    """Find the axis of each tensor that differs between two batches; empty where the batch cannot stay open.

    1. Nodes and constants are the same for both, but for sizes, and no Reshape has sizes written for one batch.
    2. One axis, in proportion: a size that only starts to grow with the batch would stop somewhere.
    3. Every input has such an axis.
    """
    axes: dict[str, int] = {}
    nodes = [(node.op_type, tuple(node.output)) for node in one.graph.node]
    if nodes != [(node.op_type, tuple(node.output)) for node in other.graph.node]:  # rule 1
        return {}
    for node in other.graph.node:
        before, after = other.shapes.get(node.input[0]) if node.input else None, other.shapes.get(node.output[0])
        if node.op_type == "Reshape" and (before is None or after is None or np.prod(before) != np.prod(after)):
            return {}  # rule 1: sizes written for one batch; inference does not count them
    for node in one.graph.node:
        for name in node.input:
            fixed = one.constants.get(name)
            if fixed is None or node.op_type in _READ_SIZES:
                continue
            twin = other.constants.get(name)
            if twin is None or twin.shape != fixed.shape or not np.array_equal(twin, fixed):  # rule 1
                return {}
    for name in _activations(one):
        first, second = one.shapes.get(name), other.shapes.get(name)
        if first is None or second is None or len(first) != len(second):
            return {}
        differing = [axis for axis, sizes in enumerate(zip(first, second, strict=True)) if sizes[0] != sizes[1]]
        if len(differing) > 1 or any(second[axis] != _OTHER_BATCH * first[axis] for axis in differing):  # rule 2
            return {}
        if differing:
            axes[name] = differing[0]
    inputs = [info.name for info in one.graph.input]
    return axes if all(name in axes for name in inputs) else {}  # rule 3


def _activations(settled: _Settled) -> Iterator[str]:
    yield from (info.name for info in settled.graph.input)
    for node in settled.graph.node:
        yield from (name for name in node.output if name)
