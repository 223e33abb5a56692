from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from edge_export.choose.evaluation.calibration import smoothed_targets
from edge_export.choose.surround.asking import CalibratedAnswers
from edge_export.choose.surround.fusion import HALF, choose_fusion, fit_fusion
from edge_export.choose.surround.log_linear import cross_entropy

from edge_runtime.manifest.surround import Fusion
from edge_runtime.model.tasks.fusion import fuse
from edge_runtime.types import Float32
from tests.edge_export.choose.surround.streams import CLASSES, simulated


def choose(given: CalibratedAnswers) -> Fusion:
    return choose_fusion(given.device, given.cloud, given.y, given.fold, given.group)


def surer(p: Float32, by: float) -> Float32:
    return fuse(Fusion(device=by, cloud=0), p, p)


def test_the_weights_are_those_that_another_optimiser_finds() -> None:
    optimize = pytest.importorskip("scipy.optimize", reason="an oracle (edge-export[train], with sklearn)")
    given = simulated(n=400, device=1.0, cloud=1.0)
    given = replace(given, device=surer(given.device, 2.0), cloud=surer(given.cloud, 0.5))
    targets = smoothed_targets(given.y, CLASSES)

    def cost(weights: np.ndarray[tuple[int], np.dtype[np.float64]]) -> float:
        fused = fuse(Fusion(device=weights[0], cloud=weights[1]), given.device, given.cloud)
        return float(cross_entropy(fused.astype(float), targets).sum() + 10 * ((weights - 0.5) ** 2).sum())

    found = optimize.minimize(cost, [0.6, 0.6], method="Nelder-Mead").x
    fitted = fit_fusion(given.device, given.cloud, given.y)
    assert [fitted.device, fitted.cloud] == pytest.approx(found, abs=0.01)
    assert fitted.cloud > 2 * fitted.device  # what is too sure of itself counts less


def test_a_model_that_knows_less_than_nothing_has_no_part() -> None:
    given = simulated(n=400)
    fitted = fit_fusion(given.device, np.roll(given.cloud, 1, axis=1), given.y)
    assert fitted.cloud == 0
    assert fitted.device > 0.5


def test_two_that_know_less_than_nothing_stay_half_and_half() -> None:
    given = simulated(n=400)
    fitted = fit_fusion(np.roll(given.device, 1, axis=1), np.roll(given.cloud, 1, axis=1), given.y)
    assert fitted.device + fitted.cloud > 0


def test_fitted_weights_are_taken_where_every_group_bears_them_out() -> None:
    """One model is surer than it is right, in all groups alike."""
    given = simulated()
    given = replace(given, device=surer(given.device, 4.0))
    fusion = choose(given)
    assert fusion.device < 0.5 < fusion.cloud
    assert fusion == fit_fusion(given.device, given.cloud, given.y)


def test_half_and_half_stays_where_groups_differ_in_which_of_the_two_is_right() -> None:
    given = simulated()
    turned = given.group.astype(int) == 0  # the cloud is sure of nonsense about one of eight
    given = replace(given, cloud=np.where(turned[:, None], np.roll(surer(given.cloud, 3.0), 1, axis=1), given.cloud))
    assert choose(given) == HALF


def test_one_fold_can_say_nothing_of_the_next_group() -> None:
    given = simulated()
    given = replace(given, device=surer(given.device, 4.0), fold=np.zeros_like(given.fold))
    assert choose(given) == HALF
