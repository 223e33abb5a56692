"""Sinks that take nothing, each in its own way, beside a healthy one: brokers, files, pipes and endpoints."""

from __future__ import annotations

import os
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import NamedTuple

import numpy as np
import orjson

from tests.edge_runtime.io.sinks.endpoint import OK, Endpoint
from tests.integration.running import Publisher, cut, environment, interleave, listening, streams, subscribed, until
from tests.mosquitto import Mosquitto, free_port

AT_ONCE = 60
"""Messages on their way at a time: below what the broker keeps, above what the source takes without acknowledging."""
RATE_HZ = 80
POISON = "watch-1@"

APP = """
[model]
unsigned = "allow"
bundle = "{bundle}"
[broker.b]
url = "mqtt://127.0.0.1:{port}"
{limit}
[[source]]
type = "mqtt"
broker = "b"
topics = ["watch/+/imu"]
[broker.healthy]
url = "mqtt://127.0.0.1:{port}"
status_topic = "status"
"""
HEALTHY = '[[sink]]\ntype = "mqtt"\nbroker = "healthy"\n'


class Failing(NamedTuple):
    """A sink that takes nothing."""

    table: str
    begin: Callable[[int], None] = lambda _: None
    """Makes it fail, given the application's process id."""
    end: Callable[[], None] | None = None
    """Makes it work again."""
    delivered: Callable[[], int] | None = None
    """Answers that it has at last."""
    stdout: int = subprocess.DEVNULL


def mqtt_down(folder: Path, _stack: ExitStack) -> Failing:
    return Failing(f'[broker.c]\nurl = "mqtt://127.0.0.1:{free_port()}"\n[[sink]]\ntype = "mqtt"\nbroker = "c"\n')


def sparkplug_down(folder: Path, _stack: ExitStack) -> Failing:
    sink = '[[sink]]\ntype = "sparkplug"\nbroker = "c"\ngroup = "g"\nnode = "n"\nmax_hz = 0.0\n'
    return Failing(f'[broker.c]\nurl = "mqtt://127.0.0.1:{free_port()}"\n{sink}')


def mqtt_silent(folder: Path, stack: ExitStack) -> Failing:
    """It accepts connections and says nothing."""
    port = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
    return Failing(f'[broker.c]\nurl = "mqtt://127.0.0.1:{port}"\n[[sink]]\ntype = "mqtt"\nbroker = "c"\n')


def mqtt_stopped(folder: Path, stack: ExitStack) -> Failing:
    """It was connected, and then its process was stopped."""
    broker = Mosquitto().start()
    stack.callback(broker.close)
    pid = broker.pid
    stack.callback(os.kill, pid, signal.SIGCONT)
    heard = stack.enter_context(listening(broker.port, "edge/+/prediction"))
    return Failing(
        f'[broker.c]\nurl = "{broker.url}"\n[[sink]]\ntype = "mqtt"\nbroker = "c"\n',
        lambda _: os.kill(pid, signal.SIGSTOP),
        lambda: os.kill(pid, signal.SIGCONT),
        lambda: len({answer["id"] for answer in heard}),
    )


def jsonl_full(folder: Path, _stack: ExitStack) -> Failing:
    """Its process may write no longer files, as on a full disk; nothing else of it writes any."""
    path, pids = folder / "answers.jsonl", list[int]()

    def begin(pid: int) -> None:
        pids.append(pid)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))

    def end() -> None:
        resource.prlimit(pids[0], resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))

    return Failing(f'[[sink]]\ntype = "jsonl"\npath = "{path}"\n', begin, end, lambda: path.read_bytes().count(b"\n"))


def stdout_paused(folder: Path, stack: ExitStack) -> Failing:
    reader, writer = os.pipe()
    stack.callback(os.close, reader)
    stack.callback(os.close, writer)
    found = bytearray()

    def read() -> int:
        os.set_blocking(reader, False)
        try:
            while piece := os.read(reader, 65536):
                found.extend(piece)
        except BlockingIOError:
            pass
        return found.count(b"\n")

    return Failing('[[sink]]\ntype = "stdout"\n', end=lambda: None, delivered=read, stdout=writer)


def webhook_down(folder: Path, _stack: ExitStack) -> Failing:
    return Failing(f'[[sink]]\ntype = "webhook"\nurl = "http://127.0.0.1:{free_port()}/"\n')


def webhook_silent(folder: Path, stack: ExitStack) -> Failing:
    port = stack.enter_context(socket.create_server(("127.0.0.1", 0))).getsockname()[1]
    return Failing(f'[[sink]]\ntype = "webhook"\nurl = "http://127.0.0.1:{port}/"\n')


