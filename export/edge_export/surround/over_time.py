"""Fit of answers over time: which label follows which, how much a window's answer counts, and whether it pays.

The device filters (`edge_runtime.over_time`); the same code is what is judged here.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edge_export.data.dataset import Float32, Int64, Windows
from edge_export.surround.log_linear import Float64, cross_entropy
from edge_runtime.manifest.surround import OverTime
from edge_runtime.over_time import Filter

WEIGHTS = (0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.25)
"""Weights of one window's answer that are tried."""
FORGOTTEN = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35)
"""Shares of each step that go to the prior instead of the labels' own transitions, that are tried: real streams change
more often than recordings that were cut by label."""
_SEEN_AHEAD = 0.5
"""Transitions of each kind that count as seen once: one that never was is rare, not impossible."""


def runs(windows: Windows, hop: int) -> Int64:
    """Give each run of consecutive windows a number, (n,): of one recording, `hop` samples apart."""
    follows = (windows.recording[1:] == windows.recording[:-1]) & (np.diff(windows.start) == hop)
    return np.concatenate([[0], np.cumsum(~follows)])


def transitions(y: Int64, run: Int64, classes: int) -> Float64:
    """Return shares of the labels that follow each label, (classes, classes)."""
    counts = np.full((classes, classes), _SEEN_AHEAD / classes)
    same = run[1:] == run[:-1]
    np.add.at(counts, (y[:-1][same], y[1:][same]), 1)
    shares: Float64 = counts / counts.sum(axis=1, keepdims=True)
    return shares


def filtered(spec: OverTime, windows: Windows, answers: Float32, hop: int) -> Float32:
    """Return what the device would publish for the answers, (n, classes); each recording is a key of its own."""
    own = Filter(spec, hop)
    state = None
    before = -1
    out: Float32 = np.empty_like(answers)
    recordings, starts = windows.recording.tolist(), windows.start.tolist()
    for place, (recording, start, row) in enumerate(zip(recordings, starts, answers.tolist(), strict=True)):
        state = own.step(state if recording == before else None, start, row)
        out[place] = state[1]
        before = recording
    return out


def mean_of_last(count: int, answers: Float32, run: Int64) -> Float32:
    """Return the mean of each window's answer and of up to `count` - 1 before it in its run: the baseline to beat."""
    total = answers.astype(np.float64).copy()
    seen = np.ones(len(answers))
    for back in range(1, count):
        same = run[back:] == run[:-back]
        total[back:][same] += answers[:-back][same]
        seen[back:][same] += 1
    mean: Float32 = (total / seen[:, None]).astype(np.float32)
    return mean


def fit_over_time(windows: Windows, answers: Float32, hop: int) -> OverTime:
    """Fit the transitions to the labels; how much they and a window's answer count, to the answers.

    Both weights are those whose filtered answers have the least cross-entropy: windows that overlap, and a network that
    errs in the same way twice, say less than their number.

    Args:
        windows: in order of recording and time, of groups that gave the answers unseen.
        answers: (n, classes) calibrated probabilities.
        hop: samples from one window to the next.
    """
    classes = answers.shape[1]
    shares = np.bincount(windows.y, minlength=classes) + _SEEN_AHEAD
    prior = _rounded(shares / shares.sum())
    steps = tuple(_rounded(row) for row in transitions(windows.y, runs(windows, hop), classes))
    targets = np.eye(classes)[windows.y]
    specs = [
        OverTime(transition=tuple(_blend(row, prior, forgotten) for row in steps), prior=prior, weight=weight)
        for forgotten in FORGOTTEN
        for weight in WEIGHTS
    ]

    def cost(spec: OverTime) -> float:
        return float(cross_entropy(filtered(spec, windows, answers, hop).astype(np.float64), targets).mean())

    return min(specs, key=cost)


def _blend(row: Sequence[float], prior: Sequence[float], share: float) -> tuple[float, ...]:
    return _rounded((1 - share) * np.array(row) + share * np.array(prior))


def _rounded(shares: Float64) -> tuple[float, ...]:
    """Round to seven digits, so that the sum is 1 and no share is 0."""
    rounded = [max(1e-6, round(float(share), 7)) for share in shares]
    rounded[rounded.index(max(rounded))] += 1 - sum(rounded)
    return tuple(round(share, 7) for share in rounded)
