"""Calibration: temperature of the answers, and the gate's threshold with what it promises.

Fitted on groups the model was not trained on, and after quantisation, so that the figures hold for the numbers the
device computes. Plain numpy; the scores are those of `edge_runtime.model.tasks.classification`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from edge_export.data.dataset import Float32, Int64
from edge_runtime.errors import ConfigError
from edge_runtime.manifest import GateSpec
from edge_runtime.model.tasks.classification import Gate

Score = Literal["confidence", "margin", "entropy"]
SCORES: tuple[Score, ...] = ("confidence", "margin", "entropy")

_SMALLEST = 1e-30
"""Floor under probabilities before a logarithm; float32 holds 1e-38."""


def log_probabilities(probabilities: Float32) -> npt.NDArray[np.float64]:
    """Logits that give these probabilities, up to a constant per row."""
    logits: npt.NDArray[np.float64] = np.log(np.maximum(probabilities.astype(np.float64), _SMALLEST))
    return logits


def at_temperature(probabilities: Float32, temperature: float) -> Float32:
    """Return what a softmax answers when its logits are divided by a temperature.

    Args:
        probabilities: (n, classes), at temperature 1.
        temperature: above 1 makes them less certain.
    """
    logits = log_probabilities(probabilities) / temperature
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    softened: Float32 = (weights / weights.sum(axis=1, keepdims=True)).astype(np.float32)
    return softened


def smoothed_targets(y: Int64, classes: int) -> npt.NDArray[np.float64]:
    """(n, classes) what the answers should be: one less a share for a mistake that few windows would not have shown.

    With n windows that are all right, being sure without end would be the likeliest; Laplace's rule expects one mistake
    in n + 2.

    Source: the targets of Platt 1999, section 2.2, for more than two classes.
    """
    doubt = 1 / (len(y) + 2)
    targets = np.full((len(y), classes), doubt / max(1, classes - 1))
    targets[np.arange(len(y)), y] = 1 - doubt
    return targets


def fit_temperature(probabilities: Float32, y: Int64) -> float:
    """Fit the temperature at which answers are as sure as they are right: least cross-entropy with `smoothed_targets`.

    Args:
        probabilities: (n, classes) at temperature 1, of groups not trained on.
        y: (n,) class indices.

    Returns:
        Between 0.05 and 20, to three decimals.

    Source: Guo et al. 2017 (arXiv:1706.04599).
    """
    targets = smoothed_targets(y, probabilities.shape[1])
    # The likelihood has one minimum over the temperature; golden-section search narrows its logarithm.
    low, high, ratio = np.log(0.05), np.log(20.0), (np.sqrt(5.0) - 1) / 2

    def cost(exponent: float) -> float:
        softened = log_probabilities(at_temperature(probabilities, float(np.exp(exponent))))
        return float(-(targets * softened).sum(axis=1).mean())

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
    """Return the gate's trust in each answer, as the device computes it."""
    return np.array(Gate(GateSpec(score=score)).decide(probabilities).trust, np.float32)


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
    """Find the highest threshold below which at most this share of windows lies.

    Args:
        trust: (n,) scores of windows not trained on.
        share: between 0 and 1.

    Returns:
        A threshold for `edge_runtime.model.tasks.classification.Gate`: a window is hard when its score lies below it.

    Raises:
        ConfigError: no windows, or not a share.
    """
    if not len(trust) or not 0 <= share <= 1:
        raise ConfigError(f"need windows and a share between 0 and 1, not {len(trust)} and {share}")
    ordered = np.sort(trust)
    allowed = int(np.floor(share * len(ordered)))
    return float(ordered[allowed]) if allowed < len(ordered) else float(np.nextafter(ordered[-1], np.float32(2)))