def webhook_poisoned(folder: Path, stack: ExitStack) -> Failing:
    """It fails at the answers of one key, as a sender may choose it, and takes all others."""
    endpoint = Endpoint()
    stack.callback(endpoint.close)
    taken: set[str] = set()

    def judge(handler: BaseHTTPRequestHandler, body: bytes) -> None:
        found = [answer["id"] for answer in orjson.loads(body)]
        bad = any(one.startswith(POISON) for one in found)
        taken.update(() if bad else found)
        handler.send_response(500 if bad else OK[0])
        handler.send_header("Content-Length", "0")
        handler.end_headers()

    endpoint.judge = lambda _: judge  # type: ignore[assignment, return-value]
    retry = "retry = {base_s = 0.05, cap_s = 0.2}\n"
    return Failing(f'[[sink]]\ntype = "webhook"\nurl = "{endpoint.url}"\n{retry}', delivered=lambda: len(taken))


Kind = Callable[[Path, ExitStack], Failing]
KINDS: list[Kind] = [
    mqtt_down, mqtt_silent, mqtt_stopped, sparkplug_down, jsonl_full, stdout_paused, webhook_down, webhook_silent,
    webhook_poisoned,
]  # fmt: skip


@contextmanager
def application(text: str, folder: Path, stdout: int) -> Iterator[tuple[int, Callable[[], str]]]:
    """The application as a process; its id, and what it has written to standard error."""
    (folder / "app.toml").write_text(text)
    log = folder / "app.err"
    with log.open("wb") as err:
        process = subprocess.Popen(
            [sys.executable, "-m", "edge_runtime", "run", "app.toml"],
            stdin=subprocess.DEVNULL, stdout=stdout, stderr=err, cwd=folder, env=environment(),
        )  # fmt: skip
    try:
        yield process.pid, lambda: log.read_text("utf-8", "replace")
        assert process.poll() is None, log.read_text("utf-8", "replace")
    finally:
        process.kill()
        process.wait(60)


def run(kind: Kind, bundle: Path, folder: Path, first: bool, messages: int, paced: bool) -> None:
    """Send messages while one sink fails, and hold what the others got against what was sent."""
    keys = 4
    feed = interleave(np.random.default_rng(1), [cut(stream, lambda: 8) for stream in streams(keys, 2 * messages)])
    answers = keys * (messages // keys - 2)  # the last window of a key may lack a sample
    with ExitStack() as stack:
        broker = Mosquitto().start()
        stack.callback(broker.close)
        failing = kind(folder, stack)
        bound = "" if paced else "patience_s = 0.5\n"
        sinks = [failing.table + bound, HEALTHY]
        text = APP.format(bundle=bundle, port=broker.port, limit="" if paced else f"receive_maximum = {AT_ONCE // 2}")
        heard = stack.enter_context(listening(broker.port, "edge/+/prediction"))
        sensors = stack.enter_context(Publisher(broker.port))
        text += "".join(sinks if first else reversed(sinks))
        pid, said = stack.enter_context(application(text, folder, failing.stdout))
        until(lambda: subscribed(broker, said()), said)
        failing.begin(pid)
        began = time.monotonic()
        for i, message in enumerate(feed):
            if paced:
                time.sleep(max(0.0, began + i / RATE_HZ - time.monotonic()))
            else:
                until(lambda i=i: len(heard) > i - AT_ONCE, lambda: f"{len(heard)} answers, {said()}")  # type: ignore[misc]
            sensors.send([message])
        until(lambda: len({answer["id"] for answer in heard}) >= answers, lambda: f"{len(heard)} of {answers} {said()}")
        for key in {answer["key"] for answer in heard}:
            slots = sorted({int(answer["id"].partition("@")[2]) for answer in heard if answer["key"] == key})
            assert slots == list(range(slots[0], slots[-1] + 1, 8)), "an answer is missing"
        name, poisoned = f"sink[{0 if first else 1}]", kind is webhook_poisoned
        if not poisoned:
            until(lambda: f"{name}: took no answers" in said(), said)
        assert "no readings for" not in said()
        if failing.end is not None:
            failing.end()
        delivered, expected = failing.delivered, answers * (keys - poisoned) // keys
        if delivered is not None and (poisoned or not paced):  # in a minute some queues drop, as they say
            until(lambda: delivered() >= expected, lambda: f"{delivered()} of {expected} {said()}")
        if failing.end is not None:
            until(lambda: (delivered is None or delivered() >= 0) and f"{name}: took answers again" in said(), said)
