"""Multi-label classification: any number of labels for each window, from a probability for each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from edge_runtime.errors import CloudRejected
from edge_runtime.manifest import Manifest, MultiLabelOutput
from edge_runtime.oip import Array, TensorSpec
from edge_runtime.tasks import Finding, ReplyValues
from edge_runtime.tasks.common import WindowTask, about, floats, sigmoid
from edge_runtime.types import Float32


class MultiLabel(WindowTask):
    """The `Task` of a bundle whose model answers with a probability for each label, independent of the others.

    Trust is the least, over labels, of the distance of the probability from its threshold.

    Args:
        manifest: of the bundle.
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
        self._thresholds = [float(np.float32(by_label.get(label, output.thresholds[0]))) for label in self._labels]
        self.outputs = (TensorSpec("probabilities", "FP32", (-1, len(self._labels))),)

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
        made = []
        for row in probabilities.tolist():
            pairs = list(zip(self._labels, row, self._thresholds, strict=True))
            given = [label for label, p, threshold in pairs if p >= threshold]
            trust = min(min(max(about(p, threshold), 0.0), 1.0) for _, p, threshold in pairs)
            made.append(Finding(", ".join(given), round(trust, 7), floats(row), {"labels": given}))
        return made
