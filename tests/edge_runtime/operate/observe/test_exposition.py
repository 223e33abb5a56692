"""The metrics as text: read again by rules written here, by promtool where it is installed, and as a file."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.metrics import BOUNDS_S, Metrics
from edge_runtime.operate.observe.exposition import render, render_server
from edge_runtime.operate.observe.textfile import TextFile
from edge_runtime.operate.server.server import ServerStats
from tests.edge_runtime.operate.observe.exposed import parsed, some
from tests.edge_runtime.operate.observe.looking import get, running, tcp

PATIENCE_S = 20.0


@pytest.mark.parametrize("openmetrics", [False, True])
def test_a_page_has_every_figure_once(openmetrics: bool) -> None:
    page = render(some(), openmetrics=openmetrics, gauges={"uptime_seconds": 1.5}, info={"version": "1"}).decode()
    found = parsed(page)
    assert found["edge_predictions_total"] == 7
    assert found['edge_state_resets_total{reason="gap"}'] == 2
    assert found['edge_dropped_total{reason="late"}'] == 3
    assert found['edge_connected{broker="home"}'] == 1
    assert found["edge_uptime_seconds"] == 1.5
    assert page.endswith("# EOF\n") == openmetrics
    assert ("# TYPE edge_predictions counter" in page) == openmetrics


def test_buckets_are_cumulative_and_end_with_all() -> None:
    found = parsed(render(some()).decode())
    buckets = [found[f'edge_stage_seconds_bucket{{stage="engine",le="{bound:g}"}}'] for bound in BOUNDS_S]
    assert buckets == sorted(buckets)
    assert buckets[-1] == 4
    assert found['edge_stage_seconds_bucket{stage="engine",le="+Inf"}'] == 5
    assert found['edge_stage_seconds_count{stage="engine"}'] == 5
    assert found['edge_stage_seconds_sum{stage="engine"}'] == pytest.approx(1000.0012)


@given(st.text())
def test_no_label_breaks_out_of_its_quotes(text: str) -> None:
    page = render(Metrics(stages={}), info={"model": text.replace("\r", "")}).decode("utf-8", "surrogatepass")
    assert sum(line.startswith("edge_build_info{") for line in page.split("\n")) == 1


def test_a_server_shows_its_own_figures() -> None:
    stats = ServerStats(
        connections=2, refused_connections=1, dropped_connections=0, evicted_connections=0, answers={200: 9, 503: 1},
        batches=4, windows=8, model_failures=0,
    )  # fmt: skip
    found = parsed(render_server(stats, False).decode())
    assert found['edge_serve_answers_total{status="200"}'] == 9
    assert found["edge_serve_connections"] == 2


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed (Debian: prometheus)")
def test_promtool_finds_nothing_to_improve() -> None:
    page = render(some(), gauges={"uptime_seconds": 1.5}, info={"version": "1"})
    checked = subprocess.run(["promtool", "check", "metrics"], input=page, capture_output=True, check=False)
    assert (checked.returncode, checked.stdout + checked.stderr) == (0, b"")


def test_a_file_for_the_node_exporter_is_replaced_whole_and_removed_at_the_end(tmp_path: Path) -> None:
    path = tmp_path / "edge.prom"
    with running(tmp_path, '[observe]\ntextfile = "edge.prom"') as (_, source):
        source.give("a", 2)
        until = time.monotonic() + PATIENCE_S
        while not path.exists():
            assert time.monotonic() < until
        assert b"edge_uptime_seconds" in path.read_bytes()
        assert path.stat().st_mode & 0o777 == 0o644 & ~_umask()
    assert not list(tmp_path.glob("edge.prom*"))


def _umask() -> int:
    before = os.umask(0)
    os.umask(before)
    return before


def test_a_disk_that_fails_is_named_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    file = TextFile(tmp_path / "missing" / "edge.prom", lambda: b"x")
    file.write()
    file.write()
    assert [record.message for record in caplog.records if "cannot be written" in record.message] != []
    assert len(caplog.records) == 1


def test_a_scrape_while_it_stops_gets_a_page_or_an_end(tmp_path: Path) -> None:
    with running(tmp_path, '[observe]\nlisten = "127.0.0.1:0"') as (app, _), tcp(app) as connection:
        assert get(connection, "/metrics")[0] == 200
        app.stop()
        try:
            status, page = get(connection, "/metrics")
        except OSError:
            return
        assert status == 200
        assert page
