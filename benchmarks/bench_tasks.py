"""Promises of tasks, held against recorded data: false alarms of anomaly scores, coverage of a regression's intervals.

    python -m benchmarks.bench_tasks FOLDER

FOLDER holds `anomaly-skab`, `bearing-cwru`, `fan-vibration-esp32`, `anomaly-scores-toycar` and
`turbofan-cmapss-SIMULATED`. The models are the smallest that will do (principal components, ridge regression): the
promises are of the thresholds and the intervals, whatever the model.
"""

from __future__ import annotations

import argparse
import csv
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from edge_export import half_widths

from benchmarks.report import Goal, Report
from edge_runtime.manifest import Channel, File, InputContract, Manifest, Variant
from edge_runtime.manifest.outputs import AnomalyOutput
from edge_runtime.model.tasks.anomaly import conformal_threshold
from edge_runtime.model.tasks.key_thresholds import KeyThresholds
from edge_runtime.signal.stage import WindowBatch
from edge_runtime.signal.windowing.window import Window

Array = np.ndarray[Any, np.dtype[Any]]


def residuals(rows: Array, fit: Array, components: int) -> Array:
    """(n,) mean squares of what the principal components of `fit` leave of rows."""
    mean, deviation = fit.mean(axis=0), fit.std(axis=0) + 1e-9
    _, _, directions = np.linalg.svd((fit - mean) / deviation, full_matrices=False)
    z = (rows - mean) / deviation
    kept = directions[:components]
    return np.asarray(((z - z @ kept.T @ kept) ** 2).mean(axis=1))


