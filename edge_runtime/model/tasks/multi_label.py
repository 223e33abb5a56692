"""Multi-label classification: any number of labels for each window, from a probability for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edge_runtime.base.oip import Array, OipTensor
from edge_runtime.errors import CloudRejected
from edge_runtime.manifest import Manifest, MultiLabelOutput
from edge_runtime.model.tasks import Finding, ReplyValues
from edge_runtime.model.tasks.common import WindowTask, sigmoid
from edge_runtime.types import Float32


class MultiLabel(WindowTask):
    """The `Task` of a bundle whose model answers with a probability for each label, independent of the others.

    Trust is the least, over labels, of the distance of the probability from its threshold.

    Args:
        manifest: the bundle's manifest.
        output: its output.
        threshold: replaces that of its gate.
        labels: replace the bundle's, where another model answers: the cloud's order.
    """

    kind = "multi-label"

    def __init__(
        self, manifest: Manifest, output: MultiLabelOutput, threshold: float | None, labels: Sequence[str] = ()
    ) -> None:
        super().__init__(manifest, threshold)
        self._output = output
        self._labels = tuple(labels) or output.labels
        of = output.thresholds if len(output.thresholds) > 1 else output.thresholds * len(output.labels)
        by_label = dict(zip(output.labels, of, strict=True))
        # As float32, which the probabilities are: one that is its threshold reaches it.
        reach = [by_label.get(label, output.thresholds[0]) for label in self._labels]
        self._thresholds = np.array(reach, np.float32).astype(np.float64)
        self.outputs = (OipTensor("probabilities", "FP32", (-1, len(self._labels))),)

    def find(self, answers: Float32) -> list[Finding]:
        """See `WindowTask`."""
        return self._read(self.offer(answers)["probabilities"])

    def offer(self, answers: Float32) -> dict[str, Array]:
        """See `Task`."""
        p = sigmoid(answers) if self._output.values == "logit" else answers
        return {"probabilities": p if p.ndim == 2 else p.max(axis=1)}

    def same(self, one: Finding, other: Finding) -> bool:
        """Both have the same set of labels."""
        return set(one.own["labels"]) == set(other.own["labels"])

    def read_reply(self, reply: Mapping[str, Array], n: int, values: ReplyValues, /) -> list[Finding]:
        """See `Task`."""
        p = self._read_numbers(reply, self.outputs[0], n)
        if values == "logits":
            p = sigmoid(p)
        if p.min() < -1e-3 or p.max() > 1 + 1e-3:
            raise CloudRejected("the cloud answered numbers that are no probabilities; is output_kind right?", None)
        return self._read(np.clip(p, 0, 1))

    def _read(self, probabilities: Float32) -> list[Finding]:
        rows = probabilities.astype(np.float64)
        reached = rows >= self._thresholds
        trust = (np.abs(rows - self._thresholds) / np.where(reached, 1 - self._thresholds, self._thresholds)).min(
            axis=1
        )
        labels = self._labels
        # Most windows of most models have no label, so a list is built of flags only where one is set.
        given = [
            [label for label, one in zip(labels, flags, strict=True) if one] if any(flags) else []
            for flags in reached.tolist()
        ]
        found = zip(given, trust.clip(0, 1).round(7).tolist(), rows.round(7).tolist(), strict=True)
        return [Finding(", ".join(those), one, row, {"labels": those}) for those, one, row in found]
