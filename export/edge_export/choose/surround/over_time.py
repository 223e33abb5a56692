"""Fit of answers over time: which label follows which, how much a window's answer counts, and whether it pays.

The device filters (`edge_runtime.model.over_time`); the same code is what is judged here.

1. Labels of consecutive windows of a recording are counted. Its end counts as one change, to any label by its share:
   which exercise was recorded after which says nothing of a stream.
2. Recordings that were cut by label know of no change. Those of a group are judged, and weights fitted, as one stream,
   one after the other: else the mean of all answers so far would be the best, and the first change its undoing.
3. Recordings of a few windows (clips) stay apart: their order is that of files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from edge_export.choose.surround.log_linear import Float64, cross_entropy
from edge_export.data.dataset import Float32, Int64, Windows
from edge_runtime.manifest.surround import OverTime
from edge_runtime.model.over_time import OverTimeFilter

WEIGHTS = (0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.65, 0.8, 1.0, 1.25)
"""Weights of one window's answer that are tried."""
FORGOTTEN = (0.0, 0.02, 0.05, 0.1, 0.2, 0.35)
"""Shares of each step that go to the prior instead of the labels' own transitions, that are tried: real streams change
more often than recordings that were cut by label."""
FEWEST = 5
"""Windows of a recording, in the middle, from which on it is a piece of a stream."""
_SEEN_AHEAD = 0.5
"""Transitions of each kind that count as seen once: one that never was is rare, not impossible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Streams:
    """Windows as the streams that a device sees, in their order.

    Attributes:
        order: (n,) places of the windows among those that it was made of; all else is in this order.
        y: (n,) class indices.
        recording: (n,) index of the recording.
        stream: (n,) which one.
        slot: (n,) first sample of the window within it.
        hop: samples from a window to the next.
    """

    order: Int64
    y: Int64
    recording: Int64
    stream: Int64
    slot: Int64
    hop: int

    @property
    def run(self) -> Int64:
        """(n,) number of the run of consecutive windows that each one belongs to."""
        follows = (self.stream[1:] == self.stream[:-1]) & (np.diff(self.slot) == self.hop)
        return np.concatenate([[0], np.cumsum(~follows)])

    def only(self, rows: npt.NDArray[np.bool_]) -> Streams:
        """Return some windows, (n,) of them in this order."""
        order, y, recording = self.order[rows], self.y[rows], self.recording[rows]
        return replace(self, order=order, y=y, recording=recording, stream=self.stream[rows], slot=self.slot[rows])


def streams_of(windows: Windows, hop: int) -> Streams:
    """Return the streams of recordings, those of a group joined that were cut by label (rules 2 and 3)."""
    order = np.lexsort((windows.start, windows.recording))
    y, recording, start = windows.y[order], windows.recording[order], windows.start[order]
    _, begin, count = np.unique(recording, return_index=True, return_counts=True)
    by_label = all(len(np.unique(y[at : at + n])) == 1 for at, n in zip(begin, count, strict=True))
    if not by_label or np.median(count) < FEWEST:
        return Streams(order=order, y=y, recording=recording, stream=recording, slot=start, hop=hop)
    _, group = np.unique(windows.group[order], return_inverse=True)
    joined = np.lexsort((start, recording, group))
    stream = group[joined]
    _, first = np.unique(stream, return_index=True)
    slot = (np.arange(len(y)) - first[stream]) * hop
    return Streams(order=order[joined], y=y[joined], recording=recording[joined], stream=stream, slot=slot, hop=hop)


def transitions(streams: Streams, classes: int) -> Float64:
    """Return shares of the labels that follow each label, (classes, classes) (rule 1)."""
    y, run, recording = streams.y, streams.run, streams.recording
    shares_of = (np.bincount(y, minlength=classes) + _SEEN_AHEAD) / (len(y) + classes * _SEEN_AHEAD)
    counts = np.full((classes, classes), _SEEN_AHEAD / classes)
    same = (run[1:] == run[:-1]) & (recording[1:] == recording[:-1])
    np.add.at(counts, (y[:-1][same], y[1:][same]), 1)
    for last in y[np.append(~same, True)].tolist():
        counts[last] += shares_of
    shares: Float64 = counts / counts.sum(axis=1, keepdims=True)
    return shares


def filtered(spec: OverTime, streams: Streams, answers: Float32) -> Float32:
    """Return what the device would publish, (n, classes).

    Args:
        spec: the filter's specification.
        streams: each is a key of its own.
        answers: (n, classes) calibrated probabilities, in their order.
    """
    own = OverTimeFilter(spec, streams.hop)
    state, before = None, -1
    out: Float32 = np.empty_like(answers)
    places = zip(streams.stream.tolist(), streams.slot.tolist(), answers.tolist(), strict=True)
    for place, (stream, slot, row) in enumerate(places):
        state = own.step(state if stream == before else None, slot, row)
        out[place] = state[1]
        before = stream
    return out


def mean_of_last(count: int, streams: Streams, answers: Float32) -> Float32:
    """Return the mean of each window's answer and of up to `count` - 1 before it in its run: the baseline to beat."""
    run = streams.run
    total = answers.astype(np.float64)
    seen = np.ones(len(answers))
    for back in range(1, count):
        same = run[back:] == run[:-back]
        total[back:][same] += answers[:-back][same]
        seen[back:][same] += 1
    mean: Float32 = (total / seen[:, None]).astype(np.float32)
    return mean


def fit_over_time(streams: Streams, answers: Float32) -> OverTime:
    """Fit the transitions to the labels; how much they and a window's answer count, to the answers.

    Both weights are those whose filtered answers have the least cross-entropy: windows that overlap, and a network that
    errs in the same way twice, say less than their number.

    Args:
        streams: streams of groups that gave the answers unseen.
        answers: (n, classes) calibrated probabilities, in their order.
    """
    classes = answers.shape[1]
    shares = np.bincount(streams.y, minlength=classes) + _SEEN_AHEAD
    prior = _rounded(shares / shares.sum())
    steps = transitions(streams, classes)
    targets = np.eye(classes)[streams.y]
    specs = [
        OverTime(transition=tuple(_blend(row, prior, forgotten) for row in steps), prior=prior, weight=weight)
        for forgotten in FORGOTTEN
        for weight in WEIGHTS
    ]

    def cost(spec: OverTime) -> float:
        return float(cross_entropy(filtered(spec, streams, answers).astype(np.float64), targets).mean())

    return min(specs, key=cost)


def _blend(row: Float64, prior: Sequence[float], share: float) -> tuple[float, ...]:
    return _rounded((1 - share) * row + share * np.array(prior))


def _rounded(shares: Float64) -> tuple[float, ...]:
    """Round to seven digits, so that the sum is 1 and no share is 0."""
    rounded = [max(1e-6, round(float(share), 7)) for share in shares]
    rounded[rounded.index(max(rounded))] += 1 - sum(rounded)
    return tuple(round(share, 7) for share in rounded)
