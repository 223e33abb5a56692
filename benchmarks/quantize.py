"""`edge-export quantize` on networks of other projects, beside the defaults of other people's quantisers.

    python -m benchmarks quantize
    python -m benchmarks.quantize [NETWORK ...] [--shared FOLDER] [--markdown FILE] [--quick]

Every quantiser starts from the same float file and the same calibration calls. All files of a network, ours and theirs,
are then asked about the same held-out recordings and timed interleaved in one run, one thread, batch 1. The rule that
ours must pass is applied to theirs, too, so that the table says who writes files that are slower than float or answer
otherwise.

Peers whose environment is missing are named with the command that makes it. None of this is an MLPerf result.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from edge_export.choose.variants import Settings, quantize_model
from edge_export.choose.variants.data import CallSequence, read_arrays, split, thinned
from edge_export.choose.variants.decide import FileDecision, Rule, decide
from edge_export.choose.variants.measured import FLOAT, MeasuredFile, Results, answers_of, measure_files
from edge_export.choose.variants.source import FloatModel, Format, flow_of, open_source

from benchmarks.export_peers import SHARED, markdown
from benchmarks.foreign import Foreign, foreign
from benchmarks.peers import environments
from benchmarks.report import Report, machine
from edge_runtime.errors import EdgeError
from edge_runtime.model.tuning.timing import TimingPlan

PEERS: Mapping[Format, tuple[str, ...]] = {
    "onnx": ("peer-onnxruntime", "peer-olive"),
    "tflite": ("peer-ai-edge-quantizer",),
}
ROWS, PEER_TIMEOUT_S = 64, 200
_RUNNER = Path(environments.__file__).with_name("quantize_with.py")
_COLUMNS = ("file", "bytes", "of float %", "SNR dB", "accuracy %", "median us", "by float", "low", "high", "verdict")


def theirs(
    network: Foreign, source: FloatModel, calls: Mapping[str, np.ndarray], folder: Path
) -> Iterator[MeasuredFile | str]:
    """Quantise a network by each peer's defaults; where that fails, give the reason in one line."""
    rows = folder / "calls.npz"
    few = {name: array[:: max(1, len(array) // ROWS)] for name, array in calls.items()}
    np.savez(rows, allow_pickle=False, **few)
    for name in PEERS[source.format]:
        peer, out = name.removeprefix("peer-"), folder / name / "out"
        out.parent.mkdir()
        if not environments.is_ready(name):
            yield f"{peer}: missing; make it with: {environments.command_for(name)}"
            continue
        command = [str(environments.python_of(name)), str(_RUNNER), name, str(network.model), str(rows), str(out)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PEER_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            yield f"{peer}: did not end within {PEER_TIMEOUT_S} s"
            continue
        lines = [line for line in done.stderr.splitlines() if line.strip()]
        found = sorted(out.glob("*")) if out.is_dir() else []
        if done.returncode or not found:
            yield f"{peer}: failed: {lines[-1][:160] if lines else done.returncode}"
        for path in found:
            label = f"{peer} {path.stem}"
            yield MeasuredFile(
                name=label, family=label, format=source.format, model=path.read_bytes(), how="its defaults"
            )


def compare(network: Foreign, *, quick: bool) -> tuple[Report, Results, tuple[FileDecision, ...]]:
    """One network: ours and theirs, measured in one run."""
    source = open_source(network.model)
    recordings = read_arrays(network.data, source, network.constants)
    started, used = time.monotonic(), sum(os.times()[:4])
    with tempfile.TemporaryDirectory(prefix="quantize-") as name:
        folder = Path(name)
        few = Settings(constants=network.constants, plan=TimingPlan(rounds=2, block_s=0.001))
        made = quantize_model(source, recordings, folder / "ours", few)
        took_s, used_s = time.monotonic() - started, sum(os.times()[:4]) - used
        ours = [replace(each.measured.file, name=f"ours {each.measured.file.name}") for each in made.decisions]
        parts, flow = split(recordings), flow_of(source, recordings[0].inputs)
        calibration = thinned(parts.calibration, 128, contiguous=bool(flow.states))
        _, calls = answers_of(source.format, source.model, calibration, flow)
        others = list(theirs(network, source, calls, folder))
    held_out = _held_out(parts.held_out, contiguous=bool(flow.states))
    given = MeasuredFile(name=FLOAT, family=FLOAT, format=source.format, model=source.model, how="as it came")
    files = [*ours, *(each for each in others if isinstance(each, MeasuredFile))]
    results = measure_files(given, files, held_out, flow, TimingPlan(rounds=9, block_s=0.002) if quick else None)
    decisions = decide(results, Rule())
    report = Report(title=f"{network.name}: {network.what}", columns=_COLUMNS)
    report.rows += [_row(FileDecision(measured=results.float_file, written=True), results, "the file given")]
    report.rows += [_row(each, results, "") for each in decisions]
    report.notes += [f"not made: ours {name}: {reason}" for name, reason in made.missing.items()]
    report.notes += [each for each in others if isinstance(each, str)]
    report.notes.append(
        f"ours took {took_s:.0f} s, {used_s:.1f} s of processors; "
        f"two loads of float: {100 * (results.noise - 1):.1f} % are noise"
    )
    return report, results, decisions


def _held_out(recordings: Sequence[CallSequence], *, contiguous: bool) -> list[CallSequence]:
    labelled = all(one.labels is not None for one in recordings)
    return thinned(recordings, 4096 if labelled else 64, contiguous=contiguous)


def _row(each: FileDecision, results: Results, verdict: str) -> tuple[str | float | int | None, ...]:
    one, size = each.measured, len(results.float_file.file.model)
    timing = one.timing
    peer = not one.file.name.startswith("ours") and one.file.name != FLOAT
    passed = "passes the rule" if peer else "written"
    return (
        one.file.name,
        len(one.file.model),
        round(100 * len(one.file.model) / size),
        None if one.reason or np.isinf(one.db) else round(one.db, 1),
        None if one.accuracy is None else round(100 * one.accuracy, 2),
        *((None,) * 4 if timing is None else (
            round(timing.p50_us, 1), round(timing.ratio, 2), round(timing.ratio_low, 2), round(timing.ratio_high, 2)
        )),
        verdict or (passed if each.written else f"refused: {each.reason}"),
    )  # fmt: skip


def wins(decisions: Sequence[FileDecision]) -> list[str]:
    """Names of our files that would be written, each the best of its family."""
    return [each.measured.file.name.removeprefix("ours ") for each in decisions
            if each.written and each.measured.file.name.startswith("ours")]  # fmt: skip


def slower(decisions: Sequence[FileDecision], noise: float) -> list[str]:
    """Names of peers' files that are slower than float by more than the noise."""
    return [each.measured.file.name for each in decisions
            if not each.measured.file.name.startswith("ours")
            and each.measured.timing is not None and each.measured.timing.ratio > noise]  # fmt: skip


def main(argv: Sequence[str] | None = None) -> int:
    """Run and print; exit code 0 also where a peer is better: a benchmark reports."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.quantize", description=__doc__.split("\n\n")[0])
    parser.add_argument("networks", nargs="*", metavar="NETWORK", help="names of networks; default: all")
    parser.add_argument("--quick", action="store_true", help="fewer rounds")
    parser.add_argument("--shared", type=Path, default=SHARED, help="folder of the shared data and models")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="write the tables there too")
    options = parser.parse_args(argv)
    if not (options.shared / "data").is_dir():
        print(f"{options.shared}: no shared data and models; give their folder by --shared", file=sys.stderr)
        return 0
    won: Counter[str] = Counter()
    pages = []
    print(machine())
    with tempfile.TemporaryDirectory(prefix="quantize-data-") as name:
        for network in foreign(options.shared, Path(name), tuple(options.networks)):
            try:
                report, results, decisions = compare(network, quick=options.quick)
            except EdgeError as error:
                print(f"{network.name}: {error}")
                continue
            won.update(wins(decisions))
            late = slower(decisions, results.noise)
            report.notes.append(f"slower than float: {', '.join(late) or 'none of the peers'}")
            print(report.text(), end="\n\n", flush=True)
            pages.append(markdown(report))
            if options.markdown:
                options.markdown.write_text("\n\n".join(pages) + "\n", "utf-8")
    print("written, by variant:", ", ".join(f"{name} {count}" for name, count in won.most_common()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
