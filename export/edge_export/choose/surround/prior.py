"""Prior and temperature put back: how sure answers are, and of which class, after training that was balanced.

Training draws rare classes more often than they come (``balance`` of the recipe), so a network expects them more often
than a stream has them. Ways to put that right, from the simplest; the first is taken unless a later one has the
lower cross-entropy on groups left out, by more than its standard error over groups. One that moves labels (3 to 5)
needs two standard errors, and names no fewer of their windows right: groups are few, and one unlike the others is
enough.

1. *none*: answers as they are trained, where a group unlike the others would spoil any fit;
2. *temperature*: one number for how sure answers are;
3. *shares*: what training has changed of the classes' shares, put back into the logits by a formula;
4. *analytic*: the formula and a temperature;
5. *bias*: a bias for each class, fitted, and the temperature.

A temperature for each class (vector scaling) was tried and left out: it is no function of probabilities alone.

Sources: Guo et al. 2017 (arXiv:1706.04599), temperature; Alexandari et al. 2020 (arXiv:1901.06852),
bias-corrected temperature; Menon et al. 2021 (arXiv:2007.07314), the formula.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from edge_export.choose.evaluation.calibration import log_probabilities, smoothed_targets
from edge_export.choose.surround.log_linear import Float64, cross_entropy, fit_log_linear, softmax
from edge_export.data.dataset import Float32, Int64
from edge_export.graph.onnx_graph.passes.temperature import LogitMap

Balance = Literal["classes", "root", "none"]
Way = Literal["none", "temperature", "shares", "analytic", "bias"]
WAYS: tuple[Way, ...] = ("none", "temperature", "shares", "analytic", "bias")
_MOVE_LABELS = frozenset({"shares", "analytic", "bias"})

_PULL = 4.0
"""Windows' worth of evidence that a class needs no bias."""

_MOST = 20.0
"""Temperatures lie between one over this and this: answers that say nothing would get an infinite one, or below 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Map of logits, and the way by which it was found."""

    way: Way
    logits: LogitMap

    @property
    def said(self) -> str:
        """Summary for the user."""
        moved = f", classes by up to {max(map(abs, self.logits.bias)):.2f} in the logits" if self.logits.bias else ""
        return f"{self.way}, temperature {1 / self.logits.scale:.3g}{moved}"

    def apply(self, probabilities: Float32) -> Float32:
        """Return (n, classes) probabilities as the mapped graph answers."""
        terms = log_probabilities(probabilities) * self.logits.scale + np.array(self.logits.bias or 0.0)
        calibrated: Float32 = softmax(terms).astype(np.float32)
        return calibrated


def fit_calibration(probabilities: Float32, y: Int64, way: Way, *, balance: Balance = "none") -> Calibration:
    """Fit one way.

    Args:
        probabilities: (n, classes) at temperature 1, of groups not trained on.
        y: (n,) class indices.
        way: the way to fit.
        balance: how training drew the classes; for ``shares`` and ``analytic``.
    """
    n, classes = probabilities.shape
    known = _analytic(y, classes, balance) if way in {"shares", "analytic"} else np.zeros(classes)
    if way in {"none", "shares"}:
        return _calibration(way, 1.0, known)
    logs, targets = log_probabilities(probabilities), smoothed_targets(y, classes)
    logs = logs - logs.mean(axis=1, keepdims=True)
    if way in {"temperature", "analytic"}:
        # The known bias is scaled with the logits: what training has changed, it changed at temperature 1.
        (scale,) = fit_log_linear((logs + known)[:, :, None], targets, start=np.ones(1), ridge=np.zeros(1))
        return _calibration(way, float(scale), scale * known)
    terms = np.concatenate([logs[:, :, None], np.broadcast_to(np.eye(classes), (n, classes, classes))], axis=2)
    start, ridge = np.array([1.0, *[0.0] * classes]), np.array([0.0, *[_PULL] * classes])
    found = fit_log_linear(terms, targets, start=start, ridge=ridge)
    return _calibration(way, float(found[0]), found[1:])


