"""Answers, time and bytes of each file on the device's own engine, beside the float file's."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from edge_export.choose.variants.data import CallSequence
from edge_export.choose.variants.graph import by_row_copy
from edge_export.choose.variants.source import Flow, Format, engine_of, load, run_through
from edge_export.graph.onnx_graph.model import Array
from edge_export.graph.quantize.mixed import sqnr_db
from edge_runtime.errors import EdgeError
from edge_runtime.model.tuning.timing import Machine, TimedModel, Timing, TimingPlan, measure

FLOAT, AGAIN = "float", "float again"
"""Names of the file that all are compared with, and of its second load, which shows what the noise is."""

SLOWER = 1.02
"""Two loads of one file differ by up to 2 % on an idle machine."""

TIMING_S = 12.0
"""Of all files together, about."""

TIMED = 16
"""Calls that a file is timed on, in turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredFile:
    """A model file to measure.

    Attributes:
        name: of the variant.
        family: only the best of a family is written.
        format: of the file.
        model: its bytes.
        how: it was made.
    """

    name: str
    family: str
    format: Format
    model: bytes = field(repr=False)
    how: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Figures of one file on held-out recordings.

    Attributes:
        file: the file.
        db: signal over noise against the float file's answers, worst output; infinite where they are equal.
        accuracy: share of calls whose class is right; None without labels.
        changed: share of calls whose class differs from the float file's; None without labels.
        timing: None where it did not run.
        reason: why it did not run.
    """

    file: MeasuredFile
    db: float = -math.inf
    accuracy: float | None = None
    changed: float | None = None
    timing: Timing | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """All files, and the machine.

    Attributes:
        float_file: the file that was given.
        files: the others.
        noise: largest ratio that two loads of the float file showed, at least `SLOWER`.
        machine: where it was timed.
        calls: held-out calls.
        labelled: of them.
    """

    float_file: Measured
    files: tuple[Measured, ...]
    noise: float
    machine: Machine
    calls: int
    labelled: int


def measure_files(
    float_file: MeasuredFile,
    files: Sequence[MeasuredFile],
    held_out: Sequence[CallSequence],
    flow: Flow,
    plan: TimingPlan | None = None,
) -> Results:
    """Measure the float file and each variant.

    States run freely: each file reads back its own, as it would on a device, so that errors that grow are seen.

    Args:
        float_file: the file given.
        files: the others.
        held_out: recordings that neither set nor chose anything.
        flow: the calls' flow.
        plan: plan of the timing; None takes about `TIMING_S`.

    Raises:
        EngineError: the float file does not run.
    """
    started = time.monotonic()
    expected, inputs = answers_of(float_file.format, float_file.model, held_out, flow)
    call_s = (time.monotonic() - started) / sum(map(len, held_out))
    labels = labels_of(held_out)
    found: list[Measured] = []
    for file in files:
        try:
            given, _ = answers_of(file.format, file.model, held_out, flow)
        except EdgeError as error:
            found.append(Measured(file=file, reason=str(error)))
            continue
        found.append(_compared(file, expected, given, labels))
    alive = [one for one in found if not one.reason]
    few = {name: array[:: max(1, len(array) // TIMED)][:TIMED] for name, array in inputs.items()}
    timed = [(FLOAT, float_file), (AGAIN, float_file), *((one.file.name, one.file) for one in alive)]
    plan = plan or _plan(len(timed), call_s)
    times = measure([_candidate(name, file, few) for name, file in timed], reference=FLOAT, threads=[1], plan=plan)
    by_name = times.of(1)
    whole = [
        replace(one, timing=by_name.get(one.file.name), reason=one.reason or times.failed.get(one.file.name, ""))
        for one in found
    ]
    own = _compared(float_file, expected, expected, labels)
    again = by_name[AGAIN]
    return Results(
        float_file=replace(own, timing=by_name[FLOAT]),
        files=tuple(whole),
        noise=max(SLOWER, again.ratio_high, 1 / again.ratio_low),
        machine=times.machine,
        calls=sum(map(len, held_out)),
        labelled=0 if labels is None else len(labels),
    )


def _plan(files: int, call_s: float) -> TimingPlan:
    """Choose as many rounds as fit into `TIMING_S`: a block is five calls at least."""
    return TimingPlan(rounds=min(31, max(9, int(TIMING_S / (files * max(5 * call_s, 0.004))))), block_s=0.004)


def answers_of(
    format_: Format, model: bytes, recordings: Sequence[CallSequence], flow: Flow
) -> tuple[list[Array], dict[str, Array]]:
    """Ask a file about recordings, each from fresh states.

    Returns:
        Answers by output, and inputs with states by name, of all recordings in a row.

    Raises:
        EngineError: it does not run.
    """
    loaded = load(format_, model)
    try:
        runs = [run_through(loaded, one.inputs, flow) for one in recordings]
    finally:
        loaded.close()
    answers = [np.concatenate([answers[i] for _, answers in runs]) for i in range(len(flow.answers))]
    names = runs[0][0]
    return answers, {name: np.concatenate([inputs[name] for inputs, _ in runs]) for name in names}


def worst_db(expected: Sequence[Array], given: Sequence[Array]) -> float:
    """Signal over noise of the worst output, dB; minus infinity where one is not finite or has another shape."""
    if [array.shape for array in expected] != [array.shape for array in given]:
        return -math.inf
    floats = [(a, b) for a, b in zip(expected, given, strict=True) if a.dtype.kind == "f"]
    if not all(np.isfinite(b).all() for _, b in floats):
        return -math.inf
    return min((sqnr_db(a, b) for a, b in floats), default=math.inf)


def labels_of(recordings: Sequence[CallSequence]) -> Array | None:
    """Return the right class of each call, or None where some have none."""
    found = [one.labels for one in recordings]
    return None if any(labels is None for labels in found) else np.concatenate([x for x in found if x is not None])


def _compared(file: MeasuredFile, expected: Sequence[Array], given: Sequence[Array], labels: Array | None) -> Measured:
    shapes = [array.shape for array in given]
    if shapes != [array.shape for array in expected]:
        wanted = ", ".join(str(array.shape) for array in expected)
        return Measured(file=file, reason=f"answers with shapes {', '.join(map(str, shapes))}, not {wanted}")
    db = worst_db(expected, given)
    if labels is None:
        return Measured(file=file, db=db)
    own, before = classes(given[0]), classes(expected[0])
    return Measured(file=file, db=db, accuracy=float((own == labels).mean()), changed=float((own != before).mean()))


def classes(answers: Array) -> Array:
    """Class of each call: the largest number's position, or whether the only number is above a half."""
    rows = answers.reshape(len(answers), -1)
    return rows.argmax(axis=1) if rows.shape[1] > 1 else (rows[:, 0] > 0.5).astype(np.int64)


def _candidate(name: str, file: MeasuredFile, calls: Mapping[str, Array]) -> TimedModel:
    model = by_row_copy(file.model, calls) if file.format == "onnx" else file.model
    loaded = load(file.format, file.model)
    order = [spec.name for spec in loaded.inputs]
    loaded.close()
    arrays = tuple(calls[name][:, 0] if calls[name].shape[1:2] == (1,) else calls[name] for name in order)
    return TimedModel(name=name, engine=engine_of(file.format), model=model, inputs=arrays)
