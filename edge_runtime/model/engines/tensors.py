"""Arrays at the edges of every engine: checks of inputs, cuts into batches, joins of the answers."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from edge_runtime.errors import EngineError, InputError
from edge_runtime.model.engines.base import Array, TensorSpec

# Shapes for which the check of finite numbers keeps a buffer; more are met only where the batch varies without bound.
_MAX_SHAPES = 64


class Inputs:
    """Checks the arrays of every call against what the model takes.

    Floats must be finite: integer edges have no image for NaN, and float kernels differ in whether a ReLU lets it
    through, so a NaN could come out as a confident answer.

    Args:
        specs: what the model takes; -1 stands for any size.
    """

    def __init__(self, specs: Sequence[TensorSpec]) -> None:
        self._specs = tuple(specs)
        self._flags: dict[tuple[int, ...], tuple[bytearray, Array]] = {}
        # Type, and shape after a free first axis, of the one float input that nearly every model has.
        self._dtype = self._rest = None
        if len(self._specs) == 1 and specs[0].dtype.kind == "f" and specs[0].shape[:1] == (-1,):
            self._dtype, self._rest = specs[0].dtype, specs[0].shape[1:]
        # The same of several inputs; None where the shape is another one.
        self._known = [
            (spec.dtype, spec.shape[1:] if spec.shape[:1] == (-1,) and -1 not in spec.shape[1:] else None)
            for spec in self._specs
        ]

    def check(self, arrays: Sequence[Array]) -> Sequence[Array]:
        """Convert the arrays to the types the specs ask for.

        Raises:
            InputError: with reason ``input_count``, ``dtype``, ``shape`` or ``not_finite``.
        """
        if len(arrays) == 1:
            # What is right needs no name: this path is a third of the time of the one below.
            x = arrays[0]
            if type(x) is np.ndarray and x.dtype is self._dtype and x.shape[1:] == self._rest and self._finite(x):
                return arrays
        specs = self._specs
        if len(arrays) != len(specs):
            raise InputError("input_count", f"the model takes {len(specs)} input(s), got {len(arrays)}")
        return [
            array
            if type(array) is np.ndarray
            and array.dtype is dtype
            and array.shape[1:] == rest
            and (self._finite(array) if dtype.kind == "f" else array.size)
            else self._one(array, spec)
            for array, spec, (dtype, rest) in zip(arrays, specs, self._known, strict=True)
        ]

    def _one(self, array: Array, spec: TensorSpec) -> Array:
        if not isinstance(array, np.ndarray):
            raise InputError("dtype", f"input '{spec.name}' must be a numpy array, got {type(array).__name__}")
        if array.dtype != spec.dtype:
            if not np.can_cast(array.dtype, spec.dtype, "safe"):
                raise InputError("dtype", f"input '{spec.name}' is {spec.dtype}, got {array.dtype}; convert it first")
            array = array.astype(spec.dtype)
        if not _fits(array.shape, spec.shape):
            raise InputError(
                "shape", f"input '{spec.name}' has shape {readable(spec.shape)}, got {readable(array.shape)}"
            )
        if array.dtype.kind == "f" and not self._finite(array):
            raise InputError(
                "not_finite", f"input '{spec.name}' holds NaN or infinity; leave out or repair such readings"
            )
        return array

    def _finite(self, array: Array) -> bool:
        """Return whether all are finite, and there are any.

        ``np.isfinite(array).all()`` in a third of the time: flags into a kept buffer, and one memchr over it.
        """
        kept = self._flags.get(array.shape)
        if kept is None:
            if len(self._flags) >= _MAX_SHAPES:
                self._flags.clear()
            buffer = bytearray(array.size)
            kept = self._flags[array.shape] = buffer, np.frombuffer(buffer, np.bool_).reshape(array.shape)
        buffer, flags = kept
        np.isfinite(array, out=flags)
        return buffer.find(0) < 0 and bool(buffer)


def _fits(shape: tuple[int, ...], spec: tuple[int, ...]) -> bool:
    return len(shape) == len(spec) and all(n == m or (m == -1 and n > 0) for n, m in zip(shape, spec, strict=True))


def readable(shape: Sequence[int]) -> str:
    """Render a shape for people: ``(any, 6, 128)``."""
    return f"({', '.join('any' if n == -1 else str(n) for n in shape)})"


def batch_of(arrays: Sequence[Array]) -> int:
    """Return the size of the common first axis.

    Raises:
        InputError: with reason ``shape`` where the arrays disagree.
    """
    sizes = {len(array) for array in arrays}
    if len(sizes) != 1:
        raise InputError("shape", f"inputs of one call have different batch sizes: {sorted(sizes)}")
    return sizes.pop()


def in_chunks(
    call: Callable[[list[Array]], list[Array]],
    arrays: Sequence[Array],
    size: int,
    *,
    exact: bool = False,
) -> list[Array]:
    """Run a batch a part at a time and join the answers.

    Args:
        call: runs one part; its answers may be overwritten by its next call.
        arrays: inputs with a common first axis.
        size: rows in a part.
        exact: the model takes exactly `size` rows: the last part is filled up with zeros, whose answers are dropped.

    Raises:
        EngineError: an answer does not have a row for each row of its part.
    """
    n = len(arrays[0])
    joined: list[Array] = []
    for start in range(0, n, size):
        parts = [array[start : start + size] for array in arrays]
        rows = len(parts[0])
        if exact and rows < size:
            parts = [np.concatenate((p, np.zeros((size - rows, *p.shape[1:]), p.dtype))) for p in parts]
        answers = call(parts)
        for k, answer in enumerate(answers):
            if start == 0:
                joined.append(np.empty((n, *answer.shape[1:]), answer.dtype))
            _check_rows(k, answer, joined[k], len(parts[0]))
            joined[k][start : start + rows] = answer[:rows]
    return joined


def _check_rows(k: int, answer: Array, joined: Array, rows: int) -> None:
    if answer.ndim == 0 or len(answer) != rows:
        raise EngineError(
            f"output {k} has shape {readable(answer.shape)} for a batch of {rows}: "
            "it has no batch axis, so give this model one window at a time",
        )
    if answer.shape[1:] != joined.shape[1:]:
        raise EngineError(f"output {k} changes its shape from row to row: give this model one window at a time")
