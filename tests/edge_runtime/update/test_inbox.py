from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_runtime.update.inbox import Request, post, requests
from edge_runtime.update.update_store import Depot


@pytest.fixture
def depot(tmp_path: Path) -> Iterator[Depot]:
    depot = Depot(tmp_path / "updates")
    yield depot
    depot.close()


def test_requests_come_oldest_first_and_stay_until_they_are_removed(depot: Depot) -> None:
    for at, action in enumerate(("rollback", "hold")):
        post(depot, Request(action=action))  # type: ignore[arg-type]
        os.utime(depot.requests / f"{action}.json", (at, at))
    for _ in range(2):
        assert [request.action for _, request in requests(depot)] == ["rollback", "hold"]
    requests(depot)[0][0].unlink()
    assert [request.action for _, request in requests(depot)] == ["hold"]


def test_a_request_asked_twice_is_one(depot: Depot) -> None:
    for _ in range(2):
        post(depot, Request(action="hold"))
    assert [path.name for path in depot.requests.iterdir()] == ["hold.json"]


def test_a_request_of_version_0_1_is_read(depot: Depot) -> None:
    (depot.requests / "hold.json").write_bytes(b'{"action":"hold"}')
    assert [request.action for _, request in requests(depot)] == ["hold"]


@pytest.mark.parametrize("data", [b"", b"[]", b'{"action":"run"}', b'{"action":"hold","more":1}', b"\xff"])
def test_what_is_no_request_is_removed_with_a_line(depot: Depot, data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    (depot.requests / "hold.json").write_bytes(data)
    assert requests(depot) == []
    assert list(depot.requests.iterdir()) == []
    assert "is no request" in caplog.text


def test_a_request_that_others_may_have_written_is_removed(
    depot: Depot, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    post(depot, Request(action="rollback"))
    (depot.requests / "rollback.json").chmod(0o620)
    assert requests(depot) == []
    post(depot, Request(action="rollback"))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert requests(depot) == []
    assert list(depot.requests.iterdir()) == []
    assert caplog.text.count("a file that only this user can write") == 2
