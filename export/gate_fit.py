"""The gate of a bundle: the score that ranks wrong answers lowest, and the threshold that keeps what was promised."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from edge_runtime.manifest import GateSpec
from export.calibrate import (
    SCORES,
    area_under_risk_coverage,
    gate_figures,
    scores,
    threshold_for_risk,
    threshold_for_share,
)
from export.data import Float32, Windows
from export.recipe import GateRecipe


@dataclass(frozen=True, slots=True, kw_only=True)
class FittedGate:
    """A gate, and what it promises.

    Attributes:
        spec: as the manifest holds it.
        promise: how it was found, and its figures on the windows it was fitted to.
    """

    spec: GateSpec
    promise: Mapping[str, Any]

    def figures(self) -> dict[str, Any]:
        """Its part of the report."""
        return {**asdict(self.spec), "promise": dict(self.promise)}


def fit_gate(recipe: GateRecipe, device: Float32, cloud: Float32, windows: Windows) -> FittedGate:
    """Fit a gate to answers of both models.

    Args:
        recipe: what to promise.
        device: (n, classes) probabilities of the file that ships, at its temperature.
        cloud: (n, classes) probabilities of the cloud's model, for the same windows.
        windows: of groups that neither was trained on.

    Raises:
        ConfigError: the promise cannot be kept; says what was reached.
    """
    correct = device.argmax(axis=1) == windows.y
    ranking = {score: area_under_risk_coverage(scores(device, score), correct) for score in SCORES}
    score = min(ranking, key=lambda each: ranking[each]) if recipe.score == "auto" else recipe.score
    trust = scores(device, score)
    promise: dict[str, Any] = {"area_under_risk_coverage": ranking}
    if recipe.max_local_error:
        risk = threshold_for_risk(
            trust, correct, windows.group, max_error=recipe.max_local_error, confidence=recipe.confidence
        )
        threshold = risk.threshold
        promise |= asdict(risk)
    else:
        threshold = threshold_for_share(trust, recipe.max_forwarded)
    # Seven digits are what float32 holds; downwards, since a window below the threshold is hard.
    threshold = float(np.nextafter(np.float32(threshold), np.float32(0))) if threshold > 0 else threshold
    expected = gate_figures(device, cloud, windows.y, threshold=threshold, score=score)
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
