"""AUC of the anomaly network, estimated without the sounds that it is defined on.

The ToyCar sounds of DCASE 2020 are not here; what is shared is the scores that MLPerf Tiny published for each of them,
float and int8, and the log-mel frames of a single normal sound. So:

1. The reference's loss is exact: the AUC of the published scores.
2. How far each integer file's score is from float's is measured on the one real sound.
3. The AUC that another integer file would keep is *estimated*: each published score is moved from float's towards the
   reference int8 file's by as many times as this file's error on the real sound is the reference's. So the estimate is
   exact for float (0 times) and for the reference int8 file (once), and an interpolation in between.
4. A stand-in: that sound altered a little ("normal") and by a tone, a notch or a rattle ("anomalous"), scored by
   every file. Its AUC says whether int8 keeps the order of scores; it is not a figure of the benchmark.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.mlperf_tiny import toycar_frames
from benchmarks.report import Goal, Report
from edge_runtime.model import engines
from edge_runtime.model.engines.base import EngineOptions

Array = np.ndarray[Any, np.dtype[Any]]

_SOUNDS = 60
"""Of each kind in the stand-in."""


def anomaly(shared: Path, models: Mapping[str, tuple[str, bytes]]) -> Report:
    """Compare integer forms of the anomaly network with its float form.

    Args:
        shared: folder of the shared data.
        models: engine and file by name: float first, the reference's int8 file last.
    """
    names = list(models)
    published = {machine: _published(path) for machine, path in _files(shared)}
    exact = {
        kind: float(np.mean([auc(table[kind], table["is_anomaly"]) for table in published.values()]))
        for kind in ("score_fp32", "score_int8")
    }
    rows = toycar_frames(shared)
    sounds, labels = altered(rows)
    real = {name: score(*models[name], rows) for name in names}
    standing = {name: np.array([score(*models[name], sound).mean() for sound in sounds]) for name in names}
    report = Report(
        title="ad: the anomaly score of integer files (mean squared reconstruction error of a sound)",
        columns=(
            "file", "AUC published", "AUC estimated", "score of the sound", "off by %", "window off by %",
            "stand-in AUC", "rank correlation",
        ),
    )  # fmt: skip
    true = real[names[0]]
    errors = {name: float(np.abs(real[name] / true - 1).mean()) for name in names}
    for name in names:
        estimate = _estimated(published, errors[name] / errors[names[-1]])
        known = {names[0]: exact["score_fp32"], names[-1]: exact["score_int8"]}.get(name)
        report.rows.append((
            name, None if known is None else round(known, 4), round(estimate, 4), round(float(real[name].mean()), 3),
            round(100 * float(real[name].mean() / true.mean() - 1), 2),
            round(100 * errors[name], 2), round(auc(standing[name], labels), 4),
            round(_rank_correlation(standing[name], standing[names[0]]), 5),
        ))  # fmt: skip
    ours, reference = report.rows[1], report.rows[-1]
    assert isinstance(ours[5], float)
    assert isinstance(reference[5], float)
    report.goals.append(
        Goal(
            text="error of our choice's score by that of the reference int8 file",
            measured=ours[5] / reference[5],
            limit=1.0,
            at_most=True,
        )
    )
    assert isinstance(ours[2], float)
    report.goals.append(
        Goal(text="estimated AUC of our choice, less the published one of the reference int8 file",
             measured=ours[2] - exact["score_int8"], limit=0.0)
    )  # fmt: skip
    report.notes += [
        "AUC published: mean over machine ids of the scores that MLPerf Tiny published; exact",
        "AUC estimated: published scores, moved from float to the reference int8 in proportion to the error by window",
        "stand-in: one real sound, altered; not the benchmark's data, which is not here",
    ]
    return report


def _files(shared: Path) -> list[tuple[str, Path]]:
    return [(path.stem[-2:], path) for path in sorted((shared / "data" / "anomaly-scores-toycar").glob("scores_*.csv"))]


def _published(path: Path) -> dict[str, Array]:
    with path.open(encoding="utf-8", newline="") as lines:
        rows = list(csv.DictReader(lines))
    return {key: np.array([float(row[key]) for row in rows]) for key in ("is_anomaly", "score_fp32", "score_int8")}


def _estimated(published: Mapping[str, Mapping[str, Array]], share: float) -> float:
    """Mean AUC over the machines when each score lies this share of the way from float's to the reference int8's."""
    return float(
        np.mean([
            auc(table["score_fp32"] + share * (table["score_int8"] - table["score_fp32"]), table["is_anomaly"])
            for table in published.values()
        ])
    )  # fmt: skip


def score(engine: str, model: bytes, rows: Array) -> Array:
    """(n,) mean squared reconstruction error of each window."""
    loaded = engines.load(engine, model, EngineOptions())
    try:
        answers = np.array(loaded.run(np.ascontiguousarray(rows, np.float32))[0], np.float64)
    finally:
        loaded.close()
    return np.asarray(((rows - answers) ** 2).mean(axis=1))


def altered(rows: Array) -> tuple[list[Array], Array]:
    """Sounds made of one: windows (n, 640) each, and whether each is "anomalous"."""
    random = np.random.default_rng(1)
    frames: Array = np.concatenate([rows.reshape(-1, 5, 128)[:, 0], rows.reshape(-1, 5, 128)[-1, 1:]])
    sounds: list[Array] = []
    labels: list[int] = []
    for i in range(2 * _SOUNDS):
        label = i % 2
        band = int(random.integers(8, 110))
        # A recording differs from the next in level, in its filter, and in noise.
        colour = np.convolve(random.normal(0, 0.6, 136), np.ones(9) / 9, "valid")
        sound: Array = np.asarray(frames + random.normal(0, 0.8) + colour + random.normal(0, 0.5, frames.shape))
        strength = random.uniform(1, 6)
        if label and i % 6 == 1:
            sound[:, band : band + 3] += strength  # a tone
        elif label and i % 6 == 3:
            sound[:, band : band + 8] -= strength  # a notch
        elif label:
            sound[:: int(random.integers(3, 9)), 20:] += strength  # a rattle
        sounds.append(np.lib.stride_tricks.sliding_window_view(sound, 5, axis=0).transpose(0, 2, 1).reshape(-1, 640))
        labels.append(label)
    return [one.astype(np.float32) for one in sounds], np.array(labels)


def auc(scores: Array, labels: Array) -> float:
    """Area under the ROC curve: how often an anomaly scores above a normal one, ties by half."""
    positive, negative = scores[labels == 1], scores[labels == 0]
    above = (positive[:, None] > negative[None]).mean() + 0.5 * (positive[:, None] == negative[None]).mean()
    return float(above)


def _rank_correlation(one: Array, other: Array) -> float:
    correlations: Array = np.corrcoef([np.argsort(np.argsort(values)) for values in (one, other)])
    return float(correlations[0, 1])
