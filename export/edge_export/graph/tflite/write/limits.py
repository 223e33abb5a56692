"""Limits of the operators' kernels: what LiteRT and tflite-runtime 2.14 both compute.

Beyond them a reader refuses the file in the best case. In others it ends its process (a comparison of int8 without a
step, five axes broadcast by an old reader) or answers zeros (a product of int8 without a step). Such files are not
written.

Found by running every operator on every type and number of axes on both engines; the letters stand for float32, int8
with a step (q), plain int8, int32, int64 (l) and truth values.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edge_runtime.errors import ConfigError

_ANY = "fqpilb"

_KINDS: dict[str, str] = {
    **dict.fromkeys(("CAST", "CONCATENATION", "GATHER", "RESHAPE", "SELECT_V2", "SQUEEZE", "STRIDED_SLICE"), _ANY),
    **dict.fromkeys(("TILE", "TRANSPOSE"), _ANY),
    **dict.fromkeys(("MIRROR_PAD", "PAD", "PADV2", "SPLIT_V", "TOPK_V2"), "fqpil"),
    **dict.fromkeys(("MAXIMUM", "MINIMUM", "REDUCE_MAX", "REDUCE_MIN", "REDUCE_PROD"), "fqpil"),
    **dict.fromkeys(("ARG_MAX", "ARG_MIN"), "fqpi"),
    **dict.fromkeys(("EQUAL", "NOT_EQUAL"), "fqilb"),
    **dict.fromkeys(("ADD", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "MEAN", "MUL", "SUB", "SUM"), "fqil"),
    **dict.fromkeys(("LOGICAL_AND", "LOGICAL_NOT", "LOGICAL_OR"), "b"),
    **dict.fromkeys(("CUMSUM", "NEG"), "fil"),
    **dict.fromkeys(("DIV", "POW", "SIGN"), "fi"),
    **dict.fromkeys(("ATAN2", "CEIL", "COS", "FLOOR", "PRELU", "ROUND", "SIN", "SQRT"), "f"),
    "ABS": "fqi",
    "FLOOR_MOD": "fil",
    "QUANTIZE": "fqpil",
    "SPLIT": "fqpi",
}
"""Kinds of numbers that an operator computes with; of those not named, float32 and int8 with a step."""

_LETTERS = {np.dtype(np.float32): "f", np.dtype(np.int32): "i", np.dtype(np.int64): "l", np.dtype(np.bool_): "b"}

_DATA_INPUT = {"SELECT_V2": 1, "SPLIT": 1, "TRANSPOSE_CONV": 2}
"""Position of the input whose type counts, where it is not the first."""

_PAIRS = frozenset({
    "ADD", "ATAN2", "DIV", "EQUAL", "FLOOR_MOD", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "LOGICAL_AND",
    "LOGICAL_OR", "MAXIMUM", "MINIMUM", "MUL", "NOT_EQUAL", "POW", "SUB",
})  # fmt: skip
"""Operators whose operands must be of one type, and may be of several sizes."""

_FLOATS_OF_ANY_RANK = frozenset({"ADD", "DIV", "MAXIMUM", "MINIMUM", "MUL", "SUB"})
_MOST_AXES_BROADCAST = 4
"""Of operands whose sizes differ; but for these floats, an old reader ends its process beyond."""

_MOST_AXES = {"BATCH_MATMUL": 5, "PAD": 5, "PADV2": 5, "STRIDED_SLICE": 5}


class LimitError(ConfigError):
    """Refusal of an operator whose kernels do not compute what is asked."""


def check(
    name: str, dtypes: Sequence[np.dtype[np.generic]], shapes: Sequence[tuple[int, ...]], steps: Sequence[bool]
) -> None:
    """Refuse an operator that one of the engines would not, or wrongly, compute.

    Args:
        name: a name of `BuiltinOperator`.
        dtypes: its inputs' types.
        shapes: its inputs' shapes.
        steps: whether each input has a quantisation step.

    Raises:
        LimitError: says which types or axes it is.
    """
    at = _DATA_INPUT.get(name, 0)
    kind = ("q" if steps[at] else "p") if dtypes[at] == np.int8 else _LETTERS.get(dtypes[at], "")
    if name != "DEQUANTIZE" and kind not in _KINDS.get(name, "fq"):
        label = "int8 without a quantisation step" if kind == "p" else str(dtypes[at])
        raise LimitError(f"{name} of {label} is computed by no engine, or not by all; cast to float32 before it")
    if len(shapes[at]) > _MOST_AXES.get(name, 8):
        raise LimitError(f"{name} of {len(shapes[at])} axes is not computed by all engines; join axes by a Reshape")
    if name in _PAIRS and len(set(dtypes)) > 1:
        raise LimitError(f"{name} of {' and '.join(map(str, dtypes))} is computed by no engine; cast one of them")
    broadcasts = name in _PAIRS | {"PRELU", "SELECT_V2"} and len(set(shapes)) > 1
    if not broadcasts or (kind == "f" and name in _FLOATS_OF_ANY_RANK):
        return
    if max(map(len, shapes)) > _MOST_AXES_BROADCAST:
        raise LimitError(
            f"{name} of operands of {' and '.join(map(str, shapes))} needs more than four axes, which not all engines "
            "broadcast; join axes by a Reshape"
        )
