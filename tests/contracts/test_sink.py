"""One list of checks over every sink: what `edge_runtime.io.sinks.Sink` promises.

A further sink joins by adding a `Case` to `CASES`: how it is made, and how to read what arrived.
"""

from __future__ import annotations

import fcntl
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest
from edge_devices.integrations.sparkplug import SparkplugSink, SparkplugSinkConfig

from edge_runtime.base.system.loop import Loop
from edge_runtime.base.system.retry import Retry
from edge_runtime.clock import SystemClock
from edge_runtime.io.mqtt.client import BrokerClient
from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.io.sinks import Sink
from edge_runtime.io.sinks import jsonl as jsonl_module
from edge_runtime.io.sinks.guard import Bounds, SinkGuard
from edge_runtime.io.sinks.jsonl import JsonlSink, JsonlSinkConfig
from edge_runtime.io.sinks.memory import MemorySink
from edge_runtime.io.sinks.mqtt import MqttSink, MqttSinkConfig
from edge_runtime.io.sinks.stdout import StdoutSink, StdoutSinkConfig
from edge_runtime.io.sinks.webhook import WebhookSink, WebhookSinkConfig
from edge_runtime.metrics import Metrics
from edge_runtime.tools.demo.broker.broker import Broker
from edge_runtime.types import Answer
from tests.edge_devices.integrations.sparkplug_host import DESCRIBED, Client
from tests.edge_runtime.io.sinks.answers import correction, event, ids, prediction
from tests.edge_runtime.io.sinks.disk import Disk
from tests.edge_runtime.io.sinks.endpoint import OK, Endpoint, Reply
from tests.integration.running import listening

Arrived = Callable[[], list[str]]


@dataclass(frozen=True)
class Case:
    """One sink."""

    name: str
    make: Callable[[Path, ExitStack], tuple[Sink, Arrived]]
    """A sink that is not open yet, and the ids that its destination has so far."""


def memory(_folder: Path, _stack: ExitStack) -> tuple[Sink, Arrived]:
    sink = MemorySink()
    return sink, lambda: [answer.id for answer in sink.answers]


def jsonl(folder: Path, _stack: ExitStack) -> tuple[Sink, Arrived]:
    path = folder / "out.jsonl"
    return JsonlSink(JsonlSinkConfig(path=path), Metrics()), lambda: ids(path.read_bytes())


def jsonl_synced(folder: Path, _stack: ExitStack) -> tuple[Sink, Arrived]:
    path = folder / "out.jsonl"
    return JsonlSink(JsonlSinkConfig(path=path, fsync="batch"), Metrics()), lambda: ids(path.read_bytes())


def stdout(_folder: Path, stack: ExitStack) -> tuple[Sink, Arrived]:
    read_end, write_end = os.pipe()
    data = bytearray()

    def collect() -> None:
        while piece := os.read(read_end, 65536):
            data.extend(piece)

    thread = threading.Thread(target=collect)
    thread.start()
    stack.callback(os.close, read_end)
    stack.callback(thread.join)
    stack.callback(os.close, write_end)
    return StdoutSink(StdoutSinkConfig(), Metrics(), fd=write_end), lambda: ids(bytes(data).rpartition(b"\n")[0])


def webhook(_folder: Path, stack: ExitStack) -> tuple[Sink, Arrived]:
    endpoint = Endpoint()
    stack.callback(endpoint.close)
    return WebhookSink(WebhookSinkConfig(url=endpoint.url), Metrics()), endpoint.ids


def sparkplug(_folder: Path, _stack: ExitStack) -> tuple[Sink, Arrived]:
    client = Client()
    config = SparkplugSinkConfig(broker="b", group="plant", node="line-1", max_hz=0)
    sink = SparkplugSink(config, cast("BrokerClient", client), Metrics(), SystemClock(), describe=lambda: DESCRIBED)
    named = ("id", "correction/id", "events/fall/id")
    return sink, lambda: [one.value for one in client.host.seen if one.metric in named and one.value is not None]


