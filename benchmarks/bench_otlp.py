"""Cost of traces and metrics for a collector: on the application's loop, on the thread beside it, and at a stop; and
the trace of a hard window of the demo's models, as a collector gets it.

::

    python -m benchmarks otlp

CPU time of one thread, the median of the rounds. The collector of the stop takes connections and never answers.
"""

from __future__ import annotations

import random
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from edge_devices.integrations.otlp import CLOSE_S, Otlp, Tracer
from edge_devices.integrations.otlp_metrics import metrics_request
from edge_devices.integrations.otlp_spans import Ids, Traced, trace_request
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from benchmarks.report import Goal, Report
from edge_runtime.app.application import App
from edge_runtime.app.config import parse
from edge_runtime.app.python_api import open_model
from edge_runtime.base.http.framing import compress
from edge_runtime.base.system.barrier import Barrier
from edge_runtime.clock import SystemClock
from edge_runtime.io.sinks.memory import MemorySink
from edge_runtime.metrics import Metrics
from edge_runtime.model.tasks.answered import Answered
from edge_runtime.operate.observe.catalogue import DESCRIPTIONS
from edge_runtime.operate.observe.config import OtlpConfig
from edge_runtime.operate.observe.exposition import Figures
from edge_runtime.operate.server.bundle_model import served_model
from edge_runtime.operate.server.server import ServeConfig, Server
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Correction, Float32, Prediction, Reading
from tests.edge_devices.integrations.collector import collecting, plain
from tests.edge_runtime.operate.observe.looking import Hand

WINDOWS = 100
"""Of one call of the model, and of one request to the collector."""
ROUNDS = 200
NONE = Figures({}, {}, {})
DEMO = Path(__file__).resolve().parents[1] / "examples" / "exercise-watch"
APP = """
[model]
bundle = "{bundle}"
unsigned = "allow"
[gate]
threshold = 1.1
max_calls_per_day = 100000
[cloud]
url = "{cloud}"
model = "teacher"
[outbox]
path = "outbox.db"
[observe.otlp]
url = "{collector}"
share = 1.0
instance = "watch-7"
"""
IMPORTED = """
import time
import edge_runtime.app.application, edge_runtime.operate.observe.observation
from edge_runtime.operate.observe.report import process_figures
before, began = process_figures()["resident_bytes"], time.perf_counter()
import edge_devices.integrations.otlp
print(time.perf_counter() - began, process_figures()["resident_bytes"] - before)
"""


def otlp() -> Iterator[Report]:
    """Measure each part."""
    ids = Ids("kitchen", 1.0)
    made: list[Traced] = []
    answered, predictions = _answers()
    report = Report("OTLP: CPU", ("what", "us", "bytes"))
    for share in (0.0001, 0.01, 1.0):
        tracer = Tracer(Ids("kitchen", share), SystemClock(), made.append, lambda _: None)

        def window(tracer: Tracer = tracer) -> None:
            made.clear()
            tracer.note(answered)
            tracer.send(predictions, None)

        report.rows.append((f"a window on the loop, share = {share:g}", _us(window) / WINDOWS, None))
    batch = list(made)
    body = trace_request(batch, ids, Resource()).SerializeToString()
    message = _us(lambda: compress(trace_request(batch, ids, Resource()).SerializeToString())) / WINDOWS
    report.rows.append(("a traced window on the thread (6 spans)", message, len(compress(body)) / WINDOWS))
    metrics = _all_metrics()
    whole = metrics_request(metrics, NONE, Resource(), (1, 2)).SerializeToString()
    cost = _us(lambda: compress(metrics_request(metrics, NONE, Resource(), (1, 2)).SerializeToString()), 50)
    report.rows.append((f"all metrics on the thread ({len(DESCRIPTIONS)} names)", cost, len(compress(whole))))
    report.notes.append("bytes: on the network, gzipped; windows that are less alike take more.")
    yield report
    report = Report("OTLP: import and stop", ("what", "ms", "MB"))
    seconds, resident = map(statistics.median, zip(*(_imported() for _ in range(5)), strict=True))
    report.rows.append(("import, beside the application's own", 1e3 * seconds, resident / 1e6))
    took = _stop()
    report.rows.append(("stop beside a collector that never answers", 1e3 * took, None))
    report.goals.append(Goal("seconds of that stop", took, CLOSE_S + 0.1, at_most=True))
    yield report


def _answers() -> tuple[Answered, list[Prediction]]:
    samples = np.zeros((16, 3), np.float32)
    windows = [Window("kitchen/phone", slot, 0.0, samples, samples, 1.0) for slot in range(WINDOWS)]
    scores = [0.7, 0.2, 0.1]
    predictions = [
        Prediction(window.id, window.key, 0.0, 2.0, "squat", 0.7, scores, "local", False, "watch/3", "int8", 3.0)
        for window in windows
    ]
    return Answered(windows, predictions, 2.0, 3.0, {1.0: (1.0, 1.5)}), predictions


