"""Three real tasks from recordings to bundles: what the export toolchain reaches on people it has never heard of.

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

from benchmarks.report import Goal, Report
from edge_runtime.cli import main as edge_runtime
from edge_runtime.timing import this_machine
from export.cli import main as edge_export
from export.cli.build import named_folder
from export.evaluation import LABELS, RECORDINGS, accuracy_of

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
    """One task as a table with its goals."""
    test, metric = report["test"], report["metric"]
    judged, device = test["judged"], test["device"]
    table = Report(
        f"{task.name}: test groups {', '.join(report['groups']['test'])}, {report['windows']['test']} windows",
        ("who", "accuracy %", "95 %", "macro F1 %", "bytes", "zlib bytes", "us", "times faster"),
    )
    files = {each["name"]: each for each in report["candidates"]}
    timed = report["against_teacher"]
    sizes = {"teacher": (report["teacher"]["bytes"], report["teacher"]["zlib_bytes"])}
    sizes |= {name: (each["size"], each["zlib_size"]) for name, each in files.items()}
    for name in ("random-forest", "teacher", *files):
        if name not in judged:
            continue
        one = judged[name]
        size = sizes.get(name, (None, None))
        table.rows.append(
            (
                f"{name} (ships)" if name == device else name,
                100 * one["accuracy"],
                f"{100 * one['low']:.1f} to {100 * one['high']:.1f}",
                100 * one["macro_f1"],
                *size,
                timed[name]["p50_us"] if name in timed else None,
                timed[name]["times_faster"] if name in timed else None,
            )
        )
    bundles = report["bundles"]
    teacher = next(size for name, size in bundles.items() if "teacher" in name)
    own = bundles[f"{report['recipe']}-{platform.machine()}.edge"]
    teacher_score, own_score = judged["teacher"][metric], judged[device][metric]
    gate = test["gate"]
    at_ten = max((point for point in test["curve"] if point["forwarded"] <= 0.1), key=lambda p: p["forwarded"])
    integers = [each for name, each in files.items() if "int8" in name and name in judged]
    table.goals = [
        Goal("times smaller than the teacher, bundles on disk", teacher["bytes"] / own["bytes"], 50),
        Goal("times smaller, bundles after zlib", teacher["zlib_bytes"] / own["zlib_bytes"], 50),
        Goal("times faster than the teacher, one core", timed[device]["times_faster"], 10),
        Goal(f"share of the teacher's {metric} kept, %", 100 * own_score / teacher_score, 99),
        Goal(f"points of {metric} above the plain baseline", 100 * (own_score - judged["random-forest"][metric]), 0),
        Goal(
            "points of accuracy with the cloud taking at most 10 %, against the teacher",
            100 * (at_ten["combined_accuracy"] - judged["teacher"]["accuracy"]),
            -0.2,
        ),
        Goal("share forwarded by the bundle's own threshold, %", 100 * gate["forwarded"], 10, at_most=True),
        Goal(
            "points between the report and the replayed bundle",
            abs(100 * (counted - judged[device]["accuracy"])),
            0,
            at_most=True,
        ),
        Goal("minutes to build", seconds / 60, MINUTES, at_most=True),
    ]
    for each in integers:
        fp32 = files[f"{each['format']}-fp32"]
        table.goals += [
            Goal(f"{each['name']}: % smaller than fp32", 100 * (1 - each["size"] / fp32["size"]), 50),
            Goal(
                f"{each['name']}: points of {metric} lost against fp32",
                100 * (judged[fp32["name"]][metric] - judged[each["name"]][metric]),
                0.5,
                at_most=True,
            ),
        ]
    if streaming := report["streaming"]:
        table.goals += [
            Goal(
                f"streaming at {100 * streaming['overlap']:.0f} % overlap: times less CPU", streaming["times_less"], 5
            ),
            Goal("streaming: largest difference", streaming["max_abs_diff"], 1e-4, at_most=True),
        ]
    kept = report["quantisation"]["kept_in_float"]
    table.notes = [
        f"student {report['student']['parameters']:,} parameters, {report['student']['macs']:,} multiply-accumulates; "
        f"quantised by {report['quantisation']['ranges']}"
        + (f"; in float: {', '.join(one['layer'] for one in kept)}" if kept else ""),
    ]
    table.notes.append(
        f"gate: {report['gate']['score']} below {report['gate']['threshold']:.4f}; with the cloud "
        f"{100 * gate['combined_accuracy']:.2f} % right, {100 * gate['forwarded']:.2f} % forwarded"
    )
    table.notes += [f"{target} ships {', '.join(chosen['shipped'])}" for target, chosen in report["choice"].items()]
    return table


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
