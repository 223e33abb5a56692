"""Boxes of a picture: decoded from what a model gives for its candidates, and thinned by non-maximum suppression.

A box is left, top, right, bottom, as shares of the picture.

Sources: Redmon and Farhadi 2018 (arXiv:1804.02767) for grids; Liu et al. 2016 (arXiv:1512.02325) for priors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from edge_runtime.manifest.outputs import DetectionOutput
from edge_runtime.types import Float32

Floats = npt.NDArray[np.float64]

_LARGEST = 20.0
"""Logarithms of sizes above it are cut: e to this is more than any picture."""


class _Candidates(NamedTuple):
    """Candidates of one window, as a model gives them."""

    boxes: Floats
    """(candidates, 4)."""
    scores: Floats
    """(candidates, labels), 0 to 1."""


class BoxDecoder:
    """Makes candidates of a model's numbers.

    Args:
        output: the bundle's output.
        priors: (candidates, 4) from `DetectionOutput.priors`; None where strides and anchors make them.
    """

    def __init__(self, output: DetectionOutput, priors: Float32 | None = None) -> None:
        self._output = output
        self._size = np.array([output.width, output.height], np.float64)
        self._priors = np.zeros((0, 4)) if priors is None else priors.astype(np.float64)
        if output.strides and output.decode != "grid":
            self._priors = _square_priors(output)

    def __call__(self, row: Float32) -> _Candidates:
        """Decode the answer to one window."""
        numbers = row.reshape(-1).astype(np.float64)
        if self._output.decode == "grid":
            return self._grids(numbers)
        boxes, scores = self._apart(numbers)
        return _Candidates(self._corners(boxes[:, :4]), scores)

    def _apart(self, numbers: Floats) -> tuple[Floats, Floats]:
        """Return the numbers of the boxes and the scores of the labels."""
        output, n = self._output, self._output.count
        if output.rows == "joined":
            rows = numbers.reshape(n, -1)
            return rows[:, : output.box_numbers], self._scores(rows[:, output.box_numbers :])
        if output.rows == "chosen":
            rows = numbers.reshape(n, -1)
            return rows, self._of_labels(rows[:, -1], rows[:, -2])
        split = n * output.box_numbers
        boxes, rest = numbers[:split].reshape(n, -1), numbers[split:]
        if output.rows == "apart":
            return boxes, self._scores(rest.reshape(n, -1))
        return boxes, self._of_labels(rest[:n], rest[n:])

    def _of_labels(self, numbers: Floats, given: Floats) -> Floats:
        """Return scores (candidates, labels) of a label's number and a score for each candidate."""
        output = self._output
        of = np.rint(numbers).astype(int) - output.background
        scores = np.zeros((len(of), len(output.labels)))
        known = (of >= 0) & (of < len(output.labels))
        scores[known, of[known]] = _probabilities(given, output.values)[known]
        return scores

    def _scores(self, columns: Floats) -> Floats:
        """Return the labels' scores of (candidates, columns): objectness, background, labels."""
        output = self._output
        objects: Floats | float = 1.0
        if output.objectness:
            objects = columns[:, :1] if output.values == "probability" else _sigmoid(columns[:, :1])
            columns = columns[:, 1:]
        if output.values == "logits":
            weights = np.exp(columns - columns.max(axis=1, keepdims=True))
            p = weights / weights.sum(axis=1, keepdims=True)
        else:
            p = _probabilities(columns, output.values)
        return np.asarray(p[:, 1:] if output.background else p) * objects

    def _corners(self, numbers: Floats) -> Floats:
        output = self._output
        if output.order == "yx":
            numbers = numbers[:, [1, 0, 3, 2]]
        first, second = numbers[:, :2], numbers[:, 2:]
        if output.decode == "offsets":
            first, second = first / self._size + self._priors[:, :2], second / self._size
        elif output.decode == "priors":
            at, by = output.variances
            size = self._priors[:, 2:]
            first = first * at * size + self._priors[:, :2]
            second = np.exp(np.minimum(second * by, _LARGEST)) * size
        elif output.unit == "pixels":
            first, second = first / self._size, second / self._size
        if output.decode == "corners":
            return np.concatenate([first, second], axis=1)
        return _around(first, second)

    def _grids(self, numbers: Floats) -> _Candidates:
        output = self._output
        columns = output.box_numbers + output.columns
        boxes, scores = [], []
        for stride, sizes, cells in zip(output.strides, output.anchors, output.cells, strict=True):
            anchors = np.array(sizes).reshape(-1, 2)
            head, numbers = numbers[: cells * columns], numbers[cells * columns :]
            head = head.reshape(-1, len(anchors), columns)
            across, down = -(-output.width // stride), -(-output.height // stride)
            corner = np.stack(np.meshgrid(np.arange(across), np.arange(down)), axis=-1).reshape(-1, 1, 2)
            centre = (_sigmoid(head[:, :, :2]) + corner) * stride / self._size
            size = np.exp(np.minimum(head[:, :, 2:4], _LARGEST)) * anchors / self._size
            p = _sigmoid(head[:, :, output.box_numbers :])
            boxes.append(_around(centre.reshape(-1, 2), size.reshape(-1, 2)))
            scores.append((p[:, :, :1] * p[:, :, 1:]).reshape(-1, columns - output.box_numbers - 1))
        given = np.concatenate(scores)
        return _Candidates(np.concatenate(boxes), given[:, 1:] if output.background else given)


def _square_priors(output: DetectionOutput) -> Floats:
    """Return (candidates, 4) centres and sizes: cells row by row, at each its squares."""
    size = np.array([output.width, output.height], np.float64)
    at = 0.0 if output.priors_at == "corner" else 0.5
    made = []
    for stride, sides in zip(output.strides, output.anchors, strict=True):
        across, down = -(-output.width // stride), -(-output.height // stride)
        cells = np.stack(np.meshgrid(np.arange(across), np.arange(down)), axis=-1).reshape(-1, 2)
        centres = np.repeat((cells + at) * stride / size, len(sides), axis=0)
        squares = np.tile(np.array(sides)[:, None] / size, (len(cells), 1))
        made.append(np.clip(np.concatenate([centres, squares], axis=1), 0, 1))
    return np.concatenate(made)


def _around(centre: Floats, size: Floats) -> Floats:
    return np.concatenate([centre - size / 2, centre + size / 2], axis=1)


def _sigmoid(x: Floats) -> Floats:
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-x)))


