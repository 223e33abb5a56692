"""Classification: one label of several for each window, from probabilities that sum to one.

`Gate` is a pure function of them: its threshold was set at export, on groups the model never saw, for a stated promise.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from edge_runtime.errors import CloudRejected
from edge_runtime.manifest import GateSpec, Manifest
from edge_runtime.oip import Array, TensorSpec
from edge_runtime.tasks import Author, Decision, Finding, ReplyValues
from edge_runtime.tasks.answers import CLASSIFICATION
from edge_runtime.types import Correction, Float32, Prediction
from edge_runtime.windowing.window import Window

PROBABILITIES = "probabilities"


class Gate:
    """Tells hard windows from easy ones by a calibrated score.

    Args:
        spec: score and threshold from the bundle.
        threshold: replaces the bundle's one.
    """

    def __init__(self, spec: GateSpec, threshold: float | None = None) -> None:
        self._score = _SCORES[spec.score]
        # As float32, which the scores are: a window gets the same decision alone and among others.
        self._threshold = float(np.float32(spec.threshold if threshold is None else threshold))

    def decide(self, probabilities: Float32) -> Decision:
        """Decide for a batch.

        Args:
            probabilities: (batch, n_labels), rows summing to one. A row with NaN is hard.
        """
        threshold = self._threshold
        if len(probabilities) == 1 and self._score is _confidence:
            # A lone window, at a low rate: five calls of numpy cost 20 us with cold caches, a short list 3 us.
            row = probabilities[0].tolist()
            top = max(row)
            return Decision([row.index(top)], [top], [not top >= threshold])
        trust = self._score(probabilities).tolist()
        return Decision(probabilities.argmax(axis=1).tolist(), trust, [not score >= threshold for score in trust])


def _confidence(p: Float32) -> Float32:
    """Highest probability (Hendrycks and Gimpel 2017, arXiv:1610.02136)."""
    top: Float32 = p.max(axis=1)
    return top


def _margin(p: Float32) -> Float32:
    """Lead of the first over the second."""
    two = np.partition(p, p.shape[1] - 2, axis=1)[:, -2:]
    lead: Float32 = two[:, 1] - two[:, 0]
    return lead


def _entropy(p: Float32) -> Float32:
    """Return one minus the entropy over its maximum, log of the number of labels."""
    logs = np.log(np.maximum(p, 1e-12))
    certain: Float32 = 1.0 + (p * logs).sum(axis=1) / np.float32(np.log(p.shape[1]))
    return certain


_SCORES = {"confidence": _confidence, "margin": _margin, "entropy": _entropy}


class Classification:
    """The `Task` of a bundle whose model answers with a probability for each label.

    Args:
        manifest: labels, windows and gate of the bundle.
        threshold: replaces the bundle's one.
        labels: replace the bundle's, where another model answers: the cloud's order.
    """

    def __init__(self, manifest: Manifest, *, threshold: float | None = None, labels: Sequence[str] = ()) -> None:
        self._labels = labels or manifest.output.labels
        self._length_s = manifest.input.window / manifest.input.rate_hz
        self.outputs: tuple[TensorSpec, ...] = (TensorSpec(PROBABILITIES, "FP32", (-1, len(self._labels))),)
        self.asked = True
        self.types = CLASSIFICATION
        self.decide = Gate(manifest.gate, threshold).decide

    def predictions(
        self, windows: Sequence[Window], answers: Float32, decision: Decision, latencies_ms: list[float], by: Author
    ) -> list[Prediction]:
        """See `Task`."""
        # The same figures in the record as in the decision: rounding after the gate, to what float32 can carry.
        rows = answers.astype(np.float64).round(7).tolist()
        keys, slots, starts, _, _, _ = zip(*windows, strict=True)
        labels, length, (model, variant) = self._labels, self._length_s, by
        return [
            Prediction(
                f"{key}@{slot}",
                key,
                start := round(begin * 1e6) / 1e6,  # microseconds; a third of the time of round(x, 6)
                round((start + length) * 1e6) / 1e6,
                labels[label],
                scores[label],
                scores,
                "local",
                difficult,
                model,
                variant,
                latency_ms,
            )
            for key, slot, begin, label, scores, difficult, latency_ms in zip(
                keys, slots, starts, decision.best, rows, decision.hard, latencies_ms, strict=True
            )
        ]

    def agree(self, one: Float32, other: Float32) -> list[bool]:
        """Return whether both have the same most probable label."""
        same: list[bool] = (one.argmax(axis=1) == other.argmax(axis=1)).tolist()
        return same

    def offer(self, answers: Float32) -> dict[str, Array]:
        """See `Task`."""
        return {PROBABILITIES: answers}

    def read_reply(self, reply: Mapping[str, Array], n: int, values: ReplyValues, /) -> list[Finding]:
        """See `Task`."""
        rows = self._probabilities(reply.get(PROBABILITIES), n, values)
        scores = np.round(rows.astype(np.float64), 7).tolist()
        best = rows.argmax(axis=1).tolist()
        return [Finding(self._labels[i], row[i], row) for i, row in zip(best, scores, strict=True)]

    def _probabilities(self, reply: Array | None, n: int, values: ReplyValues) -> Float32:
        if reply is None or reply.shape != (n, len(self._labels)) or reply.dtype.kind not in "fiu":
            shape = "nothing" if reply is None else f"{reply.dtype} {reply.shape}"
            raise CloudRejected(f"the cloud answered {shape} where ({n}, {len(self._labels)}) numbers are due", None)
        rows = reply.astype(np.float32)
        if values == "logits":
            with np.errstate(invalid="ignore"):  # an infinite one becomes NaN, which is refused below
                rows = np.exp(rows - rows.max(axis=1, keepdims=True))
            rows /= rows.sum(axis=1, keepdims=True)
        if not np.isfinite(rows).all() or rows.min() < -1e-3 or np.abs(rows.sum(axis=1) - 1).max() > 0.02:
            raise CloudRejected("the cloud answered numbers that are no probabilities; is output_kind right?", None)
        return rows

    def correction(self, found: Finding, _own: Mapping[str, Any], common: Mapping[str, Any], /) -> Correction:
        """See `Task`."""
        return Correction(label=found.label, confidence=found.confidence, scores=found.scores, **common)

    def upheld(self, correction: Correction) -> bool:
        """Return whether the cloud gave the device's label."""
        return correction.label == correction.supersedes
