"""OTLP: traces of a share of the windows and all metrics, sent to an OpenTelemetry collector over HTTP.

The application's loop notes times and puts what was handed over into a bounded queue; a thread of its own makes the
messages and sends them. The loop never waits for the collector, and neither does a stop (`CLOSE_S`). Of what does not
fit the oldest goes, and is counted.

Messages come from the package opentelemetry-proto (the extra ``[otlp]``). OpenTelemetry's SDK is not used: it is
larger, keeps metrics of its own, and holds up a stop while a collector is dead.

Source: opentelemetry.io/docs/specs/otlp, version 1, "OTLP/HTTP".
"""

from __future__ import annotations

import logging
import random
import socket
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse
from opentelemetry.proto.resource.v1.resource_pb2 import Resource

from edge_devices.integrations.otlp_metrics import metrics_request
from edge_devices.integrations.otlp_spans import Begun, Closed, HandedOver, Ids, Traced, attributes, trace_request
from edge_runtime._version import __version__
from edge_runtime.base.http.client import Answer as HttpAnswer
from edge_runtime.base.http.client import Connections, reason_of
from edge_runtime.base.http.framing import compress
from edge_runtime.base.system.barrier import Barrier
from edge_runtime.base.system.loop import Loop
from edge_runtime.base.system.retry import Retry
from edge_runtime.base.system.secrets import ClientTls, SecretFile
from edge_runtime.clock import Clock
from edge_runtime.errors import InputError
from edge_runtime.key_table import KeyTable
from edge_runtime.metrics import Metrics
from edge_runtime.model.tasks.answered import Answered
from edge_runtime.operate.observe.config import OtlpConfig
from edge_runtime.operate.observe.exposition import Figures
from edge_runtime.types import Answer, Done, Event, Prediction

log = logging.getLogger(__name__)

CLOSE_S: Final = 0.5
"""Longest time that a stop waits for the last request."""
MAX_QUEUED: Final = 2048
"""Windows and corrections that wait to be sent."""
MAX_BEGUN: Final = 4096
"""Traced windows whose answer waits for the commit of its case."""
BATCH: Final = 100
"""Windows and corrections in one request."""
EVERY_S: Final = 2.0
"""Longest time that a trace waits to be sent."""
_MAX_ANSWER_BYTES: Final = 64 * 1024
_RETRY: Final = Retry(base_s=1.0, cap_s=60.0)


class Tracer:
    """Notes the times of traced windows, as a tap of the pipeline and as its last sink. On the loop's thread.

    Args:
        ids: ids of traces, and the choice of those that are traced.
        clock: source of monotonic and wall time.
        put: takes what is to be sent.
        lose: counts spans that will not be sent.
    """

    name = "otlp"

    def __init__(self, ids: Ids, clock: Clock, put: Callable[[Traced], None], lose: Callable[[int], None]) -> None:
        self._ids = ids
        self._clock = clock
        self._put = put
        self._lose = lose
        self._begun: KeyTable[str, Begun] = KeyTable(MAX_BEGUN, lambda _, begun: lose(begun.spans))

    def note(self, answered: Answered) -> None:
        """Note windows that were answered, before they are handed over."""
        ids = self._ids
        for window, prediction in zip(answered.windows, answered.predictions, strict=True):
            trace_id = ids.trace(prediction.id)
            if not ids.traced(trace_id):
                continue
            cut = answered.cuts.get(window.received)
            provisional = prediction.route == "provisional"
            self._begun[prediction.id] = Begun(
                trace_id, window.received, cut, answered.began, answered.ended, provisional
            )

    def open(self, loop: Loop) -> None:
        """Nothing to open."""

    def close(self, timeout_s: float) -> None:
        """Nothing to close."""

    def send(self, answers: Sequence[Answer], done: Done | None) -> None:
        """Note what is handed over now; nothing waits for this sink."""
        if done is not None:
            done()
        begun, clock = self._begun, self._clock
        now = clock.monotonic()
        for answer in answers:
            if isinstance(answer, Prediction):
                window = begun.pop(answer.id, None)
                if window is not None:
                    self._put(HandedOver(answer, window, now, clock.wall() - now))
            elif not isinstance(answer, Event):
                trace_id = self._ids.trace(answer.id)
                if self._ids.traced(trace_id):
                    self._put(Closed(answer, trace_id, clock.wall()))


