"""Lines of captured messages: what mosquitto_sub writes, and what is none."""

from __future__ import annotations

import math
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.recordings import capture
from edge_runtime.io.recordings.capture import Captured, iter_messages, parse_line

AT = 1_795_418_940.5


@pytest.mark.parametrize(
    ("line", "message"),
    [
        # As mosquitto_sub 2.0.11 writes them: -F %J, -F %j, -F '%U %t %p', -F '%I %t %p', -v.
        (
            b'{"tst":"2026-11-23T07:29:00.500000Z+0000","topic":"a/b","qos":0,"retain":0,"payloadlen":19,"payload":{"x":1.5}}',
            Captured("a/b", b'{"x":1.5}', AT, retained=False),
        ),
        (
            b'{"tst":"2026-11-23T08:29:00.500000Z+0100","topic":"a/b","qos":1,"retain":1,"payloadlen":4,"payload":"12.5"}',
            Captured("a/b", b"12.5", AT, retained=True),
        ),
        (b'1795418940.500000000 a/b {"x": 1.5}', Captured("a/b", b'{"x": 1.5}', AT, retained=False)),
        (b"2026-11-23T07:29:00+0000 a/b 12.5", Captured("a/b", b"12.5", AT - 0.5, retained=False)),
        (b'a/b {"x": 1.5, "y":"q"}', Captured("a/b", b'{"x": 1.5, "y":"q"}', math.nan, retained=False)),
        # Others.
        (b'{"time":1795418940.5,"topic":"a","payload_base64":"AAE="}', Captured("a", b"\x00\x01", AT, retained=False)),
        (b'{"topic":"a","payload":null}', Captured("a", b"", math.nan, retained=False)),
        (b"a/b (null)", Captured("a/b", b"", math.nan, retained=False)),
        (b"a/b", Captured("a/b", b"", math.nan, retained=False)),
    ],
)
def test_a_line_is_a_message(line: bytes, message: Captured) -> None:
    found = parse_line(line)
    assert found._replace(received=0) == message._replace(received=0)
    assert found.received == pytest.approx(message.received, nan_ok=True)


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"{", "malformed"),
        (b'{"topic":"a"}', "malformed"),
        (b'{"payload":1}', "malformed"),
        (b'{"topic":"a","payload_base64":"?"}', "malformed"),
        (b'{"topic":"a","payload_base64":[]}', "malformed"),
        (b'{"topic":"a","payload":1,"tst":true}', "bad_time"),
        (b'{"topic":"a","payload":1,"tst":"soon"}', "bad_time"),
        (b'{"topic":"a","payload":1,"t":1e300}', "bad_time"),
        (b"\xff\xfe 1", "malformed"),
        (b"watch/+/imu 1", "malformed"),
    ],
)
def test_a_line_that_is_none_is_refused(line: bytes, reason: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_line(line)
    assert caught.value.reason == reason


@given(st.binary(max_size=60))
def test_noise_is_a_message_or_refused(line: bytes) -> None:
    with suppress(InputError):
        assert parse_line(line.strip() or b"x").topic


def test_lines_are_numbered_and_bad_ones_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(capture, "MAX_LINE", 30)
    path = tmp_path / "captured.txt"
    path.write_bytes(b"a 1\n\n{\n" + b"b " + b"x" * 100 + b"\nc 2")
    refused: list[InputError] = []
    assert [(number, message.topic) for number, message in iter_messages(path, refused.append)] == [(1, "a"), (5, "c")]
    assert [(error.reason, str(error).split(": ")[1]) for error in refused] == [
        ("malformed", "line 3"), ("too_large", "line 4"),
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="cannot be read"):
        list(iter_messages(tmp_path / "none.txt", refused.append))
