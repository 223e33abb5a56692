"""Base of the tasks other than classification: an answer is found window by window, and its trust is its gate.

A window's answer is the same alone and among others, so nothing here reckons across windows.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from edge_runtime.base.oip import Array, OipTensor
from edge_runtime.errors import BundleError, CloudRejected
from edge_runtime.manifest import Manifest
from edge_runtime.model.tasks import Author, Finding, ReplyValues
from edge_runtime.model.tasks.answers import TYPES
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Correction, Decision, Float32, Prediction

Files = Callable[[str], Float32]
"""Reads an .npy file of the bundle."""

NOTHING = Finding("", 0.0, [])
"""Of numbers that are none."""


class WindowTask(ABC):
    """Base of a `Task` that finds one window's answer at a time.

    Args:
        manifest: windows and gate of the bundle.
        threshold: replaces the bundle's one.
    """

    kind: ClassVar[str]
    outputs: tuple[OipTensor, ...]
    asked = True

    def __init__(self, manifest: Manifest, threshold: float | None) -> None:
        self._threshold = manifest.gate.threshold if threshold is None else threshold
        self._length_s = manifest.input.window / manifest.input.rate_hz
        self.types = TYPES[self.kind]

    @abstractmethod
    def find(self, answers: Float32) -> list[Finding]:
        """Find the answers to windows, all of whose numbers are finite; `Finding.confidence` is the gate's score."""

    def findings(self, answers: Float32) -> list[Finding]:
        """Find the answers to windows; `NOTHING` where a number is not finite."""
        fine = np.asarray(np.isfinite(answers.reshape(len(answers), -1)).all(axis=1))
        if fine.all():
            return self.find(answers)
        found = iter(self.find(answers[fine]) if fine.any() else ())
        return [next(found) if one else NOTHING for one in fine.tolist()]

    def decide(self, answers: Float32) -> Decision:
        """See `Task`."""
        best = self.findings(answers)
        trust = [found.confidence for found in best]
        hard = [found is NOTHING or found.confidence < self._threshold for found in best]
        return Decision(best, trust, hard)

    def predictions(
        self,
        windows: Sequence[Window],
        answers: Float32,  # noqa: ARG002 - `decide` has read them
        decision: Decision,
        latencies_ms: list[float],
        by: Author,
    ) -> list[Prediction]:
        """See `Task`."""
        made, length, (model, variant) = self.types.prediction, self._length_s, by
        return [
            made(
                window.id,
                window.key,
                start := round(window.start * 1e6) / 1e6,
                round((start + length) * 1e6) / 1e6,
                found.label,
                found.confidence,
                found.scores,
                "local",
                hard,
                model,
                variant,
                latency_ms,
                **found.own,
            )
            for window, found, hard, latency_ms in zip(windows, decision.best, decision.hard, latencies_ms, strict=True)
        ]

    def agree(self, one: Float32, other: Float32) -> list[bool]:
        """See `Task`."""
        pairs = zip(self.findings(one), self.findings(other), strict=True)
        return [(a is NOTHING) == (b is NOTHING) and (a is NOTHING or self.same(a, b)) for a, b in pairs]

    @abstractmethod
    def same(self, one: Finding, other: Finding) -> bool:
        """Return whether a user would be told the same."""

    @abstractmethod
    def offer(self, answers: Float32) -> dict[str, Array]:
        """See `Task`."""

    @abstractmethod
    def read_reply(self, reply: Mapping[str, Array], n: int, values: ReplyValues, /) -> list[Finding]:
        """See `Task`."""

    def correction(self, found: Finding, mine: Finding, common: Mapping[str, Any], /) -> Correction:
        """See `Task`."""
        # Of a case without an answer of the device's, there is nothing to uphold.
        more = {**common, **found.own, "upheld": len(mine.own) > 1 and self.same(mine, found)}
        return self.types.correction(label=found.label, confidence=found.confidence, scores=found.scores, **more)

    def upheld(self, correction: Correction) -> bool:
        """See `Task`."""
        return bool(vars(correction)["upheld"])

    def _read_labels(self, reply: Mapping[str, Array], n: int, *, empty: bool = False) -> list[tuple[str, float]]:
        """Return the label and the trust of each case that the cloud answered; without ``confidence``, trust is 1.

        Args:
            reply: what it answered.
            n: cases.
            empty: a label may be an empty text.

        Raises:
            CloudRejected: a label is missing, or is no text.
        """
        given = reply.get("label")
        if given is None or given.shape != (n, 1) or given.dtype.kind not in "OSU":
            found = "nothing" if given is None else f"{given.dtype} {given.shape}"
            raise CloudRejected(f"the cloud answered {found} where 'label' BYTES [{n}, 1] is due", None)
        spec = LABEL_AND_TRUST[1]
        trust = floats(np.clip(self._read_numbers(reply, spec, n)[:, 0], 0, 1)) if spec.name in reply else [1.0] * n
        return [(_text(label, empty=empty), one) for label, one in zip(given[:, 0].tolist(), trust, strict=True)]

    def _offer_labels(self, answers: Float32) -> dict[str, Array]:
        """Return label and confidence of answers, as a server offers them."""
        found = self.findings(answers)
        labels = np.array([one.label for one in found], object).reshape(-1, 1)
        return {"label": labels, "confidence": np.array([[one.confidence] for one in found], np.float32)}

    def _read_numbers(self, reply: Mapping[str, Array], spec: OipTensor, n: int) -> Float32:
        """Return a tensor of the cloud's answer, all finite.

        Raises:
            CloudRejected: it is missing, or of another shape or kind.
        """
        array = reply.get(spec.name)
        wanted = OipTensor(spec.name, spec.datatype, (n, *spec.shape[1:]))
        if array is None or not wanted.accepts(array.shape) or array.dtype.kind not in "fiu":
            found = "nothing" if array is None else f"{array.dtype} {array.shape}"
            raise CloudRejected(f"the cloud answered {found} where {wanted} is due", None)
        numbers = array.astype(np.float32)
        if not np.isfinite(numbers).all():
            raise CloudRejected(f"the cloud answered numbers in {spec.name!r} that are not finite", None)
        return numbers