def _probabilities(x: Floats, values: str) -> Floats:
    return _sigmoid(x) if values == "logit" else x


def overlap(one: Floats, others: Floats) -> Floats:
    """Return the intersection over union of a box with each of (n, 4); 0 with one that has no area."""
    low, high = np.maximum(one[:2], others[:, :2]), np.minimum(one[2:], others[:, 2:])
    common = np.prod(np.maximum(high - low, 0), axis=1)
    union = np.prod(one[2:] - one[:2]) + np.prod(others[:, 2:] - others[:, :2], axis=1) - common
    return np.asarray(np.where(union > 0, common / np.where(union > 0, union, 1), 0.0))


def suppress(boxes: Floats, scores: Floats, iou: float, most: int) -> list[int]:
    """Choose boxes, the highest score first, that overlap no chosen one by more than `iou`.

    The order of the candidates does not matter: of equal scores the box that lies further to the left comes first, then
    the one further up.

    Args:
        boxes: (n, 4).
        scores: (n,).
        iou: largest intersection over union.
        most: boxes that are chosen.
    """
    waiting = np.lexsort((*boxes.T[::-1], -scores))
    chosen: list[int] = []
    while len(waiting) and len(chosen) < most:
        best, waiting = int(waiting[0]), waiting[1:]
        chosen.append(best)
        waiting = waiting[overlap(boxes[best], boxes[waiting]) <= iou]
    return chosen


def paired(one: Sequence[Any], other: Sequence[Any], iou: float) -> bool:
    """Return whether each box of the one has a partner of its own among the other's: best pairs first."""
    if len(one) != len(other):
        return False
    if len(one) == 0:
        return True
    theirs = np.array(other, np.float64)
    table = np.stack([overlap(np.array(box, np.float64), theirs) for box in one])
    for _ in one:
        row, column = divmod(int(table.reshape(-1).argsort()[-1]), len(other))
        if table[row, column] < iou:
            return False
        table[row], table[:, column] = -1, -1
    return True
