"""What an announcement may say, and whom it concerns."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.errors import UpdateRefused
from edge_runtime.update import announcement
from edge_runtime.update.announcement import in_canary

GOOD: dict[str, Any] = {
    "name": "watch", "version": 2, "sha256": "0" * 64, "size": 1000, "url": "https://example.org/watch-2.edge",
}  # fmt: skip


def test_a_good_one_is_read() -> None:
    told = announcement.parse(orjson.dumps(GOOD | {"canary": 0.1, "not_before": "2026-12-01T00:00:00Z"}))
    assert (told.model, told.canary, told.due()) == ("watch/2", 0.1, 1_796_083_200.0)
    assert announcement.parse(orjson.dumps(GOOD | {"not_before": "2026-12-01"})).due() == 1_796_083_200.0


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"sha256": "0" * 63}, "64 hexadecimal digits"),
        ({"sha256": "A" * 64}, "64 hexadecimal digits"),
        ({"size": 0}, "size and chunk_bytes must be at least 1"),
        ({"size": "1000"}, "size: expected a whole number"),
        ({"version": 0}, "version must be a positive number"),
        ({"version": 1.5}, "version: expected a whole number"),
        ({"name": ""}, "name must not be empty"),
        ({"canary": 1.1}, "canary 0 to 1"),
        ({"url": ""}, "either url or chunks"),
        ({"chunks": "a/b"}, "either url or chunks"),
        ({"url": "", "chunks": "a/#"}, "chunks is no topic"),
        ({"url": "", "chunks": "a/b", "size": 10**9, "chunk_bytes": 100}, "more than 65536 chunks"),
        ({"url": "ftp://example.org/x"}, "http:// or https://"),
        ({"url": "https://user:secret@example.org/x"}, "neither credentials"),
        ({"url": "https://example.org/a b"}, "spaces"),
        ({"url": "https://example.org/\r\nX: y"}, "must be http"),
        ({"url": "https://example.org:99999/x"}, "out of range"),
        ({"not_before": "soon"}, "Invalid isoformat"),
        ({"surprise": 1}, "unknown key 'surprise'"),
    ],
)
def test_a_bad_one_is_refused_with_a_line(change: dict[str, Any], complaint: str) -> None:
    with pytest.raises(UpdateRefused, match=complaint) as caught:
        announcement.parse(orjson.dumps(GOOD | change))
    assert caught.value.reason == "announcement"
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"null", b"\xff", b"1", b"x" * 20_000, b'{"name": NaN}'])
def test_what_is_no_announcement_is_refused(data: bytes) -> None:
    with pytest.raises(UpdateRefused, match="announcement"):
        announcement.parse(data)


@given(st.text(), st.text(), st.floats(0, 1), st.floats(0, 1))
def test_a_device_that_is_in_a_share_is_in_every_larger_one(device: str, model: str, a: float, b: float) -> None:
    small, large = sorted((a, b))
    assert in_canary(device, model, large) or not in_canary(device, model, small)
    assert in_canary(device, model, 1.0)
    assert not in_canary(device, model, 0.0)


def test_a_share_of_a_tenth_is_about_a_tenth_and_another_tenth_the_next_time() -> None:
    fleet = [f"device-{i}" for i in range(10_000)]
    first = {device for device in fleet if in_canary(device, "watch/2", 0.1)}
    second = {device for device in fleet if in_canary(device, "watch/3", 0.1)}
    assert 900 < len(first) < 1100  # 3.3 standard deviations
    assert 50 < len(first & second) < 150


def test_the_place_of_a_device_never_changes() -> None:
    """Pinned: a new version of this program must not choose other canaries."""
    assert [i for i in range(20) if in_canary(f"device-{i}", "watch/2", 0.2)] == [2, 14]
