"""Three real tasks from recordings to bundles: accuracy, size and time on people that no model was trained on.

::

    python -m benchmarks.tasks --data har=FOLDER --data ecg=FOLDER --data fsdd=FOLDER --data commands=FOLDER

Builds the recipes under ``examples/`` from a clean cache, plays the test recordings through the packed bundles by
``edge-runtime replay``, and prints what is in the reports. A task whose data is not named is left out, and said so.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from edge_export.cli import main as edge_export
from edge_export.cli.build import named_folder
from edge_export.package.evaluation_file import LABELS, RECORDINGS, accuracy_of

from benchmarks.report import Cell, Goal, Report
from edge_runtime.model.tuning.timing import this_machine
from edge_runtime.tools.cli import main as edge_runtime

ROOT = Path(__file__).resolve().parents[1]
MINUTES = 15.0


@dataclass(frozen=True, kw_only=True)
class Task:
    """A recipe and the keys of its data."""

    name: str
    keys: tuple[str, ...]

    @property
    def recipe(self) -> Path:
        return ROOT / "examples" / self.name / "recipe.toml"


TASKS = (
    Task(name="activity-watch", keys=("har",)),
    Task(name="heartbeat-ecg", keys=("ecg",)),
    Task(name="spoken-digits", keys=("fsdd", "commands")),
)


def build(task: Task, folders: Mapping[str, Path], out: Path) -> tuple[dict[str, Any], float]:
    """Build a recipe with nothing cached; its report, and how long that took in seconds."""
    arguments = ["build", str(task.recipe), "-o", str(out)]
    for key in task.keys:
        arguments += ["--data", f"{key}={folders[key]}"]
    began = time.monotonic()
    if edge_export(arguments) != 0:
        raise SystemExit(f"{task.name}: the build failed")
    return json.loads((out / "report.json").read_bytes()), time.monotonic() - began


def replayed(report: Mapping[str, Any], out: Path) -> float:
    """Accuracy of the packed bundle, as anybody would count it."""
    bundle = out / f"{report['recipe']}-{platform.machine()}.edge"
    predictions = out / "predictions.jsonl"
    arguments = ["replay", str(bundle), str(out / RECORDINGS), "--out", str(predictions)]
    if edge_runtime([*arguments, "--variant", report["test"]["device"]]) != 0:
        raise SystemExit(f"{bundle.name}: replay failed")
    return accuracy_of(predictions, out / LABELS)[0]


def summary(task: Task, report: Mapping[str, Any], seconds: float, counted: float) -> Report:
    """One task as a table with its goals.

    Args:
        task: which.
        report: what its build wrote as ``report.json``.
        seconds: that the build took.
        counted: accuracy of the packed bundle when it was replayed.
    """
    return Report(
        f"{task.name}: test groups {', '.join(report['groups']['test'])}, {report['windows']['test']} windows",
        ("who", "accuracy %", "95 %", "macro F1 %", "bytes", "zlib bytes", "us", "times faster"),
        rows=_rows(report),
        goals=[
            *_against_teacher(report),
            *_forwarding(report),
            Goal(
                "points between the report and the replayed bundle",
                abs(100 * (counted - report["test"]["judged"][report["test"]["device"]]["accuracy"])),
                0,
                at_most=True,
            ),
            Goal("minutes to build", seconds / 60, MINUTES, at_most=True),
            *_quantisation(report),
            *_streaming(report),
        ],
        notes=_notes(report),
    )


def _rows(report: Mapping[str, Any]) -> list[tuple[Cell, ...]]:
    """Tabulate accuracy on test groups, size and time of each model."""
    judged, device, timed = report["test"]["judged"], report["test"]["device"], report["against_teacher"]
    files = _files(report)
    sizes = {name: (each["size"], each["zlib_size"]) for name, each in files.items()}
    sizes["teacher"] = (report["teacher"]["bytes"], report["teacher"]["zlib_bytes"])
    rows: list[tuple[Cell, ...]] = []
    for name in ("random-forest", "teacher", *files):
        if name not in judged:
            continue
        one = judged[name]
        rows.append(
            (
                f"{name} (ships)" if name == device else name,
                100 * one["accuracy"],
                f"{100 * one['low']:.1f} to {100 * one['high']:.1f}",
                100 * one["macro_f1"],
                *sizes.get(name, (None, None)),
                timed[name]["p50_us"] if name in timed else None,
                timed[name]["times_faster"] if name in timed else None,
            )
        )
    return rows


def _files(report: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The device's candidates by name."""
    return {each["name"]: each for each in report["candidates"]}


