"""The two models that every server of the conformance suite offers, in numpy: known answers, and known types."""

from __future__ import annotations

from typing import Any

import numpy as np

CHANNELS, SAMPLES, CLASSES = 3, 8, 4
WEIGHTS = np.linspace(-1, 1, CHANNELS * SAMPLES * CLASSES, dtype=np.float32).reshape(CHANNELS * SAMPLES, CLASSES)
BAD_SAMPLE = 1e9
"""A window that begins with it makes the model fail."""

LINEAR = "linear"
"""window FP32 [-1, 3, 8] -> scores FP32 [-1, 4]"""

TYPES = "types"
TYPED = {"INT8": np.int8, "INT64": np.int64, "UINT16": np.uint16, "FP64": np.float64, "BOOL": np.bool_}
"""One input in_<datatype> and one output out_<datatype> [-1, 3] for each, which repeats its input."""


def linear(window: Any) -> Any:
    """The scores of a batch of windows."""
    if (window[:, 0, 0] == BAD_SAMPLE).any():
        raise ValueError("this window was made to fail")
    return (window.reshape(len(window), -1) @ WEIGHTS).astype(np.float32)
