"""Counts and latency histograms that the whole pipeline feeds; exporters only read them.

Names follow the Prometheus conventions (unit in the name, ``_total`` on counters), so an exporter has nothing to
rename. Counters are plain integers bumped by one thread each; `Metrics` has no lock on the hot path. Reading from
another thread sees each number at some recent moment, which is all that a scrape needs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

# 1-2-5 steps from 10 microseconds to 100 seconds: two significant steps more than any latency this runtime promises.
BOUNDS_S: tuple[float, ...] = (*(m * 10.0**e for e in range(-5, 2) for m in (1, 2, 5)), 100.0)

STAGES = ("decode", "window", "wait", "engine", "publish", "cloud", "total")


class LatencyHistogram:
    """Latencies in fixed buckets: constant memory, exact counts, quantiles by interpolation inside a bucket."""

    __slots__ = ("counts", "total_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.total_s = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        """Count a latency, `times` over where several items shared it."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += times
        self.total_s += seconds * times

    @property
    def count(self) -> int:
        """Number of observations."""
        return sum(self.counts)

    def quantile(self, q: float) -> float:
        """Return the latency in seconds below which a share `q` of the observations lies; 0.0 without observations."""
        counts = list(self.counts)
        rank = q * sum(counts)
        seen = 0
        for i, n in enumerate(counts):
            if n and seen + n >= rank:
                low = BOUNDS_S[i - 1] if i else 0.0
                high = BOUNDS_S[min(i, len(BOUNDS_S) - 1)]
                return low + (high - low) * max(0.0, rank - seen) / n
            seen += n
        return 0.0


class Drops(Counter[str]):
    """Counts by reason; one of nothing is not listed."""

    def __setitem__(self, reason: str, count: int) -> None:
        if count or reason in self:
            super().__setitem__(reason, count)


class _SinkDrops(Drops):
    """Answers that one sink dropped, by reason; counted among all drops as well."""

    def __init__(self, sink: str, metrics: Metrics) -> None:
        super().__init__()
        self._sink = sink
        self._metrics = metrics

    def __setitem__(self, reason: str, count: int) -> None:
        fresh = count - self[reason]
        self._metrics.dropped[reason] += fresh
        if fresh:
            self._metrics.counts[f'sink_dropped_total{{sink="{self._sink}",reason="{reason}"}}'] += fresh
        super().__setitem__(reason, count)


@dataclass(slots=True)
class Metrics:
    """All figures of one running pipeline.

    `counts` holds monotone counters under their Prometheus names; labelled ones are keyed ``(name, label)``.
    """

    counts: Counter[str] = field(default_factory=Counter)
    """For example ``readings_total``, ``windows_total``, ``predictions_total``, ``hard_total``."""
    dropped: Counter[str] = field(default_factory=Drops)
    """Messages, samples, windows and results not used, by reason: ``malformed``, ``late``, ``not_finite``, ..."""
    examples: dict[str, str] = field(default_factory=dict)
    """By drop reason, the last message or row that was refused, in words; for the log."""
    gauges: dict[str, float] = field(default_factory=dict)
    """Levels that go up and down: ``keys``, ``outbox_queued``, ``connected``."""
    stages: dict[str, LatencyHistogram] = field(default_factory=lambda: {stage: LatencyHistogram() for stage in STAGES})

    def of_sink(self, name: str) -> Metrics:
        """Return the same figures for a sink, whose drops are counted under its name besides."""
        return Metrics(self.counts, _SinkDrops(name, self), self.examples, self.gauges, self.stages)

    def snapshot(self) -> dict[str, Any]:
        """Everything as plain data, ready for JSON."""
        return {
            "counts": dict(self.counts),
            "dropped": dict(self.dropped),
            "gauges": dict(self.gauges),
            "latency_ms": {
                name: {
                    "count": h.count,
                    "mean": round(1e3 * h.total_s / max(1, h.count), 4),
                    "p50": round(1e3 * h.quantile(0.50), 4),
                    "p99": round(1e3 * h.quantile(0.99), 4),
                }
                for name, h in self.stages.items()
            },
        }
