"""Anomaly score: normal or not, by a threshold that keeps a stated share of false alarms.

The p-value of a score is the share of normal scores that are at least as high, the score itself counted among them
(conformal prediction: Vovk et al. 2005; Laxhammar and Falkman 2010). If the window is normal and like those that gave
the scores, it is at most r in a share r of cases, whatever the model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from edge_runtime.base.oip import Array, OipTensor
from edge_runtime.errors import BundleError, CloudRejected
from edge_runtime.manifest import Manifest
from edge_runtime.manifest.outputs import ANOMALOUS, AnomalyOutput
from edge_runtime.model.tasks import Finding, ReplyValues
from edge_runtime.model.tasks.common import Files, WindowTask, physical, read_numbers
from edge_runtime.types import Float32

NORMAL = "normal"


def conformal_threshold(scores: Array, false_alarm_rate: float) -> float:
    """Return the score above which a window is anomalous: the k-th of n + 1 sorted normal ones.

    Args:
        scores: (n,) of normal windows, rising.
        false_alarm_rate: share of normal windows above it.

    Raises:
        ValueError: so few scores cannot say; 1 / rate - 1 are needed at least.
    """
    n = len(scores)
    # Rounded: (n + 1) * (1 - rate) may lie a hair above the whole number that is meant.
    k = math.ceil(round((n + 1) * (1 - false_alarm_rate), 9))
    if k > n:
        raise ValueError(
            f"{n} normal scores cannot keep a false_alarm_rate of {false_alarm_rate:g}; "
            f"it needs {math.ceil(round(1 / false_alarm_rate, 9)) - 1} or more"
        )
    return float(scores[k - 1])


class Anomaly(WindowTask):
    """The `Task` of a bundle whose model answers with a score, higher for what is less like normal data.

    Trust is 0 at the threshold. With normal scores it is the distance of the p-value's logarithm from that of the rate,
    over the latter; without, the distance of the score from the threshold as a share of the larger one.

    Args:
        manifest: the bundle's manifest.
        output: its output.
        threshold: replaces that of its gate.
        files: reads `AnomalyOutput.normal`; None where only the cloud's answers are read.

    Raises:
        BundleError: the normal scores do not fit the rate.
    """

    kind = "anomaly"

    def __init__(
        self, manifest: Manifest, output: AnomalyOutput, threshold: float | None, files: Files | None = None
    ) -> None:
        super().__init__(manifest, threshold)
        self._rate = output.false_alarm_rate
        self._normal: Float32 | None = None
        if output.normal and files is not None:
            self._normal = normal_scores(output, files)
        self._limit = math.inf if output.threshold is None else float(np.float32(output.threshold))
        if output.threshold is None and self._normal is not None:
            self._limit = conformal_threshold(self._normal, self._rate)
        self.outputs = (OipTensor(ANOMALOUS, "FP32", (-1, 1)),)

    def find(self, answers: Float32) -> list[Finding]:
        """See `WindowTask`."""
        return [self._found(*row) for row in answers.tolist()]

    def findings(self, answers: Float32) -> list[Finding]:
        """See `WindowTask`; thresholds of keys may follow the scores (`edge_runtime.model.tasks.key_thresholds`)."""
        if answers.shape[1] == 1:
            return super().findings(answers)
        limits = np.where(np.isfinite(answers[:, 1:]), answers[:, 1:], np.float32(self._limit))
        return super().findings(np.concatenate([answers[:, :1], limits], axis=1))

    def _found(self, score: float, limit: float | None = None) -> Finding:
        limit = self._limit if limit is None else limit
        if self._normal is None:
            largest = max(abs(score), abs(limit))
            trust = min(1.0, abs(score - limit) / largest) if largest else 0.0
        else:
            # A key's scores are taken to lie about its threshold as the bundle's do about the bundle's.
            n = len(self._normal)
            higher = n - int(np.searchsorted(self._normal, np.float32(score - limit + self._limit), side="left"))
            trust = min(1.0, abs(1 - math.log((higher + 1) / (n + 1)) / math.log(self._rate)))
        return _finding(score > limit, trust, score, limit)

    def same(self, one: Finding, other: Finding) -> bool:
        """Both say normal, or both anomalous."""
        return bool(one.own["anomalous"] == other.own["anomalous"])

    def offer(self, answers: Float32) -> dict[str, Array]:
        """See `Task`."""
        given = [found.scores or [math.nan] for found in self.findings(answers)]
        return {ANOMALOUS: np.array(given, np.float32).reshape(-1, 1)}

    def read_reply(self, reply: Mapping[str, Array], n: int, _values: ReplyValues, /) -> list[Finding]:
        """See `Task`."""
        given = self._read_numbers(reply, self.outputs[0], n)
        if given.min() < -1e-3 or given.max() > 1 + 1e-3:
            raise CloudRejected(f"the cloud answered numbers in {ANOMALOUS!r} that are not 0 to 1", None)
        return [_finding(p > 0.5, abs(2 * p - 1), None, None) for p in np.clip(given[:, 0], 0, 1).tolist()]


def normal_scores(output: AnomalyOutput, files: Files) -> Float32:
    """Read the normal scores of a bundle.

    Raises:
        BundleError: they do not rise, or are too few for the rate.
    """
    scores = read_numbers(files, output.normal, (-1,))
    if (np.diff(scores) < 0).any():
        raise BundleError(f"{output.normal}: normal scores must rise; sort them")
    try:
        conformal_threshold(scores, output.false_alarm_rate)
    except ValueError as error:
        raise BundleError(f"{output.normal}: {error}") from error
    return scores


def _finding(anomalous: bool, trust: float, score: float | None, limit: float | None) -> Finding:
    trust = round(trust, 7)
    # Never .5 itself: the number alone says on which side it is.
    half = max(trust / 2, 1e-6)
    given = round(0.5 + half if anomalous else 0.5 - half, 7)
    own = {
        "score": None if score is None else physical(score),
        "threshold": None if limit is None else physical(limit),
        "anomalous": anomalous,
    }
    return Finding(ANOMALOUS if anomalous else NORMAL, trust, [given], own)
