"""The files between a command and an application; what an outbox does with them stands in test_control.py."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from edge_runtime.base.system.control_spool import Spool
from edge_runtime.clock import SimulatedClock, SystemClock


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    return Spool(tmp_path / "request")


def test_the_answer_belongs_to_the_request(spool: Spool, tmp_path: Path) -> None:
    (tmp_path / "request.answer").write_bytes(b'{"name":"of a command that gave up","done":1}')
    stop = threading.Event()

    def application() -> None:
        while not stop.wait(0.001):
            spool.serve(lambda asked: {"done": asked["count"] + 1})

    thread = threading.Thread(target=application)
    thread.start()
    try:
        found = spool.ask({"count": 41}, SystemClock(), 60.0)
    finally:
        stop.set()
        thread.join()
    assert found is not None
    assert found["done"] == 42
    assert list(tmp_path.iterdir()) == []


def test_a_command_that_waits_keeps_the_next_one_from_asking(spool: Spool, tmp_path: Path) -> None:
    spool.post({"what": "first"})
    with pytest.raises(FileExistsError):
        spool.ask({"what": "second"}, SimulatedClock(), 1.0)
    assert spool.read() == {"what": "first"}
    assert [path.name for path in tmp_path.iterdir()] == ["request"]


def test_a_request_without_an_answer_is_taken_back(spool: Spool, tmp_path: Path) -> None:
    assert spool.ask({}, SimulatedClock(), 1.0) is None
    assert list(tmp_path.iterdir()) == []


def test_a_posted_request_replaces_one_that_was_not_taken(spool: Spool) -> None:
    spool.post({"what": "first"})
    spool.post({"what": "second"})
    assert spool.read() == {"what": "second"}


def test_no_request_costs_no_more_than_a_look(spool: Spool, tmp_path: Path) -> None:
    def handle(_: dict[str, Any]) -> dict[str, Any]:
        raise AssertionError

    assert not spool.serve(handle)
    assert list(tmp_path.iterdir()) == []