class Otlp:
    """Sends traces and metrics, on a thread of its own.

    Args:
        config: the collector, and what it is told; the instance is stated (`OtlpConfig.named`).
        metrics: what is sent; counts ``otlp_exports_total``, ``otlp_failures_total`` and ``otlp_dropped_total``.
        figures: further figures to send; called on the thread.
        clock: source of monotonic and wall time.
        barrier: catches what should not happen.

    Raises:
        ConfigError: a file that the configuration names is missing or unusable.
    """

    def __init__(
        self,
        config: OtlpConfig,
        *,
        metrics: Metrics,
        figures: Callable[[], Figures],
        clock: Clock,
        barrier: Barrier,
    ) -> None:
        self._config = config
        self._metrics = metrics
        self._figures = figures
        self._clock = clock
        self._barrier = barrier
        self._started = round(clock.wall() * 1e9)
        self._ids = Ids(config.instance, config.share)
        self.tracer = Tracer(self._ids, clock, self._put, self._lose) if config.share else None
        """What notes the times; None where nothing is traced."""
        collector = _Collector(config, clock)
        self._collector = collector
        self._trace_signal = _Signal("traces", collector, metrics, clock)
        self._metric_signal = _Signal("metrics", collector, metrics, clock)
        self._queue: deque[Traced] = deque()
        self._sending: list[Traced] = []
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._give_up_at = float("inf")
        self._thread: threading.Thread | None = None

    def open(self) -> None:
        """Begin to send."""
        self._thread = threading.Thread(target=self._run, name="edge-runtime otlp", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Send what waits and the last figures, if the collector takes them within `CLOSE_S`. May be called twice.

        A thread that is in the middle of a request is left behind; it ends with its time-out.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self._give_up_at = self._clock.monotonic() + CLOSE_S
        self._closing = True
        self._wake.set()
        thread.join(CLOSE_S)
        with self._lock:
            left = sum(item.spans for item in (*self._sending, *self._queue))
            self._queue.clear()
        if left:
            self._metrics.counts['otlp_dropped_total{reason="stopped"}'] += left
            log.warning("otlp: stopped with %d spans that no collector took: collector=%s", left, self._collector.where)

    # -- on the loop's thread ------------------------------------------------------------------------------------------

    def _put(self, item: Traced) -> None:
        with self._lock:
            if len(self._queue) >= MAX_QUEUED:
                self._lose(self._queue.popleft().spans)
            self._queue.append(item)
            full = len(self._queue) == BATCH
        if full:
            self._wake.set()

    def _lose(self, spans: int) -> None:
        self._metrics.counts['otlp_dropped_total{reason="full"}'] += spans

    # -- on the thread -------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        due = self._clock.monotonic() if self._config.every_s else float("inf")
        try:
            while not self._closing:
                if self._clock.monotonic() >= due:
                    due = self._clock.monotonic() + self._config.every_s
                    self._barrier.call(self._send_metrics)
                self._barrier.call(self._send_traces)
                self._wake.wait(max(0.0, min(EVERY_S, due - self._clock.monotonic())))
                self._wake.clear()
            self._barrier.call(self._send_traces)
            if self._config.every_s:
                self._barrier.call(self._send_metrics)
        finally:
            self._collector.close()

    def _resource(self) -> Resource:
        return Resource(
            attributes=attributes(
                {
                    "service.name": "edge-runtime",
                    "service.version": __version__,
                    "service.instance.id": self._config.instance,
                    "host.name": socket.gethostname(),
                }
            )
        )

    def _send_traces(self) -> None:
        """Send what waits, batch by batch, until the collector does not take any."""
        while self._trace_signal.may_send(self._give_up_at):
            with self._lock:
                if not self._sending:
                    self._sending = [self._queue.popleft() for _ in range(min(BATCH, len(self._queue)))]
            if not self._sending:
                return
            message = trace_request(self._sending, self._ids, self._resource())
            answer = self._trace_signal.post(message.SerializeToString(), self._give_up_at)
            if answer is None:
                return  # kept, and tried again
            sent, self._sending = sum(item.spans for item in self._sending), []
            if answer.status != 200:
                self._trace_signal.refuse(sent)
            elif refused := _refused(ExportTraceServiceResponse, answer):
                self._trace_signal.refuse(refused)

    def _send_metrics(self) -> None:
        """Send the figures once; those of a request that is lost are part of the next."""
        if not self._metric_signal.may_send(self._give_up_at):
            return
        now = round(self._clock.wall() * 1e9)
        message = metrics_request(self._metrics, self._figures(), self._resource(), (self._started, now))
        answer = self._metric_signal.post(message.SerializeToString(), self._give_up_at)
        if answer is not None and answer.status == 200 and (refused := _refused(ExportMetricsServiceResponse, answer)):
            self._metric_signal.refuse(refused)


def _refused(kind: type[ExportTraceServiceResponse | ExportMetricsServiceResponse], answer: HttpAnswer) -> int:
    """Return how many spans or points a collector refused of a request that it took."""
    try:
        reply = kind.FromString(bytes(answer.body))
    except DecodeError:
        return 0  # some answer with a word of their own; 200 is what counts
    partial = reply.partial_success
    return int(getattr(partial, "rejected_spans", 0) or getattr(partial, "rejected_data_points", 0))


class _Signal:
    """One kind of message to a collector, and whether it takes them at the moment."""

    def __init__(self, name: str, collector: _Collector, metrics: Metrics, clock: Clock) -> None:
        self._name = name
        self._collector = collector
        self._metrics = metrics
        self._clock = clock
        self._rng = random.Random()  # noqa: S311 - jitter, not a secret
        self._failures = 0
        self._due = 0.0

    def may_send(self, give_up_at: float) -> bool:
        """Return whether to try now; at a stop only where the last request went well."""
        now = self._clock.monotonic()
        stopping = give_up_at != float("inf")
        return now < give_up_at and (not self._failures if stopping else now >= self._due)

    def post(self, body: bytes, give_up_at: float) -> HttpAnswer | None:
        """Send a message; return the answer that is final, or None where it may be taken later."""
        try:
            answer = self._collector.post(f"/v1/{self._name}", compress(body), give_up_at)
        except OSError as error:
            why = "it did not answer in time" if isinstance(error, TimeoutError) else reason_of(error)
            self._fail(f"cannot take {self._name}, which wait", why, None)
            return None
        except InputError as error:
            self._fail(f"cannot take {self._name}, which wait", f"it does not speak HTTP ({error.reason})", None)
            return None
        if answer.status == 200:
            self._succeed()
            return answer
        later = answer.is_transient
        outcome = f"cannot take {self._name}, which wait" if later else f"refuses {self._name}, which are dropped"
        self._fail(outcome, f"status {answer.status}", answer.retry_after_s(self._clock))
        return None if later else answer

    def refuse(self, count: int) -> None:
        """Count what a collector will never take."""
        self._metrics.counts['otlp_dropped_total{reason="refused"}'] += count

    def _succeed(self) -> None:
        self._metrics.counts[f'otlp_exports_total{{signal="{self._name}"}}'] += 1
        if self._failures:
            log.warning("otlp: the collector takes %s again: collector=%s", self._name, self._collector.where)
        self._failures = 0

    def _fail(self, outcome: str, why: str, retry_after_s: float | None) -> None:
        self._metrics.counts[f'otlp_failures_total{{signal="{self._name}"}}'] += 1
        self._failures += 1
        self._due = self._clock.monotonic() + _RETRY.delay(self._failures, retry_after_s, self._rng)
        if self._failures == 1:
            log.warning("otlp: the collector %s: collector=%s error=%s", outcome, self._collector.where, why)


class _Collector:
    """A connection to the collector, kept open between requests. Used by one thread."""

    def __init__(self, config: OtlpConfig, clock: Clock) -> None:
        endpoint = config.endpoint
        self.where = endpoint.origin
        self._clock = clock
        self._timeout_s = config.timeout_s
        self._path = endpoint.path.rstrip("/")
        self._fixed = (
            f"Host: {endpoint.netloc}\r\nUser-Agent: edge-runtime/{__version__}\r\n"
            "Content-Type: application/x-protobuf\r\nContent-Encoding: gzip\r\n"
        )
        where = "observe.otlp"
        self._token = None if config.token_file is None else SecretFile(config.token_file, f"{where}.token_file")
        self._secrets: Mapping[str, SecretFile] = {
            name: SecretFile(path, f"{where}.header_files.{name}") for name, path in config.header_files.items()
        }
        tls = ClientTls(config.ca_file, None, None) if endpoint.encrypted else None
        self._connections = Connections(endpoint, tls, clock)

    def close(self) -> None:
        self._connections.close()

    def post(self, path: str, body: bytes, give_up_at: float) -> HttpAnswer:
        """Send one request.

        Raises:
            OSError: no answer came in time.
            InputError: what came is not HTTP.
        """
        secrets = {name: secret.value() for name, secret in self._secrets.items()}
        if self._token is not None:
            secrets["Authorization"] = f"Bearer {self._token.value()}"
        lines = "".join(f"{name}: {value}\r\n" for name, value in secrets.items())
        start = f"POST {self._path}{path} HTTP/1.1\r\n"
        head = f"{start}{self._fixed}{lines}Content-Length: {len(body)}\r\n\r\n".encode("ascii")
        deadline = min(self._clock.monotonic() + self._timeout_s, give_up_at)
        return self._connections.exchange(head, (body,), deadline, max_body_bytes=_MAX_ANSWER_BYTES)
