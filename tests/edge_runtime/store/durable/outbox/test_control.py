from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

import orjson
import pytest

from edge_runtime.base.system.barrier import Barrier
from edge_runtime.clock import SimulatedClock, SystemClock
from edge_runtime.errors import StoreError
from edge_runtime.metrics import Metrics
from edge_runtime.store.durable.outbox import Outbox
from edge_runtime.store.durable.outbox.control import MAX_IDS, ask, serve
from tests.edge_runtime.store.durable.outbox.outboxes import EVERYTHING, cases, make, names


@pytest.fixture
def outbox(tmp_path: Path, clock: SimulatedClock) -> Iterator[Outbox]:
    """With three dead letters."""
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(1, 2, 3))
        outbox.lease(3, EVERYTHING)
        outbox.move_to_dead_letters(names(1, 2, 3), "rejected", "no")
        yield outbox


@pytest.fixture
def served(outbox: Outbox) -> Iterator[Outbox]:
    """Looked after, as the committer does."""
    stop = threading.Event()

    def look() -> None:
        while not stop.wait(0.01):
            serve(outbox.path, outbox)

    thread = threading.Thread(target=look)
    thread.start()
    yield outbox
    stop.set()
    thread.join()


def leftovers(outbox: Outbox) -> set[str]:
    return {path.name for path in outbox.path.parent.iterdir()} - {"outbox.db", "outbox.db-wal", "outbox.db.lock"}


def test_the_owner_does_what_it_is_asked(served: Outbox) -> None:
    assert ask(served.path, "retry", names(1, 9), SystemClock(), 30) == 1
    assert ask(served.path, "drop", names(2), SystemClock(), 30) == 1
    counts = served.counts()
    assert (counts.queued, counts.dead, counts.dropped["discarded"]) == (1, 1, 1)
    assert counts.balances()
    assert leftovers(served) == set()


def test_without_an_answer_the_request_is_taken_back(outbox: Outbox) -> None:
    with pytest.raises(StoreError, match=r"no application took .* within 0\.1 s; does it run, or is it stopping"):
        ask(outbox.path, "drop", names(1), SystemClock(), 0.1)
    assert leftovers(outbox) == set()
    assert not serve(outbox.path, outbox)
    assert outbox.counts().dead == 3


def test_only_one_command_asks_at_a_time(outbox: Outbox) -> None:
    (outbox.path.parent / "outbox.db.request").write_text("{}")
    with pytest.raises(StoreError, match="another command waits"):
        ask(outbox.path, "drop", names(1), SystemClock(), 0.1)
    assert leftovers(outbox) == {"outbox.db.request"}


def test_a_failure_of_the_owner_is_told(served: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_ids: object) -> int:
        raise StoreError("no room for the outbox")

    monkeypatch.setattr(served, "discard", fail)
    with pytest.raises(StoreError, match="no room"):
        ask(served.path, "drop", names(1), SystemClock(), 30)


def request(outbox: Outbox, **document: object) -> Path:
    path = outbox.path.with_name("outbox.db.request")
    path.write_bytes(orjson.dumps({"name": "n", "action": "drop", "ids": names(1)} | document))
    path.chmod(0o600)
    return path


def test_what_others_may_have_written_is_not_trusted(
    outbox: Outbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Seen to fail when `_read` does not look at mode and owner, and when it follows links."""
    request(outbox).chmod(0o620)
    assert serve(outbox.path, outbox)
    path = request(outbox)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    assert serve(outbox.path, outbox)
    assert not path.is_symlink()
    os.mkfifo(path)
    assert serve(outbox.path, outbox)
    request(outbox)
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert serve(outbox.path, outbox)
    assert not path.exists()
    assert outbox.counts().dead == 3
    assert caplog.text.count("removed a request that is not this user's own") == 4


@pytest.mark.parametrize(
    "document",
    [
        {"action": "run"},
        {"ids": "watch@1"},
        {"ids": [1]},
        {"name": 7},
        {"ids": [f"watch@{i}" for i in range(MAX_IDS + 1)]},
    ],
)
def test_malformed_requests_are_answered_and_change_nothing(outbox: Outbox, document: dict[str, object]) -> None:
    request(outbox, **document)
    assert serve(outbox.path, outbox)
    answer = orjson.loads((outbox.path.parent / "outbox.db.answer").read_bytes())
    assert set(answer) == {"name", "error"}
    assert outbox.counts().dead == 3


def test_a_crash_between_doing_and_answering_does_it_once(outbox: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    request(outbox, action="retry")

    def crash(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("edge_runtime.base.system.durable_file.write", crash)
    with pytest.raises(KeyboardInterrupt):
        serve(outbox.path, outbox)
    monkeypatch.undo()
    assert serve(outbox.path, outbox)  # the next run finds the request still there
    counts = outbox.counts()
    assert (counts.queued, counts.dead) == (1, 2)
    assert counts.balances()


def test_a_request_that_makes_the_owner_fail_is_not_met_again(outbox: Outbox, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: `serve` without its `except Exception`: the committer's thread meets it every second, for ever."""
    request(outbox, action="retry")

    def fail(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("edge_runtime.store.durable.outbox.control._do", fail)
    metrics = Metrics()
    assert not Barrier("control", metrics).call(lambda: serve(outbox.path, outbox))
    assert metrics.dropped["control_internal_error"] == 1
    assert not serve(outbox.path, outbox)
    assert outbox.counts().dead == 3
