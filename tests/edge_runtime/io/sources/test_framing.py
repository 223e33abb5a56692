"""From bytes to messages, however they are cut up and damaged."""

from __future__ import annotations

import binascii
import itertools
import struct
from collections.abc import Callable, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.errors import InputError
from edge_runtime.io.sources.framing import Cobs, Fixed, Framer, Lengths, Lines, Records, checked
from tests.edge_runtime.io.sources.frames import crc16, stuffed

LIMIT = 600


class Refused:
    def __init__(self) -> None:
        self.reasons: list[str] = []

    def __call__(self, error: InputError, start: bytes, size: int) -> None:
        assert size >= 0
        self.reasons.append(error.reason)


def cut(framer: Framer, data: bytes, pieces: Sequence[int]) -> list[bytes]:
    """Feed in pieces of these lengths, repeated."""
    messages, at, i = [], 0, 0
    while at < len(data):
        step = pieces[i % len(pieces)]
        messages += framer.feed(data[at : at + step])
        at, i = at + step, i + 1
    return messages


Encode = Callable[[bytes], bytes]
FRAMERS: dict[str, tuple[Callable[[Refused], Framer], Encode]] = {
    "lines": (lambda refuse: Lines(LIMIT, refuse), lambda message: message.hex().encode() + b"\n"),
    "lengths": (lambda refuse: Lengths(LIMIT, refuse), lambda message: struct.pack("<I", len(message)) + message),
    "cobs": (lambda refuse: Cobs(LIMIT, refuse), stuffed),
    "cobs crc16": (lambda refuse: Cobs(LIMIT, refuse, "crc16"), lambda message: stuffed(crc16(message))),
}


@pytest.mark.parametrize("name", FRAMERS)
@given(
    messages=st.lists(st.binary(min_size=1, max_size=300), min_size=1, max_size=8),
    pieces=st.lists(st.integers(1, 97), min_size=1, max_size=5),
)
@settings(deadline=None, max_examples=60, derandomize=True)
def test_messages_come_out_as_they_went_in_however_the_stream_is_cut(
    name: str, messages: list[bytes], pieces: list[int]
) -> None:
    make, encode = FRAMERS[name]
    refused = Refused()
    start = b"\0" if name.startswith("cobs") else b""
    got = cut(make(refused), start + b"".join(map(encode, messages)), pieces)
    assert got == ([message.hex().encode() for message in messages] if name == "lines" else messages)
    assert refused.reasons == []


@given(message=st.binary(max_size=1000))
@settings(deadline=None, max_examples=200, derandomize=True)
def test_cobs_decodes_what_the_paper_encodes(message: bytes) -> None:
    frame = stuffed(message)
    assert b"\0" not in frame[:-1]
    assert len(frame) <= len(message) + len(message) // 254 + 2
    got = Cobs(1000, Refused()).feed(b"\0" + frame)
    assert got == [message]


def test_cobs_decodes_the_paper_s_examples() -> None:
    for plain, encoded in (("00", "0101"), ("0000", "010101"), ("11220033", "0311220233"), ("11000000", "0211010101")):
        assert Cobs(10, Refused()).feed(b"\0" + bytes.fromhex(encoded) + b"\0") == [bytes.fromhex(plain)]


@given(data=st.binary(max_size=2000), pieces=st.lists(st.integers(1, 97), min_size=1, max_size=5))
@settings(deadline=None, max_examples=100, derandomize=True)
def test_noise_leaves_no_framer_in_a_state_that_a_good_message_cannot_end(data: bytes, pieces: list[int]) -> None:
    refused = Refused()
    cobs = Cobs(LIMIT, refused, "crc32")
    cut(cobs, data, pieces)
    message = b"a good one"
    good = stuffed(message + struct.pack("<I", binascii.crc32(message)))
    assert cobs.feed(b"\0" + good)[-1:] == [message]
    lines = Lines(LIMIT, refused)
    cut(lines, data, pieces)
    assert lines.feed(b"\nlast\n")[-1:] == [b"last"]


def test_the_end_of_a_frame_that_began_before_we_listened_is_no_message() -> None:
    refused = Refused()
    assert Cobs(LIMIT, refused).feed(b"tail\0" + stuffed(b"whole")) == [b"whole"]
    assert refused.reasons == []


