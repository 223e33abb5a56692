from __future__ import annotations

import numpy as np
import pytest
from edge_export.choose.surround.hold import fit_hold


def test_the_spread_is_the_distance_of_the_thresholds_for_half_and_twice_the_share() -> None:
    places = np.random.default_rng(0).normal(3.0, 2.0, 200_000)
    fitted = fit_hold((1 / (1 + np.exp(-places))).astype(np.float32), 0.1)
    assert fitted.spread == pytest.approx(2.0 * (-0.8416 + 1.6449), rel=0.02)
    assert fitted.threshold == pytest.approx(1 / (1 + np.exp(-(3.0 - 2.0 * 1.2816))), rel=0.02)
    assert fit_hold(np.full(50, 0.9, np.float32), 0.1).spread == 0.02
