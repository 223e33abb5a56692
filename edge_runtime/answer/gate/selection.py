"""Selection of cases: which answers the cloud is asked about."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edge_runtime.answer.gate.audit import audited
from edge_runtime.answer.gate.budget import Budget
from edge_runtime.answer.handover import Escalation
from edge_runtime.manifest import Manifest
from edge_runtime.metrics import Metrics
from edge_runtime.model.serving.explain import Explainer
from edge_runtime.model.serving.loading import Predictor
from edge_runtime.signal.stage import Stage, WindowBatch
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Hard, Prediction, SuspectPrediction


class Selection(Stage):
    """Decides about one answer after the other. What is refused stays local and is counted by its reason.

    1. Answers of suspect readings are refused: no label of the cloud mends the sensor.
    2. A trusted answer is asked about only where an audit falls on it; such a refusal is no drop.
    3. What the escalation would drop now is refused before it is paid for.
    4. So is a window that is shorter than the bundle's history, where the cloud takes none.
    5. The budget must pay.
    6. A hard case leaves as ``provisional`` and with its explanation; an audit changes nothing of its answer.

    Args:
        escalation: receiver of the cases.
        budget: bounds what is sent.
        audit_share: share of trusted answers that is sent all the same.
        explainer: explains hard cases; None explains none.
        metrics: receives the drops, and ``audit_total``.
    """

    def __init__(
        self, escalation: Escalation, budget: Budget, audit_share: float, explainer: Explainer | None, metrics: Metrics
    ) -> None:
        self.escalation = escalation
        self._budget = budget
        self._explainer = explainer
        self._metrics = metrics
        self._audit_share = audit_share
        self.history = 0
        """Samples of a case, by the bundle that answers."""

    def use(self, manifest: Manifest) -> None:
        """Make cases of as many samples as this bundle asks for, from now on."""
        self.history = manifest.input.history

    def select(
        self,
        batch: WindowBatch,
        predictions: Sequence[Prediction],
        trust: Sequence[float],
        hard: int,
        explained: Predictor | None,
    ) -> None:
        """Append the cases of a batch's answers to it, one for each that no rule refuses; see `consider`.

        Args:
            batch: windows, and where the cases go.
            predictions: one for each window.
            trust: the gate's score of each.
            hard: number of predictions that are hard.
            explained: see `consider`.
        """
        self._budget.seen(len(predictions))
        if not hard and not self._audit_share:
            return
        for window, prediction, score in zip(batch.windows, predictions, trust, strict=True):
            if prediction.hard or self._audit_share:
                self.consider(window, prediction, score, batch.cases, explained)

    def consider(
        self, window: Window, prediction: Prediction, trust: float, hard: list[Hard], explained: Predictor | None
    ) -> None:
        """Append the case of an answer to `hard`, unless a rule refuses it.

        Args:
            window: the window that was answered.
            prediction: its answer, whose route is set.
            trust: the answer's trust, as the gate has it.
            hard: receives the case.
            explained: what is asked for the explanation; None where nothing answers.
        """
        dropped = self._metrics.dropped
        if isinstance(prediction, SuspectPrediction):  # rule 1
            dropped["suspect"] += 1
            return
        audit = not prediction.hard
        if audit and not audited(prediction.id, self._audit_share):  # rule 2
            return
        self._metrics.counts["audit_total"] += audit
        if reason := self.escalation.refuses():  # rule 3
            dropped[reason] += 1
            return
        context = window.context
        if len(context) < self.history and not self.escalation.takes_short():  # rule 4
            dropped["context_short"] += 1
            return
        if refused := self._budget.spend(context.nbytes):  # rule 5
            dropped[f"budget_{refused}"] += 1
            if used := self._budget.describe(refused, context.nbytes):
                self._metrics.examples[f"budget_{refused}"] = used
            return
        prediction.route = "local" if audit else "provisional"  # rule 6
        case = Hard(prediction, np.ascontiguousarray(context.T), trust, audit, digest=window.digest)
        if self._explainer is not None and explained is not None and not audit:
            case.explanation = self._explainer.explain(explained, window)
        hard.append(case)
