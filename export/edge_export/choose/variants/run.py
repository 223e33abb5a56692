"""A whole run: split the recordings, make every variant, measure, decide, write."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

import numpy as np
import onnx

from edge_export.choose.variants import make, report, weights_only
from edge_export.choose.variants.budget import OutOfTimeError, TimeBudget
from edge_export.choose.variants.data import CallSequence, RecordingSplit, split, thinned
from edge_export.choose.variants.decide import FileDecision, Rule, decide
from edge_export.choose.variants.graph import examples_of, file_of, float_graph
from edge_export.choose.variants.judge import RecordedJudge
from edge_export.choose.variants.make import CalibratedGraph, Made
from edge_export.choose.variants.measured import FLOAT, MeasuredFile, Results, answers_of, measure_files
from edge_export.choose.variants.source import FloatModel, Flow, Format, flow_of
from edge_export.graph.quantize import Scheme
from edge_export.graph.quantize.int8_type import int8_type
from edge_runtime.base.hardware.discovery import this_device
from edge_runtime.clock import Clock, SystemClock
from edge_runtime.errors import ConfigError
from edge_runtime.model.tuning.timing import TimingPlan

HELD_OUT, LABELLED = 64, 4096
"""Calls at most that answers are compared on, without and with labels."""

FILES = 12
"""Variants of one format, about."""

SECONDS = 600.0
"""Of a search; one of 40 layers takes a sixth of it."""

SAME_DB = 60.0
"""Signal over noise that another order of sums in float32 keeps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """Choices of a run.

    Attributes:
        rule: what is written.
        formats: of the variants; empty takes the model's own.
        constants: inputs that are one number in every call.
        weight_bits: of int8 in ONNX files; None takes 8 where this machine adds without saturation, else 7.
        plan: of the timing; None takes some seconds.
        seconds: after which nothing new is tried; what was made until then is measured.
    """

    rule: Rule = field(default_factory=Rule)
    formats: tuple[Format, ...] = ()
    constants: Mapping[str, float] = field(default_factory=dict)
    weight_bits: Literal[7, 8] | None = None
    plan: TimingPlan | None = None
    seconds: float = SECONDS


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantOutcome:
    """Result of a run.

    Attributes:
        results: what was measured.
        decisions: on each file.
        missing: why an algorithm made no file, by name.
        written: files on disk, by variant.
        table: of the report, for a terminal.
        report: the report's file.
    """

    results: Results
    decisions: tuple[FileDecision, ...]
    missing: Mapping[str, str]
    written: Mapping[str, Path]
    table: str
    report: Path