def test_a_damaged_frame_costs_one_message() -> None:
    refused = Refused()
    cobs = Cobs(LIMIT, refused, "crc16")
    frames = [stuffed(crc16(bytes([i] * 20))) for i in range(1, 6)]
    frames[1] = frames[1][:5] + frames[1][6:]  # a byte was lost
    frames[3] = frames[3][:7] + b"\x77" + frames[3][8:]  # and one changed
    assert [message[0] for message in cobs.feed(b"\0" + b"".join(frames))] == [1, 3, 5]
    assert sorted(refused.reasons) == ["checksum", "malformed"] or refused.reasons == ["checksum", "checksum"]


@pytest.mark.parametrize("name", FRAMERS)
def test_what_is_too_long_is_skipped_and_counted_once_and_not_kept(name: str) -> None:
    make, encode = FRAMERS[name]
    refused = Refused()
    framer = make(refused)
    start = b"\0" if name.startswith("cobs") else b""
    got = cut(framer, start + encode(b"a") + encode(b"x" * 5000) + encode(b"b"), [100])
    assert got == [b"61", b"62"] if name == "lines" else [b"a", b"b"]
    assert refused.reasons == ["too_large"]


def test_fixed_frames_are_found_behind_their_marker() -> None:
    refused = Refused()
    framer = Fixed(4, b"\x55\xaa", refused)
    assert cut(framer, b"..\x55" + b"\x55\xaaabcd" + b"noise" + b"\x55\xaaefgh\x55", [1]) == [b"abcd", b"efgh"]
    assert framer.feed(b"\xaaijkl") == [b"ijkl"]
    assert refused.reasons == []


@given(lost=st.integers(0, 79), pieces=st.lists(st.integers(1, 20), min_size=1, max_size=4))
@settings(deadline=None, max_examples=80, derandomize=True)
def test_a_lost_byte_costs_fixed_frames_with_a_checksum_two_messages_at_most(lost: int, pieces: list[int]) -> None:
    refused = Refused()
    framer = Fixed(4, b"\x55\xaa", refused, "crc16")
    # The marker stands inside the messages too.
    messages = [b"\x55\xaa" + bytes([i, i]) for i in range(10)]
    stream = b"".join(b"\x55\xaa" + crc16(message) for message in messages)
    got = cut(framer, stream[:lost] + stream[lost + 1 :] + b"\0" * 20, pieces)
    assert set(got) <= set(messages)
    assert len(got) >= 8
    assert got == sorted(got)


def test_a_stream_that_ends_inside_a_message_says_so() -> None:
    refused = Refused()
    lengths = Lengths(LIMIT, refused)
    assert lengths.feed(b"\5\0\0\0abc") == []
    assert lengths.end() == []
    assert refused.reasons == ["malformed"]
    lines = Lines(LIMIT, refused)
    assert lines.feed(b"one\ntwo") == [b"one"]
    assert lines.end() == [b"two"]


@pytest.mark.parametrize("framer", [Lines(LIMIT, Refused()), Lengths(LIMIT, Refused()), Fixed(4, b"U", Refused())])
def test_reset_forgets_the_unfinished_message(framer: Framer) -> None:
    framer.feed(b"U\0")
    framer.reset()
    whole = b"Uabcd" if isinstance(framer, Fixed) else b"\3\0\0\0abc\n"
    assert len(framer.feed(whole)) == 1


def test_a_frame_too_short_for_its_checksum_is_refused() -> None:
    for frame in (b"", b"a", b"\0\0"):
        with pytest.raises(InputError) as caught:
            checked(frame, "crc16")
        assert caught.value.reason == "checksum"


@given(size=st.integers(1, 9), data=st.binary(max_size=60), pieces=st.lists(st.integers(1, 20), min_size=1, max_size=5))
@settings(deadline=None, derandomize=True)
def test_records_come_out_whole_however_they_are_cut_up(size: int, data: bytes, pieces: list[int]) -> None:
    records, at, out = Records(size), 0, list[bytes]()
    for step in itertools.islice(itertools.cycle(pieces), len(data)):
        out.append(records.feed(data[at : at + step]))
        at += step
    assert all(len(piece) % size == 0 for piece in out)
    assert b"".join(out) == data[: len(data) // size * size]
    records.feed(b"x" * (size - 1))
    records.reset()
    assert records.feed(b"y" * size) == b"y" * size
