"""The MLPerf Tiny networks through our quantiser, writer and search, beside the defaults of other people's quantisers.

    python -m benchmarks.export_peers [kws ad ic vww] [--json FILE] [--markdown FILE] [--no-install]

Every quantiser starts from the same float ONNX file and the same calibration inputs. All files, ours and theirs, are
then timed interleaved on the engines of a device, one thread, batch 1, taking turns
(`edge_runtime.model.tuning.timing`), and asked about inputs that none was calibrated on. The search
(`choose.selection.limits`) sees our candidates only; what it chose is set against the fastest file of any peer in
a benchmark of two.

None of this is an MLPerf result: the benchmark's data sets are not here. What the inputs are stands in each table.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
import orjson
from edge_export.choose.selection.limits import SLOWER, choose, compressed_size
from edge_export.graph.onnx_graph.model import transform
from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise
from edge_export.graph.onnx_graph.passes.minimise import Minimise
from edge_export.graph.quantize import Scheme
from edge_export.graph.quantize.bias import correct
from edge_export.graph.quantize.ranges import calibrate
from edge_export.graph.quantize.write import prepare, write
from edge_export.graph.tflite.convert import convert
from edge_export.metrics import Evaluation, evaluate
from edge_export.package.pack import VariantSource
from edge_export.recipe.limits import Limits

from benchmarks.anomaly import anomaly
from benchmarks.mlperf_tiny import NETWORKS, Array, Inputs, Network, inputs_for, to_onnx
from benchmarks.peers import environments
from benchmarks.report import Goal, Report, machine
from edge_runtime.base.hardware.discovery import this_device
from edge_runtime.errors import EdgeError
from edge_runtime.model import engines
from edge_runtime.model.engines.base import EngineOptions
from edge_runtime.model.tuning.timing import TimedModel, Timing, TimingPlan, measure, time_interleaved

SHARED = Path(__file__).resolve().parents[2] / "shared"
LIMITS = Limits(max_accuracy_drop=0.01)
"""One point of accuracy (kws), of agreement with float (ic, vww), or one percent of the anomaly score (ad)."""

REFERENCE = "mlperf-tiny reference int8"

_PEER_TIMEOUT_S = 300
_RUNNER = Path(environments.__file__).with_name("quantize_with.py")


@dataclass(frozen=True, kw_only=True)
class Entry:
    """A model file of the comparison.

    Attributes:
        name: with its maker in front.
        model: the file.
        format: of the file.
        ours: whether the search may choose it.
    """

    name: str
    model: bytes = field(repr=False)
    format: Literal["onnx", "tflite"]
    ours: bool

    @property
    def engine(self) -> str:
        return engines.engines_for(self.format)[0].name

    def source(self) -> VariantSource:
        fp32 = "fp32" in self.name
        return VariantSource(name=self.name, model=self.model, format=self.format, precision="fp32" if fp32 else "int8")


def ours(model: onnx.ModelProto, calibration: Array) -> Iterator[Entry]:
    """Convert a float model by our toolchain: every format and scheme that this machine could want."""
    fp32 = prepare(canonicalise(model))
    yield Entry(name="onnx-fp32", model=_onnx(model), format="onnx", ours=True)
    yield Entry(name="tflite-fp32", model=convert(canonicalise(model), compact=True), format="tflite", ours=True)
    ranges = calibrate(fp32, calibration, "minmax")
    for per_channel in (True, False):
        mark = "" if per_channel else "-tensor"
        # TensorFlow Lite's kernels widen before they add: 8 bits are exact there on every processor.
        scheme = Scheme(activations="int8", weight_bits=8, per_channel=per_channel)
        quantized = write(correct(fp32, ranges, scheme, calibration), ranges, scheme)
        integers = convert(canonicalise(quantized), compact=True)
        yield Entry(name=f"tflite-int8{mark}", model=integers, format="tflite", ours=True)
        bits: Literal[7, 8] = 7 if _saturates() else 8
        scheme = replace(scheme, activations="uint8", weight_bits=bits)
        quantized = write(correct(fp32, ranges, scheme, calibration), ranges, scheme)
        yield Entry(name=f"onnx-int8-u8s{bits}{mark}", model=_onnx(quantized), format="onnx", ours=True)


def _saturates() -> bool:
    """True on x86 without VNNI, which adds pairs of uint8 x int8 products in 16 bits (`Scheme.weight_bits`)."""
    device = this_device()
    return device.architecture == "x86_64" and not device.int8


def _onnx(model: onnx.ModelProto) -> bytes:
    return bytes(transform(canonicalise(model), Minimise()).SerializeToString(deterministic=True))


def theirs(model: onnx.ModelProto, calibration: Array, folder: Path) -> Iterator[Entry | str]:
    """Quantise it by each peer's defaults; where that fails, give the reason in one line."""
    given, rows = folder / "float.onnx", folder / "calibration.npy"
    onnx.save(model, str(given))
    np.save(rows, calibration)
    for name in environments.ENVIRONMENTS:
        peer = name.removeprefix("peer-")
        if not environments.is_ready(name):
            yield f"{peer}: missing; make it with: {environments.command_for(name)}"
            continue
        source = given
        if peer == "ai-edge-quantizer":  # it reads TensorFlow Lite: onnx2tf's float file
            source = folder / "onnx2tf" / "out" / "float.tflite"
            if not source.is_file():
                yield "ai-edge-quantizer: there is no float TensorFlow Lite file from onnx2tf to give it"
                continue
        out = folder / peer / "out"
        out.parent.mkdir()
        command = [str(environments.python_of(name)), str(_RUNNER), name, str(source), str(rows), str(out)]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=_PEER_TIMEOUT_S,
                preexec_fn=lambda: os.nice(10),
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            yield f"{peer}: did not end within {_PEER_TIMEOUT_S} s"
            continue
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        if done.returncode:
            yield f"{peer}: failed: {lines[-1][:200] if lines else done.returncode}"
        for path in sorted(out.glob("*")) if out.is_dir() else ():
            format_: Literal["onnx", "tflite"] = "onnx" if path.suffix == ".onnx" else "tflite"
            yield Entry(name=f"{peer} {path.stem}", model=path.read_bytes(), format=format_, ours=False)


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Answers of one file to the unseen inputs, against float.

    Attributes:
        judged: accuracy (kws), agreement with float (ic, vww), or one less the relative error of the score (ad).
        sqnr_db: power of float's answers by power of the difference, dB; infinite where there is none.
    """

    judged: Evaluation
    sqnr_db: float


def ask(entries: Sequence[Entry], inputs: Inputs, network: Network) -> dict[str, Answers]:
    """Answers of all files; those that an engine refuses are left out."""
    found: dict[str, Array] = {}
    for entry in entries:
        try:
            loaded = engines.load(entry.engine, entry.model, EngineOptions(max_batch=1))
            rows = [np.array(loaded.run(row[None])[0][0], np.float32) for row in inputs.unseen]
            loaded.close()
        except EdgeError:
            continue
        found[entry.name] = np.stack(rows)
    expected = found["onnx-fp32"]
    if network.name == "ad":
        judged = {name: _scores(name, inputs.unseen, y, expected) for name, y in found.items()}
    else:
        labels = expected.argmax(axis=1) if inputs.labels is None else inputs.labels
        judged = {one.name: one for one in evaluate({n: np.nan_to_num(y) for n, y in found.items()}, labels)}
    return {name: Answers(judged=judged[name], sqnr_db=_sqnr(expected, y)) for name, y in found.items()}


def _scores(name: str, x: Array, answers: Array, expected: Array) -> Evaluation:
    """Measure the anomaly score (mean squared reconstruction error) of a window against the float model's, relative."""
    score, true = ((x - answers) ** 2).mean(axis=1), ((x - expected) ** 2).mean(axis=1)
    error = float(np.abs(score / true - 1).mean())
    same = {"low": 1 - error, "high": 1 - error, "f1_low": 1 - error, "f1_high": 1 - error}
    return Evaluation(
        name=name, windows=len(x), groups=1, accuracy=1 - error, macro_f1=1 - error, drop=error, drop_low=error,
        drop_high=error, f1_drop=error, flips=0.0, **same,
    )  # fmt: skip


