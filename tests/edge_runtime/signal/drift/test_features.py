"""Features: a fault of a sensor does to them what it does to the window."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.manifest.drift import Repair, features_of
from edge_runtime.signal.drift.features import Repairs, alive, features, measure, whitening

NAMES = ("ax", "ay", "az", "wx")


@settings(max_examples=60, deadline=None)
@given(
    order=st.permutations(range(4)),
    signs=st.tuples(*[st.sampled_from([-1.0, 1.0])] * 4),
    factors=st.tuples(*[st.floats(0.01, 100.0)] * 4),
    seed=st.integers(0, 1000),
)
def test_what_is_done_to_a_stream_is_done_to_its_statistics(
    order: list[int], signs: tuple[float, ...], factors: tuple[float, ...], seed: int
) -> None:
    rng = np.random.default_rng(seed)
    x = np.cumsum(rng.normal(0, 1, (3, 40, 4)), axis=1) + rng.normal(0, 5, (3, 1, 4))
    takes = tuple(f"{'-' if sign < 0 else ''}{NAMES[at]}" for at, sign in zip(order, signs, strict=True))
    repairs = Repairs([Repair(fault="moved", cause="orientation", takes=takes, factors=factors)], NAMES)
    moved = measure(x[:, :, order] * np.array(signs) * np.array(factors))
    for known, wanted in zip(repairs.apply(measure(x)), moved, strict=True):
        np.testing.assert_allclose(known[:, 0], wanted, rtol=1e-6, atol=1e-9)


def test_statistics_are_those_of_numpy() -> None:
    x = np.random.default_rng(0).normal(2, 3, (2, 64, 3))
    found = measure(x)
    np.testing.assert_allclose(found.mean, x.mean(axis=1))
    np.testing.assert_allclose(found.deviation, x.std(axis=1))
    np.testing.assert_allclose(np.tanh(found.correlation[1]), np.corrcoef(x[1].T)[np.triu_indices(3, 1)])
    assert features(found, np.full(3, 0.01)).shape == (2, features_of(3))


def test_the_centroid_of_a_tone_is_its_frequency() -> None:
    tone = np.sin(2 * np.pi * 0.125 * np.arange(64))
    found = measure(np.stack([tone, np.ones(64), 5 * tone + 3], axis=1)[np.newaxis])
    np.testing.assert_allclose(found.centroid[0], [0.125, 0, 0.125], atol=1e-9)


def test_a_channel_that_rests_is_not_alive_even_where_interpolation_rounds() -> None:
    x = np.random.default_rng(0).normal(0, 1, (3, 50, 2))
    x[1, :, 1] = 9.81
    x[2, :, 0] = 9.81 * (1 + 1e-7 * np.sign(x[2, :, 0]))
    assert alive(measure(x)).tolist() == [True, False, False]


def test_whitened_features_are_uncorrelated_and_of_size_one() -> None:
    rng = np.random.default_rng(0)
    rows = rng.normal(0, 1, (5000, 3)) @ np.array([[2.0, 0.3, 0], [0, 1, 0.5], [0, 0, 0.1]])
    above = np.triu_indices(3, 1)
    white = rows @ whitening(rows.std(axis=0).tolist(), np.corrcoef(rows.T)[above].tolist())
    np.testing.assert_allclose(np.cov(white.T), np.eye(3), atol=0.05)
