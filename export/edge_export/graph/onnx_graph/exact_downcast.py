"""Float weights that a narrower type holds exactly: a file stores them in it, and computes the same.

The tables of a front end are made so (`edge_export.learn.features.filters.held`); trained weights never are.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

_WORTH = 256
"""Bytes that must be saved; widening a constant takes an operator and a tensor of its own, up to 100 bytes."""


def exact_downcast(weights: npt.NDArray[Any]) -> npt.NDArray[np.int8] | npt.NDArray[np.float16] | None:
    """Return the same numbers in a narrower type.

    Args:
        weights: any shape.

    Returns:
        int8 where all are whole and within -127 to 127, else float16 where it holds them all; None where neither does,
        where too little is saved, and for other types than float32.
    """
    if weights.dtype != np.float32 or not np.isfinite(weights).all():
        return None
    if 3 * weights.size >= _WORTH and np.array_equal(np.rint(weights), weights) and np.abs(weights).max() <= 127:
        return weights.astype(np.int8)
    if 2 * weights.size < _WORTH:
        return None
    with np.errstate(over="ignore"):
        halves = weights.astype(np.float16)
    return halves if np.array_equal(halves.astype(np.float32), weights) else None
