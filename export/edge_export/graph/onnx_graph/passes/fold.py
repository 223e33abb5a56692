"""Constants computed: nodes whose inputs all are, and sizes that the shapes already say."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from edge_export.graph.onnx_graph.model import STANDARD, Array, constant, initializer, name_of, remove, shapes_of

_LARGEST = 1 << 20
"""Numbers that folding may add to a file; a larger table is cheaper to compute than to carry."""

_SIZES = 64
"""Numbers of a constant that may be sizes, counts or axes."""

_GROWING = frozenset({
    "Col2Im", "ConstantOfShape", "Einsum", "Expand", "EyeLike", "MaxUnpool", "OneHot", "Pad", "Range", "Resize", "Tile",
    "Upsample",
})  # fmt: skip
"""Operators whose results are as large as a number says, which inference may not see."""

_UNFOLDED = frozenset({"DequantizeLinear", "QuantizeLinear"})
"""Kept before constants too: readers take the integers as they are."""

_RANDOM = ("Random", "Bernoulli", "Multinomial")

_Sizes = Mapping[str, list[int | None]]


class FoldConstants(ir.passes.InPlacePass):
    """Replace nodes by the numbers that they always compute; those whose result the caller reads stay."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Fold in graph order, so that what is folded folds what reads it."""
        graph, before = model.graph, len(model.graph)
        sizes = shapes_of(model) if any(node.op_type in {"Shape", "Size"} for node in graph) else {}
        opsets = [helper.make_opsetid(domain, version) for domain, version in model.opset_imports.items()]
        for node in graph:
            if any(value.is_graph_output() for value in node.outputs):
                continue
            folded = _size(node, sizes) or _computed(node, opsets)
            if folded is not None and sum(array.size for array in folded) <= _LARGEST:
                _replace(graph, node, folded)
        return ir.passes.PassResult(model, modified=len(graph) < before)


def _replace(graph: ir.Graph, node: ir.Node, folded: list[Array]) -> None:
    for value, array in zip(node.outputs, folded, strict=True):
        if value.name:
            made = initializer(value.name, array)
            value.replace_all_uses_with(made)
            graph.register_initializer(made)
    remove(graph, node)


def _computed(node: ir.Node, opsets: list[onnx.OperatorSetIdProto]) -> list[Array] | None:
    given = {name_of(value): constant(value) for value in node.inputs if value is not None}
    constants = {name: array for name, array in given.items() if array is not None}
    return fold_node(ir.to_proto(node), constants, opsets) if len(constants) == len(given) else None


def _size(node: ir.Node, sizes: _Sizes) -> list[Array] | None:
    """Sizes of a tensor that are numbers already: of all its axes, or of the ones that are picked out of them."""
    found: Any = None
    if node.op_type == "Shape":
        found = _listed(node, sizes)
    elif node.op_type == "Size" and (whole := _listed(node, sizes)) is not None and None not in whole:
        found = np.prod([size or 0 for size in whole])
    elif node.op_type == "Gather" and (places := constant(node.inputs[1])) is not None and node.inputs[0] is not None:
        listed = _listed(node.inputs[0].producer(), sizes)
        if listed is not None and ((places >= -len(listed)) & (places < len(listed))).all():
            found = np.array(listed, object)[places]
    return None if found is None or None in np.ravel(found) else [np.asarray(found, np.int64)]


def _listed(node: ir.Node | None, sizes: _Sizes) -> list[int | None] | None:
    """List the sizes of what a Shape or Size node reads, from its first to its last axis; None for other nodes."""
    if node is None or node.op_type not in {"Shape", "Size"} or node.inputs[0] is None:
        return None
    if (found := sizes.get(name_of(node.inputs[0]))) is None:
        return None
    return found[node.attributes.get_int("start", 0) : node.attributes.get_int("end", len(found))]


