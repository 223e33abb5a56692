"""An engine fails while readings flow: every window is answered once, under its usual id, by what is left."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_runtime.clock import SystemClock
from edge_runtime.errors import EngineError
from edge_runtime.model.serving.loading import LoadedVariant
from edge_runtime.store.durable.outbox import Outbox, OutboxConfig
from edge_runtime.tools.demo.broker.broker import Broker
from tests.integration.cloud import assert_right, serving
from tests.integration.running import (
    Answer,
    Process,
    Publisher,
    corrections,
    cut,
    ids,
    interleave,
    listening,
    load_model,
    predictions,
    running,
    streams,
    until,
)
from tests.models import usable
from tests.mosquitto import Mosquitto

pytestmark = [
    pytest.mark.usefixtures("hasty"),
    pytest.mark.skipif(not usable("litert"), reason="LiteRT is not installed"),
]

APP = """
[model]
unsigned = "allow"
bundle = "{bundle}"
variant = "tflite-int8"
deadline_ms = 5000.0
{more}
[broker.b]
url = "{broker}"
client_id = "under-test"
status_topic = "status"
[[source]]
type = "mqtt"
broker = "b"
topics = ["watch/+/imu"]
[[sink]]
type = "jsonl"
path = "answers.jsonl"
"""
CLOUD = """
[gate]
threshold = 0.0
[cloud]
url = "{cloud}"
model = "teacher"
timeout_s = 5.0
[outbox]
path = "outbox.db"
"""
HOP = 8


def assert_contiguous(found: list[Answer], keys: int, windows: int) -> None:
    """Each key's windows follow each other without a gap or a repeat, in the order in which they were given."""
    for key in (f"watch-{i}" for i in range(keys)):
        slots = [int(answer["id"].rpartition("@")[2]) for answer in found if answer["key"] == key]
        assert slots == list(range(slots[0], slots[0] + HOP * len(slots), HOP)), key
        assert len(slots) >= windows


def changes(names: Iterable[str]) -> list[str]:
    """Without immediate repeats."""
    return [name for name, _ in itertools.groupby(names)]


def variants(found: list[Answer]) -> list[str]:
    """Which variant answered, each change once."""
    return changes(answer["variant"] for answer in found)


