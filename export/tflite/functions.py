"""Operators that ONNX itself defines by others, replaced by that definition.

Attention, GroupNormalization, RotaryEmbedding, losses and a few dozen more carry a function body in ONNX's schemas.
What has neither a writer nor a rule of its own here is written as its body says.
"""

from __future__ import annotations

from collections.abc import Set as AbstractSet

import onnx
from onnx import defs, inliner

_KEEP = frozenset({"Bernoulli", "SequenceMap"})
"""Random numbers, and loops over sequences: their bodies are no closer to a form."""


def expand(model: onnx.ModelProto, inferred: onnx.ModelProto, known: AbstractSet[str], opset: int) -> bool:
    """Replace nodes by the bodies of their operators.

    Args:
        model: changed in place.
        inferred: the same with the types and sizes of its tensors, which some bodies depend on.
        known: operators to leave alone.
        opset: version of ONNX's operator set.

    Returns:
        Whether there was any.
    """
    kinds = {node.op_type for node in model.graph.node if node.domain in ("", "ai.onnx")} - known - _KEEP
    wanted = sorted(kind for kind in kinds if _has_body(kind, opset))
    if not wanted:
        return False
    try:
        expanded = inliner.inline_selected_functions(
            inferred, [("", kind) for kind in wanted], exclude=False, inline_schema_functions=True
        )
    except Exception:  # noqa: BLE001 - of C++; the node is then refused by name
        return False
    if [node.op_type for node in expanded.graph.node] == [node.op_type for node in model.graph.node]:
        return False  # a body for other types, or for an operator set that the model does not have
    del expanded.graph.value_info[:]
    model.graph.CopyFrom(expanded.graph)
    return True


def _has_body(kind: str, opset: int) -> bool:
    try:
        schema = defs.get_schema(kind, opset, "")
    except defs.SchemaError:
        return False
    return bool(schema.has_function or schema.has_context_dependent_function)
