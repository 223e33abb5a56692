"""Operators that ONNX itself defines by others, replaced by that definition.

Attention, GroupNormalization, RotaryEmbedding, losses and a few dozen more carry a function body in ONNX's schemas.
An operator with neither a writer nor a rule of its own here is replaced by its body.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import onnx
from onnx import defs, helper, inliner

_KEEP = frozenset({"Bernoulli", "SequenceMap"})
"""Random numbers, and loops over sequences: their bodies are no closer to a form."""

_LATER = "tflite.later"
"""Domain that hides a node from the inliner."""


def expand(model: onnx.ModelProto, inferred: onnx.ModelProto, known: AbstractSet[str], opset: int) -> bool:
    """Replace nodes by the bodies of their operators.

    1. The inliner asks for the types of constants, too, and finds only those that are written beside them.
    2. Where a body depends on types that nodes before it have yet to give, the node is hidden until the next call.
    3. A body that fails or comes out as the node itself changes nothing; the node is then refused by name.

    Args:
        model: changed in place.
        inferred: the same, changed too, with the types and sizes of its tensors, which some bodies depend on.
        known: operators to leave alone.
        opset: version of ONNX's operator set.

    Returns:
        Whether there was any.
    """
    kinds = {node.op_type for node in model.graph.node if node.domain in ("", "ai.onnx")} - known - _KEEP
    wanted = sorted(kind for kind in kinds if _has_body(kind, opset))
    if not wanted:
        return False
    graph = inferred.graph
    # rule 1
    graph.value_info.extend(helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in graph.initializer)
    infos = (*graph.input, *graph.value_info, *graph.output)
    typed = {info.name for info in infos if info.type.tensor_type.elem_type}
    for node in inferred.graph.node:
        if node.op_type in wanted:
            _write_defaults(node, opset)
        if node.op_type in wanted and any(name and name not in typed for name in node.input):
            node.domain = _LATER  # rule 2
    try:
        expanded = inliner.inline_selected_functions(
            inferred, [("", kind) for kind in wanted], exclude=False, inline_schema_functions=True
        )
    except Exception:  # noqa: BLE001 - of C++
        return False  # rule 3
    if [node.op_type for node in expanded.graph.node] == [node.op_type for node in model.graph.node]:
        return False  # rule 3: a body for other types, or for an operator set that the model does not have
    for node in expanded.graph.node:
        if node.domain == _LATER:  # rule 2
            node.domain = ""
    del expanded.graph.value_info[:]
    model.graph.CopyFrom(expanded.graph)
    return True


def _write_defaults(node: onnx.NodeProto, opset: int) -> None:
    """Say every attribute that has a default: the inliner leaves out what the node does not say."""
    given = {attribute.name for attribute in node.attribute}
    for name, attribute in defs.get_schema(node.op_type, opset, "").attributes.items():
        if name not in given and attribute.default_value.name:
            node.attribute.append(attribute.default_value)


def _has_body(kind: str, opset: int) -> bool:
    try:
        schema = defs.get_schema(kind, opset, "")
    except defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)
