"""Traces and metrics of running applications, as an OpenTelemetry collector gets them; and collectors that are dead.

Mutations that were seen to fail: no span for the commit; root spans with ids of their own each time; a stop that waits
for its thread; queues without a bound; a counter that forgets what was refused.
"""

from __future__ import annotations

import itertools
import logging
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("opentelemetry.proto", reason='needs the extra otlp: pip install "edge-runtime[otlp]"')

from edge_devices.integrations import otlp
from edge_devices.integrations.otlp_spans import Closed
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from edge_runtime.app.application import App
from edge_runtime.app.config import parse
from edge_runtime.app.python_api import open_model
from edge_runtime.base.system.barrier import Barrier
from edge_runtime.base.system.retry import Retry
from edge_runtime.clock import SystemClock
from edge_runtime.errors import ConfigError
from edge_runtime.io.sinks.memory import MemorySink
from edge_runtime.metrics import BOUNDS_S, Metrics
from edge_runtime.operate.observe.config import OtlpConfig
from edge_runtime.operate.observe.exposition import Figures
from edge_runtime.operate.server.bundle_model import served_model
from edge_runtime.operate.server.server import ServeConfig, Server
from edge_runtime.types import Correction
from tests.edge_devices.integrations.collector import Collector, collecting, plain
from tests.edge_runtime.operate.observe.looking import Hand, running
from tests.models import tiny_bundle
from tests.oip_servers import make_certificates

PATIENCE_S = 20.0
STOP_S = 2.0
INSTANCE = "kitchen"


def table(url: str, more: str = "share = 1.0") -> str:
    return f'[observe]\n[observe.otlp]\nurl = "{url}"\ninstance = "{INSTANCE}"\n{more}\n'


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


def corrections(app: App) -> list[Correction]:
    (sink,) = app.sinks
    assert isinstance(sink, MemorySink)
    return [answer for answer in sink.answers if isinstance(answer, Correction)]


def traces_of(collector: Collector) -> dict[str, dict[str, Span]]:
    """Spans by window and name."""
    by_trace: dict[bytes, dict[str, Span]] = {}
    for span in collector.spans():
        named = by_trace.setdefault(span.trace_id, {})
        assert span.name not in named
        named[span.name] = span
    return {plain(named["answer"].attributes)["edge.window"]: named for named in by_trace.values()}


