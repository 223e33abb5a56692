"""Trial of whether the rows of a batch touch each other.

Some files compute across the rows of a batch: one cuts at 80 dB below the loudest value of all rows, another folds the
batch into its boxes. With rows of several keys a quiet key's answer then depends on a loud one. Nothing in a file says
so, and a library may choose other kernels for other batches; so rows that differ much in level are run alone and
together, and must be equal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from edge_runtime.errors import EngineError, InputError
from edge_runtime.model.engines.base import Array, Engine, TensorSpec

LEVELS = (1.0, 0.001, 0.0, 0.3)
"""Factors of the rows: full, very quiet, silent, between."""
SIZES = (2, 8, 32)
"""Batches that are tried after the one that holds each level once, smallest first."""


class Carried(NamedTuple):
    """An input that is an output of the step before: a state."""

    output: str
    initial: Array
    """Of one row, with a first axis of 1."""


def largest_batch(
    engine: Engine,
    recording: Sequence[Array] = (),
    states: Mapping[str, Carried] | None = None,
    *,
    sizes: Sequence[int] = SIZES,
    steps: int = 2,
    rounding: float = 0.0,
) -> int:
    """Return how many rows may share a call: 0 for any number, 1 where a row must be alone.

    Args:
        engine: an engine at rest; it is run some dozens of times.
        recording: rows to try with, (n, *row), for each input that is no state, in order: real ones find more than
            noise, which is taken where there are none.
        states: inputs that are outputs of the step before. None takes those that an output has the name of, and begins
            with zeros, as `edge_runtime.model.chain` does.
        sizes: batches to try, smallest first.
        steps: calls after each other, states going on; a chain whose stages wait for rows needs more.
        rounding: difference that counts as equal, as a share of an output's largest number; 0: bit for bit. Float
            kernels for several rows round otherwise in the last bits, as little as 1e-7; rows that touch differ more.

    Raises:
        EngineError: the engine fails with a row alone.
        InputError: it refuses one.
    """
    if any(not spec.shape or spec.shape[0] != -1 for spec in engine.inputs):
        return 1
    if states is None:
        states = _named_alike(engine)
    rows = _rows(engine, recording, states, steps)
    alone = [_run(engine, _rows_of(rows, [kind]), states) for kind in range(len(LEVELS))]
    # Two rows may be equal by luck: a file that mixes all levels mixes fewer, too.
    largest = 1
    for size in (len(LEVELS), *sizes):
        kinds = [row % len(LEVELS) for row in range(size)]
        try:
            together = _run(engine, _rows_of(rows, kinds), states)
        except (EngineError, InputError):
            return largest  # it takes no such batch
        if not all(_equal(one, [alone[kind][k] for kind in kinds], rounding) for k, one in enumerate(together)):
            return largest
        largest = size if size in sizes else largest
    return 0


def _rows_of(rows: Sequence[Sequence[Array]], kinds: Sequence[int]) -> list[list[Array]]:
    """Make a batch of rows of these levels, for each step and input."""
    return [[array[kinds] for array in step] for step in rows]


def _named_alike(engine: Engine) -> dict[str, Carried]:
    outputs = {spec.name for spec in engine.outputs}
    return {
        spec.name: Carried(spec.name, np.zeros((1, *spec.shape[1:]), spec.dtype))
        for spec in engine.inputs
        if spec.name in outputs
    }


def _rows(engine: Engine, recording: Sequence[Array], states: Mapping[str, Carried], steps: int) -> list[list[Array]]:
    """Make for each step and each input that is no state one row of each level, (levels, *row)."""
    rng = np.random.default_rng(0)
    free = [spec for spec in engine.inputs if spec.name not in states]
    given = list(recording) or [_noise(spec, rng) for spec in free]
    made = []
    for step in range(steps):
        arrays = []
        for spec, rows in zip(free, given, strict=True):
            # Each level gets another row, so that a shift of rows shows as well.
            chosen = rows[(np.arange(len(LEVELS)) + step) % len(rows)]
            factors = np.array(LEVELS, np.float32).reshape(-1, *[1] * (chosen.ndim - 1))
            arrays.append((chosen * factors).astype(spec.dtype) if spec.dtype.kind in "fiu" else chosen)
        made.append(arrays)
    return made


def _noise(spec: TensorSpec, rng: np.random.Generator) -> Array:
    shape = (2 * len(LEVELS), *(max(size, 1) for size in spec.shape[1:]))
    if spec.dtype.kind == "f":
        return rng.standard_normal(shape).astype(spec.dtype)
    # A number may be an index: small ones are valid more often.
    return rng.integers(0, 2, shape).astype(spec.dtype)


def _run(engine: Engine, rows: Sequence[Sequence[Array]], states: Mapping[str, Carried]) -> list[Array]:
    """Run steps from the initial states; return copies of all outputs of all steps."""
    names = [spec.name for spec in engine.outputs]
    count = len(rows[0][0])
    now = {name: np.repeat(state.initial, count, axis=0) for name, state in states.items()}
    outputs: list[Array] = []
    for step in rows:
        arrays = iter(step)
        answers = engine.run(*[now[spec.name] if spec.name in now else next(arrays) for spec in engine.inputs])
        copies = [np.array(answer) for answer in answers]
        now = {name: copies[names.index(state.output)] for name, state in states.items()}
        outputs += copies
    return outputs


def _equal(together: Array, alone: Sequence[Array], rounding: float) -> bool:
    """Report that rows are those that each got alone: shapes first, then numbers."""
    rows = len(alone)
    if any(one.shape[:1] != (1,) for one in alone) or together.shape[:1] != (rows,):
        return False
    if any(part.shape != one.shape[1:] or part.dtype != one.dtype for part, one in zip(together, alone, strict=True)):
        return False
    if all(part.tobytes() == one.tobytes() for part, one in zip(together, alone, strict=True)):
        return True
    if not rounding or together.dtype.kind != "f":
        return False
    expected = np.concatenate(alone)
    largest = float(np.abs(expected).max(initial=0.0, where=np.isfinite(expected)))
    return np.allclose(together, expected, rtol=0.0, atol=rounding * largest, equal_nan=True)