CASES = [
    Case("memory", memory),
    Case("jsonl", jsonl),
    Case("jsonl-synced", jsonl_synced),
    Case("sparkplug", sparkplug),
    Case("stdout", stdout),
    Case("webhook", webhook),
]


class Running:
    """A sink on a loop."""

    def __init__(self, case: Case, folder: Path, stack: ExitStack) -> None:
        self.sink, self.arrived = case.make(folder, stack)
        self.loop = Loop()
        self.done: list[int] = []
        self.threads: set[int] = set()

    def send(self, tag: int, *answers: Answer) -> None:
        def done() -> None:
            self.done.append(tag)
            self.threads.add(threading.get_ident())

        self.sink.send(answers, done)

    def until(self, condition: Callable[[], bool]) -> None:
        end = time.monotonic() + 60
        while not condition():
            assert time.monotonic() < end, f"it did not happen; reported: {self.done[:20]}"
            self.loop.iterate(0.02)


@pytest.fixture(params=CASES, ids=lambda case: case.name)
def running(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Running]:
    with ExitStack() as stack:
        made = Running(request.param, tmp_path, stack)
        stack.callback(made.loop.close)
        stack.callback(made.sink.close, 1.0)
        yield made


def test_answers_are_reported_once_each_on_the_loop_s_thread_and_arrive_in_their_order(running: Running) -> None:
    running.sink.open(running.loop)
    for i in range(50):
        running.send(i, prediction(2 * i), prediction(2 * i + 1))
    running.until(lambda: len(running.done) >= 50)
    running.until(lambda: len(running.arrived()) == 100)
    running.loop.iterate(0.05)
    assert running.done == list(range(50))
    assert running.threads == {threading.get_ident()}
    assert running.arrived() == [f"k@{i}" for i in range(100)]


def test_predictions_corrections_and_events_go_the_same_way(running: Running) -> None:
    running.sink.open(running.loop)
    running.send(1, prediction(1), correction(1), prediction(2), event(2))
    running.until(lambda: running.done == [1])
    running.until(lambda: running.arrived() == ["k@1", "k@1", "k@2", "k@2/fall"])


def test_nobody_need_wait(running: Running) -> None:
    running.sink.open(running.loop)
    running.sink.send([prediction(1)], None)
    running.send(2, prediction(2))
    running.until(lambda: running.done == [2])


def test_closing_hands_over_what_is_queued_and_may_be_repeated(running: Running) -> None:
    running.sink.open(running.loop)
    for i in range(20):
        running.send(i, prediction(i))
    running.sink.close(5.0)
    running.sink.close(5.0)
    assert running.done == list(range(20))
    running.until(lambda: len(running.arrived()) == 20)


def test_a_sink_that_was_never_opened_has_a_name_and_can_be_closed(running: Running) -> None:
    assert running.sink.name
    running.sink.close(0.1)


# -- a destination that takes nothing ----------------------------------------------------------------------------------

Deaf = tuple[Sink, Callable[[], object], Arrived]
"""A sink with room for some 20 answers, what wakes its destination, and the ids that came."""


def deaf_jsonl(folder: Path, stack: ExitStack, metrics: Metrics) -> Deaf:
    disk, path = Disk(), folder / "out.jsonl"
    disk.room = 0
    stack.enter_context(pytest.MonkeyPatch.context()).setattr(jsonl_module, "os", disk)
    config = JsonlSinkConfig(path=path, max_pending_bytes=6_000)
    return JsonlSink(config, metrics), lambda: setattr(disk, "room", None), lambda: ids(path.read_bytes())


