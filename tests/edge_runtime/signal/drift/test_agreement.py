"""Agreement of device and cloud, as an estimate with its interval."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.metrics import Metrics
from edge_runtime.signal.drift.agreement import FEWEST, KEPT, Agreement, ShareInterval, weighted, wilson


@given(st.integers(1, 500), st.data())
def test_wilson_holds_the_share_and_stays_within_zero_and_one(trials: int, data: st.DataObject) -> None:
    successes = data.draw(st.integers(0, trials))
    low, high = wilson(successes, trials)
    assert 0 <= low <= successes / trials <= high <= 1
    assert low < high


def test_a_weighted_sum_of_one_share_is_that_share() -> None:
    alone = ShareInterval(0.9, *wilson(90, 100))
    assert weighted([(1.0, alone)]) == pytest.approx(alone)
    assert weighted([(0.5, alone), (0.5, alone)]).low > alone.low, "two samples know more than one"


def test_the_interval_of_a_weighted_sum_holds_the_truth_as_often_as_it_says() -> None:
    rng, held = np.random.default_rng(0), 0
    for _ in range(400):
        parts = []
        for weight, truth, trials in ((0.8, 0.95, 120), (0.2, 0.6, 80)):
            agreed = int(rng.binomial(trials, truth))
            parts.append((weight, ShareInterval(agreed / trials, *wilson(agreed, trials))))
        found = weighted(parts)
        held += found.low <= 0.8 * 0.95 + 0.2 * 0.6 <= found.high
    assert held / 400 > 0.92


def test_little_is_not_spoken_of() -> None:
    metrics = Metrics()
    Agreement(metrics).learn([(False, True)] * (FEWEST - 1))
    assert not metrics.gauges


def test_trusted_and_hard_answers_are_weighted_by_how_many_were_hard() -> None:
    metrics = Metrics()
    metrics.counts["predictions_total"], metrics.counts["hard_total"] = 1000, 250
    agreement = Agreement(metrics)
    agreement.learn([(False, True)] * 90 + [(False, False)] * 10)
    assert metrics.gauges['agreement_ratio{answers="trusted"}'] == 0.9
    assert 'agreement_ratio{answers="all"}' not in metrics.gauges, "nothing is known of the hard ones"
    agreement.learn([(True, True)] * 20 + [(True, False)] * 20)
    assert metrics.gauges['agreement_ratio{answers="hard"}'] == 0.5
    assert metrics.gauges['agreement_ratio{answers="all"}'] == pytest.approx(0.75 * 0.9 + 0.25 * 0.5)
    low, high = (metrics.gauges[f'agreement_{end}_ratio{{answers="all"}}'] for end in ("low", "high"))
    assert low < 0.8 < high


def test_what_is_old_no_longer_counts() -> None:
    metrics = Metrics()
    agreement = Agreement(metrics)
    agreement.learn([(False, False)] * 100)
    agreement.learn([(False, True)] * KEPT)
    assert metrics.gauges['agreement_ratio{answers="trusted"}'] == 1