@pytest.mark.slow
def test_a_live_stream_has_no_gap_where_the_engine_fails_and_where_it_returns(bundle: Path, tmp_path: Path) -> None:
    """Mid-batch, with a latency budget that makes batches; the status tells who answers.

    Mutation that this finds: the pipeline dropping the batch in which an engine fails.
    """
    rng = np.random.default_rng(3)
    parts = [cut(stream, lambda: int(rng.integers(3, 12))) for stream in streams(3, 1200)]
    messages = interleave(rng, parts)
    third = len(messages) // 3
    model = load_model(bundle, "tflite-int8")
    real = model.engine.run
    rows = 0

    def run(*arrays: Any) -> Any:
        nonlocal rows
        rows += len(arrays[0])
        if rows > 40:
            raise EngineError("the accelerator went away")
        return real(*arrays)

    model.engine.run = run  # type: ignore[method-assign]
    answers = tmp_path / "answers.jsonl"
    with Broker() as broker, Publisher(broker.port) as publisher, listening(broker.port, "status") as told:
        text = APP.format(bundle=bundle, broker=broker.url, more="latency_budget_ms = 5.0")
        with running(text, tmp_path, model) as app:
            app.until(lambda: app.connected)
            publisher.reach(app)
            publisher.send(messages[:third])
            app.until(lambda: "onnx-fp32" in variants(predictions(answers)))
            publisher.send(messages[third : 2 * third])
            app.until(lambda: app.app.fallback_chain is not None and app.app.fallback_chain.current == 0)
            publisher.send(messages[2 * third :])
            app.until(lambda: app.counts["samples_total"] >= 3 * 1200)
            assert app.stop()
        until(lambda: told[-1]["status"] == "offline", lambda: str(told))
    found = predictions(answers)
    assert variants(found) == ["tflite-int8", "onnx-fp32", "tflite-int8"]
    assert_contiguous(found, 3, (1200 - 16 - HOP) // HOP)
    assert app.counts["windows_total"] == app.counts["predictions_total"] == len(set(ids(found)))
    assert app.counts['failovers_total{how="raised"}'] == 1
    backends = [one["model"]["backend"] for one in told if "model" in one]
    assert changes(backends) == ["tflite-int8", "onnx-fp32", "tflite-int8"]
    said = next(one["model"] for one in told if one.get("model", {}).get("position") == 1)
    assert said["failed"] == {"tflite-int8": "raised: the accelerator went away"}


def test_with_nothing_left_the_cloud_answers_and_nothing_accepted_is_lost(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mutation that this finds: `Pipeline._unanswered` that only counts."""
    rng = np.random.default_rng(4)
    recorded = streams(2, 400, seed=4)
    messages = interleave(rng, [cut(stream, lambda: int(rng.integers(5, 15))) for stream in recorded])
    model = load_model(bundle, "tflite-int8")
    answers = tmp_path / "answers.jsonl"
    server = serving()
    server.start()
    real = LoadedVariant.predict

    def predict(self: LoadedVariant, windows: Any) -> Any:
        if broken:
            raise EngineError("not one works")
        return real(self, windows)

    broken = False
    monkeypatch.setattr(LoadedVariant, "predict", predict)
    try:
        with Broker() as broker, Publisher(broker.port) as publisher:
            text = APP.format(bundle=bundle, broker=broker.url, more="")
            with running(text + CLOUD.format(cloud=server.url), tmp_path, model) as app:
                app.until(lambda: app.connected)
                publisher.reach(app)
                publisher.send(messages[: len(messages) // 2])
                app.until(lambda: app.counts["predictions_total"] > 20)
                broken = True
                publisher.send(messages[len(messages) // 2 :])
                app.until(lambda: app.counts["samples_total"] >= 2 * 400)
                app.until(lambda: app.counts["corrections_total"] >= app.counts["hard_total"] > 10)
                assert app.app.fallback_chain is not None
                assert app.app.fallback_chain.backend is None
                assert app.stop()
    finally:
        server.stop()
    found, corrected = predictions(answers), corrections(answers)
    assert_contiguous(found, 2, (400 - 16 - HOP) // HOP)
    unanswered = [answer for answer in found if answer["variant"] == "none"]
    assert len(unanswered) == app.counts["unanswered_total"] == app.counts["hard_total"]
    assert {(one["route"], one["label"], one["hard"]) for one in unanswered} == {("provisional", "", True)}
    assert all(one["scores"] == [] and one["confidence"] == 0.0 for one in unanswered)
    assert ids(corrected) == ids(unanswered)
    for correction in corrected:
        assert_right(correction, recorded)
        assert correction["supersedes"] == ""
    with Outbox(OutboxConfig(path=tmp_path / "outbox.db"), SystemClock()) as outbox:
        counts = outbox.counts()
    assert counts.balances()
    assert (counts.delivered, counts.queued) == (len(unanswered), 0)


HANGS = """
import sys, threading
from edge_runtime.tools.cli import main
from edge_runtime.model.engines.litert import LitertEngine
real, rows = LitertEngine.run, 0

def run(self, *arrays):
    global rows
    rows += len(arrays[0])
    if rows > 40:
        threading.Event().wait()
    return real(self, *arrays)

LitertEngine.run = run
sys.exit(main(sys.argv[1:]))
"""


@pytest.mark.slow
def test_a_call_that_hangs_in_the_process_replaces_the_process(bundle: Path, tmp_path: Path) -> None:
    """Same number, same session; what was not acknowledged comes again, and the next backend answers it.

    The windows begun are soft context, so one of each key may have a gap. Mutation that this finds: a watchdog that
    only writes to the log.
    """
    rng = np.random.default_rng(5)
    recorded = streams(2, 1200, seed=5)
    messages = interleave(rng, [cut(stream, lambda: int(rng.integers(5, 15))) for stream in recorded])
    answers = tmp_path / "answers.jsonl"
    app = tmp_path / "app.toml"
    with Mosquitto() as broker, Publisher(broker.port) as publisher:
        app.write_text(APP.format(bundle=bundle, broker=broker.url, more=""))
        with Process(tmp_path, "run", app, "--json", program=("-c", HANGS)) as process:
            process.subscribed(broker)
            publisher.send(messages[: len(messages) // 2])
            process.says("has not answered for")
            process.says("session resumed")
            until(lambda: "onnx-fp32" in variants(predictions(answers)), lambda: process.err)
            assert process.running(), "the same process, as a service manager sees it"
            publisher.send(messages[len(messages) // 2 :])
            publisher.flush()
            last = max(stream.t[-1] for stream in recorded)
            until(lambda: any(one["end"] > last - 1.0 for one in predictions(answers)), lambda: process.err)
            # In a process of its own it may come back: another hang costs no more than that process.
            until(lambda: "tflite-int8 answers now" in process.err, lambda: process.err)
            process.send(signal.SIGTERM)
            assert process.wait() == 0, process.err
    found = predictions(answers)
    assert len(set(ids(found))) == len(found), "nothing is answered twice"
    assert variants(found)[:2] == ["tflite-int8", "onnx-fp32"]
    for i in range(2):
        slots = [int(answer["id"].rpartition("@")[2]) for answer in found if answer["key"] == f"watch-{i}"]
        gaps = [b - a for a, b in itertools.pairwise(slots) if b - a != HOP]
        assert len(gaps) <= 1, "the window that was begun"
        assert all(gap <= 16 + 2 * HOP for gap in gaps)
    assert "Traceback" not in process.err