LABEL_AND_TRUST = (OipTensor("label", "BYTES", (-1, 1)), OipTensor("confidence", "FP32", (-1, 1)))
"""Answer of a server whose model gives one text for each window."""


def _text(label: object, *, empty: bool) -> str:
    try:
        text = label.decode() if isinstance(label, bytes) else label
    except UnicodeDecodeError:
        text = None
    if not isinstance(text, str) or not (text or empty):
        raise CloudRejected("the cloud answered a label that is no text", None)
    return text


def floats(numbers: Iterable[float]) -> list[float]:
    """Return numbers as JSON carries them: rounded to 7 decimals, as those of a classification."""
    return [round(float(one), 7) for one in numbers]


def physical(number: float) -> float:
    """Return a number of any size as JSON carries it, to the 7 digits that float32 has."""
    return float(f"{number:.7g}")


def about(p: float, threshold: float) -> float:
    """Return how far a probability lies from its threshold: 0 there, 1 at 0 and at 1."""
    return abs(p - threshold) / (threshold if p < threshold else 1 - threshold)


def sigmoid(x: Float32) -> Float32:
    """Return probabilities of logits."""
    with np.errstate(over="ignore"):
        return np.asarray(1 / (1 + np.exp(-x.astype(np.float64))), np.float32)


def read_numbers(files: Files, name: str, shape: tuple[int, ...]) -> Float32:
    """Read a file of numbers that an output names.

    Args:
        files: reads one.
        name: the file's name.
        shape: the array's shape; -1 for any number of rows.

    Raises:
        BundleError: it has another shape, or holds numbers that are not finite.
    """
    array = files(name)
    if array.ndim != len(shape) or any(size not in (-1, has) for size, has in zip(shape, array.shape, strict=True)):
        raise BundleError(f"{name}: has the shape {array.shape}, the manifest's output calls for {shape}")
    if not math.prod(array.shape) or not np.isfinite(array).all():
        raise BundleError(f"{name}: must hold numbers, all finite")
    return array
