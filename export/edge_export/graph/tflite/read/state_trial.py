"""Trial of a copy whose states were taken out: it answers as the file itself, and may take several keys in a call.

Both run in a child process, since a file may end the process that runs it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numpy as np

from edge_runtime.base.system import subprocess_job
from edge_runtime.errors import EngineError
from edge_runtime.model.engines.base import Array, EngineOptions
from edge_runtime.model.engines.batch_trial import Carried, largest_batch
from edge_runtime.model.engines.litert import affine_of, load_litert, samples

if TYPE_CHECKING:
    from ai_edge_litert.interpreter import Interpreter

_STEPS = 16
_ROUNDING = 1e-5
"""Share of the largest number; a step of 16 bits is more."""
_TIMEOUT_S = 120.0
"""For some dozens of calls: a large file needs a tenth of it."""


class _Trial(NamedTuple):
    """Findings on a copy."""

    opened: bool
    """The rows of a batch were tried, and each gets what it gets alone."""
    difference: int | None
    """The first step, from 1, that is answered otherwise; None where none is, or one of the two cannot be loaded."""


def try_copies(
    data: bytes, plain: bytes, opened: bytes | None, states: Mapping[str, Carried], *, clears: bool
) -> _Trial:
    """Answer some steps of noise with a file and with its copy, in a child process.

    Args:
        data: the file itself.
        plain: the copy, whose states stand behind the inputs and outputs that the file has.
        opened: the same with an open batch, which is taken where its rows do not touch each other; None: not tried.
        states: the copies' states, in that order.
        clears: variable tensors stay inside, and are cleared before each step.

    Raises:
        EngineError: the file or a copy ended the child process, or hung there.
    """
    parts = [data, plain, opened or b"", *(state.initial.tobytes() for state in states.values())]
    job = {
        "sizes": [len(part) for part in parts],
        "states": [[name, each.output, each.initial.dtype.str, each.initial.shape] for name, each in states.items()],
        "clears": clears,
    }
    found = subprocess_job.ask(
        f"from {__name__} import child; child()", job, parts, what="running it beside a copy without state",
        timeout_s=_TIMEOUT_S, memory_bytes=None,
    )  # fmt: skip
    if "reason" in found:
        raise EngineError(found["reason"])
    return _Trial(**found)


def child() -> NoReturn:
    """Serve as the child process of `try_copies`."""
    subprocess_job.answer(_attempt)


def _attempt(job: dict[str, Any], content: memoryview) -> dict[str, Any]:
    data, plain, opened, *initial = _cut(content, job["sizes"])
    states = {
        name: Carried(output, np.frombuffer(numbers, dtype).reshape(shape))
        for (name, output, dtype, shape), numbers in zip(job["states"], initial, strict=True)
    }
    batches = bool(opened) and _takes_batches(opened, states)
    step = _first_difference(data, opened if batches else plain, states, clears=job["clears"])
    return _Trial(batches, step)._asdict()


def _cut(content: memoryview, sizes: list[int]) -> Iterator[bytes]:
    at = 0
    for size in sizes:
        yield bytes(content[at : at + size])
        at += size


def _takes_batches(data: bytes, states: Mapping[str, Carried]) -> bool:
    try:
        with closing(load_litert(data, EngineOptions(), {})) as engine:
            return largest_batch(engine, (), states) == 0
    except EngineError:
        return False


def _first_difference(data: bytes, taken: bytes, states: Mapping[str, Carried], *, clears: bool) -> int | None:
    try:
        interpreter = _interpreter(data)
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


def _interpreter(data: bytes) -> Interpreter:
    from ai_edge_litert.interpreter import Interpreter  # noqa: PLC0415 - the child alone needs it

    interpreter = Interpreter(model_content=data, num_threads=1)
    interpreter.allocate_tensors()
    return interpreter


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
