"""The one form in which every tool of this package reads an ONNX model.

Files come in forms that all mean the same: weights listed as inputs (IR version 3: keras2onnx, paddle2onnx, and what
``onnx.version_converter`` makes), operator sets of years ago, local functions, constants that are nodes, choices that
are settled before the model runs. `normalise` brings them to one form; nothing behind it has to know the others.

Rules, in this order:

1. The IR version is at least 8, and what the operator set came with.
2. What has a value in the file is no input. A caller could have overridden it; nothing here does.
3. Local functions are written out where they are called.
4. Constants are computed: nodes whose inputs all are, and sizes that the shapes already say. What nothing reads goes.
5. An ``If`` whose condition is a constant is replaced by the branch that it takes; then rule 4 again.
6. An operator set below 13 is raised to 13, the first with Softmax over one axis and with steps per channel. 13
   and newer stay as they are: each version passed is a chance for the converter to be wrong.
7. Shapes are inferred, and noted where the file does not say them.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, inliner, numpy_helper, shape_inference, version_converter
from onnx.reference import ReferenceEvaluator

from edge_runtime.errors import ConfigError

OLDEST_OPSET = 13
"""What older operator sets are raised to."""

_OLDEST_IR = 8
"""That of operator set 14; engines of the last five years read it."""

_LARGEST_FOLD = 1 << 20
"""Numbers that folding may add to a file; a larger table is cheaper to compute than to carry."""

_ROUNDS = 50
"""Nested choices each take one."""

_UNFOLDED = frozenset({"DequantizeLinear", "QuantizeLinear"})
"""Kept before constants too: readers take the integers as they are."""

_RANDOM = ("Random", "Bernoulli", "Multinomial")

Array = npt.NDArray[Any]


def normalise(model: onnx.ModelProto) -> onnx.ModelProto:
    """Bring a model to the form described above.

    Args:
        model: any ONNX model with its data inside.

    Returns:
        A new model with the same answers; normalising it again changes nothing.

    Raises:
        ConfigError: its operator set is older than 13 and cannot be raised, or a local function cannot be written out.
    """
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    _set_ir(changed)  # rule 1
    _take_from_inputs(changed)  # rule 2
    if changed.functions:  # rule 3
        try:
            changed = inliner.inline_local_functions(changed)
        except Exception as error:  # the library's own type, of C++
            raise ConfigError(f"the model's local functions cannot be written out: {_first_line(error)}") from error
    _settle(changed)  # rules 4 and 5
    if 0 < opset_of(changed) < OLDEST_OPSET:  # rule 6
        changed = _raised(changed)
        _set_ir(changed)
        _take_from_inputs(changed)
        _settle(changed)
    return _inferred(changed)  # rule 7


def opset_of(model: onnx.ModelProto) -> int:
    """Version of ONNX's own operator set that a model is written in; 0 where it names none."""
    return next((int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 0)


def has_subgraph(node: onnx.NodeProto) -> bool:
    """Say whether a node holds a graph of its own: a choice or a loop."""
    return any(True for _ in _subgraphs(node))


def fold_node(node: onnx.NodeProto, constants: Mapping[str, Array], opsets: Any) -> list[Array] | None:
    """Compute a node by the definition of its operator.

    Args:
        node: any.
        constants: by name.
        opsets: the model's operator sets.

    Returns:
        Its outputs, an empty array for one that is left out; None where an input is no constant, where the operator is
        none of ONNX's, draws random numbers, holds a graph, keeps integers for its reader, or has no definition that
        runs for these types.
    """
    fixed = all(name in constants for name in node.input if name)
    if not fixed or node.domain not in ("", "ai.onnx") or node.op_type in _UNFOLDED or has_subgraph(node):
        return None
    training = node.op_type == "Dropout" and len(node.input) > 2
    if training or node.op_type.startswith(_RANDOM):
        return None
    alone = helper.make_graph(
        [node],
        "fold",
        [helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(node.input) if name],
        [helper.make_empty_tensor_value_info(name) for name in node.output if name],
    )
    try:
        evaluator = ReferenceEvaluator(helper.make_model(alone, opset_imports=list(opsets)))
        made = evaluator.run(None, {name: constants[name] for name in node.input if name})
    except Exception:  # noqa: BLE001 - numpy's and the evaluator's own; the node then stays as it is
        return None
    if not all(isinstance(array, np.ndarray | np.generic) for array in made):
        return None  # a sequence, or nothing
    answers = iter(made)
    found = [np.asarray(next(answers)) if name else np.empty(0) for name in node.output]
    return found if all(array.dtype.kind in "biuf" for array in found) else None


def decide(graph: onnx.GraphProto, constants: Mapping[str, Array]) -> bool:
    """Replace every ``If`` of a graph whose condition is a constant by the branch that it takes.

    Args:
        graph: changed in place.
        constants: by name; the branch's own go to the initialisers.

    Returns:
        Whether there was any.
    """
    taken = _names(graph)
    kept: list[onnx.NodeProto] = []
    found = False
    for node in graph.node:
        condition = constants.get(node.input[0]) if node.op_type == "If" and node.domain in ("", "ai.onnx") else None
        if condition is None or condition.size != 1:
            kept.append(node)
            continue
        found = True
        wanted = "then_branch" if condition.item() else "else_branch"
        branch = next(attribute.g for attribute in node.attribute if attribute.name == wanted)
        kept.extend(_written_out(graph, node, branch, taken))
    if found:
        replace(graph.node, kept)
    return found


def _written_out(
    graph: onnx.GraphProto, node: onnx.NodeProto, branch: onnx.GraphProto, taken: set[str]
) -> Iterator[onnx.NodeProto]:
    """Give a branch's nodes names that nothing else has, its results those of the choice."""
    body = onnx.GraphProto()
    body.CopyFrom(branch)
    inside = {tensor.name for tensor in body.initializer} | {name for each in body.node for name in each.output}
    names = {"": ""}
    for name in sorted(inside - {""}):
        candidates = (f"{node.output[0]}:{name}{f':{i}' if i else ''}" for i in itertools.count())
        fresh = next(candidate for candidate in candidates if candidate not in taken)
        taken.add(fresh)
        names[name] = fresh
    for tensor in body.initializer:
        tensor.name = names[tensor.name]
    graph.initializer.extend(body.initializer)
    for each in body.node:
        _rename(each, names)
        each.output[:] = [names.get(name, name) for name in each.output]
        yield each
    for result, info in zip(node.output, body.output, strict=True):
        if result:
            yield helper.make_node("Identity", [names.get(info.name, info.name)], [result])


def _rename(node: onnx.NodeProto, names: Mapping[str, str]) -> None:
    """Rename what a node reads, and the graphs inside it from outside themselves."""
    node.input[:] = [names.get(name, name) for name in node.input]
    for inner in _subgraphs(node):
        own = _own_names(inner)
        outside = {name: new for name, new in names.items() if name not in own}
        for each in inner.node:
            _rename(each, outside)
        for info in inner.output:
            info.name = outside.get(info.name, info.name)


def _own_names(graph: onnx.GraphProto) -> set[str]:
    made = {name for node in graph.node for name in node.output}
    return made | {each.name for each in (*graph.input, *graph.initializer, *graph.sparse_initializer)}


def _names(graph: onnx.GraphProto) -> set[str]:
    """Every name that a graph, or one inside it, knows."""
    found = _own_names(graph)
    for node in graph.node:
        found.update(node.input)
        for inner in _subgraphs(node):
            found |= _names(inner)
    return found


def _take_from_inputs(model: onnx.ModelProto) -> None:
    constants = {tensor.name for tensor in model.graph.initializer}
    constants |= {tensor.values.name for tensor in model.graph.sparse_initializer}
    kept = [info for info in model.graph.input if info.name not in constants]
    if len(kept) != len(model.graph.input):
        replace(model.graph.input, kept)


def _settle(model: onnx.ModelProto) -> None:
    """Fold and decide until neither finds anything."""
    for _ in range(_ROUNDS):
        changed = _fold(model)
        constants = {tensor.name: tensor for tensor in model.graph.initializer}
        conditions = {node.input[0] for node in model.graph.node if node.op_type == "If"}
        known = {name: numpy_helper.to_array(constants[name]) for name in conditions & set(constants)}
        changed |= decide(model.graph, known)
        drop_unread(model.graph)
        if not changed:
            return


def _fold(model: onnx.ModelProto) -> bool:
    graph = model.graph
    # A constant may be as large as the model: it is read when a node asks for it, and not all at once.
    constants: dict[str, Array] = _Lazy({tensor.name: tensor for tensor in graph.initializer})
    shapes = _known_sizes(model) if any(node.op_type in ("Shape", "Size") for node in graph.node) else {}
    results = {info.name for info in graph.output}
    kept: list[onnx.NodeProto] = []
    producers = {name: node for node in graph.node for name in node.output}
    for node in graph.node:
        folded = _size(node, shapes, constants, producers)
        if folded is None and not (results & set(node.output)):
            folded = fold_node(node, constants, model.opset_import)
        if folded is None or results & set(node.output) or sum(array.size for array in folded) > _LARGEST_FOLD:
            kept.append(node)
            continue
        for name, array in zip(node.output, folded, strict=True):
            if name:
                constants[name] = array
                graph.initializer.append(numpy_helper.from_array(array, name))
    changed = len(kept) != len(graph.node)
    if changed:
        replace(graph.node, kept)
    return changed


class _Lazy(dict[str, Array]):
    """Constants by name, read from the model when asked for."""

    def __init__(self, stored: Mapping[str, onnx.TensorProto]) -> None:
        super().__init__()
        self._stored = stored

    def __contains__(self, name: object) -> bool:
        return super().__contains__(name) or name in self._stored

    def __missing__(self, name: str) -> Array:
        array: Array = numpy_helper.to_array(self._stored[name])
        self[name] = array
        return array


def _known_sizes(model: onnx.ModelProto) -> dict[str, list[int | None]]:
    """Sizes by tensor, None for an open one."""
    graph = _inferred(model).graph
    found = {}
    for info in (*graph.input, *graph.value_info, *graph.output):
        if info.type.tensor_type.HasField("shape"):
            dims = info.type.tensor_type.shape.dim
            found[info.name] = [dim.dim_value if dim.HasField("dim_value") else None for dim in dims]
    found |= {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    return found


def _size(
    node: onnx.NodeProto,
    shapes: Mapping[str, list[int | None]],
    constants: Mapping[str, Array],
    producers: Mapping[str, onnx.NodeProto],
) -> list[Array] | None:
    """Sizes of a tensor that are numbers already: of all its axes, or of the ones that are picked out of them."""
    if node.op_type == "Shape":
        sizes = _listed(node, shapes)
        return None if sizes is None or None in sizes else [np.array(sizes, np.int64)]
    if node.op_type == "Size" and (whole := shapes.get(node.input[0])) is not None and None not in whole:
        return [np.array(np.prod([size or 0 for size in whole]), np.int64)]
    if node.op_type == "Gather" and node.input[1] in constants:
        source = producers.get(node.input[0])
        listed = _listed(source, shapes) if source is not None and source.op_type == "Shape" else None
        places = constants[node.input[1]]
        if listed is not None and ((places >= -len(listed)) & (places < len(listed))).all():
            picked = np.array(listed, object)[places]
            if not any(size is None for size in np.atleast_1d(picked).ravel()):
                return [np.asarray(picked, np.int64)]
    return None


def _listed(node: onnx.NodeProto, shapes: Mapping[str, list[int | None]]) -> list[int | None] | None:
    """Compute what a Shape node says."""
    if (sizes := shapes.get(node.input[0])) is None:
        return None
    bounds = {attribute.name: attribute.i for attribute in node.attribute}
    return sizes[bounds.get("start", 0) : bounds.get("end")]


def _raised(model: onnx.ModelProto) -> onnx.ModelProto:
    """Raise the model to `OLDEST_OPSET`."""
    old = opset_of(model)
    # The converter works on one graph; nodes inside a choice or a loop would be left as they are.
    inside = next((node for node in model.graph.node if has_subgraph(node)), None)
    why = f"node {inside.name or inside.output[0]!r} ({inside.op_type}) holds a graph of its own" if inside else ""
    if not why:
        _align_slopes(model)
        try:
            return version_converter.convert_version(model, OLDEST_OPSET)
        except Exception as error:  # noqa: BLE001 - the library's own type, of C++
            why = _first_line(error)
    raise ConfigError(
        f"the model uses operator set {old}, which cannot be raised to {OLDEST_OPSET} ({why}); export it again with "
        f"{OLDEST_OPSET} or newer (best 17 or 20)"
    )


def _align_slopes(model: onnx.ModelProto) -> None:
    """Before operator set 7 the slopes of a PRelu ran along the channels; since, sizes are counted from the back.

    The converter passes them on as they are.
    """
    if opset_of(model) >= 7:
        return
    sizes = _known_sizes(model)
    tensors = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        slope = tensors.get(node.input[1]) if node.op_type == "PRelu" else None
        if slope is not None and len(slope.dims) == 1 and slope.dims[0] > 1:
            if node.input[0] not in sizes:
                raise ConfigError(f"the axes of {node.input[0]!r}, which a PRelu reads, are not known")
            slope.dims.extend([1] * (len(sizes[node.input[0]]) - 2))


def _set_ir(model: onnx.ModelProto) -> None:
    known = [entry for entry in model.opset_import if entry.domain in ("", "ai.onnx")]
    least = helper.find_min_ir_version_for(known, ignore_unknown=True) if known else _OLDEST_IR
    model.ir_version = max(int(model.ir_version), int(least), _OLDEST_IR)


def _inferred(model: onnx.ModelProto) -> onnx.ModelProto:
    """With the shapes that can be known; the model as it is where its own contradict each other."""
    try:
        return shape_inference.infer_shapes(model, data_prop=True)
    except Exception:  # noqa: BLE001 - of C++; who needs the shapes infers them strictly, and says what is wrong
        return model


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]


def drop_unread(graph: onnx.GraphProto) -> None:
    """Remove nodes and constants that nothing reads, from the end backwards."""
    read = {info.name for info in graph.output}
    kept = []
    for node in reversed(graph.node):
        if read.intersection(node.output):
            kept.append(node)
            read.update(_names_read(node))
    if len(kept) != len(graph.node):
        replace(graph.node, kept[::-1])
    tensors = [tensor for tensor in graph.initializer if tensor.name in read]
    if len(tensors) != len(graph.initializer):
        replace(graph.initializer, tensors)


def _names_read(node: onnx.NodeProto) -> Iterator[str]:
    yield from node.input
    for inner in _subgraphs(node):
        for each in inner.node:
            yield from _names_read(each)
        yield from (info.name for info in inner.output)


def _subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def replace(repeated: Any, items: list[Any]) -> None:
    """Give a repeated field of a message new content; its old items may be among the new ones."""
    copies = []
    for item in items:
        copy = type(item)()
        copy.CopyFrom(item)
        copies.append(copy)
    del repeated[:]
    repeated.extend(copies)
