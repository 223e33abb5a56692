from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.metrics import BOUNDS_S, LatencyHistogram, Metrics


@given(st.lists(st.floats(1e-5, 99.0), min_size=1, max_size=200), st.sampled_from([0.5, 0.9, 0.99]))
def test_quantiles_lie_in_the_bucket_of_the_true_one(values: list[float], q: float) -> None:
    histogram = LatencyHistogram()
    for value in values:
        histogram.observe(value)
    true = sorted(values)[min(len(values) - 1, int(q * len(values)))]
    found = histogram.quantile(q)
    below = [bound for bound in BOUNDS_S if bound < true]
    above = [bound for bound in BOUNDS_S if bound >= true]
    previous = sorted(values)[max(0, int(q * len(values)) - 1)]
    assert (below[-1] if below else 0.0) <= found <= above[0] or found <= previous * 2.5


def test_bounds_rise_and_reach_a_hundred_seconds() -> None:
    assert list(BOUNDS_S) == sorted(set(BOUNDS_S))
    assert (BOUNDS_S[0], BOUNDS_S[-1]) == (1e-5, 100.0)


def test_what_is_shared_is_counted_once_per_item() -> None:
    histogram = LatencyHistogram()
    histogram.observe(0.002, 32)
    histogram.observe(500.0)
    assert histogram.count == 33
    assert histogram.quantile(0.5) <= 0.002
    assert LatencyHistogram().quantile(0.99) == 0.0


def test_a_snapshot_is_plain_data() -> None:
    metrics = Metrics()
    metrics.counts["readings_total"] += 3
    metrics.dropped["malformed"] += 1
    metrics.stages["engine"].observe(random.Random(0).random())
    snapshot = metrics.snapshot()
    assert snapshot["counts"] == {"readings_total": 3}
    assert snapshot["dropped"] == {"malformed": 1}
    assert snapshot["latency_ms"]["engine"]["count"] == 1


def test_a_drop_of_nothing_is_not_listed() -> None:
    """Mutation: a reason stands in the log, on the page and in Prometheus for which nothing was dropped."""
    metrics = Metrics()
    sink = metrics.of_sink("one")
    metrics.dropped["late"] += 0
    sink.dropped["webhook_closed"] += 0
    assert metrics.dropped == metrics.counts == {}
    sink.dropped["webhook_closed"] += 2
    sink.dropped["webhook_closed"] += 0
    assert metrics.dropped == {"webhook_closed": 2}
