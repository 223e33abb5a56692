"""What a collector gets is what ``/metrics`` shows: the same names, labels and numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("opentelemetry.proto", reason='needs the extra otlp: pip install "edge-runtime[otlp]"')

from edge_devices.integrations.otlp_metrics import labels_of, metrics_request
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from edge_runtime.metrics import Metrics
from edge_runtime.operate.observe.exposition import Figures, escape, render
from tests.edge_devices.integrations.collector import plain
from tests.edge_runtime.operate.observe.exposed import parsed, some

FIGURES = Figures({"process_cpu_seconds_total": 1.5}, {"uptime_seconds": 2.5, "observers": 0}, {"version": "1"})


def sample(name: str, attributes: dict[str, str]) -> str:
    labels = ",".join(f'{label}="{escape(value)}"' for label, value in attributes.items())
    return f"{name}{{{labels}}}" if labels else name


def test_a_collector_gets_what_a_scraper_gets() -> None:
    page = parsed(render(some(), **FIGURES._asdict()).decode())
    message = metrics_request(some(), FIGURES, Resource(), (1, 2))
    found: dict[str, float] = {}
    for metric in message.resource_metrics[0].scope_metrics[0].metrics:
        for point in (*metric.sum.data_points, *metric.gauge.data_points):
            name = sample(metric.name, plain(point.attributes))
            found[name] = point.as_int if point.WhichOneof("value") == "as_int" else point.as_double
        for stage in metric.histogram.data_points:
            labels = plain(stage.attributes)
            found[sample(f"{metric.name}_count", labels)] = stage.count
            found[sample(f"{metric.name}_sum", labels)] = stage.sum
        assert metric.name.endswith("_total") == metric.HasField("sum")
    assert found == pytest.approx({name: value for name, value in page.items() if "_bucket{" not in name})


@given(st.dictionaries(st.sampled_from(["reason", "broker", "at_most"]), st.text()))
def test_labels_in_a_name_are_read_back(labels: dict[str, str]) -> None:
    assert labels_of(sample("some_total", labels)) == labels


def test_labels_that_are_no_text_still_make_a_message() -> None:
    metrics = Metrics()
    metrics.dropped["\ud800"] = 1
    assert metrics_request(metrics, FIGURES, Resource(), (1, 2)).ByteSize()
