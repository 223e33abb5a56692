"""One picture out of several: sums, the slowest, the worst, and what `status` draws of it."""

from __future__ import annotations

from typing import Any

from edge_runtime.app.workers.picture import merged
from edge_runtime.operate.observe.report import Query
from edge_runtime.operate.watch.screen import Painter, ViewState, draw
from tests.edge_runtime.operate.watch.pictured import KEY, report

ABOUT = {"name": "app", "workers": {"state": "well"}}


def of(key: str, age_s: float = 1.0, **more: Any) -> dict[str, Any]:
    """A report of one worker with one key, complete."""
    latency = {"count": 10, "mean": 1.0, "p50": 0.02, "p99": 1.5}
    rest = {
        "rates": {"messages_per_s": 100, "predictions_per_s": 2, "hard_share": 0.5, "cloud_share": 0.0},
        "keys": [KEY | {"key": key, "age_s": age_s}],
        "latency_ms": {"engine": latency, "total": latency},
        "counts": {"predictions_total": 10, "hard_total": 1},
        "gauges": {},
        "corrections": [],
        "update": None,
        "cloud": {"url": "", "reachable": None, "cases": 0, "failures": 0, "corrections": 1, "agreed": 0},
    }
    return report(**(rest | more))


def both(one: dict[str, Any], other: dict[str, Any], query: Query | None = None) -> dict[str, Any]:
    return merged([one, other], query or Query(), ABOUT)


def test_counts_and_rates_are_sums_and_shares_are_of_all_answers() -> None:
    found = both(of("a"), of("b", counts={"predictions_total": 30, "hard_total": 3}))
    assert found["counts"] == {"predictions_total": 40, "hard_total": 4}
    assert (found["rates"]["messages_per_s"], found["rates"]["hard_share"]) == (200, 0.1)
    assert found["keys_found"] == 2
    assert found["process"]["resident_bytes"] == 120 * 2**20


def test_the_keys_that_answered_last_are_shown_by_name() -> None:
    found = both(of("z", 1.0), of("a", 2.0))
    assert [one["key"] for one in found["keys"]] == ["a", "z"]
    assert [one["key"] for one in both(of("z", 1.0), of("a", 2.0), Query(keys=1))["keys"]] == ["z"]


def test_what_is_wrong_is_shown_wherever_it_is() -> None:
    slow = {"count": 5, "mean": 9.0, "p50": 8.0, "p99": 20.0}
    bad = of(
        "b",
        backend={"backend": "fp32 on onnx", "failed": {"int8 on onnx": "it died"}},
        governor={"level": 1, "reason": "hot"},
        brokers={"home": False},
        latency_ms={"engine": slow, "total": slow},
        cloud={"url": "", "reachable": 0.0, "cases": 2, "failures": 1, "corrections": 1, "agreed": 0},
    )
    found = both(of("a"), bad)
    assert found["backend"]["failed"] == {"int8 on onnx": "it died"}
    assert found["governor"] == {"level": 1, "reason": "hot"}
    assert found["brokers"] == {"home": False}
    assert found["latency_ms"]["total"] == slow | {"count": 15}
    assert (found["cloud"]["reachable"], found["cloud"]["cases"]) == (0.0, 2)


def test_drops_of_one_reason_and_outboxes_are_added() -> None:
    late = {"reason": "late", "count": 3, "component": "window", "what": "samples", "advice": "a", "example": ""}
    outbox = {"queued": 2, "dropped": {"expired": 1}, "oldest_age_s": 5.0}
    found = both(
        of("a", drops=[late], outbox=outbox),
        of("b", drops=[late | {"count": 4}], outbox=outbox | {"oldest_age_s": 9.0}),
    )
    assert [one["count"] for one in found["drops"]] == [7]
    assert found["outbox"] == {"queued": 4, "dropped": {"expired": 2}, "oldest_age_s": 9.0}
    assert both(of("a"), of("b"))["outbox"] is None


def test_the_screen_shows_it_as_it_shows_one_application() -> None:
    lines = draw(both(of("kitchen"), of("attic")), None, ViewState(), 100, 30, Painter(colours=False))
    assert [line.split()[0] for line in lines if line.startswith(("attic", "kitchen"))] == ["attic", "kitchen"]
    assert "200 msg/s" in "\n".join(lines)