def _all_metrics() -> Metrics:
    rng, metrics = random.Random(0), Metrics()
    for name in DESCRIPTIONS:
        (metrics.counts if name.endswith("_total") else metrics.gauges)[name] = rng.randrange(1_000_000)
    for histogram in metrics.stages.values():
        for _ in range(1000):
            histogram.observe(rng.lognormvariate(-6, 2))
    return metrics


def _us(call: Callable[[], object], rounds: int = ROUNDS) -> float:
    taken = []
    for _ in range(rounds):
        began = time.thread_time_ns()
        call()
        taken.append((time.thread_time_ns() - began) / 1e3)
    return statistics.median(taken)


def _imported() -> tuple[float, float]:
    done = subprocess.run([sys.executable, "-c", IMPORTED], capture_output=True, text=True, check=True)
    seconds, resident = map(float, done.stdout.split())
    return seconds, resident


def _stop() -> float:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        metrics = Metrics()
        exporter = Otlp(
            OtlpConfig(url=f"http://127.0.0.1:{listener.getsockname()[1]}", timeout_s=60.0),
            metrics=metrics,
            figures=lambda: NONE,
            clock=SystemClock(),
            barrier=Barrier("observe", metrics),
        )
        exporter.open()
        with listener.accept()[0]:
            began = time.perf_counter()
            exporter.close()
            return time.perf_counter() - began


# -- a trace -----------------------------------------------------------------------------------------------------------


class _Watch(Hand):
    """One key's samples, in messages of half a window each."""

    def play(self, rows: Float32, at_a_time: int, rate_hz: float) -> None:
        for first in range(0, len(rows), at_a_time):
            reading = Reading("ann", 1e9 + first / rate_hz, rows[first : first + at_a_time])
            self.loop.call_soon_threadsafe(partial(self._arrive, reading))
            time.sleep(0.05)

    def _arrive(self, reading: Reading) -> None:
        self.deliver([reading], self.loop.clock.monotonic(), None)


def a_trace() -> str:
    """Play random samples to the demo's models, with every window hard; return the last trace as a text."""
    with (
        tempfile.TemporaryDirectory() as folder,
        open_model(DEMO / "teacher.edge") as teacher,
        Server({"teacher": served_model(teacher, 8)}, ServeConfig(port=0, drain_s=0.5)) as cloud,
        collecting() as collector,
    ):
        text = APP.format(bundle=DEMO / "watch.edge", cloud=cloud.url, collector=collector.url)
        source, sink = _Watch(), MemorySink()
        app = App(parse(text, Path(folder, "app.toml")), sources=[source], sinks=[sink])
        ready = threading.Event()
        app.loop.call_soon(ready.set)
        thread = threading.Thread(target=app.run)
        thread.start()
        ready.wait()
        contract = app.model.manifest.input
        rows = np.random.default_rng(0).normal(size=(4 * contract.history, len(contract.channels))).astype(np.float32)
        source.play(rows, contract.window // 2, contract.rate_hz)
        while not any(isinstance(answer, Correction) for answer in sink.answers[-1:]):
            time.sleep(0.01)
        app.stop()
        thread.join()
        return _drawn(collector.spans())


def _drawn(spans: Sequence[Span]) -> str:
    """Draw the last trace that is whole: begin and length of each span in ms, and attributes."""
    last = next(span for span in reversed(spans) if span.name == "cloud").trace_id
    trace = sorted((span for span in spans if span.trace_id == last), key=lambda span: span.start_time_unix_nano)
    (root,) = (span for span in trace if not span.parent_span_id)
    trace = [root, *(span for span in trace if span is not root and span.name != "cloud")]
    trace += [span for span in spans if span.trace_id == last and span.name == "cloud"]
    lines = [f"trace {last.hex()}", "span         from ms  for ms  attributes"]
    for span in trace:
        begin, length = (
            ns / 1e6
            for ns in (
                span.start_time_unix_nano - root.start_time_unix_nano,
                span.end_time_unix_nano - span.start_time_unix_nano,
            )
        )
        facts = {name.removeprefix("edge."): value for name, value in plain(span.attributes).items()}
        shown = " ".join(
            f"{name}={value:.3g}" if isinstance(value, float) else f"{name}={value}" for name, value in facts.items()
        )
        name = span.name if span is root else f"  {span.name}"
        lines.append(f"{name:<11} {begin:8.2f} {length:7.2f}  {shown}".rstrip())
    return "\n".join(lines)


def main() -> int:
    """Print the trace and the tables."""
    print(a_trace(), end="\n\n", flush=True)
    for report in otlp():
        print(report.text(), end="\n\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
