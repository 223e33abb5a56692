"""Classification: one label of several for each window, from probabilities that sum to one.

`Gate` is a pure function of them: its threshold was set at export, on groups the model never saw, for a stated promise.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import numpy as np

from edge_runtime.base.oip import Array, OipTensor
from edge_runtime.errors import CloudRejected
from edge_runtime.manifest import GateSpec, Manifest
from edge_runtime.manifest.surround import Fusion, Gain, SurroundGate
from edge_runtime.model.tasks import Author, Finding, ReplyValues
from edge_runtime.model.tasks.answers import CLASSIFICATION, FusedCorrection
from edge_runtime.model.tasks.fusion import fuse
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Correction, Decision, Float32, Float64, Prediction

PROBABILITIES = "probabilities"

_Float = TypeVar("_Float", Float32, Float64)


class Gate:
    """Tells hard windows from easy ones by a calibrated score.

    Args:
        spec: score and threshold from the bundle, of the network's own answers or of what surrounds it.
        threshold: replaces the bundle's one.
    """

    def __init__(self, spec: GateSpec | SurroundGate, threshold: float | None = None) -> None:
        gain = spec.gain if isinstance(spec, SurroundGate) else None
        self._score = _SCORES[spec.score] if gain is None else partial(_no_gain, gain, np.array(gain.bias))
        self._gain = gain
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
        if len(probabilities) == 1 and self._gain is not None:
            row = probabilities[0].tolist()
            if not math.isnan(sum(row)):
                return self._decide_one(self._gain, row)
        trust = self._score(probabilities).tolist()
        return Decision(probabilities.argmax(axis=1).tolist(), trust, [not score >= threshold for score in trust])

    def _decide_one(self, gain: Gain, row: list[float]) -> Decision:
        """Reckon as `_no_gain` does, in the same order and precision, for a lone window: 3 us where that takes 13."""
        second, first = sorted(row)[-2:]
        best = row.index(first)
        expected = gain.bias[best] + gain.confidence * (1.0 - first) + gain.margin * (1.0 - (first - second))
        trust = float(np.float32(min(max(0.5 - expected / 2, 0.0), 1.0)))
        return Decision([best], [trust], [not trust >= self._threshold])


def _confidence(p: _Float) -> _Float:
    """Highest probability (Hendrycks and Gimpel 2017, arXiv:1610.02136)."""
    top: _Float = p.max(axis=1)
    return top


def _margin(p: _Float) -> _Float:
    """Lead of the first over the second."""
    two = np.partition(p, p.shape[1] - 2, axis=1)[:, -2:]
    lead: _Float = two[:, 1] - two[:, 0]
    return lead


def _entropy(p: Float32) -> Float32:
    """Return one minus the entropy over its maximum, log of the number of labels."""
    logs = np.log(np.maximum(p, 1e-12))
    certain: Float32 = 1.0 + (p * logs).sum(axis=1) / np.float32(np.log(p.shape[1]))
    return certain


def _no_gain(gain: Gain, bias: Float64, p: Float32) -> Float32:
    """Return half of one minus the expected gain of asking: 0 where the cloud will put it right, 1 where it harms.

    Learning to defer by what both models got right (Narasimhan et al. 2022; Jitkrittum et al. 2023, arXiv:2307.02764).
    """
    exact = p.astype(np.float64)
    top, lead = _confidence(exact), _margin(exact)
    expected = bias[p.argmax(axis=1)] + gain.confidence * (1.0 - top) + gain.margin * (1.0 - lead)
    trust: Float32 = np.clip(0.5 - expected / 2, 0.0, 1.0).astype(np.float32)
    return trust


_SCORES: dict[str, Callable[[Float32], Float32]] = {
    "confidence": _confidence,
    "margin": _margin,
    "entropy": _entropy,
}


class Classification:
    """The `Task` of a bundle whose model answers with a probability for each label.

    Args:
        manifest: labels, windows and gate of the bundle.
        threshold: replaces the bundle's one.
        labels: replace the bundle's, where another model answers: the cloud's order.
    """

    def __init__(self, manifest: Manifest, *, threshold: float | None = None, labels: Sequence[str] = ()) -> None:
        self._own_labels = manifest.output.labels
        self._labels = labels or manifest.output.labels
        self._places = [self._labels.index(label) for label in self._own_labels if label in self._labels]
        self._length_s = manifest.input.window / manifest.input.rate_hz
        self.outputs: tuple[OipTensor, ...] = (OipTensor(PROBABILITIES, "FP32", (-1, len(self._labels))),)
        self.asked = True
        self.types = CLASSIFICATION
        surround = manifest.surround
        self.decide = Gate(manifest.gate if surround is None else surround.gate, threshold).decide
        same = len(self._places) == len(self._own_labels) == len(self._labels)
        self._fusion = surround.fusion if surround is not None and same else None

    def predictions(
        self, windows: Sequence[Window], answers: Float32, decision: Decision, latencies_ms: list[float], by: Author
    ) -> list[Prediction]:
        """See `Task`."""
        # The same figures in the record as in the decision: rounding after the gate, to what float32 can carry.
        rows = answers.astype(np.float64).round(7).tolist()
        keys, slots, starts, _, _, _, epochs = zip(*windows, strict=True)
        labels, length, (model, variant) = self._labels, self._length_s, by
        return [
            Prediction(
                f"{key}@{slot}~{epoch}" if epoch else f"{key}@{slot}",  # `Window.id`, without its calls
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
            for key, slot, epoch, begin, label, scores, difficult, latency_ms in zip(
                keys, slots, epochs, starts, decision.best, rows, decision.hard, latencies_ms, strict=True
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

    def correction(self, found: Finding, mine: Finding, common: Mapping[str, Any], /) -> Correction:
        """See `Task`; fused where the bundle says how, and both have answered about the same labels."""
        fused = None if self._fusion is None else self._fused(self._fusion, mine.scores, found.scores)
        if fused is None:
            return Correction(label=found.label, confidence=found.confidence, scores=found.scores, **common)
        row = fused[0].round(7).tolist()
        top = max(row)
        return FusedCorrection(
            label=self._own_labels[row.index(top)],
            confidence=top,
            scores=row,
            upheld=found.label == mine.label,
            cloud_label=found.label,
            cloud_confidence=found.confidence,
            **common,
        )

    def _fused(self, fusion: Fusion, mine: Sequence[float], theirs: Sequence[float]) -> Float64 | None:
        """Fuse one answer of each; None where the device had none, or one that is not a number."""
        device = np.array([mine], np.float32)  # null is NaN as JSON has it
        if device.shape[1] != len(self._places) or not np.isfinite(device).all():
            return None
        cloud = np.array([[theirs[place] for place in self._places]], np.float32)
        return fuse(fusion, device, cloud).astype(np.float64)

    def upheld(self, correction: Correction) -> bool:
        """Return whether the cloud, for itself, gave the device's label."""
        if isinstance(correction, FusedCorrection):
            return correction.upheld
        return correction.label == correction.supersedes