def _sqnr(expected: Array, answers: Array) -> float:
    noise = float(((answers - expected).astype(np.float64) ** 2).sum())
    return float("inf") if noise == 0 else float(10 * np.log10((expected.astype(np.float64) ** 2).sum() / noise))


def compare(network: Network, plan: TimingPlan, shared: Path = SHARED) -> tuple[Report, str, dict[str, Entry]]:
    """One network: quantise, time, ask, choose.

    Returns:
        The report, the name of what was chosen, and all files that ran by name.
    """
    inputs = inputs_for(network.name, shared)
    model = to_onnx(network, shared)
    notes: list[str] = []
    entries: list[Entry] = list(ours(model, inputs.calibration))
    reference = (shared / "models" / "mlperf-tiny" / network.int8).read_bytes()
    entries.append(Entry(name=REFERENCE, model=reference, format="tflite", ours=False))
    with tempfile.TemporaryDirectory(prefix="export-peers-") as folder:
        for made in theirs(model, inputs.calibration, Path(folder)):
            if isinstance(made, str):
                notes.append(made)
            else:
                entries.append(made)
    candidates = {entry.name: _candidate(entry, inputs) for entry in entries}
    found = measure(list(candidates.values()), reference="onnx-fp32", threads=[1], plan=plan)
    notes += [f"{name}: not timed, {reason}" for name, reason in found.failed.items()]
    alive = [entry for entry in entries if entry.name not in found.failed]
    answers = ask(alive, inputs, network)
    times = found.of(1)
    choice = choose(
        [entry.source() for entry in alive if entry.ours],
        found,
        [answer.judged for answer in answers.values()],
        LIMITS,
        found.machine.architecture,
    )
    chosen = choice.shipped[0].name
    report = Report(title=f"{network.name}: {network.what}", columns=_COLUMNS)
    for entry in sorted(alive, key=lambda entry: times[entry.name].p50_us):
        if entry.name in answers:
            report.rows.append(_row(entry, chosen, times[entry.name], answers[entry.name]))
    report.goals += _duels(alive, chosen, times, answers, candidates, plan)
    report.notes += notes + [f"ours, {name}: lost, {why}" for name, why in choice.lost.items()]
    return report, chosen, {entry.name: entry for entry in alive}