def normal_scores(shared: Path) -> Iterator[tuple[str, Array]]:
    """Scores of normal data by key, those that the model was fitted on left out."""
    lines = (shared / "anomaly-skab/anomaly-free/anomaly-free.csv").read_text().splitlines()[1:]
    rows = np.array([[float(cell) for cell in line.split(";")[1:9]] for line in lines])
    cut = len(rows) * 3 // 10
    yield "SKAB, pump, 1 s", residuals(rows[cut:], rows[:cut], 4)
    sound = np.load(shared / "bearing-cwru/load0_Normal_part1.npz")["DE"]
    spectra = np.abs(np.fft.rfft(sound[: len(sound) // 128 * 128].reshape(-1, 128) * np.hanning(128)))[:, 1:]
    logs = np.log(spectra + 1e-6)
    yield "CWRU, bearing, 11 ms", residuals(logs[len(logs) // 4 :], logs[: len(logs) // 4], 8)
    for speed in ("low", "med"):
        data = np.load(shared / f"fan-vibration-esp32/fan_0_{speed}_0_weight.npz")["data"]
        steps = data[: len(data) // 40 * 40].reshape(-1, 40, 3)
        yield f"fan, {speed}, 0.2 s", np.log(steps.std(axis=1) + 1e-6).mean(axis=1)
    table = np.load(shared / "turbofan-cmapss-SIMULATED/FD001.npz")["train"]
    sensors = table[:, 5:][:, table[:, 5:].std(axis=0) > 1e-6]
    early, unit = table[:, 1] <= 60, table[:, 0]
    fit = sensors[early & (unit <= 30)]
    yield "turbofan (simulated), first 60 cycles of 70 engines", residuals(sensors[early & (unit > 30)], fit, 3)
    for path in sorted((shared / "anomaly-scores-toycar").glob("scores_*.csv")):
        with path.open(encoding="utf-8", newline="") as file:
            found = [float(row["score_int8"]) for row in csv.DictReader(file) if row["is_anomaly"] == "0"]
        yield f"ToyCar {path.stem[-2:]}, published scores", np.random.default_rng(0).permutation(found)


def bundle(rate: float) -> Manifest:
    contract = InputContract(channels=(Channel(name="a", unit="1"),), rate_hz=1.0, window=1, hop=1)
    variant = Variant(
        name="v", file="variants/v.onnx", format="onnx", precision="fp32", size=1, sha256="0", golden="g.npy"
    )
    return Manifest(
        schema_version=2,
        name="scores",
        version=1,
        input=contract,
        output=AnomalyOutput(threshold=1e30, false_alarm_rate=rate, adapt="quantile"),
        variants=(variant,),
        golden_inputs="g.npy",
        files=(File(file="g.npy", size=1, sha256="0"),),
    )


def alarms(scores: Array, rate: float) -> Array:
    """Return whether each score after the warm-up is above its key's threshold, as the runtime has it."""
    thresholds = KeyThresholds()
    thresholds.use(bundle(rate))
    blank = np.zeros((1, 1), np.float32)
    batch = WindowBatch([Window("k", slot, 0.0, blank, blank, 0.0) for slot in range(len(scores))])
    batch.numbers = scores.astype(np.float32).reshape(-1, 1)
    thresholds.run(batch)
    given = batch.numbers
    after = ~np.isnan(given[:, 1])
    return np.asarray(given[after, 0] > given[after, 1])


def anomalies(shared: Path) -> Report:
    """False alarms by key after a warm-up of 20 / rate steps."""
    report = Report(
        title="false alarms of an anomaly score, after a warm-up of 20 / rate normal steps of the same key",
        columns=("key", "stated", "steps after", "threshold of the warm-up, kept", "adapt = quantile"),
    )
    for rate in (0.05, 0.1):
        warm = round(20 / rate)
        for name, scores in normal_scores(shared):
            if len(scores) < warm + 100:
                report.notes.append(f"{name}, rate {rate:g}: {len(scores)} steps are too few")
                continue
            kept = float((scores[warm:] > conformal_threshold(np.sort(scores[:warm]), rate)).mean())
            found = alarms(scores, rate)
            report.rows.append((name, rate, len(found), round(kept, 4), round(float(found.mean()), 4)))
            off = abs(float(found.mean()) / rate - 1)
            report.goals.append(
                Goal(text=f"{name}, rate {rate:g}: off by share of the rate", measured=off, limit=0.2, at_most=True)
            )
    return report


def coverage(shared: Path) -> Report:
    """Coverage of 90 % intervals on engines and recordings not seen."""
    report = Report(
        title="coverage of 90 % intervals, groups not seen in training or calibration",
        columns=("regression", "windows", "groups", "coverage", "mean width", "least of a group", "most of a group"),
    )
    table = np.load(shared / "turbofan-cmapss-SIMULATED/FD001.npz")["train"].astype(np.float64)
    unit, sensors = table[:, 0].astype(int), table[:, 5:][:, table[:, 5:].std(axis=0) > 1e-6]
    life = {one: table[unit == one, 1].max() for one in np.unique(unit)}
    left = np.minimum([life[one] - cycle for one, cycle in zip(unit, table[:, 1], strict=True)], 125.0)
    _covered(report, "turbofan (simulated), remaining cycles", sensors, left, unit, (40, 70))
    lines = (shared / "anomaly-skab/anomaly-free/anomaly-free.csv").read_text().splitlines()[1:]
    rows = np.array([[float(cell) for cell in line.split(";")[1:9]] for line in lines])
    block = np.arange(len(rows)) // 60  # a minute is a group, drawn at random: levels drift over the recording
    order = np.random.default_rng(0).permutation(block.max() + 1)
    inputs = rows[:, [0, 1, 2, 3, 4, 5, 7]]
    _covered(report, "SKAB, voltage of the other sensors", inputs, rows[:, 6], order[block] + 1, (60, 110))
    return report


def _covered(report: Report, name: str, x: Array, y: Array, group: Array, cuts: tuple[int, int]) -> None:
    """Fit by ridge on the first groups, calibrate on the next, measure on the others."""
    fit, calibrate, test = group <= cuts[0], (group > cuts[0]) & (group <= cuts[1]), group > cuts[1]
    mean, deviation = x[fit].mean(axis=0), x[fit].std(axis=0) + 1e-9
    z = np.column_stack([(x - mean) / deviation, ((x - mean) / deviation) ** 2, np.ones(len(x))])
    weights = np.linalg.solve(z[fit].T @ z[fit] + np.eye(z.shape[1]), z[fit].T @ y[fit])
    made = z @ weights
    (half,) = half_widths(made[calibrate, None], y[calibrate, None], 0.9)
    inside = np.abs(y - made) <= half
    shares = [float(inside[test & (group == one)].mean()) for one in np.unique(group[test])]
    share = float(inside[test].mean())
    report.rows.append(
        (name, int(test.sum()), len(shares), round(share, 4), round(2 * half, 3), round(min(shares), 3),
         round(max(shares), 3))
    )  # fmt: skip
    report.goals.append(Goal(text=f"{name}: coverage", measured=share, limit=0.85))
    report.goals.append(Goal(text=f"{name}: coverage", measured=share, limit=0.95, at_most=True))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.bench_tasks", description=__doc__)
    parser.add_argument("shared", type=Path, help="folder of the data sets")
    folder = parser.parse_args().shared
    reports = [anomalies(folder), coverage(folder)]
    print("\n\n".join(report.text() for report in reports))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
