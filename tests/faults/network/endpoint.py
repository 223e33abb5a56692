"""A cloud endpoint that misbehaves row by row, and an escalator before it.

A hard case here is a window filled with its own number, so the endpoint knows each row by its content, and an answer
can be told from every other's.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import orjson

from edge_runtime.base.system.loop import Loop
from edge_runtime.base.system.retry import Retry
from edge_runtime.clock import SystemClock
from edge_runtime.cloud.config import CloudConfig, EscalationConfig
from edge_runtime.cloud.escalator import Escalator
from edge_runtime.cloud.http import HttpClient
from edge_runtime.cloud.question import CloudModel
from edge_runtime.metrics import Metrics
from edge_runtime.store.durable.outbox import Outbox, OutboxConfig
from edge_runtime.store.durable.outbox.read_only_copy import Snapshot
from edge_runtime.types import Correction, FinalAnswer, Hard, Prediction
from tests.edge_runtime.manifests import manifest
from tests.faults.oracle import History

CHANNELS, SAMPLES = 2, 8
ROW_BYTES = 4 * CHANNELS * SAMPLES
PATIENCE_S = 120.0

Floats = np.ndarray[Any, np.dtype[np.float32]]


class Answer(NamedTuple):
    """What an endpoint says to a request."""

    status: int = 200
    body: bytes | None = None
    """None is the right answer."""
    headers: tuple[tuple[str, str], ...] = ()
    after_s: float = 0.0


RIGHT = Answer()


def probabilities(numbers: Sequence[int]) -> Floats:
    """The right answer to these rows: no two of them have the same."""
    p = (np.asarray(numbers, np.float32) + 1) / 100_003
    return np.stack([p, 1 - p], axis=1).astype(np.float32)


def number_of(correction: Correction) -> int:
    """The row that an answer is the right one to."""
    return round(correction.scores[0] * 100_003) - 1


class Endpoint:
    """An Open Inference Protocol server on a port of its own.

    Args:
        judge: what to answer to a request with these rows; called on a thread of the server.
    """

    def __init__(self, judge: Callable[[list[int]], Answer]) -> None:
        self.asked: Counter[int] = Counter()
        self.answered: Counter[int] = Counter()
        self.requests: list[float] = []
        """When each came, probes included."""
        endpoint = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            timeout = 30.0
            disable_nagle_algorithm = True

            def do_GET(self) -> None:
                endpoint.requests.append(time.monotonic())
                spec = {"name": "x", "datatype": "FP32", "shape": [-1, CHANNELS, SAMPLES]}
                self._say(Answer(body=orjson.dumps({"name": "teacher", "versions": ["1"], "inputs": [spec]})), b"")

            def do_POST(self) -> None:
                endpoint.requests.append(time.monotonic())
                body = self.rfile.read(int(self.headers["Content-Length"]))
                tensor = body[int(self.headers["Inference-Header-Content-Length"]) :]
                rows = np.frombuffer(tensor, "<f4").reshape(-1, CHANNELS, SAMPLES)[:, 0, 0].astype(int).tolist()
                with endpoint._lock:
                    endpoint.asked.update(rows)
                    answer = judge(rows)
                p = probabilities(rows)
                output = {"name": "p", "datatype": "FP32", "shape": list(p.shape), "data": p.ravel().tolist()}
                self._say(answer, orjson.dumps({"model_name": "teacher", "outputs": [output]}))
                if answer.status == 200 and answer.body is None:
                    with endpoint._lock:
                        endpoint.answered.update(rows)

            def _say(self, answer: Answer, right: bytes) -> None:
                time.sleep(answer.after_s)
                body = right if answer.body is None else answer.body
                try:
                    self.send_response(answer.status)
                    for name, value in (("Content-Length", str(len(body))), *answer.headers):
                        self.send_header(name, value)
                    self.end_headers()
                    self.wfile.write(body)
                except OSError:
                    self.close_connection = True

            def handle_one_request(self) -> None:
                try:
                    super().handle_one_request()
                except (OSError, ValueError, KeyError, TypeError):  # the network cuts requests anywhere
                    self.close_connection = True

            def log_message(self, *_: object) -> None:
                pass

        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True)

    def __enter__(self) -> Endpoint:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(PATIENCE_S)


class Device:
    """An escalator over a real outbox and a real client; turns its loop on the test's thread.

    Attributes:
        history: what was offered, committed and answered.
        attempts: when a connection was tried, and whether it came about.
        waits: when a failure asked for a wait, and until when.
    """

    def __init__(
        self, folder: Path, port: int, *, retry: Retry, config: EscalationConfig | None = None, **cloud: Any
    ) -> None:
        self.history = History()
        self.loop, self.metrics, self.clock = Loop(), Metrics(), SystemClock()
        self.corrections: list[Correction] = []
        self.outbox = Outbox(OutboxConfig(path=folder / "outbox.db"), self.clock)
        self.outbox.open()
        settings: dict[str, Any] = {"timeout_s": 0.5, "connect_timeout_s": 0.5, "deadline_s": 2.0} | cloud
        self.client = HttpClient(
            CloudConfig(url=f"http://127.0.0.1:{port}", model="teacher", binary="always", **settings), self.clock
        )
        self.escalator = Escalator(
            model=CloudModel(config or EscalationConfig(), manifest(), self.client, self.metrics, self.clock),
            outbox=self.outbox,
            loop=self.loop,
            publish=self._publish,
            metrics=self.metrics,
            clock=self.clock,
            retry=retry,
        )
        self.attempts: list[tuple[float, bool]] = []
        self.waits: list[tuple[float, float]] = []
        self._watch()

    def _watch(self) -> None:
        connect, breaker = self.client._connections.open, self.escalator.forwarder.breaker
        open_breaker = breaker._open

        def counted(deadline: float) -> Any:
            began = time.monotonic()
            try:
                stream = connect(deadline)
            except OSError:
                self.attempts.append((began, False))
                raise
            self.attempts.append((began, True))
            return stream

        def noted(retry_after_s: float | None) -> None:
            open_breaker(retry_after_s)
            self.waits.append((time.monotonic(), breaker._due))

        self.client._connections.open = counted  # type: ignore[method-assign]
        breaker._open = noted  # type: ignore[method-assign]

    def submit(self, numbers: Iterable[int]) -> None:
        """Hard cases with these numbers, committed together."""
        cases = []
        for number in numbers:
            p = Prediction(
                f"k@{number}", "k", 0.0, 1.0, "low", 0.6, [0.6, 0.4], "provisional", True, "m/1", "v", 0.1
            )  # fmt: skip
            cases.append(Hard(p, np.full((CHANNELS, SAMPLES), number, np.float32), 0.6, False))
            self.history.attempt(p.id, str(number).encode())

        def committed() -> None:
            for case in cases:
                self.history.acknowledge(case.prediction.id)

        self.escalator.submit(cases, committed)

    def _publish(self, answers: Sequence[Correction | FinalAnswer], done: Callable[[], None]) -> None:
        corrections = [answer for answer in answers if isinstance(answer, Correction)]
        for correction in corrections:
            self.history.deliver(correction.id, str(number_of(correction)).encode())
        self.corrections += corrections
        done()

    def until(self, condition: Callable[[], object], seconds: float = PATIENCE_S) -> None:
        """Turn the loop until something is so."""
        end = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < end, f"{self.outbox.counts()} {dict(self.metrics.counts)}"
            self.loop.iterate(0.005)

    def settled(self) -> bool:
        """Everything that was offered is answered or dead."""
        return self.escalator.drained() and self.outbox.counts().queued == 0

    def check(self) -> None:
        """The law, and the oracle's verdict."""
        counts = self.outbox.counts()
        assert counts.balances(), counts
        verdict = self.history.verdict(self.held())
        assert verdict.valid, verdict
        assert sum(counts.dropped.values()) == 0, counts.dropped

    def held(self) -> set[str]:
        """Ids of everything in the outbox: queued, in flight, waiting and dead."""
        with Snapshot(OutboxConfig(path=self.outbox.path)) as snapshot:
            return {entry.case.id for entry in snapshot.all()}

    def __enter__(self) -> Device:
        self.escalator.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.escalator.stop(10)
        self.client.close()
        if error is None:
            self.check()
        self.outbox.close()
        self.loop.close()
