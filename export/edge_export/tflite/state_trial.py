"""Trial of a copy whose states were taken out: it answers as the file itself, and may take several keys in a call."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from typing import Any

import numpy as np
from ai_edge_litert.interpreter import Interpreter

from edge_runtime.engines.base import Array, EngineOptions
from edge_runtime.engines.batch_trial import Carried, largest_batch
from edge_runtime.engines.litert import affine_of, load_litert, samples
from edge_runtime.errors import EngineError

_STEPS = 16
_ROUNDING = 1e-5
"""Share of the largest number; a step of 16 bits is more."""


def takes_batches(data: bytes, states: Mapping[str, Carried]) -> bool:
    """Return whether LiteRT gives each row of a batch what it gets alone.

    Args:
        data: the copy, with an open batch.
        states: of it.
    """
    try:
        with closing(load_litert(data, EngineOptions(), {})) as engine:
            return largest_batch(engine, (), states) == 0
    except EngineError:
        return False


def first_difference(data: bytes, taken: bytes, states: Mapping[str, Carried], *, clears: bool) -> int | None:
    """Answer some steps of noise with the file itself and with the copy.

    Args:
        data: the file itself.
        taken: the copy, whose states stand behind the inputs and outputs that the file has.
        states: of the copy, in that order.
        clears: variable tensors stay inside, and are cleared before each step.

    Returns:
        The first step, from 1, that is answered otherwise; None where none is, or one of the two cannot be loaded.
    """
    try:
        interpreter = Interpreter(model_content=data, num_threads=1)
        interpreter.allocate_tensors()
        engine = load_litert(taken, EngineOptions(max_batch=1), {})
    except (EngineError, ValueError, RuntimeError):
        return None  # refused with its reason where it is opened
    sources, targets = interpreter.get_input_details(), interpreter.get_output_details()
    rng = np.random.default_rng(0)
    now: list[Array] = [state.initial for state in states.values()]
    with closing(engine):
        for step in range(_STEPS):
            rows = samples(sources, [affine_of(detail) for detail in sources], rng)
            if clears:
                interpreter.reset_all_variables()
            for detail, row in zip(sources, rows, strict=True):
                interpreter.set_tensor(detail["index"], row)
            interpreter.invoke()
            expected = [_as_engines(interpreter.get_tensor(detail["index"]), detail) for detail in targets]
            given = engine.run(*map(_as_engines, rows, sources), *now)
            if not all(map(_equal, expected, given)):
                return step + 1
            now = list(given[len(expected) :])
    return None


def _equal(expected: Array, given: Array) -> bool:
    """Equal but for the last bits of floats: a library may choose other float kernels for the copy."""
    if expected.shape != given.shape or expected.dtype != given.dtype:
        return False
    largest = float(np.abs(expected).max(initial=0.0, where=np.isfinite(expected)))
    return np.allclose(given, expected, rtol=0.0, atol=_ROUNDING * largest, equal_nan=True)


def _as_engines(stored: Array, detail: dict[str, Any]) -> Array:
    """Numbers of a file as an engine gives and takes them."""
    affine = affine_of(detail)
    if affine is not None:
        return affine.dequantize(stored)
    return stored.astype(np.float32) if stored.dtype.kind == "f" else stored