_COLUMNS = ("file", "bytes", "zlib bytes", "median us", "95 % us", "by ORT fp32", "low", "high", "SQNR dB", "score %")


def _row(entry: Entry, chosen: str, timing: Timing, answer: Answers) -> tuple[str | float | int | None, ...]:
    name = f"ours: {entry.name}" if entry.ours else entry.name
    mark = " (chosen)" if entry.name == chosen else ""
    usable = "" if answer.judged.drop <= LIMITS.max_accuracy_drop else " (!)"
    return (
        f"{name}{mark}{usable}",
        len(entry.model),
        compressed_size(entry.model),
        round(timing.p50_us, 1),
        round(timing.p95_us, 1),
        round(timing.ratio, 3),
        round(timing.ratio_low, 3),
        round(timing.ratio_high, 3),
        None if np.isinf(answer.sqnr_db) else round(answer.sqnr_db, 1),
        round(100 * answer.judged.accuracy, 2),
    )


def _candidate(entry: Entry, inputs: Inputs) -> TimedModel:
    return TimedModel(name=entry.name, engine=entry.engine, model=entry.model, inputs=(inputs.unseen[:32],))


def _duels(
    alive: Sequence[Entry],
    chosen: str,
    times: Mapping[str, Timing],
    answers: Mapping[str, Answers],
    candidates: Mapping[str, TimedModel],
    plan: TimingPlan,
) -> Iterator[Goal]:
    """Our choice against the fastest peer of all, and against the fastest whose answers are within the limit."""
    peers = [entry.name for entry in alive if not entry.ours and entry.name in answers and entry.name != REFERENCE]
    usable = [name for name in peers if answers[name].judged.drop <= LIMITS.max_accuracy_drop]
    rivals = {min(group, key=lambda name: times[name].p50_us): what for what, group in (
        ("whatever its answers", peers), ("with answers within the limit", usable),
    ) if group}  # fmt: skip
    for name, what in rivals.items():
        duel = replace(plan, rounds=2 * plan.rounds + 1, seed=plan.seed + 1)
        timing = time_interleaved([candidates[chosen], candidates[name]], reference=name, plan=duel)[0]
        yield Goal(
            text=f"time of our choice by that of the fastest peer {what}: {chosen} by {name} "
            f"(95 % interval {timing.ratio_low:.3f} to {timing.ratio_high:.3f}; {SLOWER - 1:.0%} are noise)",
            measured=timing.ratio,
            limit=SLOWER,
            at_most=True,
        )


