"""Oldest version of a TensorFlow Lite operator that does what is asked.

A reader that knows only older versions refuses the file instead of computing something else; one that is asked for
more than needed would refuse without reason.

Source: GetBuiltinOperatorVersion in tensorflow/lite/tools/versioning/op_version.cc.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

_INT8 = {
    "BROADCAST_TO": 3,
    "CONV_2D": 3,
    "DEPTHWISE_CONV_2D": 3,
    "FULLY_CONNECTED": 4,
    "REVERSE_V2": 3,
    "TILE": 3,
    **dict.fromkeys(
        (
            "ABS", "ADD", "ARG_MAX", "ARG_MIN", "AVERAGE_POOL_2D", "BATCH_MATMUL", "CONCATENATION", "DEQUANTIZE",
            "EQUAL", "EXP", "GATHER", "GELU", "GREATER", "GREATER_EQUAL", "LESS", "LESS_EQUAL", "LOG", "LOGISTIC",
            "LOG_SOFTMAX", "MAXIMUM", "MAX_POOL_2D", "MEAN", "MINIMUM",
            "MIRROR_PAD", "MUL", "NOT_EQUAL", "PAD", "PADV2",
            "REDUCE_MAX", "REDUCE_MIN", "RELU", "RELU6", "RSQRT", "SLICE", "SOFTMAX", "SPLIT", "SPLIT_V",
            "STRIDED_SLICE", "SUB", "SUM", "TANH", "TRANSPOSE", "TRANSPOSE_CONV",
        ),
        2,
    ),
}  # fmt: skip
"""Version that reads int8, where it is not the first."""

_BOOL = {"GATHER": 3, "REVERSE_V2": 2, "STRIDED_SLICE": 3, "TRANSPOSE": 3}
_INT64 = {"ADD": 4, "MUL": 5, "SUB": 4}
_INT32 = {"ABS": 5, "SIGN": 2, "SPLIT": 3}
_FLOAT16 = {"DEQUANTIZE": 3}
_BY_TYPE = {
    np.dtype(np.int8): _INT8,
    np.dtype(np.bool_): _BOOL,
    np.dtype(np.int64): _INT64,
    np.dtype(np.int32): _INT32,
    np.dtype(np.float16): _FLOAT16,
}

_MANY_AXES = {"PAD": 4, "PADV2": 4, "SLICE": 5, "STRIDED_SLICE": 4, "TRANSPOSE": 4}
"""Version that takes five axes, where it is another one."""

_MANY_AXES_BROADCAST = {"DIV": 2, "MAXIMUM": 3, "MINIMUM": 3, "SUB": 3}

_DATA_INPUT = {"SPLIT": 1, "TRANSPOSE_CONV": 1}
"""Position of the tensor whose type counts, where it is not the first."""


def oldest(
    name: str,
    dtypes: Sequence[np.dtype[Any]],
    shapes: Sequence[tuple[int, ...]],
    settings: Mapping[str, Any],
) -> int:
    """Pick the version: the highest that one of these asks for.

    1. The type of the data.
    2. Options, sizes and optional inputs of single operators.
    3. More than four axes, of the first operand or of operands that differ.

    Args:
        name: a name of `BuiltinOperator`.
        dtypes: the inputs' types.
        shapes: the inputs' shapes.
        settings: fields of the operator's options.
    """
    version = _BY_TYPE.get(dtypes[_DATA_INPUT.get(name, 0)], {}).get(name, 1)  # rule 1
    if name == "FULLY_CONNECTED" and settings.get("keepNumDims"):  # rule 2
        version = 5
    if name == "TRANSPOSE_CONV":  # rule 2
        version = max(version, 3 if len(dtypes) == 4 else 1, 4 if settings.get("fusedActivationFunction") else 1)
    if name == "CONV_2D" and shapes[0][3] != shapes[1][3]:  # rule 2
        version = 6  # grouped
    if name == "DEPTHWISE_CONV_2D" and (settings["dilationHFactor"], settings["dilationWFactor"]) != (1, 1):  # rule 2
        version = max(version, 2)
    if name == "BROADCAST_TO":  # rule 2
        version = max(version, 2)  # the first one was withdrawn
    axes = len(shapes[0])
    if axes > 4:  # rule 3
        version = max(version, _MANY_AXES.get(name, 1))
    if axes > 5 and name == "TRANSPOSE":  # rule 3
        version = 6
    if name in _MANY_AXES_BROADCAST and max(map(len, shapes)) > 4 and len(set(shapes)) > 1:  # rule 3
        version = max(version, _MANY_AXES_BROADCAST[name])
    return version
