"""VictoriaMetrics reads our metrics over OTLP: the same names, labels and numbers as the registry has."""

from __future__ import annotations

import itertools
import json
import logging
import urllib.parse
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_runtime.metrics import BOUNDS_S
from tests.conformance import environments
from tests.conformance.conftest import need
from tests.edge_runtime.operate.observe.looking import running
from tests.integration.running import read, started, until
from tests.mosquitto import free_port

pytest.importorskip("opentelemetry.proto", reason='needs the extra otlp: pip install "edge-runtime[otlp]"')


@pytest.fixture
def database(tmp_path: Path) -> Iterator[str]:
    """Its address."""
    need("victoria-metrics")
    url = f"http://127.0.0.1:{(port := free_port())}"
    command = [
        *environments.program_of("victoria-metrics"),
        f"-storageDataPath={tmp_path / 'data'}", f"-httpListenAddr=127.0.0.1:{port}",
    ]  # fmt: skip
    with started(*command, folder=tmp_path):
        until(lambda: read(f"{url}/health") == "OK")
        yield url


def stored(url: str) -> dict[tuple[str, str, str], float]:
    """Last values by name, stage and bound."""
    read(f"{url}/internal/force_flush")
    query = urllib.parse.quote('{__name__=~"edge_.*"}')
    found = {}
    for line in read(f"{url}/api/v1/export?match[]={query}").splitlines():
        series = json.loads(line)
        labels = series["metric"]
        assert labels["service.instance.id"] == "kitchen"
        name = (labels["__name__"], labels.get("stage", ""), labels.get("le", ""))
        found[name] = series["values"][-1]
    return found


def test_victoria_metrics_reads_our_figures_and_says_that_it_takes_no_traces(
    database: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    table = f'[observe]\n[observe.otlp]\nurl = "{database}/opentelemetry"\nshare = 1.0\ninstance = "kitchen"\n'
    with caplog.at_level(logging.WARNING), running(tmp_path, table) as (app, source):
        source.give("a", 5)
    until(lambda: ("edge_predictions_total", "", "") in stored(database))
    found = stored(database)
    assert found["edge_predictions_total", "", ""] == 5
    assert found["edge_build_info", "", ""] == 1
    for stage, histogram in app.metrics.stages.items():
        totals = list(itertools.accumulate(histogram.counts))
        buckets = {float(le): value for (name, of, le), value in found.items() if le and of == stage}
        if totals[-1]:
            assert buckets == dict(zip((*BOUNDS_S, float("inf")), totals, strict=True))
            assert found["edge_stage_seconds_count", stage, ""] == totals[-1]
            assert found["edge_stage_seconds_sum", stage, ""] == pytest.approx(histogram.total_s)
    said = [record.getMessage() for record in caplog.records if record.name.endswith("otlp")]
    assert said == [f"otlp: the collector refuses traces, which are dropped: collector={database} error=status 400"]