def quantize_model(
    source: FloatModel,
    recordings: Sequence[CallSequence],
    folder: Path,
    settings: Settings,
    clock: Clock = SystemClock(),  # noqa: B008 - has no state
) -> VariantOutcome:
    """Make, measure and write the variants of a model.

    Args:
        source: the float model.
        recordings: what it is given in the field, at least one.
        folder: the folder for the files and the report; made where it is missing.
        settings: what is asked.
        clock: the clock that times a call, and counts the seconds of the search.

    Raises:
        ConfigError: the model or the recordings cannot be used.
        EngineError: the float file does not run.
    """
    parts = split(recordings)
    flow = flow_of(source, recordings[0].inputs)
    first = parts.calibration[0].part(slice(0, 8))
    budget = TimeBudget(settings.seconds, clock)
    started = clock.monotonic()
    answers_of(source.format, source.model, [first], flow)
    counts = _Counts.of((clock.monotonic() - started) / len(first), settings.seconds)
    calibration = thinned(parts.calibration, counts.calibration, contiguous=bool(flow.states))
    labelled = all(one.labels is not None for one in parts.held_out)
    held_out = thinned(
        parts.held_out, counts.labelled if labelled else min(HELD_OUT, counts.labelled), contiguous=bool(flow.states)
    )
    work = _Work(source, settings, flow, calibration, counts, budget)
    files: list[MeasuredFile] = []
    missing: dict[str, str] = {}
    for format_ in settings.formats or (source.format,):
        own, reasons = work.files(format_)
        files += own
        missing.update(reasons)
    given = MeasuredFile(name=FLOAT, family=FLOAT, format=source.format, model=source.model, how="as it came")
    results = measure_files(given, files, held_out, flow, settings.plan)
    decisions = decide(results, settings.rule)
    written = _write(folder, source, decisions)
    notes = [*source.notes, *_notes(parts, calibration, held_out, flow, settings, source)]
    path = folder / report.NAME
    names = {name: path.name for name, path in written.items()}
    path.write_text(report.markdown(source.name, results, decisions, missing, settings.rule, notes, names), "utf-8")
    table = report.text(report.rows(results, decisions))
    return VariantOutcome(
        results=results, decisions=decisions, missing=missing, written=written, table=table, report=path
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Counts:
    """Numbers of calls, smaller for a slow model, so that a run ends.

    Attributes:
        calibration: that set ranges.
        choice: that ways are chosen by.
        seen: that weights are rounded by.
        labelled: that all files answer at the end, a quarter of the search's seconds long.
    """

    calibration: int
    choice: int
    seen: int
    labelled: int = LABELLED

    @classmethod
    def of(cls, call_s: float, seconds: float) -> _Counts:
        """Count by the seconds of a call, and of the search."""
        most = [int(total_s / max(call_s, 1e-6)) for total_s in (0.2, 0.1, 0.02)]
        answered = int(seconds / 4 / (FILES * max(call_s, 1e-6)))
        return cls(
            calibration=max(24, min(128, most[0])),
            choice=max(8, min(32, most[1])),
            seen=max(4, min(16, most[2])),
            labelled=max(8, min(LABELLED, answered)),
        )


class _Work:
    """Making of files, with what they all need made once."""

    def __init__(
        self,
        source: FloatModel,
        settings: Settings,
        flow: Flow,
        calibration: Sequence[CallSequence],
        counts: _Counts,
        budget: TimeBudget,
    ) -> None:
        self._budget = budget
        self._source, self._settings, self._flow, self._counts = source, settings, flow, counts
        _, self._calls = answers_of(source.format, source.model, calibration, flow)
        self._graph = float_graph(source, self._calls, settings.constants)
        # Ways are chosen on recordings that set no range; then ranges are set by all.
        try:
            inner = split(calibration)
        except ConfigError:  # too few calls to part again
            inner = RecordingSplit(calibration=tuple(calibration), held_out=tuple(calibration), how="")
        _, self._tuning_calls = answers_of(source.format, source.model, inner.calibration, flow)
        self._choice = thinned(inner.held_out, counts.choice, contiguous=bool(flow.states))
        self._expected, _ = answers_of(source.format, source.model, self._choice, flow)
        if not all(np.isfinite(array).all() for array in self._expected if array.dtype.kind == "f"):
            raise ConfigError(
                "the model answers with NaN or infinity to the recordings; give it what it was trained on"
            )

    def files(self, format_: Format) -> tuple[list[MeasuredFile], dict[str, str]]:
        """Write every variant in one format.

        Returns:
            The files, and why others are missing, by name.
        """
        mark = "" if format_ == self._source.format else f"-{format_}"
        made, missing = self._graphs(format_)
        files = []
        for one in made:
            try:
                model = file_of(one.graph, format_, self._source)
            except ConfigError as error:
                missing[one.name] = str(error)
            else:
                files.append(
                    MeasuredFile(name=f"{one.name}{mark}", family=one.family, format=format_, model=model, how=one.how)
                )
        return files, {f"{name}{mark}": reason for name, reason in missing.items()}

    def _graphs(self, format_: Format) -> tuple[list[Made], dict[str, str]]:
        judge = RecordedJudge(
            source=self._source, format=format_, flow=self._flow, recordings=self._choice,
            expected=self._expected, rule=self._settings.rule,
        )  # fmt: skip
        try:
            file_of(self._graph, format_, self._source)
        except ConfigError as error:
            return [], {"every variant": str(error)}
        if (exact := judge.decibels(self._graph)) < SAME_DB:
            return [], {"every variant": f"the normal form of the model has only {exact:.0f} dB of signal over noise"}
        made = [Made(name="fp32", family="fp32", graph=self._graph, how="normal form, nothing rounded")]
        # In seconds, so before all that may run out of time; in the table they come last.
        constants, missing = self._constants(format_)
        # Ways are compared as ONNX, which is written in a tenth of the time; what is made of them is measured as it is.
        search = replace(judge, format="onnx")
        integers, reasons = self._integers(scheme_for(format_, self._settings.weight_bits), search)
        return [*made, *integers, *constants], reasons | missing

    def _constants(self, format_: Format) -> tuple[list[Made], dict[str, str]]:
        """Make the graphs whose constants alone are narrower."""
        made: list[Made] = []
        missing: dict[str, str] = {}
        tries: dict[str, Callable[[onnx.ModelProto], Made | str]] = {"fp16": make.half_graph}
        if format_ == "onnx":
            tries |= {"int8-dynamic": weights_only.dynamic_graph, "int4-weights": weights_only.four_bit_graph}
        else:
            missing["int4-weights"] = "onnxruntime alone has the kernel; --format onnx makes it"
        for name, attempt in tries.items():
            try:
                result = attempt(self._graph)
            except ConfigError as error:
                result = str(error)
            if isinstance(result, str):
                missing[name] = result
            else:
                made.append(result)
        return made, missing

    def _integers(self, scheme: Scheme, judge: RecordedJudge) -> tuple[list[Made], dict[str, str]]:
        """Make the graphs whose layers compute in integers, all or some."""
        model, tuning = (
            CalibratedGraph(
                graph=self._graph, examples=examples_of(self._graph, calls), scheme=scheme, seen=self._counts.seen,
                budget=self._budget,
            )
            for calls in (self._calls, self._tuning_calls)
        )  # fmt: skip
        if not model.layer_names():
            return [], {"int8": "no convolution or product with constant float32 weights"}
        if self._budget.is_over:
            return [], {"int8": self._budget.reason, "mixed": self._budget.reason}
        method, missing = make.best_ranges(tuning, judge)
        made, reasons = make.int8_graphs(model, method)
        if any(judge.within(one.graph) for one in made):
            why = "int8 in every layer is within the loss on the calls that ways are chosen by"
            return made, {**missing, **reasons, "mixed": why}
        try:
            found = make.float_layers(tuning, method, judge)
        except OutOfTimeError as error:
            found = str(error)
        if isinstance(found, str):
            return made, {**missing, **reasons, "mixed": found}
        mixed, others = make.mixed_graphs(model, method, *found)
        return [*made, *mixed], {**missing, **reasons, **others}


def scheme_for(format_: Format, weight_bits: Literal[7, 8] | None) -> Scheme:
    """Choose the types of int8 by this machine."""
    device = this_device()
    if format_ == "tflite":
        # TensorFlow Lite's kernels widen before they add: 8 bits are exact there on every processor.
        return Scheme(activations="int8", weight_bits=8)
    saturates = device.architecture == "x86_64" and not device.int8
    unsigned = int8_type(device.architecture) == "u8s8"
    return Scheme(activations="uint8" if unsigned else "int8", weight_bits=weight_bits or (7 if saturates else 8))


def _write(folder: Path, source: FloatModel, decisions: Sequence[FileDecision]) -> dict[str, Path]:
    """Write what was chosen, under its family's name."""
    folder.mkdir(parents=True, exist_ok=True)
    written = {}
    for each in decisions:
        file = each.measured.file
        if each.written:
            path = folder / f"{source.name}-{file.family}.{file.format}"
            path.write_bytes(file.model)
            written[file.name] = path
    return written


def _notes(
    parts: RecordingSplit,
    calibration: Sequence[CallSequence],
    held_out: Sequence[CallSequence],
    flow: Flow,
    settings: Settings,
    source: FloatModel,
) -> list[str]:
    used = f"{sum(map(len, calibration))} calls to calibrate, {sum(map(len, held_out))} held out"
    notes = [f"Data: {parts.how}. Used: {used}."]
    if flow.states:
        listed = ", ".join(flow.states)
        notes.append(f"States: {listed}; zero at the start of each recording, and each file reads back its own.")
    if settings.constants:
        notes.append("Constants: " + ", ".join(f"{name} = {value:g}" for name, value in settings.constants.items()))
    if "onnx" in (settings.formats or (source.format,)):
        scheme = scheme_for("onnx", settings.weight_bits)
        notes.append(f"int8 in ONNX: {scheme.name}, {scheme.weight_bits}-bit weights, one step per output channel.")
    return notes