def _analytic(y: Int64, classes: int, balance: Balance) -> Float64:
    """Return what balanced training took from each class's logit: the logarithm of its share, or half of it."""
    counts = np.maximum(np.bincount(y, minlength=classes).astype(np.float64), 0.5)
    known: Float64 = np.log(counts / counts.sum()) * {"classes": 1.0, "root": 0.5, "none": 0.0}[balance]
    centred: Float64 = known - known.mean()
    return centred


def _calibration(way: Way, scale: float, bias: Float64) -> Calibration:
    scale = min(max(scale, 1 / _MOST), _MOST)
    shifts = tuple(round(float(shift), 5) for shift in bias - bias.mean()) if bias.any() else ()
    return Calibration(way=way, logits=LogitMap(scale=round(scale, 5), bias=shifts))


def choose_calibration(
    probabilities: Float32, y: Int64, fold: Int64, group: npt.NDArray[np.str_], *, balance: Balance = "none"
) -> tuple[Calibration, Mapping[Way, float]]:
    """Choose the way by groups left out, and fit it to all.

    Args:
        probabilities: (n, classes) out-of-fold answers at temperature 1.
        y: (n,) class indices.
        fold: (n,) numbers of folds: a way is fitted without a fold, and judged on it. With one fold nothing is chosen.
        group: (n,) groups, over which standard errors are taken.
        balance: how training drew the classes.

    Returns:
        The calibration, and the mean over groups of each way's cross-entropy.
    """
    if len(np.unique(fold)) < 2:
        return fit_calibration(probabilities, y, "temperature"), {}
    losses: dict[Way, Float64] = {}
    best: Way = "none"
    most = 0.0
    for way in WAYS:
        if way in {"shares", "analytic"} and balance == "none":
            continue
        found = out_of_fold(
            lambda seen, left, way=way: _judged(  # type: ignore[misc]
                fit_calibration(probabilities[seen], y[seen], way, balance=balance), probabilities[left], y[left]
            ),
            fold,
        )
        losses[way], right = found[:, 0], float(_by_group(found[:, 1], group).mean())
        moves = way in _MOVE_LABELS
        sure = convinces(losses[best], losses[way], group, errors=2.0 if moves else 1.0)
        if way == best or (sure and (not moves or right >= most)):
            best, most = way, right
    chosen = fit_calibration(probabilities, y, best, balance=balance)
    return chosen, {way: float(_by_group(loss, group).mean()) for way, loss in losses.items()}


def convinces(before: Float64, after: Float64, group: npt.NDArray[np.str_], *, errors: float = 1.0) -> bool:
    """Return whether losses, (n,), are lower after than before by more than these standard errors over groups."""
    lower = _by_group(before, group) - _by_group(after, group)
    error = float(lower.std(ddof=1)) / np.sqrt(len(lower)) if len(lower) > 1 else np.inf
    return float(lower.mean()) > errors * error


def out_of_fold(judge: Callable[[npt.NDArray[np.bool_], npt.NDArray[np.bool_]], Float64], fold: Int64) -> Float64:
    """Fill an array, (n, ...), fold by fold: `judge` gets the rows to fit to and the rows to judge."""
    filled: Float64 | None = None
    for number in np.unique(fold):
        left = fold == number
        rows = judge(~left, left)
        if filled is None:
            filled = np.empty((len(fold), *rows.shape[1:]), rows.dtype)
        filled[left] = rows
    assert filled is not None, "there is a fold"
    return filled


def _judged(calibration: Calibration, probabilities: Float32, y: Int64) -> Float64:
    """Return the loss of each window, and whether its label is right, (n, 2)."""
    calibrated = calibration.apply(probabilities)
    losses = cross_entropy(calibrated.astype(np.float64), np.eye(probabilities.shape[1])[y])
    return np.stack([losses, (calibrated.argmax(axis=1) == y).astype(np.float64)], axis=1)


def _by_group(values: Float64, group: npt.NDArray[np.str_]) -> Float64:
    return np.array([values[group == each].mean() for each in np.unique(group)])
