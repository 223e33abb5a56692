"""One page of metrics out of several: what is added, what keeps a label, and restarts."""

from __future__ import annotations

from edge_runtime.app.workers.sums import Sums, parse
from edge_runtime.metrics import Metrics
from edge_runtime.operate.observe.exposition import Family, render


def page(predictions: int, late: int = 0, keys: float = 0.0) -> str:
    metrics = Metrics()
    metrics.counts["predictions_total"] = predictions
    if late:
        metrics.dropped["late"] = late
    metrics.gauges['connected{broker="b"}'] = 1.0
    metrics.gauges["home_assistant_keys"] = keys
    metrics.stages["engine"].observe(0.01, predictions)
    return render(metrics).decode()


def sums(text: bytes) -> dict[str, float]:
    return {name: value for family in parse(text.decode()).values() for name, value in family.samples.items()}


def test_counters_and_histograms_are_added_and_gauges_keep_their_worker() -> None:
    found = sums(Sums().page({1: (10, page(3, late=2)), 2: (11, page(4, keys=7))}, {}, openmetrics=False))
    assert found["edge_predictions_total"] == 7
    assert found['edge_dropped_total{reason="late"}'] == 2
    assert found['edge_stage_seconds_count{stage="engine"}'] == 7
    assert found['edge_stage_seconds_bucket{stage="engine",le="+Inf"}'] == 7
    assert found['edge_connected{worker="1",broker="b"}'] == found['edge_connected{worker="2",broker="b"}'] == 1
    assert found['edge_home_assistant_keys{worker="2"}'] == 7
    assert "edge_home_assistant_keys" not in found


def test_a_sum_never_falls() -> None:
    """A worker that ended, one that does not answer, and one that was started again twice."""
    both = Sums()
    seen = [
        sums(both.page(pages, {}, openmetrics=False))["edge_predictions_total"]
        for pages in (
            {1: (10, page(100)), 2: (11, page(50))},
            {1: (10, page(110))},
            {1: (10, page(120)), 2: (12, page(1))},
            {1: (10, page(120)), 2: (13, page(2))},
            {},
        )
    ]
    assert seen == [150, 160, 171, 173, 173]


def test_both_formats_have_a_head_for_each_family_and_what_the_parent_counts() -> None:
    own = {"edge_workers": Family("gauge", {"edge_workers": 2.0})}
    text = Sums().page({1: (10, page(3))}, own, openmetrics=False).decode()
    assert "# TYPE edge_predictions_total counter\nedge_predictions_total 3\n" in text
    assert "# HELP edge_workers Workers that should run.\n# TYPE edge_workers gauge\nedge_workers 2\n" in text
    strict = Sums().page({1: (10, page(3))}, own, openmetrics=True).decode()
    assert "# TYPE edge_predictions counter\nedge_predictions_total 3\n" in strict
    assert strict.endswith("# EOF\n")


def test_a_label_may_hold_any_text() -> None:
    metrics = Metrics()
    metrics.dropped['odd } "reason" 1'] = 2
    found = Sums().page({1: (10, render(metrics).decode()), 2: (11, render(metrics).decode())}, {}, openmetrics=False)
    assert sums(found)['edge_dropped_total{reason="odd } \\"reason\\" 1"}'] == 4
