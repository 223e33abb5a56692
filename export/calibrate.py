"""How sure a model may be, and below which score a window goes to the cloud.

Fitted on groups the model was not trained on, and after quantisation, so that the figures hold for the numbers the
device computes. Plain numpy; the scores are those of `edge_runtime.gate`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from edge_runtime.errors import ConfigError
from edge_runtime.gate import Gate
from edge_runtime.manifest import GateSpec
from export.data import Float32, Int64

Score = Literal["confidence", "margin", "entropy"]
SCORES: tuple[Score, ...] = ("confidence", "margin", "entropy")

_SMALLEST = 1e-30
"""Floor under probabilities before a logarithm; float32 holds 1e-38."""


def log_probabilities(probabilities: Float32) -> npt.NDArray[np.float64]:
    """Logits that give these probabilities, up to a constant per row."""
    logits: npt.NDArray[np.float64] = np.log(np.maximum(probabilities.astype(np.float64), _SMALLEST))
    return logits


def at_temperature(probabilities: Float32, temperature: float) -> Float32:
    """What a softmax answers when its logits are divided by a temperature.

    Args:
        probabilities: (n, classes), at temperature 1.
        temperature: above 1 makes them less certain.
    """
    logits = log_probabilities(probabilities) / temperature
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    softened: Float32 = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    return softened


def negative_log_likelihood(probabilities: Float32, y: Int64) -> float:
    """Mean of -log p(label), natural logarithm."""
    return float(-log_probabilities(probabilities)[np.arange(len(y)), y].mean())


def fit_temperature(probabilities: Float32, y: Int64) -> float:
    """The temperature at which answers are as sure as they are right (least negative log-likelihood).

    Args:
        probabilities: (n, classes) at temperature 1, of groups not trained on.
        y: (n,) class indices.

    Returns:
        Between 0.05 and 20, to three decimals.

    Source: Guo et al. 2017 (arXiv:1706.04599).
    """
    # The likelihood has one minimum over the temperature; golden-section search narrows its logarithm.
    low, high, ratio = np.log(0.05), np.log(20.0), (np.sqrt(5.0) - 1) / 2

    def cost(exponent: float) -> float:
        return negative_log_likelihood(at_temperature(probabilities, float(np.exp(exponent))), y)

    left, right = high - ratio * (high - low), low + ratio * (high - low)
    cost_left, cost_right = cost(left), cost(right)
    while high - low > 1e-4:
        if cost_left < cost_right:
            high, right, cost_right = right, left, cost_left
            left = high - ratio * (high - low)
            cost_left = cost(left)
        else:
            low, left, cost_left = left, right, cost_right
            right = low + ratio * (high - low)
            cost_right = cost(right)
    return round(float(np.exp((low + high) / 2)), 3)


def scores(probabilities: Float32, score: Score) -> Float32:
    """The gate's trust in each answer, as the device computes it."""
    return np.array(Gate(GateSpec(score=score)).judge(probabilities).trust, np.float32)


def area_under_risk_coverage(trust: Float32, correct: npt.NDArray[np.bool_]) -> float:
    """Mean error rate over all coverages when the least trusted answers are left out first; lower ranks better.

    Calibration error says nothing about this: a model can be calibrated and still not know which answers are wrong.

    Source: Geifman et al. 2019 (arXiv:1805.08206).
    """
    # Among equally trusted answers the order is arbitrary; each counts with the mean of its tie.
    order = np.argsort(-trust, kind="stable")
    wrong = 1.0 - correct[order].astype(np.float64)
    _, first, count = np.unique(-trust[order], return_index=True, return_counts=True)
    for begin, size in zip(first, count, strict=True):
        wrong[begin : begin + size] = wrong[begin : begin + size].mean()
    return float((np.cumsum(wrong) / np.arange(1, len(wrong) + 1)).mean())


def threshold_for_share(trust: Float32, share: float) -> float:
    """The highest threshold below which at most this share of windows lies.

    Args:
        trust: (n,) scores of windows not trained on.
        share: between 0 and 1.

    Returns:
        A threshold for `edge_runtime.gate.Gate`: a window is hard when its score lies below it.

    Raises:
        ConfigError: no windows, or not a share.
    """
    if not len(trust) or not 0 <= share <= 1:
        raise ConfigError(f"need windows and a share between 0 and 1, not {len(trust)} and {share}")
    ordered = np.sort(trust)
    allowed = int(np.floor(share * len(ordered)))
    return float(ordered[allowed]) if allowed < len(ordered) else float(np.nextafter(ordered[-1], np.float32(2)))


@dataclass(frozen=True, slots=True, kw_only=True)
class GateFigures:
    """What a threshold means for one set of windows.

    Attributes:
        threshold: windows below it go to the cloud.
        forwarded: share of windows below it.
        local_accuracy: of the windows that stay; 1 where none does.
        device_accuracy: of the device's answers to all windows.
        combined_accuracy: of the answers that stand in the end: the device's where it is sure, else the cloud's.
        cloud_accuracy: of the cloud's answers to all windows.
    """

    threshold: float
    forwarded: float
    local_accuracy: float
    device_accuracy: float
    combined_accuracy: float
    cloud_accuracy: float


def gate_figures(
    device: Float32, cloud: Float32, y: Int64, *, threshold: float, score: Score = "confidence"
) -> GateFigures:
    """Judge a threshold by the answers of both models.

    Args:
        device: (n, classes) probabilities of the device's model.
        cloud: (n, classes) probabilities of the cloud's model, for the same windows.
        y: (n,) class indices.
        threshold: of the gate.
        score: which score it applies to.
    """
    verdict = Gate(GateSpec(score=score, threshold=threshold)).judge(device)
    device_right, cloud_right = np.array(verdict.best) == y, cloud.argmax(axis=1) == y
    easy = ~np.array(verdict.hard)
    return GateFigures(
        threshold=threshold,
        forwarded=float(1 - easy.mean()),
        local_accuracy=float(device_right[easy].mean()) if easy.any() else 1.0,
        device_accuracy=float(device_right.mean()),
        combined_accuracy=float(np.where(easy, device_right, cloud_right).mean()),
        cloud_accuracy=float(cloud_right.mean()),
    )


def gate_curve(
    device: Float32, cloud: Float32, y: Int64, *, shares: Sequence[float], score: Score = "confidence"
) -> list[GateFigures]:
    """`gate_figures` at the thresholds that forward these shares."""
    trust = scores(device, score)
    return [
        gate_figures(device, cloud, y, threshold=threshold_for_share(trust, share), score=score) for share in shares
    ]
