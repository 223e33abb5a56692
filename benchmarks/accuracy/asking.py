"""Gain of asking the cloud on groups left out: its answer alone, fused with the device's, by expected gain, at random.

::

    python -m benchmarks.accuracy.asking NAME=answers.npz ...   # answers as `benchmarks.accuracy.answers` keeps them
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from edge_export.choose.evaluation.calibration import at_temperature, fit_temperature
from edge_export.choose.surround.asking import RANDOM, WAYS, CalibratedAnswers, Metric, fit_asking
from edge_export.choose.surround.cross_fit import CLOUD, OutOfFold
from edge_export.data.dataset import Float32
from edge_export.metrics import Paired

from benchmarks.accuracy.answers import FILES, read_answers
from benchmarks.report import Report

SHARE = 0.08
METRICS: tuple[Metric, ...] = ("accuracy", "macro_f1")


def calibrated(given: OutOfFold, file: str = FILES[-1]) -> CalibratedAnswers:
    """Return both models' answers, each fold's at the temperature that the other folds call for."""
    y, fold = given.windows.y, given.fold

    def by_fold(name: str) -> Float32:
        raw = given.given[name]
        out = np.empty_like(raw)
        for number in np.unique(fold):
            left = fold == number
            out[left] = at_temperature(raw[left], fit_temperature(raw[~left], y[~left]))
        return out

    return CalibratedAnswers(device=by_fold(file), cloud=by_fold(CLOUD), y=y, group=given.windows.group, fold=fold)


def asking(sets: Sequence[tuple[str, OutOfFold]], metric: Metric) -> Report:
    """Report all sets at all shares."""
    report = Report(
        title=f"{metric} on groups left out, by what of each group's windows is asked (choose.surround.asking)",
        columns=("set, asked", "alone", *WAYS, RANDOM),
    )
    for name, given in sets:
        found = fit_asking(calibrated(given), share=SHARE, metric=metric)
        for share, gains in found.measured.items():
            alone = gains[RANDOM].score - gains[RANDOM].gain
            report.rows.append((
                f"{name}, {share:.0%}", f"{alone:.4f}", *(_told(gains[way]) for way in (*WAYS, RANDOM))
            ))  # fmt: skip
        report.notes.append(f"{name}: {found.why}")
    report.notes += [
        "In brackets the paired gain over the device alone, and its 95 % interval over groups. All that is fitted,",
        "temperatures too, is fitted without the fold that it is judged on. At random: the middle of eleven draws.",
    ]
    return report


def _told(gain: Paired) -> str:
    return f"{gain.score:.4f} ({gain.gain:+.4f}: {gain.low:+.4f} to {gain.high:+.4f})"


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.asking")
    parser.add_argument("sets", nargs="+", metavar="NAME=FILE")
    named = [given.partition("=") for given in parser.parse_args().sets]
    sets = [(name, read_answers(Path(file))) for name, _, file in named]
    for metric in METRICS:
        print(asking(sets, metric).text(), end="\n\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
