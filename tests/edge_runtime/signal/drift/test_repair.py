"""The repair test: likelihoods by another formula, and faults that are undone."""

from __future__ import annotations

import math

import numpy as np

from edge_runtime.signal.drift.features import features, measure
from edge_runtime.signal.drift.repair import Likelihood, RepairTest
from edge_runtime.types import Float64
from tests.edge_runtime.signal.drift.sensors import FLIP, SWAP, UNIT, reference, windows


def density(row: Float64, centre: Float64, covariance: Float64) -> float:
    """Logarithm of a normal density, as a text book has it, without what is the same for all centres."""
    apart = row - centre
    return float(-0.5 * apart @ np.linalg.inv(covariance) @ apart)


def test_the_likelihood_is_that_of_an_equal_mixture_of_normal_densities() -> None:
    known = reference()
    statistics = measure(windows(6, seed=3))
    rows = features(statistics, np.array(known.floors))
    matrix = np.eye(len(known.spread))
    matrix[np.triu_indices(len(known.spread), 1)] = known.correlations
    matrix = matrix + matrix.T - np.eye(len(matrix))
    covariance = matrix * np.outer(known.spread, known.spread)
    wanted = [
        math.log(np.mean([math.exp(density(row, np.array(centre), covariance)) for centre in known.centres]))
        for row in rows
    ]
    np.testing.assert_allclose(Likelihood(known).of(statistics), wanted, rtol=1e-6)


def test_each_fault_is_undone_by_its_own_repair_best() -> None:
    test, right = RepairTest(reference(SWAP, FLIP, UNIT)), windows(40, seed=2)
    swapped = right[:, :, [1, 0, 2]]
    flipped = right * np.array([1, 1, -1], np.float32)
    metric = right * np.float32(9.80665)
    assert (test.scores(measure(right)).mean(axis=0) < 0).all()
    for at, wrong in enumerate((swapped, flipped, metric)):
        scores = test.scores(measure(wrong)).mean(axis=0)
        assert scores.argmax() == at
        assert scores[at] > 2
