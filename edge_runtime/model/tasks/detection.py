"""Detection: objects in a picture, as boxes with a label and a score."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from edge_runtime.base.oip import Array, OipTensor
from edge_runtime.errors import CloudRejected
from edge_runtime.manifest import Manifest
from edge_runtime.manifest.outputs import DetectionOutput
from edge_runtime.model.tasks import Finding, ReplyValues
from edge_runtime.model.tasks.boxes import BoxDecoder, Floats, paired, suppress
from edge_runtime.model.tasks.common import Files, WindowTask, about, floats, read_numbers
from edge_runtime.types import Float32

_FAINT: Final = 0.05
"""Candidates below this score are no doubt."""
_CONSIDERED: Final = 400
"""Candidates of a label, those with the highest scores, among which boxes are chosen."""
_SAME: Final = 0.5
"""Intersection over union from which on two boxes are the same."""


class Detection(WindowTask):
    """The `Task` of a bundle whose model answers with boxes.

    Trust is the least, over the boxes and those just too faint to be given, of the distance of the score from the one
    from which on a box is given.

    Args:
        manifest: the bundle's manifest.
        output: its output.
        threshold: replaces that of its gate.
        labels: replace the bundle's, where another model answers: the cloud's order.
        files: reads `DetectionOutput.priors`; None where only the cloud's answers are read.

    Raises:
        BundleError: the file of priors does not fit.
    """

    kind = "detection"

    def __init__(
        self,
        manifest: Manifest,
        output: DetectionOutput,
        threshold: float | None,
        labels: Sequence[str] = (),
        files: Files | None = None,
    ) -> None:
        super().__init__(manifest, threshold)
        self._output = output
        self._labels = tuple(labels) or output.labels
        self._score = min(output.score, 1 - 1e-9)
        priors = None
        if output.priors and files is not None:
            priors = read_numbers(files, output.priors, (output.count, 4))
        self._decode = BoxDecoder(output, priors)
        self.outputs = (
            OipTensor("boxes", "FP32", (-1, output.most, 4)),
            OipTensor("scores", "FP32", (-1, output.most)),
            OipTensor("labels", "INT64", (-1, output.most)),
        )

    def find(self, answers: Float32) -> list[Finding]:
        """See `WindowTask`."""
        return [self._found(row) for row in answers]

    def _found(self, row: Float32) -> Finding:
        boxes, scores = self._decode(row)
        boxes = np.clip(boxes, 0, 1)
        solid = (boxes[:, 2:] > boxes[:, :2]).all(axis=1)
        made: list[tuple[float, int, Floats]] = []
        trust = 1.0
        for place in range(len(self._output.labels)):
            of = np.flatnonzero(solid & (scores[:, place] >= _FAINT))
            if len(of) > _CONSIDERED:
                least = np.partition(scores[of, place], -_CONSIDERED)[-_CONSIDERED]
                of = of[scores[of, place] >= least]
            for i in suppress(boxes[of], scores[of, place], self._output.iou, len(of)):
                score = float(scores[of[i], place])
                trust = min(trust, max(0.0, about(min(score, 1.0), self._score)))
                if score >= self._output.score:
                    made.append((score, place, boxes[of[i]]))
        made.sort(key=lambda one: (-one[0], one[1], *one[2].tolist()))
        return self._finding(made[: self._output.most], self._output.labels, trust)

    def _finding(self, made: Sequence[tuple[float, int, Floats]], labels: Sequence[str], trust: float) -> Finding:
        boxes = [
            {"label": labels[place], "score": round(score, 7), "box": [round(x, 5) for x in box.tolist()]}
            for score, place, box in made
        ]
        highest = [max((score for score, at, _ in made if at == place), default=0.0) for place in range(len(labels))]
        counts = Counter(place for _, place, _ in made)
        label = ", ".join(f"{counts[place]} x {labels[place]}" for place in sorted(counts))
        return Finding(label, round(trust, 7), floats(highest), {"boxes": boxes})

    def same(self, one: Finding, other: Finding) -> bool:
        """Each box of the one has a partner with its label among the other's, at an intersection over union of .5."""
        mine, theirs = _by_label(one.own), _by_label(other.own)
        return mine.keys() == theirs.keys() and all(paired(mine[label], theirs[label], _SAME) for label in mine)

    def offer(self, answers: Float32) -> dict[str, Array]:
        """See `Task`; a row without a box has the label -1."""
        n, most = len(answers), self._output.most
        boxes, scores = np.zeros((n, most, 4), np.float32), np.zeros((n, most), np.float32)
        labels = np.full((n, most), -1, np.int64)
        for i, found in enumerate(self.findings(answers)):
            for k, box in enumerate(found.own.get("boxes", ())):
                boxes[i, k], scores[i, k] = box["box"], box["score"]
                labels[i, k] = self._output.labels.index(box["label"])
        return {"boxes": boxes, "scores": scores, "labels": labels}

    def read_reply(self, reply: Mapping[str, Array], n: int, _values: ReplyValues, /) -> list[Finding]:
        """See `Task`; any number of boxes will do."""
        boxes = self._read_numbers(reply, OipTensor("boxes", "FP32", (-1, -1, 4)), n).astype(np.float64)
        shape = (-1, boxes.shape[1])
        scores = self._read_numbers(reply, OipTensor("scores", "FP32", shape), n)
        places = self._read_numbers(reply, OipTensor("labels", "INT64", shape), n).astype(int)
        if boxes.shape[1] == 0:
            raise CloudRejected("the cloud answered no row for a box; one without a box has the label -1", None)
        given = places >= 0
        if places.max() >= len(self._labels):
            raise CloudRejected(f"the cloud answered label {places.max()} where {len(self._labels)} are known", None)
        if (scores[given] < -1e-3).any() or (scores[given] > 1 + 1e-3).any():
            raise CloudRejected("the cloud answered scores of boxes that are not 0 to 1", None)
        found = []
        for row, score, place in zip(
            np.clip(boxes, 0, 1), np.clip(scores, 0, 1).tolist(), places.tolist(), strict=True
        ):
            made = [(score[k], place[k], row[k]) for k in range(len(place)) if place[k] >= 0]
            trust = min((max(0.0, about(one[0], self._score)) for one in made), default=1.0)
            found.append(self._finding(made, self._labels, trust))
        return found


def _by_label(own: Mapping[str, Any]) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for box in own["boxes"]:
        found.setdefault(box["label"], []).append(box["box"])
    return found