def _against_teacher(report: Mapping[str, Any]) -> list[Goal]:
    """Compare the device's bundle with the teacher's: size, time and score."""
    judged, device, metric = report["test"]["judged"], report["test"]["device"], report["metric"]
    bundles = report["bundles"]
    teacher = next(size for name, size in bundles.items() if "teacher" in name)
    own = bundles[f"{report['recipe']}-{platform.machine()}.edge"]
    score = judged[device][metric]
    return [
        Goal("times smaller than the teacher, bundles on disk", teacher["bytes"] / own["bytes"], 50),
        Goal("times smaller, bundles after zlib", teacher["zlib_bytes"] / own["zlib_bytes"], 50),
        Goal("times faster than the teacher, one core", report["against_teacher"][device]["times_faster"], 10),
        Goal(f"share of the teacher's {metric} kept, %", 100 * score / judged["teacher"][metric], 99),
        Goal(f"points of {metric} above the plain baseline", 100 * (score - judged["random-forest"][metric]), 0),
    ]


def _forwarding(report: Mapping[str, Any]) -> list[Goal]:
    """Measure the accuracy that the cloud adds, and the share of windows it is asked about."""
    test = report["test"]
    at_ten = max((point for point in test["curve"] if point["forwarded"] <= 0.1), key=lambda p: p["forwarded"])
    return [
        Goal(
            "points of accuracy with the cloud taking at most 10 %, against the teacher",
            100 * (at_ten["combined_accuracy"] - test["judged"]["teacher"]["accuracy"]),
            -0.2,
        ),
        Goal("share forwarded by the bundle's own threshold, %", 100 * test["gate"]["forwarded"], 10, at_most=True),
    ]


def _quantisation(report: Mapping[str, Any]) -> list[Goal]:
    """Compare each int8 file with its float file: bytes saved, score lost."""
    judged, metric, files = report["test"]["judged"], report["metric"], _files(report)
    goals: list[Goal] = []
    for name, each in files.items():
        if "int8" not in name or name not in judged:
            continue
        fp32 = files[f"{each['format']}-fp32"]
        goals += [
            Goal(f"{name}: % smaller than fp32", 100 * (1 - each["size"] / fp32["size"]), 50),
            Goal(
                f"{name}: points of {metric} lost against fp32",
                100 * (judged[fp32["name"]][metric] - judged[name][metric]),
                0.5,
                at_most=True,
            ),
        ]
    return goals


def _streaming(report: Mapping[str, Any]) -> list[Goal]:
    """Measure the CPU that the stateful graph saves; nothing where the recipe asks for none."""
    streaming = report["streaming"]
    if not streaming:
        return []
    return [
        Goal(f"streaming at {100 * streaming['overlap']:.0f} % overlap: times less CPU", streaming["times_less"], 5),
        Goal("streaming: largest difference", streaming["max_abs_diff"], 1e-4, at_most=True),
    ]


def _notes(report: Mapping[str, Any]) -> list[str]:
    student, quantisation = report["student"], report["quantisation"]
    gate, forwarding = report["gate"], report["test"]["gate"]
    made = (
        f"student {student['parameters']:,} parameters, {student['macs']:,} multiply-accumulates; "
        f"quantised by {quantisation['ranges']}"
    )
    if kept := quantisation["kept_in_float"]:
        made += f"; in float: {', '.join(one['layer'] for one in kept)}"
    gated = (
        f"gate: {gate['score']} below {gate['threshold']:.4f}; with the cloud "
        f"{100 * forwarding['combined_accuracy']:.2f} % right, {100 * forwarding['forwarded']:.2f} % forwarded"
    )
    ships = [f"{target} ships {', '.join(chosen['shipped'])}" for target, chosen in report["choice"].items()]
    return [made, gated, *ships]


def main(arguments: list[str] | None = None) -> int:
    """Build, replay and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.tasks", description=__doc__)
    parser.add_argument("--data", type=named_folder, action="append", default=[], metavar="KEY=FOLDER")
    parser.add_argument("--only", choices=[task.name for task in TASKS], action="append")
    parser.add_argument("-o", "--out", type=Path, help="keep the builds here; made if missing, and must be empty")
    options = parser.parse_args(arguments)
    folders = dict(options.data)
    print(f"{this_machine().label}, {', '.join(f'{k} {v}' for k, v in this_machine().versions.items())}\n")
    with tempfile.TemporaryDirectory() as temporary:
        for task in TASKS:
            if options.only and task.name not in options.only:
                continue
            if missing := [key for key in task.keys if key not in folders]:
                print(f"{task.name}: left out; it needs {' '.join(f'--data {key}=FOLDER' for key in missing)}\n")
                continue
            out = (options.out or Path(temporary)) / task.name
            report, seconds = build(task, folders, out)
            print(f"\n{summary(task, report, seconds, replayed(report, out)).text()}\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