def markdown(report: Report) -> str:
    """The same as `Report.text`, for documents."""
    lines = [f"### {report.title}", "", f"| {' | '.join(report.columns)} |"]
    lines.append(f"| {' | '.join(['---', *['---:'] * (len(report.columns) - 1)])} |")
    for row in report.rows:
        cells = ["" if c is None else f"{c:,}" if isinstance(c, int) else str(c) for c in row]
        lines.append(f"| {' | '.join(cells)} |")
    lines += ["", *(f"- {goal}" for goal in report.goals), *(f"- {note}" for note in report.notes)]
    return "\n".join(lines)


def main(argv: Sequence[str] | None = None) -> int:
    """Run and print; exit code 0 also where a goal is missed: a benchmark reports."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.export_peers", description=__doc__.split("\n\n")[0])
    known = [network.name for network in NETWORKS]
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help=f"some of: {', '.join(known)}; default: all")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--no-install", action="store_true", help="do not make missing environments of peers")
    parser.add_argument("--shared", type=Path, default=SHARED, help="folder of the shared data and models")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there too")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there too")
    options = parser.parse_args(argv)
    if unknown := [name for name in options.networks if name not in known]:
        parser.error(f"no network is called {unknown[0]}; known: {', '.join(known)}")
    if not (options.shared / "models" / "mlperf-tiny").is_dir():
        parser.error(f"the reference models are not in {options.shared}; name their folder with --shared")
    if not options.no_install:
        environments.main([])
    facts = machine()
    print("\n".join(f"{key}: {value}" for key, value in facts.items()))
    plan = TimingPlan(rounds=21) if options.quick else TimingPlan(rounds=101)
    reports: list[Report] = []
    for network in NETWORKS:
        if options.networks and network.name not in options.networks:
            continue
        report, chosen, entries = compare(network, plan, options.shared)
        reports.append(report)
        print(f"\n{report.text()}", flush=True)
        if network.name == "ad":
            models = {name: (entries[name].engine, entries[name].model) for name in ("onnx-fp32", chosen, REFERENCE)}
            reports.append(anomaly(options.shared, models))
            print(f"\n{reports[-1].text()}", flush=True)
    if options.json:
        results: dict[str, Any] = {"machine": facts, "reports": [report.plain() for report in reports]}
        options.json.write_bytes(orjson.dumps(results, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))
    if options.markdown:
        options.markdown.write_text("\n\n".join(markdown(report) for report in reports) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
