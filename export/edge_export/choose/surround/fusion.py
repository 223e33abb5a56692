"""Weights by which the device's and the cloud's answers become one, from answers about groups left out.

1. Half and half, unless rule 2 says otherwise. Weights that were fitted are better on what they were fitted to, and
   often worse on the next group, whose answers are as sure and less right (the forecast combination puzzle).
2. Fitted weights, of the least cross-entropy, where on groups left out theirs is lower than that of half and half by
   more than its standard error over groups. A weight that would be below 0 is 0.

A bias for each label was tried and left out: of eight electrocardiograms (heartbeat-ecg, windows of 8 % fused, folds
left out) it took .049 of macro F1 away, where half and half adds .006.

Sources: Wolpert 1992 (stacked generalisation); Smith and Wallis 2009 (Oxford Bulletin of Economics and Statistics 71),
why equal weights win.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edge_export.choose.evaluation.calibration import smoothed_targets
from edge_export.choose.surround.log_linear import Float64, cross_entropy, fit_log_linear
from edge_export.choose.surround.prior import convinces, out_of_fold
from edge_export.data.dataset import Float32, Int64
from edge_runtime.manifest.surround import Fusion
from edge_runtime.model.tasks.fusion import fuse, logarithms

HALF = Fusion(device=0.5, cloud=0.5)
_PULL = 20.0
"""Windows' worth of evidence that both count the same."""


def choose_fusion(device: Float32, cloud: Float32, y: Int64, fold: Int64, group: npt.NDArray[np.str_]) -> Fusion:
    """Choose between half and half and fitted weights.

    Args:
        device: (n, classes) probabilities, as the device's predictions have them.
        cloud: the same of the cloud's.
        y: (n,) class indices.
        fold: (n,) numbers of folds: weights are fitted without a fold, and judged on it.
        group: (n,) groups, over which the standard error is taken.
    """
    if len(np.unique(fold)) < 2:
        return HALF
    right = np.eye(device.shape[1])[y]

    def losses(fusion: Fusion, rows: npt.NDArray[np.bool_]) -> Float64:
        return cross_entropy(fuse(fusion, device[rows], cloud[rows]).astype(np.float64), right[rows])

    fitted = out_of_fold(lambda fit, left: losses(fit_fusion(device[fit], cloud[fit], y[fit]), left), fold)
    even = losses(HALF, np.ones(len(y), bool))
    return fit_fusion(device, cloud, y) if convinces(even, fitted, group) else HALF


def fit_fusion(device: Float32, cloud: Float32, y: Int64) -> Fusion:
    """Fit the weights of the least cross-entropy.

    Args:
        device: (n, classes) probabilities.
        cloud: the same of the cloud's.
        y: (n,) class indices.
    """
    terms, targets = np.stack([logarithms(device), logarithms(cloud)], axis=2), smoothed_targets(y, device.shape[1])
    used = np.array([True, True])
    weights = np.full(2, 0.5)
    for _ in range(2):  # the second time without the one that came out below 0
        start = np.where(used, 0.5, 0.0)
        weights = fit_log_linear(terms * used, targets, start=start, ridge=np.full(2, _PULL))
        if weights.min() >= 0:
            break
        used = weights > 0
    one, other = np.maximum(weights, 0.0).round(4).tolist()
    return Fusion(device=one, cloud=other) if one + other > 0 else HALF
