"""MiniRocket's transform, written from the paper."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch", reason="MiniRocket convolves by torch (edge-export[train])")
pytest.importorskip("sklearn", reason="and is classified by ridge regression (edge-export[train])")

from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.accuracy.rocket import FEATURES, MiniRocket, minirocket


@pytest.mark.slow
def test_minirocket_tells_rhythms_apart_in_noise() -> None:
    random = np.random.default_rng(0)
    t = np.arange(100)
    y = random.integers(0, 3, 120)
    phase = random.uniform(0, 6, (120, 1))
    waves = np.sin(2 * np.pi * t / np.array([9.0, 13.0, 19.0])[y][:, None] + phase)
    x = (np.stack([waves, waves[:, ::-1]], axis=1) + random.normal(0, 0.7, (120, 2, 100))).astype(np.float32)
    found = minirocket(x[:80], y[:80], x[80:], seed=1)
    assert (found == y[80:]).mean() > 0.9
    features = MiniRocket(1).fit(x[:80]).transform(x[:5])
    assert features.shape == (5, FEATURES)
    assert ((features >= 0) & (features <= 1)).all()


@settings(max_examples=10, deadline=None)
@given(st.integers(9, 300))
def test_minirocket_makes_all_its_features_of_any_length(samples: int) -> None:
    x = np.random.default_rng(samples).normal(size=(4, 1, samples)).astype(np.float32)
    assert MiniRocket(0).fit(x).transform(x).shape == (4, FEATURES)
