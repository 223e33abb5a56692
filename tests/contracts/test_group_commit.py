"""What all users of group commit promise: the outbox, the reading log and the file of answers that is synced."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import SystemClock
from edge_runtime.cloud.config import EscalationConfig
from edge_runtime.cloud.escalator import Escalator
from edge_runtime.cloud.question import CloudModel
from edge_runtime.io.sinks.jsonl import JsonlSink, JsonlSinkConfig
from edge_runtime.metrics import Metrics
from edge_runtime.store.durable.outbox import Outbox, OutboxConfig
from edge_runtime.store.durable.reading_log_file import ReadingLogFile
from edge_runtime.types import Hard, Prediction, Reading
from tests.edge_runtime.cloud.clouds import FakeCloud
from tests.edge_runtime.io.sinks.answers import prediction
from tests.edge_runtime.manifests import manifest
from tests.edge_runtime.store.durable.bench import Bench

PATIENCE_S = 60.0


class Disk:
    """In the way of each flush: holds it back, counts it, or makes it fail as nobody expects."""

    def __init__(self) -> None:
        self.flushes = 0
        self.entered = threading.Event()
        self.free = threading.Event()
        self.free.set()
        self.bug = False

    def pass_on(self, flush: Callable[..., Any]) -> Callable[..., Any]:
        def held(*arguments: Any) -> Any:
            self.entered.set()
            assert self.free.wait(PATIENCE_S)
            if self.bug:
                self.bug = False
                raise ZeroDivisionError
            self.flushes += 1
            return flush(*arguments)

        return held


class User:
    """One of them: `submit` hands a job over, `safe` holds the jobs that were reported."""

    def __init__(self, loop: Loop, metrics: Metrics) -> None:
        self.loop = loop
        self.metrics = metrics
        self.safe: list[int] = []

    def done(self, i: int) -> Callable[[], None]:
        return lambda: self.safe.append(i)

    def submit(self, i: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def lost(self) -> int:
        """Jobs that were reported without being on the disk, as counted."""
        raise NotImplementedError

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end
            self.loop.iterate(0.01)


class OutboxUser(User):
    def __init__(self, folder: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(Loop(), Metrics())
        self.outbox = Outbox(OutboxConfig(path=folder / "outbox.db"), SystemClock())
        monkeypatch.setattr(self.outbox, "put", disk.pass_on(self.outbox.put))
        cloud = FakeCloud()
        cloud.down = True
        self.escalator = Escalator(
            model=CloudModel(EscalationConfig(), manifest(), cloud, self.metrics, SystemClock()), outbox=self.outbox,
            loop=self.loop,
            publish=lambda _, done: done(), metrics=self.metrics, clock=SystemClock(),
        )  # fmt: skip
        self.escalator.start()

    def submit(self, i: int) -> None:
        p = Prediction(f"k@{i}", "k", 0.0, 1.0, "low", 0.6, [0.6, 0.4], "provisional", True, "bench/3", "null", 0.1)
        self.escalator.submit([Hard(p, np.zeros((2, 8), np.float32), 0.6, False)], self.done(i))

    def lost(self) -> int:
        return self.metrics.dropped["outbox_error"]

    def close(self) -> None:
        self.escalator.stop(PATIENCE_S)
        self.outbox.close()


class ReadingLogUser(User):
    def __init__(self, folder: Path, disk: Disk, _: pytest.MonkeyPatch) -> None:
        file = ReadingLogFile(folder / "journal.db", 2**20)
        self.bench = Bench(folder, file)
        self.bench.wait()  # for the first snapshot
        super().__init__(self.bench.loop, self.bench.metrics)
        file.append = disk.pass_on(file.append)  # type: ignore[method-assign]

    def submit(self, i: int) -> None:
        reading_log, windower = self.bench.reading_log, self.bench.windower
        reading = Reading("k", 1000.0 + i / 10, np.zeros((1, 2), np.float32))
        reading_log.write([reading], self.done(i))
        reading_log.flush_iteration(windower.push([reading]), windower)

    def lost(self) -> int:
        return self.metrics.counts["reading_log_skipped_total"]

    def close(self) -> None:
        self.bench.reading_log.stop(self.bench.windower, PATIENCE_S)


class JsonlUser(User):
    def __init__(self, folder: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(Loop(), Metrics())
        monkeypatch.setattr(os, "fdatasync", disk.pass_on(os.fdatasync))
        self.sink = JsonlSink(JsonlSinkConfig(path=folder / "answers.jsonl", fsync="batch"), self.metrics)
        self.sink.open(self.loop)

    def submit(self, i: int) -> None:
        self.sink.send([prediction(i)], self.done(i))

    def lost(self) -> int:
        return self.metrics.dropped["jsonl_sync_failed"]

    def close(self) -> None:
        self.sink.close(PATIENCE_S)


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.free.set()


@pytest.fixture(params=[OutboxUser, ReadingLogUser, JsonlUser])
def user(request: pytest.FixtureRequest, tmp_path: Path, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> Iterator[User]:
    user: User = request.param(tmp_path, disk, monkeypatch)
    yield user
    disk.free.set()
    user.close()
    user.loop.close()


def test_nothing_is_safe_before_the_flush_and_all_that_came_meanwhile_shares_the_next(user: User, disk: Disk) -> None:
    disk.free.clear()
    disk.entered.clear()
    user.submit(0)
    assert disk.entered.wait(PATIENCE_S)
    for i in range(1, 40):
        user.submit(i)
    user.loop.iterate(0)
    assert user.safe == []
    disk.free.set()
    user.until(lambda: len(user.safe) == 40)
    assert user.safe == list(range(40))
    assert disk.flushes == 2
    assert user.lost() == 0


def test_an_unexpected_error_is_counted_and_holds_nothing_back(user: User, disk: Disk) -> None:
    """Mutation: `failed` that reports nothing: a reading is never acknowledged, and the stream ends in silence."""
    disk.bug = True
    user.submit(0)
    user.until(lambda: user.safe)
    assert user.lost() == 1
    user.submit(1)
    user.until(lambda: len(user.safe) == 2)
    assert user.safe == [0, 1]


def test_closing_flushes_what_was_submitted(user: User, disk: Disk) -> None:
    disk.free.clear()
    disk.entered.clear()
    user.submit(0)
    assert disk.entered.wait(PATIENCE_S)
    user.submit(1)
    disk.free.set()
    user.close()
    user.until(lambda: len(user.safe) == 2)
    assert user.lost() == 0
