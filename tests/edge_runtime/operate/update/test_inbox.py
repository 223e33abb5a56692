from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_runtime.operate.update.inbox import Request, post, requests
from edge_runtime.operate.update.update_store import UpdateStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[UpdateStore]:
    store = UpdateStore(tmp_path / "updates")
    yield store
    store.close()


def test_requests_come_oldest_first_and_stay_until_they_are_removed(store: UpdateStore) -> None:
    for at, action in enumerate(("rollback", "hold")):
        post(store, Request(action=action))  # type: ignore[arg-type]
        os.utime(store.requests / f"{action}.json", (at, at))
    for _ in range(2):
        assert [request.action for _, request in requests(store)] == ["rollback", "hold"]
    requests(store)[0][0].unlink()
    assert [request.action for _, request in requests(store)] == ["hold"]


def test_a_request_asked_twice_is_one(store: UpdateStore) -> None:
    for _ in range(2):
        post(store, Request(action="hold"))
    assert [path.name for path in store.requests.iterdir()] == ["hold.json"]


def test_a_request_of_version_0_1_is_read(store: UpdateStore) -> None:
    (store.requests / "hold.json").write_bytes(b'{"action":"hold"}')
    assert [request.action for _, request in requests(store)] == ["hold"]


@pytest.mark.parametrize("data", [b"", b"[]", b'{"action":"run"}', b'{"action":"hold","more":1}', b"\xff"])
def test_what_is_no_request_is_removed_with_a_line(
    store: UpdateStore, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (store.requests / "hold.json").write_bytes(data)
    assert requests(store) == []
    assert list(store.requests.iterdir()) == []
    assert "removed an unreadable request" in caplog.text


def test_a_request_that_others_may_have_written_is_removed(
    store: UpdateStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    post(store, Request(action="rollback"))
    (store.requests / "rollback.json").chmod(0o620)
    assert requests(store) == []
    post(store, Request(action="rollback"))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    assert requests(store) == []
    assert list(store.requests.iterdir()) == []
    assert caplog.text.count("a file that only this user can write") == 2
