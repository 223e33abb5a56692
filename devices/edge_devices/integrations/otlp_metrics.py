"""Metrics as OTLP messages: what ``/metrics`` shows, under the same names, so that alerts and panels fit both ways.

Counters and histograms are cumulative from the start of the application, so a request that is lost costs nothing but
its resolution.

Source: opentelemetry.io/docs/specs/otel/metrics/data-model.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from typing import Final

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.metrics.v1.metrics_pb2 import (
    AGGREGATION_TEMPORALITY_CUMULATIVE,
    Gauge,
    HistogramDataPoint,
    Metric,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Histogram as HistogramData
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from edge_devices.integrations.otlp_spans import SCOPE, attributes
from edge_runtime.metrics import BOUNDS_S, LatencyHistogram, Metrics
from edge_runtime.operate.observe.catalogue import DROPPED, STAGE, described, unit_of
from edge_runtime.operate.observe.exposition import PREFIX, Figures, escape

_LABEL: Final = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")


def metrics_request(
    metrics: Metrics, figures: Figures, resource: Resource, times: tuple[int, int]
) -> ExportMetricsServiceRequest:
    """Make the message that a collector takes; from any thread.

    Args:
        metrics: the application's metrics.
        figures: what is shown besides.
        resource: the application, as the collector knows it.
        times: start of the application and now, nanoseconds since 1970.
    """
    dropped = {f'{DROPPED}{{reason="{escape(reason)}"}}': count for reason, count in dict(metrics.dropped).items()}
    info = ",".join(f'{name}="{escape(value)}"' for name, value in figures.info.items())
    counts = {**dict(metrics.counts), **figures.counts, **dropped}
    gauges = {**dict(metrics.gauges), **figures.gauges, f"build_info{{{info}}}": 1}
    families = [
        *(_metric(name, sum=_sum(points)) for name, points in _families(counts, times)),
        *(_metric(name, gauge=Gauge(data_points=points)) for name, points in _families(gauges, times)),
        _metric(STAGE, histogram=_histograms(metrics.stages, times)),
    ]
    scope = ScopeMetrics(scope=SCOPE, metrics=families)
    return ExportMetricsServiceRequest(resource_metrics=[ResourceMetrics(resource=resource, scope_metrics=[scope])])


def _metric(
    name: str,
    *,
    sum: Sum | None = None,  # noqa: A002 - the message's own name
    gauge: Gauge | None = None,
    histogram: HistogramData | None = None,
) -> Metric:
    return Metric(
        name=f"{PREFIX}{name}",
        description=described(name),
        unit=unit_of(name),
        sum=sum,
        gauge=gauge,
        histogram=histogram,
    )


def _sum(points: list[NumberDataPoint]) -> Sum:
    return Sum(data_points=points, aggregation_temporality=AGGREGATION_TEMPORALITY_CUMULATIVE, is_monotonic=True)


def _families(values: Mapping[str, float], times: tuple[int, int]) -> Iterator[tuple[str, list[NumberDataPoint]]]:
    """Group samples by name, each with its labels as attributes."""
    started, now = times
    for family, group in itertools.groupby(sorted(values), key=lambda name: name.partition("{")[0]):
        points = []
        for name in group:
            value = values[name]
            points.append(
                NumberDataPoint(
                    attributes=attributes(labels_of(name)),
                    start_time_unix_nano=started,
                    time_unix_nano=now,
                    **({"as_int": value} if isinstance(value, int) else {"as_double": value}),
                )
            )
        yield family, points


def _histograms(stages: Mapping[str, LatencyHistogram], times: tuple[int, int]) -> HistogramData:
    points = []
    for stage, histogram in stages.items():
        counts = list(histogram.counts)  # at one moment: the sum has to fit
        points.append(
            HistogramDataPoint(
                attributes=attributes({"stage": stage}),
                start_time_unix_nano=times[0],
                time_unix_nano=times[1],
                count=sum(counts),
                sum=histogram.total_s,
                bucket_counts=counts,
                explicit_bounds=BOUNDS_S,
            )
        )
    return HistogramData(data_points=points, aggregation_temporality=AGGREGATION_TEMPORALITY_CUMULATIVE)


def labels_of(name: str) -> dict[str, str]:
    """Read the labels that a name carries, as in ``state_resets_total{reason="gap"}``."""
    return {
        label: _ESCAPED.sub(lambda found: "\n" if found[1] == "n" else found[1], value)
        for label, value in _LABEL.findall(name.partition("{")[2])
    }