@dataclass(frozen=True, slots=True, kw_only=True)
class GateMetrics:
    """Effect of a threshold on one set of windows.

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


def gate_metrics(
    device: Float32, cloud: Float32, y: Int64, *, threshold: float, score: Score = "confidence"
) -> GateMetrics:
    """Evaluate a threshold by the answers of both models.

    Args:
        device: (n, classes) probabilities of the device's model.
        cloud: (n, classes) probabilities of the cloud's model, for the same windows.
        y: (n,) class indices.
        threshold: the gate's threshold.
        score: the score that it applies to.
    """
    verdict = Gate(GateSpec(score=score, threshold=threshold)).decide(device)
    device_right, cloud_right = np.array(verdict.best) == y, cloud.argmax(axis=1) == y
    easy = ~np.array(verdict.hard)
    return GateMetrics(
        threshold=threshold,
        forwarded=float(1 - easy.mean()),
        local_accuracy=float(device_right[easy].mean()) if easy.any() else 1.0,
        device_accuracy=float(device_right.mean()),
        combined_accuracy=float(np.where(easy, device_right, cloud_right).mean()),
        cloud_accuracy=float(cloud_right.mean()),
    )


def gate_curve(
    device: Float32, cloud: Float32, y: Int64, *, shares: Sequence[float], score: Score = "confidence"
) -> list[GateMetrics]:
    """`gate_metrics` at the thresholds that forward these shares."""
    trust = scores(device, score)
    return [
        gate_metrics(device, cloud, y, threshold=threshold_for_share(trust, share), score=score) for share in shares
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskPromise:
    """A threshold with what it promises about windows that stay local.

    Attributes:
        threshold: of the gate.
        forwarded: share of the windows it was set on that lie below it.
        local_error: of the others.
        bound: upper confidence bound of that error for groups like these.
        design_effect: how many windows of these groups weigh as much as one independent window.
    """

    threshold: float
    forwarded: float
    local_error: float
    bound: float
    design_effect: float


def threshold_for_risk(
    trust: Float32,
    correct: npt.NDArray[np.bool_],
    group: npt.NDArray[np.str_],
    *,
    max_error: float,
    confidence: float = 0.95,
    most_forwarded: float = 0.5,
) -> RiskPromise:
    """Find the lowest threshold at which the error of local answers is, with confidence, below a bound.

    Thresholds are tried from the one that forwards `most_forwarded` downwards, each with the same confidence, and the
    first that fails ends it (fixed-sequence testing): the last that passed has the whole confidence. Windows of one
    group err together, so their number is divided by the design effect, which compares how errors vary between groups
    with how they would if windows were independent; it is never taken below 1.

    Args:
        trust: (n,) scores of windows of groups not trained on.
        correct: (n,) whether the device's answer is right.
        group: (n,) group of each window.
        max_error: error rate that must not be exceeded.
        confidence: probability that it is not.
        most_forwarded: share at which the search begins; chosen before looking at the data.

    Raises:
        ConfigError: no windows, or the promise cannot be made at `most_forwarded`; says what was reached there.

    Sources: Geifman and El-Yaniv 2017 (arXiv:1705.08500); Angelopoulos et al. 2021 (arXiv:2110.01052), section 3;
    Clopper and Pearson 1934; design effect: Kish 1965.
    """
    if not len(trust) or not 0 < max_error < 1 or not 0.5 <= confidence < 1:
        raise ConfigError("need windows, an error between 0 and 1, and a confidence from 0.5 to below 1")
    best: RiskPromise | None = None
    for percent in range(round(100 * most_forwarded), -1, -2):
        threshold = threshold_for_share(trust, percent / 100)
        local = trust >= np.float32(threshold)
        if not local.any():
            continue
        promise = _promise(threshold, local, correct, group, confidence)
        if promise.bound > max_error:
            if best is None:
                raise ConfigError(
                    f"local errors below {max_error:.1%} cannot be promised with {confidence:.0%} confidence on these "
                    f"{len(set(group.tolist()))} groups: with {percent} % forwarded the bound is {promise.bound:.1%}; "
                    "ask for less, add groups, or train a better student"
                )
            break
        best = promise
    if best is None:
        raise ConfigError("every window has the same score; nothing can be told apart by it")
    return best


def _promise(
    threshold: float,
    local: npt.NDArray[np.bool_],
    correct: npt.NDArray[np.bool_],
    group: npt.NDArray[np.str_],
    confidence: float,
) -> RiskPromise:
    wrong = ~correct[local]
    count, errors = len(wrong), int(wrong.sum())
    effect = design_effect(wrong, group[local])
    return RiskPromise(
        threshold=threshold,
        forwarded=float(1 - local.mean()),
        local_error=errors / count,
        bound=upper_bound(errors / effect, count / effect, confidence),
        design_effect=effect,
    )


def design_effect(wrong: npt.NDArray[np.bool_], group: npt.NDArray[np.str_]) -> float:
    """Variance of an error rate over that of as many independent windows, at least 1.

    Args:
        wrong: (n,) whether each answer is wrong.
        group: (n,) group of each window.
    """
    names, index = np.unique(group, return_inverse=True)
    rate = float(wrong.mean()) if len(wrong) else 0.0
    if len(names) < 2 or not 0 < rate < 1:
        return 1.0
    sizes = np.bincount(index).astype(np.float64)
    deviations = np.bincount(index, weights=wrong) - rate * sizes
    between = len(names) / (len(names) - 1) * float((deviations**2).sum()) / len(wrong) ** 2
    return max(1.0, between / (rate * (1 - rate) / len(wrong)))


def upper_bound(errors: float, count: float, confidence: float) -> float:
    """Return the upper confidence bound of an error rate; the numbers of errors and answers may be fractions.

    Source: Clopper and Pearson 1934, as a quantile of the beta distribution.
    """
    if errors >= count:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        if beta_cdf(middle, errors + 1, count - errors) < confidence:
            low = middle
        else:
            high = middle
    return high


def beta_cdf(x: float, a: float, b: float) -> float:
    """Regularised incomplete beta function by its continued fraction (NIST DLMF 8.17.22)."""
    if x <= 0 or x >= 1:
        return float(x >= 1)
    if x > (a + 1) / (a + b + 2):  # beyond, the fraction of the complement converges faster
        return 1.0 - beta_cdf(1 - x, b, a)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x)
    fraction = 1.0
    for m in range(50 + int(5 * math.sqrt(a + b)), -1, -1):
        odd = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        fraction = 1.0 + odd / fraction
        if m:
            fraction = 1.0 + m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)) / fraction
    return math.exp(front) / a / fraction