@pytest.fixture(scope="module")
def cloud(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    path = tiny_bundle(tmp_path_factory.mktemp("cloud") / "tiny.edge")
    with (
        open_model(path) as model,
        Server({"teacher": served_model(model, 8)}, ServeConfig(port=0, drain_s=0.5)) as server,
    ):
        yield server.url


@pytest.mark.slow
def test_a_hard_window_is_one_trace_from_its_arrival_to_the_cloud_s_answer(tmp_path: Path, cloud: str) -> None:
    escalating = (
        '[gate]\nthreshold = 1.1\nmax_calls_per_day = 100000\n[outbox]\npath = "outbox.db"\n'
        f'[cloud]\nurl = "{cloud}"\nmodel = "teacher"\n'
    )
    with collecting() as collector:
        with running(tmp_path, escalating + table(collector.url)) as (app, source):
            source.give("a/ü", 2)
            until(lambda: len(corrections(app)) == 2)
        traces = traces_of(collector)
        first = corrections(app)[0]
    assert set(traces) == {one.id for one in corrections(app)}
    named = traces[first.id]
    assert set(named) == {"answer", "receive", "window", "wait", "engine", "outbox", "cloud"}
    root = named["answer"]
    window_id, key = first.id.encode(), INSTANCE.encode()
    assert root.trace_id == blake2b(window_id, digest_size=16, key=key).digest()
    assert root.span_id == blake2b(window_id, digest_size=8, key=key, person=b"answer").digest()
    assert root.parent_span_id == b""
    inside = [named[name] for name in ("receive", "window", "wait", "engine", "outbox")]
    assert inside[0].start_time_unix_nano == root.start_time_unix_nano
    assert inside[-1].end_time_unix_nano == root.end_time_unix_nano
    for before, after in itertools.pairwise(inside):
        assert before.start_time_unix_nano <= before.end_time_unix_nano == after.start_time_unix_nano
    assert {span.parent_span_id for span in (*inside, named["cloud"])} == {root.span_id}
    assert abs(root.end_time_unix_nano / 1e9 - time.time()) < 60
    seen = plain(root.attributes)
    assert seen["edge.key"] == "a/ü"
    assert (seen["edge.route"], seen["edge.hard"], seen["edge.variant"]) == (
        "provisional",
        True,
        app.model.variant.name,
    )
    asked = named["cloud"]
    assert asked.kind == Span.SPAN_KIND_CLIENT
    took_ns = asked.end_time_unix_nano - asked.start_time_unix_nano
    assert took_ns == pytest.approx(first.latency_ms * 1e6, abs=1e3)
    assert plain(asked.attributes)["edge.label"] == first.label
    assert all(span.status.code == 0 for span in named.values())


def test_a_trusted_window_ends_with_the_hand_over(tmp_path: Path) -> None:
    with collecting() as collector:
        with running(tmp_path, "[gate]\nthreshold = 0.0\n" + table(collector.url)) as (_, source):
            source.give("a", 3)
        assert {tuple(named) for named in traces_of(collector).values()} == {
            ("answer", "receive", "window", "wait", "engine", "publish")
        }


def test_the_last_figures_are_those_of_the_registry(tmp_path: Path) -> None:
    with collecting() as collector:
        with running(tmp_path, table(collector.url, "share = 0.0")) as (app, source):
            source.give("a", 5)
            source.give("b", 4)
        last = collector.last()
        assert not collector.traces
        assert collector.resource()["service.instance.id"] == INSTANCE
    points = {plain(point.attributes)["stage"]: point for point in last["edge_stage_seconds"].histogram.data_points}
    assert set(points) == set(app.metrics.stages)
    for stage, histogram in app.metrics.stages.items():
        assert list(points[stage].bucket_counts) == histogram.counts
        assert points[stage].count == histogram.count
        assert points[stage].sum == histogram.total_s
        assert tuple(points[stage].explicit_bounds) == BOUNDS_S
    assert points["engine"].count == 9
    (predictions,) = last["edge_predictions_total"].sum.data_points
    assert predictions.as_int == 9
    assert predictions.start_time_unix_nano < predictions.time_unix_nano
    assert last["edge_stage_seconds"].unit == "s"
    assert last["edge_process_resident_bytes"].unit == "By"
    assert all(metric.description for metric in last.values())


@contextmanager
def mute() -> Iterator[str]:
    """A collector whose machine takes connections, and whose program hangs."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def absent() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    yield f"http://127.0.0.1:{port}"


@contextmanager
def overloaded() -> Iterator[str]:
    with collecting() as collector:
        collector.status = 503
        yield collector.url


@pytest.mark.parametrize("dead", [absent, mute, overloaded])
def test_a_dead_collector_delays_no_stop_and_costs_no_answer(tmp_path: Path, dead: Any) -> None:
    with dead() as url:
        with running(tmp_path, table(url, "share = 1.0\ntimeout_s = 60.0")) as (app, source):
            source.give("a", 50)
            until(lambda: threading.active_count() > 2)
            began = time.monotonic()
        taken_s = time.monotonic() - began
    assert taken_s < STOP_S
    (sink,) = app.sinks
    assert isinstance(sink, MemorySink)
    assert len(sink.answers) == 50
    assert app.metrics.counts['otlp_dropped_total{reason="stopped"}'] == 50 * 6


# -- the exporter by itself --------------------------------------------------------------------------------------------


def correction(number: int) -> Correction:
    return Correction(f"k@{number}", "k", 0, 1, "up", 0.9, [], "cloud", True, "teacher/1", "cloud", 5.0, "down", False)


def closed(number: int) -> Closed:
    return Closed(correction(number), bytes(16), 1.0)


def exporter(url: str, **more: Any) -> tuple[otlp.Otlp, Metrics]:
    metrics = Metrics()
    made = otlp.Otlp(
        OtlpConfig(url=url, **{"share": 1.0, "every_s": 0.0, **more}),
        metrics=metrics,
        figures=lambda: Figures({}, {}, {}),
        clock=SystemClock(),
        barrier=Barrier("observe", metrics),
    )
    return made, metrics


@pytest.fixture
def hurried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp, "EVERY_S", 0.01)
    monkeypatch.setattr(otlp, "_RETRY", Retry(base_s=0.01, cap_s=0.02))


@pytest.mark.usefixtures("hurried")
def test_an_outage_is_logged_once_and_what_waited_is_sent_when_it_is_over(caplog: pytest.LogCaptureFixture) -> None:
    with collecting() as collector, caplog.at_level(logging.WARNING):
        collector.status = 503
        made, metrics = exporter(collector.url)
        assert made.tracer is not None
        made.open()
        for number in range(250):
            made.tracer.send([correction(number)], None)
        until(lambda: metrics.counts['otlp_failures_total{signal="traces"}'] >= 3)
        collector.status = 200
        until(lambda: len(collector.spans()) == 250)
        made.close()
    assert len({span.span_id for span in collector.spans()}) == 250
    first, second = [record.getMessage() for record in caplog.records]
    assert first == f"otlp: the collector cannot take traces, which wait: collector={collector.url} error=status 503"
    assert second == f"otlp: the collector takes traces again: collector={collector.url}"
    assert not [name for name in metrics.counts if name.startswith("otlp_dropped")]


@pytest.mark.usefixtures("hurried")
@pytest.mark.parametrize(("status", "rejects", "lost"), [(400, 0, 10), (404, 0, 10), (200, 4, 4), (200, 0, 0)])
def test_what_a_collector_refuses_is_counted(status: int, rejects: int, lost: int) -> None:
    with collecting() as collector:
        collector.status, collector.rejects = status, rejects
        made, metrics = exporter(collector.url)
        for number in range(10):
            made._put(closed(number))
        made.open()
        until(collector.asked.is_set)
        made.close()
    assert metrics.counts['otlp_dropped_total{reason="refused"}'] == lost


def test_what_waits_is_bounded_and_the_oldest_goes() -> None:
    made, metrics = exporter("http://127.0.0.1:9")
    for number in range(otlp.MAX_QUEUED + 5):
        made._put(closed(number))
    assert len(made._queue) == otlp.MAX_QUEUED
    assert made._queue[0].answer.id == "k@5"  # type: ignore[union-attr]
    assert metrics.counts['otlp_dropped_total{reason="full"}'] == 5


def test_a_correction_after_a_restart_joins_the_trace_of_its_window() -> None:
    sent: list[Any] = []
    for _ in range(2):
        made, _ = exporter("http://127.0.0.1:9", instance="same")
        assert made.tracer is not None
        made.tracer._put = sent.append
        made.tracer.send([correction(7)], None)
    before, after = sent
    assert before.trace_id == after.trace_id
    other, _ = exporter("http://127.0.0.1:9", instance="other")
    assert other._ids.trace("k@7") != before.trace_id, "two devices may have windows of the same id"


def test_secrets_and_authorities_come_from_files(tmp_path: Path) -> None:
    made = make_certificates(tmp_path)
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(made.server, made.server_key)
    (tmp_path / "token").write_text("s3cret\n")
    (tmp_path / "tenant").write_text("acme\n")
    more = f'share = 0.0\ntoken_file = "token"\nca_file = "{made.ca}"\nheader_files = {{"X-Scope-OrgID" = "tenant"}}'
    with collecting(tls) as collector:
        with running(tmp_path, table(collector.url.replace("127.0.0.1", "localhost"), more)):
            pass
        assert collector.headers[0]["authorization"] == "Bearer s3cret"
        assert collector.headers[0]["x-scope-orgid"] == "acme"


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ('url = "ftp://x"', "http"),
        ('url = "http://x:4318/v1/traces"', "put behind it"),
        ('url = "http://x:4318"\ntoken_file = "t"', "clear text"),
        ('url = "http://x:4318"\nca_file = "t"', "not encrypted"),
        ('url = "http://x:4318"\nshare = 1.5', "share must be 0 to 1"),
        ('url = "http://x:4318"\nshare = 0\nevery_s = 0', "nothing to send"),
        ('url = "http://x:4318"\nevery_s = 0.5', "every_s"),
        ('url = "http://x:4318"\nurl_ = 1', "url_"),
    ],
)
def test_a_table_that_makes_no_sense_is_refused(tmp_path: Path, more: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        parse(f'[model]\nbundle = "x.edge"\n[observe.otlp]\n{more}\n', tmp_path / "app.toml")


def test_a_missing_package_is_refused_at_the_start_with_the_line_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny_bundle(tmp_path / "tiny.edge")
    text = f'[model]\nbundle = "tiny.edge"\nunsigned = "allow"\n{table("http://127.0.0.1:4318")}'
    for name in list(sys.modules):
        if name.startswith(("opentelemetry.proto", "edge_devices.integrations.otlp")):
            monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "opentelemetry", None)
    with pytest.raises(ConfigError, match=r'needs opentelemetry.*; run: pip install "edge-runtime\[otlp\]"'):
        App(parse(text, tmp_path / "app.toml"), sources=[Hand()], sinks=[MemorySink()], rehearsal=True)
