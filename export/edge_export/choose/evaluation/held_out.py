"""Test report: metrics of the shipped files on held-out groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np

from edge_export.choose.evaluation.calibration import gate_curve, gate_metrics, scores
from edge_export.choose.selection.timing import answers
from edge_export.data.dataset import Float32, Int64, Windows, spread
from edge_export.learn.training.baseline import RandomForest
from edge_export.metrics import evaluate
from edge_export.package.bundles import TEACHER
from edge_export.package.pack import VariantSource
from edge_runtime.manifest import GateSpec

BASELINE = "random-forest"
BASELINE_WINDOWS = 4000
"""Training windows that the baseline sees, evenly spread."""
CURVE_SHARES = (0.0, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4)
BINS = 10
UNFAMILIAR = 300
"""Windows of each kind that nothing should be sure about."""


def metrics_on_test(
    test: Windows,
    seen: Windows,
    shipped: Mapping[str, VariantSource],
    cloud: VariantSource,
    gate: GateSpec,
    *,
    device: str,
    reference: str,
    seed: int,
) -> dict[str, Any]:
    """Evaluate the files themselves, once.

    Args:
        test: windows of test groups.
        seen: windows of training groups, for the plain baseline.
        shipped: the device's files by name.
        cloud: the teacher's.
        gate: decides what the cloud would be asked.
        device: name of the file that answers on this machine.
        reference: name of the float student.
        seed: seed of the intervals and the baseline.
    """
    cloud_answers = answers(cloud, test.contexts)
    given = {name: answers(source, test.x) for name, source in shipped.items()}
    given[TEACHER] = cloud_answers
    chosen = spread(len(seen), BASELINE_WINDOWS)
    forest = RandomForest(seen.x[chosen], seen.y[chosen], seed=seed)
    given[BASELINE] = np.eye(cloud_answers.shape[1], dtype=np.float32)[forest.answer(test.x)]
    own = given[device]
    return {
        "device": device,
        "peers": {BASELINE: {"bytes": forest.size}},
        "judged": {
            each.name: asdict(each) for each in evaluate(given, test.y, test.group, reference=reference, seed=seed)
        },
        "gate": asdict(gate_metrics(own, cloud_answers, test.y, threshold=gate.threshold, score=gate.score)),
        "curve": [
            asdict(point) for point in gate_curve(own, cloud_answers, test.y, shares=CURVE_SHARES, score=gate.score)
        ],
        "confusion": confusion(own, test.y).tolist(),
        "calibration": calibration_curve(own, test.y),
        "unfamiliar": {
            name: hard_share(answers(shipped[device], windows), gate)
            for name, windows in unfamiliar(test.x, seed=seed).items()
        },
    }


def unfamiliar(x: Float32, *, seed: int) -> dict[str, Float32]:
    """Make windows that no model should be sure about, from windows that are known.

    Returns:
        By name: ``noise`` of each channel's mean and deviation, ``flat`` lines at each window's first sample,
        ``overload`` at four times the values, and, where there are several channels, ``swapped`` ones.
    """
    few = x[spread(len(x), UNFAMILIAR)]
    mean, deviation = few.mean(axis=(0, 2), keepdims=True), few.std(axis=(0, 2), keepdims=True)
    noise = np.random.default_rng(seed).standard_normal(few.shape, np.float32)
    made = {
        "noise": noise * deviation + mean,
        "flat": np.repeat(few[:, :, :1], few.shape[2], axis=2),
        "overload": few * np.float32(4),
    }
    if few.shape[1] > 1:
        made["swapped"] = np.ascontiguousarray(np.roll(few, 1, axis=1))
    return made


def hard_share(probabilities: Float32, gate: GateSpec) -> float:
    """Share of answers that the gate sends to the cloud."""
    return float((scores(probabilities, gate.score) < gate.threshold).mean())


def confusion(probabilities: Float32, y: Int64) -> Int64:
    """(classes, classes) counts: row the label, column the answer."""
    counts = np.zeros((probabilities.shape[1],) * 2, np.int64)
    np.add.at(counts, (y, probabilities.argmax(axis=1)), 1)
    return counts


def calibration_curve(probabilities: Float32, y: Int64) -> list[dict[str, float]]:
    """Compute how often answers of a confidence are right, in `BINS` bins of equal width that hold any.

    Source: reliability diagrams as in Guo et al. 2017 (arXiv:1706.04599).
    """
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == y
    bins = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    return [
        {
            "confidence": float(confidence[bins == place].mean()),
            "accuracy": float(right[bins == place].mean()),
            "count": int((bins == place).sum()),
        }
        for place in np.unique(bins)
    ]
