"""Floats to a model's integers and back, as the integer kernels themselves do it.

``real = scale * (q - zero)``; towards integers: divide, round half to even, add the zero point, saturate. That is the
QuantizeLinear of ONNX (operator specification, opset 19) and what XNNPACK does, so a window quantised here and one
quantised inside the graph give the same integers.

Source: Jacob et al. 2018, equation 1 (arXiv:1712.05877).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Affine:
    """Scale, zero point and integer type of one tensor.

    >>> a = Affine(0.5, 10, np.dtype(np.int8))
    >>> a.quantize(np.array([0.25, 0.75, -1e9, 1e9], np.float32))
    array([  10,   12, -128,  127], dtype=int8)
    >>> a.dequantize(np.array([10, 12], np.int8))
    array([0., 1.], dtype=float32)
    """

    scale: float
    """Step between two integers, in real units; above zero."""
    zero: int
    """The integer that stands for 0.0."""
    dtype: np.dtype[Any]
    work_dtype: np.dtype[Any] = field(init=False, repr=False)
    """Type of the arithmetic: float32 has no room for integers above 2**24."""
    _step: Any = field(init=False, repr=False)
    _low: Any = field(init=False, repr=False)
    _high: Any = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not 0 < self.scale < 1e28:  # so that the ends of any integer type are finite float32
            raise ValueError(f"scale must be above zero and below 1e28, got {self.scale}")
        limits = np.iinfo(self.dtype)
        if not limits.min <= self.zero <= limits.max:
            raise ValueError(f"zero point {self.zero} is not a value of {self.dtype}")
        work: np.dtype[Any] = np.dtype(np.float64 if self.dtype.itemsize > 2 else np.float32)
        step = work.type(np.float32(self.scale))
        values = (work, step, work.type(limits.min - self.zero) * step, work.type(limits.max - self.zero) * step)
        for name, value in zip(("work_dtype", "_step", "_low", "_high"), values, strict=True):
            object.__setattr__(self, name, value)

    def quantize(self, x: Floats, work: npt.NDArray[Any] | None = None, out: Integers | None = None) -> Integers:
        """Finite floats of any shape to integers, saturating at both ends.

        Args:
            x: the samples; not written to.
            work: an array of the shape of `x` and of `work_dtype` to compute in; None makes one.
            out: an array of the shape of `x` and the integer type for the result; None makes one.
        """
        if work is None:
            work = np.empty(x.shape, self.work_dtype)
        if out is None:
            out = np.empty(x.shape, self.dtype)
        # Clipped before the division, so that no finite sample overflows; the quotients of the bounds round to the end
        # integers. Maximum and minimum, since np.clip costs three times as much on a window.
        np.maximum(x, self._low, out=work)
        np.minimum(work, self._high, out=work)
        np.divide(work, self._step, out=work)
        np.rint(work, out=work)
        np.add(work, self.zero, out=work)
        np.copyto(out, work, casting="unsafe")
        return out

    def dequantize(self, q: Integers) -> Floats:
        """Integers of any shape to floats."""
        y: npt.NDArray[Any] = np.subtract(q, self.zero, dtype=self.work_dtype)
        np.multiply(y, self._step, out=y)
        return y.astype(np.float32, copy=False)