def fold_node(node: onnx.NodeProto, constants: Mapping[str, Array], opsets: Any) -> list[Array] | None:
    """Compute a node by the definition of its operator.

    Args:
        node: any.
        constants: arrays by name.
        opsets: the model's operator sets.

    Returns:
        Its outputs, an empty array for one that is left out; None where an input is no constant, where they would hold
        more than `_LARGEST` numbers (a node of a few bytes may ask for any memory), where the operator is none of
        ONNX's, draws random numbers, holds a graph, keeps integers for its reader, or has no definition that runs for
        these types.
    """
    names = [name for name in node.input if name]
    if not _foldable(node, constants, opsets):
        return None
    alone = helper.make_graph(
        [node],
        "fold",
        [helper.make_empty_tensor_value_info(name) for name in dict.fromkeys(names)],
        [helper.make_empty_tensor_value_info(name) for name in node.output if name],
    )
    try:
        evaluator = ReferenceEvaluator(helper.make_model(alone, opset_imports=list(opsets)))
        made = evaluator.run(None, {name: constants[name] for name in names})
    except Exception:  # noqa: BLE001 - numpy's and the evaluator's own; the node then stays as it is
        return None
    if not all(isinstance(array, np.ndarray | np.generic) for array in made):
        return None  # a sequence, or nothing
    answers = iter(made)
    found = [np.asarray(next(answers)) if name else np.empty(0) for name in node.output]
    return found if all(array.dtype.kind in "biuf" for array in found) else None


def _size_of_result(node: onnx.NodeProto, constants: Mapping[str, Array], opsets: Any) -> int:
    """Return how many numbers a node's results hold, by ONNX's shape inference; where it cannot tell, what goes in.

    Args:
        node: one of ONNX's own operators.
        constants: all that it reads.
        opsets: the model's operator sets.

    Returns:
        -1 where its result may be of any size.
    """
    if node.op_type == "Range":  # with an axis of 1 the evaluator takes what inference refuses
        return _size_of_range(*(float(constants[name].ravel()[0]) for name in node.input))
    known = [helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
             for name, array in constants.items()]  # fmt: skip
    small = [numpy_helper.from_array(array, name) for name, array in constants.items() if array.size <= _SIZES]
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    graph = helper.make_graph([node], "size", known, outputs, small)
    try:
        made = onnx.shape_inference.infer_shapes(helper.make_model(graph, opset_imports=list(opsets)))
    except Exception:  # noqa: BLE001 - of C++: nothing is known of this node
        return -1
    found = [_numbers(info.type.tensor_type) for info in made.graph.output]
    if None in found and node.op_type in _GROWING:
        return -1
    given = sum(array.size * max(1, array.ndim) for array in constants.values())
    return sum(given if count is None else count for count in found)


def _size_of_range(start: float, limit: float, delta: float) -> int:
    rows = (limit - start) / delta if delta else math.inf
    return math.ceil(max(0.0, rows)) if math.isfinite(rows) else -1


def _numbers(kind: onnx.TypeProto.Tensor) -> int | None:
    """Return how many numbers a tensor holds, None where a size is open."""
    known = kind.HasField("shape") and all(dim.HasField("dim_value") for dim in kind.shape.dim)
    return math.prod(dim.dim_value for dim in kind.shape.dim) if known else None


def _foldable(node: onnx.NodeProto, constants: Mapping[str, Array], opsets: Any) -> bool:
    draws = node.op_type.startswith(_RANDOM) or (node.op_type == "Dropout" and len(node.input) > 2)
    known = node.domain in {STANDARD, "ai.onnx"} and node.op_type not in _UNFOLDED
    if not known or draws or has_subgraph(node) or not all(name in constants for name in node.input if name):
        return False
    return 0 <= _size_of_result(node, {name: constants[name] for name in node.input if name}, opsets) <= _LARGEST


def has_subgraph(node: onnx.NodeProto) -> bool:
    """Say whether a node holds a graph of its own: a choice or a loop."""
    return any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute)
