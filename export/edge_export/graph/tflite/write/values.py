"""Values that the writers pass to each other: activations, constants, parameters, and their two layouts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_export.graph.tflite.write.file import Quantization

Array = npt.NDArray[Any]

LAST_ORDER = {3: (0, 2, 1), 4: (0, 2, 3, 1)}
"""ONNX axes in the order of the layout with channels last, by rank; rank 3 gets a height of 1 behind the batch."""


@dataclass(slots=True, kw_only=True)
class Value:
    """An activation.

    Attributes:
        name: of the ONNX tensor.
        shape: in ONNX's axis order, with a batch of 1.
        dtype: of the stored numbers.
        quantization: None for plain numbers.
        open_axis: axis that grows with the batch; None where none does, or the batch is fixed.
        tensors: index of the TFLite tensor that holds it with channels last (True) or in ONNX's order (False).
        free: makes a tensor that costs no transposition, where none is held yet.
    """

    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    quantization: Quantization | None
    open_axis: int | None
    tensors: dict[bool, int] = field(default_factory=dict)
    free: dict[bool, Callable[[], int]] = field(default_factory=dict)

    @property
    def channels_last(self) -> bool:
        """The layout to prefer: the plain one where it exists."""
        return False not in self.tensors and (True in self.tensors or False not in self.free)

    def sizes(self, *, channels_last: bool) -> tuple[int, ...]:
        """Sizes in a layout."""
        return channels_last_shape(self.shape) if channels_last else self.shape

    def cost(self, *, channels_last: bool) -> int:
        """Numbers that must change places to have a layout."""
        if channels_last in self.tensors or channels_last in self.free or self.straight:
            return 0
        return int(np.prod(self.shape))

    @property
    def straight(self) -> bool:
        """True where both layouts hold the numbers in the same order."""
        return len(self.shape) in (3, 4) and (self.shape[1] == 1 or int(np.prod(self.shape[2:])) == 1)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConstantOperand:
    """A constant operand.

    Attributes:
        name: of the ONNX tensor.
        real: its values.
        stored: the integers behind them, where they are stored as int8 with one step.
        quantization: of `stored`.
    """

    name: str
    real: Array
    stored: Array | None = None
    quantization: Quantization | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes, in ONNX's axis order."""
        return tuple(self.real.shape)

    def integers(self) -> tuple[Array, Quantization] | None:
        """As int8: the stored ones, or for a single number one that is exact; None where neither exists."""
        if self.stored is not None and self.quantization is not None:
            return self.stored, self.quantization
        if self.real.size != 1 or self.real.dtype.kind != "f" or not np.isfinite(self.real).all():
            return None
        number = float(self.real.reshape(-1)[0])
        scale = abs(number) / 127 or 1.0
        return np.full(self.real.shape, np.rint(number / scale), np.int8), Quantization.of(scale, 0)


Operand = Value | ConstantOperand


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Fixed parameters of a convolution or a dense layer.

    Attributes:
        stored: int8, or float32 where `scale` is None.
        bias: (outputs,) real values.
        scale: one step, or one per output.
    """

    stored: Array
    bias: Array
    scale: npt.NDArray[np.float32] | None


def channels_last_shape(shape: Sequence[int]) -> tuple[int, int, int, int]:
    """(N, C, W) or (N, C, H, W) as (N, H, W, C), with height 1 for the former."""
    return (shape[0], 1 if len(shape) == 3 else shape[2], shape[-1], shape[1])


def arranged(array: Array, rank: int, *, channels_last: bool) -> Array:
    """Put a constant operand into the layout of its partners; broadcasting counts axes from the back."""
    if not channels_last or array.ndim == 0:
        return array
    full = array.reshape((1,) * (rank - array.ndim) + array.shape)
    return full.transpose(0, 2, 1)[:, None] if rank == 3 else full.transpose(0, 2, 3, 1)
