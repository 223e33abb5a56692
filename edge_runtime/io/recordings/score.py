"""Scores of answers against labels: accuracy, macro F1 and a table of confusion, for all windows and for each key."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np
import numpy.typing as npt

from edge_runtime.base.system.loop import Loop
from edge_runtime.errors import ConfigError
from edge_runtime.io.recordings.labels import Labels
from edge_runtime.manifest import Manifest
from edge_runtime.types import Answer, Done, Prediction

SHOWN_KEYS = 20
"""Keys of which the text shows the score, the lowest accuracy first."""

Tables = npt.NDArray[Any]
"""(..., classes, classes) windows: rows are labels, columns answers."""


def table_accuracy(tables: Tables) -> Tables:
    """Share of the windows whose answer is their label: (...)."""
    return np.asarray(np.trace(tables, axis1=-2, axis2=-1) / tables.sum(axis=(-2, -1)))


def table_macro_f1(tables: Tables) -> Tables:
    """F1 averaged over the classes in labels or answers, as scikit-learn's ``f1_score(average="macro")``: (...)."""
    right = np.diagonal(tables, axis1=-2, axis2=-1)
    either = tables.sum(axis=-1) + tables.sum(axis=-2)
    occurs = either > 0
    f1 = np.where(occurs, 2 * right / np.where(occurs, either, 1), 0.0)
    return np.asarray(f1.sum(axis=-1) / occurs.sum(axis=-1))


def classes_of(manifest: Manifest) -> tuple[str, ...]:
    """Return the labels of which an answer of this model has one.

    Raises:
        ConfigError: its answers are of another kind, and have no score.
    """
    output = manifest.output
    if output.kind == "anomaly":
        return ("normal", *output.labels)
    if output.kind not in ("probabilities", "embedding"):
        raise ConfigError(f"--labels: answers of kind {output.kind!r} have no score here; leave it out")
    return output.labels


class ScoreFigures(NamedTuple):
    """Score of some windows. Shares are 0 to 1, and 0 where there is no window."""

    windows: int
    accuracy: float
    macro_f1: float


class ScoreCounts(TypedDict):
    """All that a `Score` has counted, as plain data."""

    unlabelled: int
    unanswered: int
    unknown: dict[str, int]
    pairs: dict[str, list[list[int]]]
    """By key: label, answer (places in the classes) and windows."""


