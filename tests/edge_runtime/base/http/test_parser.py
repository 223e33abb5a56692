"""The framing of HTTP/1.1, byte by byte and without a socket; `test_serve_http` asks a server the same."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.base.http.parser import (
    MAX_HEAD_BYTES,
    MAX_START_LINE_BYTES,
    MAX_TRAILER_BYTES,
    Head,
    Parser,
    Steps,
    T,
    declared_length,
)
from edge_runtime.errors import InputError

MOST = 1000
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;note=1\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde"
ASKED = b"POST /x HTTP/1.1\r\nHost: h\r\nContent-Length: 3\r\n\r\nabc"
ASKED_CHUNKED = b'POST /x HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n1 ; a="b"\r\nz\r\n0\r\n\r\n'

Event = tuple[str, ...] | str


def events(pieces: Iterable[bytes], *, response: bool) -> list[Event]:
    """What a parser makes of some bytes, and how it ends: a clean end, a reset, or the reason of an error."""
    parser = Parser(response=response)
    source = iter(pieces)
    found: list[Event] = []

    def finish(steps: Steps[T]) -> T:
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            piece = next(source, None)
            if piece is None:
                parser.end()
            else:
                parser.feed(piece)

    try:
        while finish(parser.begin()):
            head = finish(parser.head())
            body = bytes(finish(parser.body(head, MOST)))
            found.append((*head.start, *(f"{name}={value}" for name, value in head.headers.items()), body.hex()))
    except InputError as error:
        return [*found, error.reason]
    except ConnectionResetError:
        return [*found, "reset"]
    return [*found, "end"]


# -- the rules ---------------------------------------------------------------------------------------------------------

HOST = b"Host: h\r\n"
GET = b"GET / HTTP/1.1\r\n"
POST = b"POST / HTTP/1.1\r\nHost: h\r\n"
CHUNKS = POST + b"Transfer-Encoding: chunked\r\n\r\n"
OK = "end"

REQUESTS = {
    # rule 1: lines
    "blank lines first": (b"\r\n\r\n" + GET + HOST + b"\r\n", OK),
    "three blank lines first": (b"\r\n\r\n\r\n" + GET + HOST + b"\r\n", "http"),
    "a blank line alone": (b"\r\n", "reset"),
    "a blank head alone": (b"\r\n\r\n", "reset"),
    "bare LF after the request line": (b"GET / HTTP/1.1\n" + HOST + b"\r\n", "http"),
    "bare LF after a field": (GET + b"Host: h\n\r\n", "http"),
    "bare LF for the blank line": (GET + HOST + b"\n", "http"),
    "bare CR in a value": (GET + b"Host: h\rX: y\r\n\r\n", "http"),
    "bare CR at the end of a value": (GET + b"Host: h\r\r\n\r\n", "http"),
    "bare CR in the request line": (b"GET /\r HTTP/1.1\r\n" + HOST + b"\r\n", "http"),
    # rule 2: the request line
    "two words": (b"GET /\r\n\r\n", "http"),
    "four words": (b"GET / x HTTP/1.1\r\n" + HOST + b"\r\n", "http"),
    "two blanks": (b"GET  / HTTP/1.1\r\n" + HOST + b"\r\n", "http"),
    "a tab for a blank": (b"GET\t/ HTTP/1.1\r\n" + HOST + b"\r\n", "http"),
    "a blank first": (b" GET / HTTP/1.1\r\n" + HOST + b"\r\n", "http"),
    "a blank last": (b"GET / HTTP/1.1 \r\n" + HOST + b"\r\n", "http"),
    "control character in the method": (b"G\x01T / HTTP/1.1\r\n" + HOST + b"\r\n", "http"),
    "colon in the method": (b"G:T / HTTP/1.1\r\n" + HOST + b"\r\n", "http"),
    "control character in the target": (b"GET /\x7f HTTP/1.1\r\n" + HOST + b"\r\n", "http"),
    "NUL in the target": (b"GET /\0 HTTP/1.1\r\n" + HOST + b"\r\n", "http"),
    "a byte above 127 in the target": (b"GET /\xff HTTP/1.1\r\n" + HOST + b"\r\n", "http"),
    "a TLS greeting": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "http"),
    "the longest target": (b"GET /" + b"x" * (MAX_START_LINE_BYTES - 14) + b" HTTP/1.1\r\n" + HOST + b"\r\n", OK),
    "a longer target": (b"GET /" + b"x" * (MAX_START_LINE_BYTES - 13) + b" HTTP/1.1\r\n\r\n", "target_too_long"),
    "an endless target": (b"GET /" + b"x" * 3 * MAX_START_LINE_BYTES, "target_too_long"),
    # rule 3: versions
    "HTTP/1.0 without Host": (b"GET / HTTP/1.0\r\n\r\n", OK),
    "HTTP/1.2 is read as 1.1": (b"GET / HTTP/1.2\r\n" + HOST + b"\r\n", OK),
    "HTTP/2.0": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "version"),
    "HTTP/0.9": (b"GET / HTTP/0.9\r\n" + HOST + b"\r\n", "version"),
    "lower-case version": (b"GET / http/1.1\r\n" + HOST + b"\r\n", "http"),
    "two digits": (b"GET / HTTP/1.10\r\n" + HOST + b"\r\n", "http"),
    # rule 4: fields
    "a field without a value": (GET + HOST + b"A:\r\n\r\n", OK),
    "white space around a value": (GET + b"Host: \t h \t\r\n\r\n", OK),
    "a tab in a value": (GET + HOST + b"A: b\tc\r\n\r\n", OK),
    "bytes above 127 in a value": (GET + HOST + b"A: \xc3\xa4\r\n\r\n", OK),
    "a folded field": (GET + b"Host: h\r\n and more\r\n\r\n", "http"),
    "white space before the colon": (GET + b"Host : h\r\n\r\n", "http"),
    "no colon": (GET + HOST + b"A\r\n\r\n", "http"),
    "no name": (GET + HOST + b": b\r\n\r\n", "http"),
    "NUL in a value": (GET + HOST + b"A: \0\r\n\r\n", "http"),
    "vertical tab in a value": (GET + HOST + b"A: b\x0bc\r\n\r\n", "http"),
    "DEL in a value": (GET + HOST + b"A: \x7f\r\n\r\n", "http"),
    "control character in a name": (GET + HOST + b"A\x01: b\r\n\r\n", "http"),
    "fields that are too long": (GET + HOST + b"A: " + b"b" * MAX_HEAD_BYTES + b"\r\n\r\n", "fields_too_large"),
    "too many fields": (GET + HOST + b"A: b\r\n" * MAX_HEAD_BYTES, "fields_too_large"),
    "blanks without end, then nonsense": (GET + b"A:" + b" " * 30_000 + b"\0\r\n\r\n", "http"),
    # rule 5: Host
    "no Host": (GET + b"\r\n", "http"),
    "two Hosts": (GET + b"Host: h\r\nHost: h\r\n\r\n", "http"),
    "two Hosts in HTTP/1.0": (b"GET / HTTP/1.0\r\nHost: h\r\nhost: h\r\n\r\n", "http"),
    "an empty Host": (GET + b"Host:\r\n\r\n", OK),
    "a Host with a port": (GET + b"Host: h:8000\r\n\r\n", OK),
    "an IPv6 Host": (GET + b"Host: [::1]:8000\r\n\r\n", OK),
    "a Host with a port that is none": (GET + b"Host: h:http\r\n\r\n", "http"),
    "a Host with a path": (GET + b"Host: h/x\r\n\r\n", "http"),
    "a Host with a name and a secret": (GET + b"Host: u@h\r\n\r\n", "http"),
    "a Host of two words": (GET + b"Host: h i\r\n\r\n", "http"),
    "a Host with an open bracket": (GET + b"Host: [::1\r\n\r\n", "http"),
    # rule 6: Transfer-Encoding
    "chunks": (CHUNKS + b"3\r\nabc\r\n0\r\n\r\n", OK),
    "chunked in other letters": (POST + b"Transfer-Encoding: ChunKed\r\n\r\n0\r\n\r\n", OK),
    "chunked in HTTP/1.0": (b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "http"),
    "chunked and a length": (POST + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "http"),
    "a length and chunked": (POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", "http"),
    "chunked twice": (POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n", "http"),
    "chunked, not last": (POST + b"Transfer-Encoding: chunked, gzip\r\n\r\n", "http"),
    "another coding first": (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n", "coding"),
    "another coding alone": (POST + b"Transfer-Encoding: gzip\r\n\r\n", "http"),
    "no coding": (POST + b"Transfer-Encoding:\r\n\r\n", "http"),
    "a coding with a parameter": (POST + b"Transfer-Encoding: chunked;x\r\n\r\n", "http"),
    # rule 7: Content-Length
    "a length": (POST + b"Content-Length: 3\r\n\r\nabc", OK),
    "the same length twice": (POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc", "http"),
    "two lengths": (POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", "http"),
    "a list of lengths": (POST + b"Content-Length: 3, 3\r\n\r\nabc", "http"),
    "a length below 0": (POST + b"Content-Length: -3\r\n\r\nabc", "http"),
    "a length with a sign": (POST + b"Content-Length: +3\r\n\r\nabc", "http"),
    "a length with an underscore": (POST + b"Content-Length: 1_0\r\n\r\n", "http"),
    "a length in other digits": (POST + b"Content-Length: \xb2\r\n\r\n", "http"),
    "a hexadecimal length": (POST + b"Content-Length: 0x3\r\n\r\nabc", "http"),
    "no length but a name": (POST + b"Content-Length:\r\n\r\n", "http"),
    "a length over the limit": (POST + b"Content-Length: 1001\r\n\r\n", "too_large"),
    "an absurd length": (POST + b"Content-Length: 99999999999999999999\r\n\r\n", "http"),
    "a body that breaks off": (POST + b"Content-Length: 3\r\n\r\nab", "reset"),
    # rule 8: chunks
    "a chunk extension": (CHUNKS + b'3;a=b;c="d"\r\nabc\r\n0;e\r\n\r\n', OK),
    "white space before an extension": (CHUNKS + b"3 \t;a\r\nabc\r\n0\r\n\r\n", OK),
    "white space after a size": (CHUNKS + b"3 \r\nabc\r\n0\r\n\r\n", "http"),
    "vertical tab after a size": (CHUNKS + b"3\x0b\r\nabc\r\n0\r\n\r\n", "http"),
    "form feed after a size": (CHUNKS + b"3\x0c\r\nabc\r\n0\r\n\r\n", "http"),
    "bare LF after a size": (CHUNKS + b"3\nabc\r\n0\r\n\r\n", "http"),
    "bare LF after a chunk": (CHUNKS + b"3\r\nabc\n0\r\n\r\n", "http"),
    "bare CR in an extension": (CHUNKS + b"3;a\rb\r\nabc\r\n0\r\n\r\n", "http"),
    "control character in an extension": (CHUNKS + b"3;a\x01\r\nabc\r\n0\r\n\r\n", "http"),
    "a size with a sign": (CHUNKS + b"+3\r\nabc\r\n0\r\n\r\n", "http"),
    "a size below 0": (CHUNKS + b"-3\r\nabc\r\n0\r\n\r\n", "http"),
    "a size with 0x": (CHUNKS + b"0x3\r\nabc\r\n0\r\n\r\n", "http"),
    "a size with an underscore": (CHUNKS + b"0_3\r\nabc\r\n0\r\n\r\n", "http"),
    "a size of many digits": (CHUNKS + b"0" * 17 + b"\r\n\r\n", "http"),
    "no size": (CHUNKS + b"\r\n", "http"),
    "no size but an extension": (CHUNKS + b";a\r\n", "http"),
    "a chunk longer than its size": (CHUNKS + b"2\r\nabc\r\n0\r\n\r\n", "http"),
    "chunks over the limit": (CHUNKS + b"1f4\r\n" + b"x" * 500 + b"\r\n1f5\r\n", "too_large"),
    "a long extension": (CHUNKS + b"1;" + b"a" * 300 + b"\r\nz\r\n0\r\n\r\n", "http"),
    "extensions without end": (CHUNKS + (b"1;" + b"a" * 250 + b"\r\nz\r\n") * 200, "http"),
    "a trailer": (CHUNKS + b"0\r\nA: b\r\nHost: evil\r\n\r\n", OK),
    "a trailer that is none": (CHUNKS + b"0\r\nA b\r\n\r\n", "http"),
    "a folded trailer": (CHUNKS + b"0\r\nA: b\r\n c\r\n\r\n", "http"),
    "bare LF after a trailer": (CHUNKS + b"0\r\nA: b\n\r\n", "http"),
    "a trailer that is too long": (CHUNKS + b"0\r\nA: " + b"b" * MAX_TRAILER_BYTES + b"\r\n\r\n", "fields_too_large"),
    "trailers without end": (CHUNKS + b"0\r\n" + b"A: b\r\n" * MAX_TRAILER_BYTES, "fields_too_large"),
    "chunks that break off": (CHUNKS + b"3\r\nab", "reset"),
    "chunks without an end": (CHUNKS + b"3\r\nabc\r\n", "reset"),
}


@pytest.mark.parametrize(("data", "end"), REQUESTS.values(), ids=REQUESTS)
def test_requests_are_read_by_the_rules(data: bytes, end: str) -> None:
    found = events([data], response=False)
    assert found[-1] == end
    assert len(found) == (2 if end == OK else 1)


ANSWERS = {
    "no reason": (b"HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n", OK),
    "the same length twice": (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx", OK),
    "two Hosts are nothing to an answer": (b"HTTP/1.1 200 OK\r\nHost: a\r\nContent-Length: 0\r\n\r\n", OK),
    "SSH": (b"SSH-2.0-OpenSSH_9.2\r\n", "http"),
    "a blank line": (b"\r\nHTTP/1.1 200 OK\r\n\r\n", "http"),
    "TLS": (b"\x15\x03\x01\x00\x02\x02\x16", "http"),
    "HTML": (b"<html>", "http"),
    "HTTP/2": (b"HTTP/2 200 OK\r\n\r\n", "http"),
    "no status": (b"HTTP/1.1 OK\r\n\r\n", "http"),
    "a short status": (b"HTTP/1.1 20 OK\r\n\r\n", "http"),
    "a status in other digits": (b"HTTP/1.1 \xb200 OK\r\n\r\n", "http"),
    "nothing but a version": (b"HTTP/1.1\r\n\r\n", "http"),
    "control character in the reason": (b"HTTP/1.1 200 O\x01K\r\n\r\n", "http"),
    "two lengths": (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n", "http"),
    "a body to the end that is too long": (b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001, "too_large"),
    "chunked in HTTP/1.0": (b"HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "http"),
    "the beginning of a version": (b"HTT", "reset"),
}


@pytest.mark.parametrize(("data", "end"), ANSWERS.values(), ids=ANSWERS)
def test_answers_are_read_by_the_rules(data: bytes, end: str) -> None:
    found = events([data], response=True)
    assert found[-1] == end
    assert len(found) == (2 if end == OK else 1)


# -- independence of packets -------------------------------------------------------------------------------------------

ALPHABET = st.sampled_from(
    [b"\r\n", b"\r", b"\n", b" ", b"\t", b":", b";", b"0", b"3", b"a", b"\0", b"\x0b", b"\xff", GET, HOST, POST, CHUNKS]
)
MESSAGES = st.sampled_from([*(data for data, _ in REQUESTS.values() if len(data) < 2000), ASKED, ASKED_CHUNKED])


@st.composite
def damaged(draw: st.DrawFn) -> bytes:
    """Some messages one after the other, with pieces of others in places."""
    data = b"".join(draw(st.lists(MESSAGES, min_size=1, max_size=3)))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(ALPHABET) + data[at + draw(st.integers(0, 2)) :]
    return data


@given(damaged() | st.lists(ALPHABET, max_size=12).map(b"".join), st.data())
@settings(derandomize=True, max_examples=200, deadline=None)
def test_what_is_read_does_not_depend_on_how_bytes_are_split(data: bytes, choice: st.DataObject) -> None:
    sizes = choice.draw(st.lists(st.integers(1, 40), max_size=30))
    pieces, rest = [], data
    for size in sizes:
        pieces.append(rest[:size])
        rest = rest[size:]
    pieces = [piece for piece in [*pieces, rest] if piece]
    whole = events([data], response=False)
    assert events(pieces, response=False) == whole
    assert events([bytes([byte]) for byte in data], response=False) == whole


@pytest.mark.parametrize(
    "data", [REQUESTS[name][0] for name in REQUESTS if REQUESTS[name][1].endswith(("long", "large"))]
)
@pytest.mark.parametrize("size", [1, 7, 1024, 8191, 8192, 8193, 32768])
def test_limits_do_not_depend_on_how_bytes_are_split(data: bytes, size: int) -> None:
    pieces = [data[at : at + size] for at in range(0, len(data), size)]
    assert events(pieces, response=False) == events([data], response=False)


@given(st.sampled_from([CHUNKED, SIZED]), st.lists(st.integers(1, 30), max_size=20))
@settings(derandomize=True, max_examples=100, deadline=None)
def test_answers_do_not_depend_on_packets_either(message: bytes, sizes: list[int]) -> None:
    rest, pieces = message + SIZED, []
    for size in sizes:
        pieces.append(rest[:size])
        rest = rest[size:]
    found = events([piece for piece in [*pieces, rest] if piece], response=True)
    assert [event[-1] for event in found[:-1]] == [b"abcde".hex()] * 2
    assert found[-1] == "end"


# -- what is read ------------------------------------------------------------------------------------------------------


def head_of(data: bytes, *, response: bool = False) -> Head:
    parser = Parser(response=response)
    parser.feed(data)
    with pytest.raises(StopIteration) as done:
        next(parser.head())
    assert isinstance(done.value.value, Head)
    return done.value.value


def test_repeated_headers_are_joined_and_equal_lengths_of_an_answer_are_one() -> None:
    data = b"HTTP/1.1 200\r\nA: 1\r\na:2 \r\nContent-Length: 3\r\ncontent-length: 3\r\n\r\n"
    head = head_of(data, response=True)
    assert head.headers == {"a": "1, 2", "content-length": "3"}
    assert head.start == ("HTTP/1.1", "200", "")


def test_a_head_that_was_seen_before_is_not_taken_for_the_next_one() -> None:
    """Kept connections repeat their headers, so they are remembered; a blank head is no repetition of nothing."""
    first, second = GET + HOST + b"\r\n", GET + HOST + b"A: b\r\n\r\n"
    found = events([first + first + second + first], response=False)
    assert [len(event) for event in found[:-1]] == [5, 5, 6, 5]


@pytest.mark.parametrize(
    ("version", "option", "keeps"),
    [
        (b"1.1", b"", True),
        (b"1.1", b"Connection: Close\r\n", False),
        (b"1.1", b"Connection: upgrade, close\r\n", False),
        (b"1.1", b"Connection: not-close\r\n", True),
        (b"1.0", b"", False),
        (b"1.0", b"Connection: Keep-Alive\r\n", True),
        (b"1.0", b"Connection: keep-alive, close\r\n", False),
    ],
)
def test_keep_alive_follows_the_version_and_whole_words(version: bytes, option: bytes, keeps: bool) -> None:
    head = head_of(b"GET / HTTP/" + version + b"\r\n" + HOST + option + b"\r\n")
    assert head.keeps_alive(head.start[2]) is keeps


def test_pieces_of_a_body_go_where_they_belong_as_they_come() -> None:
    parser, got = Parser(response=True), bytearray()
    parser.feed(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nabc")
    with pytest.raises(StopIteration) as done:
        next(parser.head())
    steps = parser.body_into(done.value.value, MOST, got.extend)
    next(steps)
    assert (bytes(got), parser.buffered) == (b"abc", 0)
    parser.feed(b"defghijHTTP")
    with pytest.raises(StopIteration) as done:
        next(steps)
    assert (bytes(got), done.value.value, parser.buffered) == (b"abcdefghij", 10, 4)


def test_a_length_is_known_before_the_body_is_here() -> None:
    head = head_of(POST + b"Content-Length: 7\r\n\r\n")
    assert declared_length(head, 7) == 7
    with pytest.raises(InputError, match="over the limit of 6"):
        declared_length(head, 6)
    assert declared_length(head_of(CHUNKS), 7) is None