def deaf_stdout(_folder: Path, stack: ExitStack, metrics: Metrics) -> Deaf:
    reader, writer = os.pipe()
    stack.callback(os.close, reader)
    stack.callback(os.close, writer)
    os.set_blocking(reader, False)
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    data, awake = bytearray(), list[bool]()

    def arrived() -> list[str]:
        with suppress(BlockingIOError):
            while awake and (piece := os.read(reader, 65536)):
                data.extend(piece)
        return ids(bytes(data).rpartition(b"\n")[0])

    return (
        StdoutSink(StdoutSinkConfig(max_pending_bytes=6_000), metrics, fd=writer),
        lambda: awake.append(True),
        arrived,
    )


def deaf_webhook(_folder: Path, stack: ExitStack, metrics: Metrics) -> Deaf:
    endpoint = Endpoint()
    stack.callback(endpoint.close)
    endpoint.judge = lambda _: (503, {}, b"")
    config = WebhookSinkConfig(url=endpoint.url, max_queued=20, max_batch=1, retry=Retry(base_s=0.01, cap_s=0.02))
    taken: list[str] = []

    def take(answers: list[dict[str, Any]]) -> Reply:
        taken.extend(one["id"] for one in answers)
        return OK

    return WebhookSink(config, metrics), lambda: setattr(endpoint, "judge", take), lambda: taken


def deaf_sparkplug(_folder: Path, _stack: ExitStack, metrics: Metrics) -> Deaf:
    client = Client(connected=False, queue_messages=20)
    config = SparkplugSinkConfig(broker="b", group="plant", node="line-1", max_hz=0)
    sink = SparkplugSink(config, cast("BrokerClient", client), metrics, SystemClock(), describe=lambda: DESCRIBED)
    return sink, client.connect, lambda: [str(one.value) for one in client.host.seen if one.metric == "id"]


def deaf_mqtt(_folder: Path, stack: ExitStack, metrics: Metrics) -> Deaf:
    broker = stack.enter_context(Broker())
    heard = stack.enter_context(listening(broker.port, "edge/+/prediction"))
    broker.stop()
    client = BrokerClient(BrokerConfig(url=f"mqtt://127.0.0.1:{broker.port}", queue_messages=20), "b", metrics)
    return MqttSink(MqttSinkConfig(broker="b"), client, metrics), broker.start, lambda: [one["id"] for one in heard]


@pytest.mark.parametrize("make", [deaf_jsonl, deaf_stdout, deaf_webhook, deaf_sparkplug, deaf_mqtt])
def test_what_takes_nothing_for_ever_is_bounded_counted_and_resumed(
    make: Callable[[Path, ExitStack, Metrics], Deaf], tmp_path: Path
) -> None:
    metrics, loop, done, sent = Metrics(), Loop(), list[int](), 300
    own = metrics.of_sink("sink[0]")
    with ExitStack() as stack:
        sink, wake, arrived = make(tmp_path, stack, own)
        guard = SinkGuard(sink, Bounds(required=True, patience_s=0.2), own, SystemClock())
        stack.callback(loop.close)
        stack.callback(guard.close, 0.0)
        guard.open(loop)

        def until(condition: Callable[[], object]) -> None:
            end = time.monotonic() + 60
            while not condition():
                assert time.monotonic() < end, (len(done), dict(own.dropped), guard.status(), len(arrived()))
                loop.iterate(0.02)

        for i in range(sent):
            guard.send([prediction(i)], lambda i=i: done.append(i))  # type: ignore[misc]
        until(lambda: len(done) == sent and guard.stalled_s)
        assert guard.status()["waiting"] <= 60, "what waits is bounded"
        assert sum(own.dropped.values()) >= sent - 60, "and what is not kept is counted"
        wake()
        until(lambda: (arrived() or True) and not guard.stalled_s and guard.idle)
        guard.send([prediction(sent)], lambda: done.append(sent))
        until(lambda: f"k@{sent}" in arrived() and sent in done)
        assert len(set(arrived())) + sum(own.dropped.values()) == sent + 1
        assert metrics.dropped == own.dropped
