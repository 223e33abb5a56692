"""An OpenTelemetry collector of the test's own: it reads with opentelemetry's messages and answers as it is told."""

from __future__ import annotations

import gzip
import http.server
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

pytest.importorskip("opentelemetry.proto", reason='needs the extra otlp: pip install "edge-runtime[otlp]"')

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import (
    ExportMetricsServiceRequest,
    ExportMetricsServiceResponse,
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.metrics.v1.metrics_pb2 import Metric
from opentelemetry.proto.trace.v1.trace_pb2 import Span


def plain(attributes: Any) -> dict[str, Any]:
    """Attributes as a dictionary."""
    return {one.key: getattr(one.value, str(one.value.WhichOneof("value"))) for one in attributes}


class Collector:
    """What arrived, and how it is answered."""

    def __init__(self) -> None:
        self.status = 200
        self.rejects = 0
        """Spans or points that it says it refused of each request."""
        self.url = ""
        self.headers: list[dict[str, str]] = []
        self.traces: list[ExportTraceServiceRequest] = []
        self.metrics: list[ExportMetricsServiceRequest] = []
        self.asked = threading.Event()

    def spans(self) -> list[Span]:
        """All spans that it took."""
        return [
            span
            for request in list(self.traces)
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]

    def resource(self) -> dict[str, Any]:
        """Who sent the last figures."""
        return plain(self.metrics[-1].resource_metrics[0].resource.attributes)

    def last(self) -> dict[str, Metric]:
        """The last figures, by name."""
        found = [
            metric
            for resource in self.metrics[-1].resource_metrics
            for scope in resource.scope_metrics
            for metric in scope.metrics
        ]
        assert len({metric.name for metric in found}) == len(found)
        return {metric.name: metric for metric in found}

    def take(self, path: str, headers: dict[str, str], body: bytes) -> tuple[int, bytes]:
        """Answer one request."""
        self.headers.append(headers)
        assert headers["content-type"] == "application/x-protobuf"
        if headers.get("content-encoding") == "gzip":
            body = gzip.decompress(body)
        if self.status != 200:
            return self.status, b""
        if path.endswith("/v1/traces"):
            self.traces.append(ExportTraceServiceRequest.FromString(body))
            traces = ExportTraceServiceResponse()
            traces.partial_success.rejected_spans = self.rejects
            return 200, traces.SerializeToString()
        assert path.endswith("/v1/metrics")
        self.metrics.append(ExportMetricsServiceRequest.FromString(body))
        metrics = ExportMetricsServiceResponse()
        metrics.partial_success.rejected_data_points = self.rejects
        return 200, metrics.SerializeToString()


@contextmanager
def collecting(tls: ssl.SSLContext | None = None) -> Iterator[Collector]:
    """A collector that listens on this machine."""
    collector = Collector()

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            headers = {name.lower(): value for name, value in self.headers.items()}
            status, answer = collector.take(self.path, headers, body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)
            collector.asked.set()

        def log_message(self, *_: object) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    collector.url = f"http{'s' if tls else ''}://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
