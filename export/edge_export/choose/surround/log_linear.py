"""Log-linear fit: the weights of given terms in the logits of a softmax, by Newton's method.

Temperature, a bias for each class and the fusion of two models' answers are all of this form: the logit of a class is a
weighted sum of terms, and the likelihood has one maximum.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Float64 = npt.NDArray[np.float64]

_STEPS = 50
_CLOSE = 1e-9


def softmax(logits: Float64) -> Float64:
    """Return probabilities, (n, classes), of logits."""
    weights = np.exp(logits - logits.max(axis=1, keepdims=True))
    shares: Float64 = weights / weights.sum(axis=1, keepdims=True)
    return shares


def cross_entropy(probabilities: Float64, targets: Float64) -> Float64:
    """Return the cross-entropy of each row with its target distribution, (n,)."""
    rows: Float64 = -(targets * np.log(np.maximum(probabilities, 1e-30))).sum(axis=1)
    return rows


def fit_log_linear(terms: Float64, targets: Float64, *, start: Float64, ridge: Float64) -> Float64:
    """Fit the weights that make the cross-entropy with the targets least.

    Args:
        terms: (n, classes, m) terms of each class's logit.
        targets: (n, classes) distributions, such as `edge_export.choose.evaluation.calibration.smoothed_targets`.
        start: (m,) weights to begin with, towards which `ridge` pulls.
        ridge: (m,) strength of the pull, in windows: the squared distance to `start` costs half of it.

    Returns:
        (m,) weights.
    """
    weights = start.astype(np.float64)
    for _ in range(_STEPS):
        p = softmax(terms @ weights)
        gradient = np.einsum("nk,nkm->m", p - targets, terms) + ridge * (weights - start)
        mean = np.einsum("nk,nkm->nm", p, terms)
        hessian = np.einsum("nk,nkm,nkl->ml", p, terms, terms, optimize=True) - mean.T @ mean + np.diag(ridge)
        step = np.linalg.solve(hessian + 1e-9 * np.eye(len(weights)), gradient)
        scale = 1.0
        before = _cost(terms, targets, weights, start, ridge)
        while _cost(terms, targets, weights - scale * step, start, ridge) > before and scale > 1e-6:
            scale /= 2
        weights = weights - scale * step
        if float(np.abs(scale * step).max()) < _CLOSE:
            break
    return weights


def _cost(terms: Float64, targets: Float64, weights: Float64, start: Float64, ridge: Float64) -> float:
    pull = float((ridge * (weights - start) ** 2).sum()) / 2
    return float(cross_entropy(softmax(terms @ weights), targets).sum()) + pull
