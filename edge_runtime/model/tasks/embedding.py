"""Embedding: the label of the nearest examples, so that labels can be added without training.

Every example is kept as the model's numbers of a window. The k nearest vote, each by its nearness.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from edge_runtime.base.oip import Array
from edge_runtime.errors import BundleError
from edge_runtime.manifest import Manifest
from edge_runtime.manifest.outputs import EmbeddingOutput
from edge_runtime.model.tasks import Finding, ReplyValues
from edge_runtime.model.tasks.common import LABEL_AND_TRUST, Files, WindowTask, floats, physical, read_numbers
from edge_runtime.types import Float32

UNKNOWN = "unknown"

Floats = npt.NDArray[np.float64]


class StoredExamples(NamedTuple):
    """Stored examples and what they are called."""

    labels: tuple[str, ...]
    """Different ones."""
    places: tuple[int, ...]
    """Of each example's label in `labels`."""
    numbers: Float32
    """(examples, numbers of an answer)."""

    def joined(self, other: StoredExamples) -> StoredExamples:
        """Return both: labels of this one first, those that only the other has behind them."""
        labels = (*self.labels, *(label for label in other.labels if label not in self.labels))
        places = (*self.places, *(labels.index(other.labels[place]) for place in other.places))
        return StoredExamples(labels, places, np.concatenate([self.numbers, other.numbers]))


def bundled(output: EmbeddingOutput, files: Files | None) -> StoredExamples:
    """Read the examples of a bundle; none where it has none, or where `files` is None.

    Raises:
        BundleError: the file does not fit the output.
    """
    size = output.rows * output.size
    if not output.examples or files is None:
        return StoredExamples(output.labels, (), np.zeros((0, size), np.float32))
    table = read_numbers(files, output.examples, (-1, 1 + size))
    places = table[:, 0]
    if (places != np.rint(places)).any() or places.min() < 0 or places.max() >= len(output.labels):
        raise BundleError(f"{output.examples}: the first column must hold places in the output's labels, from 0")
    return StoredExamples(output.labels, tuple(places.astype(int).tolist()), table[:, 1:])


class EmbeddingTask(WindowTask):
    """The `Task` of a bundle whose model answers with numbers that are near each other for what is alike.

    Trust is the lead of the label's nearest example over the nearest of another label, as a share of the distance of
    the latter; 0 where nothing is near enough.

    Args:
        manifest: the bundle's manifest.
        output: its output.
        threshold: replaces that of its gate.
        files: reads `EmbeddingOutput.examples`; None where only the cloud's answers are read.
        learnt: further examples, of this device.
        examples: those of the bundle, read already.

    Raises:
        BundleError: the file of examples does not fit.
    """

    kind = "embedding"

    def __init__(
        self,
        manifest: Manifest,
        output: EmbeddingOutput,
        threshold: float | None,
        files: Files | None = None,
        learnt: StoredExamples | None = None,
        examples: StoredExamples | None = None,
    ) -> None:
        super().__init__(manifest, threshold)
        self._manifest = manifest
        self._output = output
        self._bundled = bundled(output, files) if examples is None else examples
        used = self._bundled if learnt is None else self._bundled.joined(learnt)
        self.labels = used.labels
        self._places = np.array(used.places, int)
        self._numbers = self._scaled(used.numbers.astype(np.float64))
        self.outputs = LABEL_AND_TRUST

    def taught(self, learnt: StoredExamples) -> EmbeddingTask:
        """Return the same task with these examples of this device beside the bundle's."""
        return EmbeddingTask(self._manifest, self._output, self._threshold, learnt=learnt, examples=self._bundled)

    def _scaled(self, numbers: Floats) -> Floats:
        """Return numbers (n, size) of unit length, where the distance is an angle's."""
        if self._output.distance == "l2":
            return numbers
        length = np.sqrt((numbers * numbers).sum(axis=1, keepdims=True))
        return np.asarray(numbers / np.where(length > 0, length, 1))

    def find(self, answers: Float32) -> list[Finding]:
        """See `WindowTask`."""
        numbers = self._scaled(answers.reshape(len(answers), -1).astype(np.float64))
        return [self._found(row) for row in numbers]

    def _found(self, row: Floats) -> Finding:
        if not len(self._places):
            return Finding(UNKNOWN, 0.0, [0.0] * len(self.labels), {"distance": None})
        # One window at a time, and no product of matrices, whose sums depend on how many windows there are.
        if self._output.distance == "cosine":
            distances = np.clip(1 - (self._numbers * row).sum(axis=1), 0, 2)
        else:
            distances = np.sqrt(((self._numbers - row) ** 2).sum(axis=1))
        nearness = 1 - distances / 2 if self._output.distance == "cosine" else 1 / (1 + distances)
        nearest = np.full(len(self.labels), np.inf)
        np.minimum.at(nearest, self._places, distances)
        scores = np.zeros(len(self.labels))
        np.maximum.at(scores, self._places, nearness)
        votes = np.zeros(len(self.labels))
        voting = np.argsort(distances, kind="stable")[: self._output.k]
        np.add.at(votes, self._places[voting], nearness[voting])
        # Of labels with equal votes, the nearest.
        place = int(np.lexsort((nearest, -votes))[0])
        own, others = float(nearest[place]), np.delete(nearest, place)
        if self._output.farthest and own > self._output.farthest:
            return Finding(UNKNOWN, 0.0, floats(scores), {"distance": physical(own)})
        other = float(others.min()) if len(others) else np.inf
        lead = 1.0 if np.isinf(other) else max(0.0, other - own) / other if other else 0.0
        return Finding(self.labels[place], round(lead, 7), floats(scores), {"distance": physical(own)})

    def same(self, one: Finding, other: Finding) -> bool:
        """Both have the same label."""
        return one.label == other.label

    def offer(self, answers: Float32) -> dict[str, Array]:
        """See `Task`."""
        return self._offer_labels(answers)

    def read_reply(self, reply: Mapping[str, Array], n: int, _values: ReplyValues, /) -> list[Finding]:
        """See `Task`; a label that no example has is taken too. ``confidence`` may be left out."""
        pairs = self._read_labels(reply, n)
        return [Finding(label, trust, self._scores(label, trust)) for label, trust in pairs]

    def _scores(self, label: str, trust: float) -> list[float]:
        return [trust if label == one else 0.0 for one in self.labels]
