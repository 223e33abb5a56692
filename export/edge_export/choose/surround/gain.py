"""Expected gain of asking the cloud, fitted to answers about groups left out.

A wrong answer is no reason to ask where the cloud is wrong too, and asking does harm where the device was right. So
what is fitted is the difference itself: 1 where asking puts an answer right, -1 where it makes it wrong, else 0; by
least squares, on what a device knows of its own answer.

1. A window weighs as much as the device doubts it: of answers that it is sure of, none will be asked about.
2. Slopes of confidence and margin are shared by all labels, and pulled to 0: they say nearly the same. Entropy was
   tried beside them and left out: it brought nothing, and costs a lone window 17 us.
3. A label has a bias of its own as far as groups agree about it: what is left of its windows, averaged by group, is
   shrunk by how much groups differ (James and Stein 1961), to 0 where they do not agree at all.

Source: Jitkrittum et al. 2023, When does confidence-based cascade deferral suffice? (arXiv:2307.02764), section 4.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from edge_export.choose.evaluation.calibration import scores
from edge_export.choose.surround.log_linear import Float64
from edge_export.data.dataset import Float32, Int64
from edge_runtime.manifest.surround import Gain

_PULL = 1.0
"""Of a slope, in windows that are as doubtful as can be."""
_FEWEST = 5
"""Windows of a label from which a group has a say about it; and three groups are needed."""


def fit_gain(device: Float32, joined: Float32, y: Int64, group: npt.NDArray[np.str_]) -> Gain:
    """Fit it.

    Args:
        device: (n, classes) probabilities of the device, as they reach the gate.
        joined: the same of what stands once the cloud was asked.
        y: (n,) class indices.
        group: (n,).
    """
    best = device.argmax(axis=1)
    gained = (joined.argmax(axis=1) == y).astype(np.float64) - (best == y)
    doubt, close = (1.0 - scores(device, score).astype(np.float64) for score in ("confidence", "margin"))
    columns = np.stack([np.ones(len(y)), doubt, close], axis=1)
    weighted = columns * doubt[:, None]  # rule 1
    pull = np.diag([1e-6, _PULL, _PULL])  # rule 2
    found = np.linalg.solve(weighted.T @ columns + pull, weighted.T @ gained)
    own = _by_label(gained - columns @ found, doubt, best, group, device.shape[1])
    common, confidence, margin = found.round(5).tolist()
    return Gain(bias=tuple((common + own).round(5).tolist()), confidence=confidence, margin=margin)


def _by_label(left: Float64, weight: Float64, best: Int64, group: npt.NDArray[np.str_], classes: int) -> Float64:
    """Return what groups agree that is left of each label, (classes,) (rule 3)."""
    names, place = np.unique(group, return_inverse=True)
    cell, size = best * len(names) + place, classes * len(names)

    def total(values: Float64) -> Float64:
        sums: Float64 = np.bincount(cell, weights=values, minlength=size).astype(np.float64)
        return sums.reshape(classes, len(names))

    mean = total(left * weight) / np.maximum(total(weight), 1e-9)
    known = total(np.ones(len(left))) >= _FEWEST
    return np.array([_shrunk(row[one]) for row, one in zip(mean, known, strict=True)])


def _shrunk(means: Float64) -> float:
    if len(means) < 3 or not means.any():
        return 0.0
    middle, error = float(means.mean()), float(means.var(ddof=1)) / len(means)
    return middle * max(0.0, 1 - error / middle**2) if middle else 0.0
