"""The gate of a bundle: the score that ranks wrong answers lowest, and the threshold that keeps what was promised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_export.choose.evaluation.calibration import (
    SCORES,
    area_under_risk_coverage,
    gate_metrics,
    scores,
    threshold_for_risk,
    threshold_for_share,
)
from edge_export.data.dataset import Float32, Int64, Windows
from edge_export.metrics import evaluate
from edge_export.recipe.recipe import GateRecipe
from edge_runtime.manifest import GateSpec
from edge_runtime.model.tasks.classification import Gate


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedGate:
    """A gate, and what it promises.

    Attributes:
        spec: as the manifest holds it.
        promise: how it was found, and its figures on the windows it was fitted to.
    """

    spec: GateSpec
    promise: Mapping[str, Any]

    @property
    def said(self) -> list[str]:
        """Summary for the user, a line each."""
        shares = self.promise["forwarded_by_group"].values()
        lines = [f"gate: {self.spec.score} below {self.spec.threshold:.7g} goes to the cloud"]
        if len(shares) > 1:
            lines[0] += f"; by validation group, {min(shares):.1%} to {max(shares):.1%} of the windows"
        if "withheld" in self.promise:
            line = "gate: asking the cloud does not pay, so only what is less sure than all of validation is hard: "
            return [line + self.promise["useless"]]
        if self.promise["useless"]:
            lines.append(f"gate: asking the cloud does not pay: {self.promise['useless']}")
        return lines

    def metrics(self) -> dict[str, Any]:
        """Its part of the report."""
        return {**asdict(self.spec), "promise": dict(self.promise)}


def fit_gate(
    recipe: GateRecipe, device: Float32, cloud: Float32, windows: Windows, *, metric: str = "accuracy"
) -> FittedGate:
    """Fit a gate to answers of both models.

    1. A share of windows, or a bound on local errors, sets the threshold.
    2. A gate for a share exists to make answers better. Where, on these windows, the cloud's answers in place of the
       device's do not, it does not ship: the threshold lies below the score of each of them. Nothing like them is
       forwarded; what is less sure than all of them is still called hard. The reason is told.
    3. A gate for a bound on local errors marks what is not to be trusted, and ships all the same.

    Args:
        recipe: what to promise.
        device: (n, classes) probabilities of the file that ships, at its temperature.
        cloud: (n, classes) probabilities of the cloud's model, for the same windows.
        windows: windows of groups that neither was trained on.
        metric: ``accuracy`` or ``macro_f1``: what is to become better.

    Raises:
        ConfigError: the promise cannot be kept; says what was reached.
    """
    correct = device.argmax(axis=1) == windows.y
    ranking = {score: area_under_risk_coverage(scores(device, score), correct) for score in SCORES}
    score = min(ranking, key=lambda each: ranking[each]) if recipe.score == "auto" else recipe.score
    trust = scores(device, score)
    promise: dict[str, Any] = {"area_under_risk_coverage": ranking}
    if recipe.max_local_error:  # rule 1
        risk = threshold_for_risk(
            trust, correct, windows.group, max_error=recipe.max_local_error, confidence=recipe.confidence
        )
        threshold = risk.threshold
        promise |= asdict(risk)
    else:
        threshold = threshold_for_share(trust, recipe.max_forwarded)
    threshold = just_below(threshold)
    hard = np.array(Gate(GateSpec(score=score, threshold=threshold)).decide(device).hard)
    promise["forwarded_by_group"] = {
        str(group): float(hard[windows.group == group].mean()) for group in np.unique(windows.group)
    }
    promise["useless"] = _useless(device, cloud, hard, windows.y, metric)
    if promise["useless"] and not recipe.max_local_error:  # rules 2 and 3
        promise["withheld"] = asdict(gate_metrics(device, cloud, windows.y, threshold=threshold, score=score))
        threshold = just_below(threshold_for_share(trust, 0.0))
    expected = gate_metrics(device, cloud, windows.y, threshold=threshold, score=score)
    promise["validation"] = asdict(expected)
    spec = GateSpec(
        score=score,
        threshold=threshold,
        expected={
            "forwarded": round(expected.forwarded, 4),
            "local_error": round(1 - expected.local_accuracy, 4),
            "combined_error": round(1 - expected.combined_accuracy, 4),
        },
    )
    return FittedGate(spec=spec, promise=promise)


def just_below(threshold: float) -> float:
    """Round down to a float32 below: that is what scores are, and a window below the threshold is hard."""
    return float(np.nextafter(np.float32(threshold), np.float32(0))) if threshold > 0 else threshold


def _useless(device: Float32, cloud: Float32, hard: npt.NDArray[np.bool_], y: Int64, metric: str) -> str:
    """Explain why asking the cloud about the hard windows does not pay; empty where it does."""
    answers = {"device": device, "both": np.where(hard[:, None], cloud, device)}
    alone, both = (
        each.accuracy if metric == "accuracy" else each.macro_f1
        for each in evaluate(answers, y, reference="device", resamples=1)
    )
    if both > alone:
        return ""
    right, would = (each[hard].argmax(axis=1) == y[hard] for each in (device, cloud))
    name = "accuracy" if metric == "accuracy" else "macro F1"
    corrected, harmed = int((would & ~right).sum()), int((right & ~would).sum())
    return (
        f"with the cloud's answers to the {int(hard.sum())} hard windows of validation groups the {name} is "
        f"{both:.4f}, without {alone:.4f} ({corrected} corrected, {harmed} made wrong)"
    )