class Score:
    """Sink that counts answers by label.

    1. Windows without a label are left out, and counted.
    2. So are those whose label the model does not have. A whole number stands for the model's label in that place,
       from 0, unless a label is called so.
    3. A window that nothing answered is left out, and counted.

    Args:
        classes: the model's labels.
        labels: the recordings' labels.
        name: the sink's name in messages and metrics.
    """

    def __init__(self, classes: Sequence[str], labels: Labels, *, name: str = "score") -> None:
        self.name = name
        self.classes = tuple(classes)
        self.unlabelled = 0
        self.unanswered = 0
        self.unknown: Counter[str] = Counter()
        """Windows by a label that the model does not have."""
        self._labels = labels
        self._place = {str(i): i for i in range(len(classes))} | {name: i for i, name in enumerate(classes)}
        self._pairs: defaultdict[str, Counter[tuple[int, int]]] = defaultdict(Counter)

    def open(self, loop: Loop) -> None:
        """See `edge_runtime.io.sinks.Sink`."""

    def send(self, answers: Sequence[Answer], done: Done | None) -> None:
        """See `edge_runtime.io.sinks.Sink`."""
        for answer in answers:
            if isinstance(answer, Prediction):
                self.add(answer)
        if done is not None:
            done()

    def close(self, timeout_s: float) -> None:
        """See `edge_runtime.io.sinks.Sink`."""

    def add(self, prediction: Prediction) -> None:
        """Count one answer."""
        label = self._labels.of(prediction.id, prediction.key, prediction.start, prediction.end)
        if not label:
            self.unlabelled += 1  # rule 1
        elif (row := self._place.get(label)) is None:
            self.unknown[label] += 1  # rule 2
        elif (column := self._place.get(prediction.label)) is None:
            self.unanswered += 1  # rule 3
        else:
            self._pairs[prediction.key][row, column] += 1

    def counts(self) -> ScoreCounts:
        """Return all that was counted, as plain data for `merge`."""
        pairs = {key: [[*pair, n] for pair, n in own.items()] for key, own in self._pairs.items()}
        return {
            "unlabelled": self.unlabelled,
            "unanswered": self.unanswered,
            "unknown": dict(self.unknown),
            "pairs": pairs,
        }

    def merge(self, counts: ScoreCounts) -> None:
        """Add what another score of the same classes has counted."""
        self.unlabelled += counts["unlabelled"]
        self.unanswered += counts["unanswered"]
        self.unknown.update(counts["unknown"])
        for key, pairs in counts["pairs"].items():
            for row, column, n in pairs:
                self._pairs[key][row, column] += n

    def confusion(self, key: str | None = None) -> npt.NDArray[np.int64]:
        """Count windows of a key, or of all, (classes, classes): rows are labels, columns answers."""
        table = np.zeros((len(self.classes),) * 2, np.int64)
        for pairs in self._pairs.values() if key is None else (self._pairs.get(key, Counter()),):
            for pair, count in pairs.items():
                table[pair] += count
        return table

    def figures(self, key: str | None = None) -> ScoreFigures:
        """Return the score of a key, or of all windows."""
        table = self.confusion(key)
        windows = int(table.sum())
        if not windows:
            return ScoreFigures(0, 0.0, 0.0)
        return ScoreFigures(windows, float(table_accuracy(table)), float(table_macro_f1(table)))

    def plain(self) -> dict[str, Any]:
        """Everything as plain data, ready for JSON."""
        return {
            **self.figures()._asdict(),
            "unlabelled": self.unlabelled,
            "unanswered": self.unanswered,
            "unknown_labels": dict(self.unknown),
            "labels": list(self.classes),
            "confusion": self.confusion().tolist(),
            "keys": {key: self.figures(key)._asdict() for key in sorted(self._pairs)},
        }

    def text(self) -> str:
        """Render the score as lines for a person."""
        whole = self.figures()
        left_out = [f"{self.unlabelled} without a label"] if self.unlabelled else []
        left_out += [f"{self.unanswered} without an answer"] if self.unanswered else []
        left_out += [f"{n} labelled {name!r}, which the model does not have" for name, n in self.unknown.items()]
        lines = [f"score: {_line(whole)}" if whole.windows else "score: no window has a label"]
        if left_out:
            lines.append(f"windows left out: {', '.join(left_out)}")
        if not whole.windows:
            return "\n".join(lines)
        lines += ["", *self._table()]
        if len(self._pairs) > 1:
            figures = sorted((self.figures(key).accuracy, key) for key in self._pairs)
            lines += ["", *(f"key {key}: {_line(self.figures(key))}" for _, key in figures[:SHOWN_KEYS])]
            if len(figures) > SHOWN_KEYS:
                lines.append(f"and {len(figures) - SHOWN_KEYS} more keys, which --json has")
        return "\n".join(lines)

    def _table(self) -> list[str]:
        """Lines of the table of confusion, of the classes that occur."""
        table = self.confusion()
        chosen = np.flatnonzero(table.sum(axis=0) + table.sum(axis=1)).tolist()
        width = max(len("label"), len(str(table.max())), *(len(self.classes[i]) for i in chosen)) + 2
        lines = [f"{'label':<{width}}" + "".join(f"{self.classes[i]:>{width}}" for i in chosen) + "  (answered)"]
        return lines + [
            f"{self.classes[i]:<{width}}" + "".join(f"{n:>{width}}" for n in table[i, chosen].tolist()) for i in chosen
        ]


def _line(figures: ScoreFigures) -> str:
    return f"{figures.windows} windows, accuracy {figures.accuracy:.3f}, macro F1 {figures.macro_f1:.3f}"
