from __future__ import annotations

import gzip
import socket
import threading
import time
import zlib
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.clock import SystemClock
from edge_runtime.errors import InputError
from edge_runtime.http1 import MAX_HEAD_BYTES, Stream, compress, decompress, parse_head

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;note=1\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde"


class Pair:
    """A stream and the socket at its other end."""

    def __init__(self) -> None:
        ours, self.peer = socket.socketpair()
        self.stream = Stream(ours, SystemClock())
        self.stream.limit_wait(time.monotonic() + 2.0, 2.0)

    def close(self) -> None:
        self.stream.close()
        self.peer.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


def read(stream: Stream, *, response: bool = True, max_bytes: int = 1000) -> tuple[tuple[str, str, str], bytes]:
    head = stream.read_head(response=response)
    return head.start, bytes(stream.read_body(head, max_bytes, response=response))


@given(st.sampled_from([CHUNKED, SIZED]), st.lists(st.integers(1, 30), max_size=20))
@settings(derandomize=True, max_examples=100)
def test_how_a_message_is_split_into_packets_does_not_matter(message: bytes, sizes: list[int]) -> None:
    pair = Pair()

    def send() -> None:
        rest = message + SIZED
        for size in sizes:
            pair.peer.sendall(rest[:size])
            rest = rest[size:]
            time.sleep(0.0002)
        pair.peer.sendall(rest)

    thread = threading.Thread(target=send)
    thread.start()
    for _ in range(2):
        assert read(pair.stream) == (("HTTP/1.1", "200", "OK"), b"abcde")
    thread.join()
    assert not pair.stream.buffered
    pair.close()


def test_a_body_without_length_ends_with_the_connection(pair: Pair) -> None:
    pair.peer.sendall(b"HTTP/1.0 200 OK\r\n\r\nuntil here")
    pair.peer.shutdown(socket.SHUT_WR)
    assert read(pair.stream)[1] == b"until here"


def test_a_request_without_length_has_no_body(pair: Pair) -> None:
    pair.peer.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\nGET")
    assert read(pair.stream, response=False) == (("GET", "/", "HTTP/1.1"), b"")
    assert pair.stream.buffered


@pytest.mark.parametrize("missing", [1, 3, 8, len(SIZED) - 1])
def test_a_message_that_ends_early_is_a_reset(pair: Pair, missing: int) -> None:
    pair.peer.sendall(SIZED[:-missing])
    pair.peer.shutdown(socket.SHUT_WR)
    with pytest.raises(ConnectionResetError):
        read(pair.stream)


@pytest.mark.parametrize(
    "answer",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x15\x03\x01\x00\x02\x02\x16",
        b"<html>",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 \xb200 OK\r\n\r\n",
        b"HTTP/1.1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA : b\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\r\n folded\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: b\nB: c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nA: \0\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1, 1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nxyz\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"0" * 300,
    ],
)
def test_malformed_answers_are_refused(pair: Pair, answer: bytes) -> None:
    pair.peer.sendall(answer)
    with pytest.raises(InputError) as caught:
        read(pair.stream)
    assert caught.value.reason == "http"


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nA: " + b"b" * MAX_HEAD_BYTES,
        b"HTTP/1.1 200 OK\r\nA: " + b"b" * MAX_HEAD_BYTES + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1f4\r\n" + b"x" * 500 + b"\r\n1f5\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n" + b"a: 3456789\r\n" * 4000,
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001,
    ],
)
def test_lengths_over_a_limit_are_refused_as_they_come(pair: Pair, answer: bytes) -> None:
    pair.peer.sendall(answer)
    with pytest.raises(InputError) as caught:
        read(pair.stream)
    assert caught.value.reason == "too_large"


def test_repeated_headers_are_joined_and_equal_lengths_are_one() -> None:
    head = parse_head(b"HTTP/1.1 200\r\nA: 1\r\na:2 \r\nContent-Length: 3\r\ncontent-length: 3", response=True)
    assert head.headers == {"a": "1, 2", "content-length": "3"}
    assert head.start == ("HTTP/1.1", "200", "")


def test_keep_alive_follows_the_version() -> None:
    assert parse_head(b"GET / HTTP/1.1", response=False).keeps_alive("HTTP/1.1")
    assert not parse_head(b"GET / HTTP/1.1\r\nConnection: Close", response=False).keeps_alive("HTTP/1.1")
    assert not parse_head(b"GET / HTTP/1.0", response=False).keeps_alive("HTTP/1.0")
    assert parse_head(b"GET / HTTP/1.0\r\nConnection: Keep-Alive", response=False).keeps_alive("HTTP/1.0")


def test_a_peer_that_drips_is_cut_off_at_the_deadline(pair: Pair) -> None:
    stop = threading.Event()

    def drip() -> None:
        with suppress(OSError):
            for byte in SIZED * 100:
                if stop.wait(0.02):
                    return
                pair.peer.sendall(bytes([byte]))

    thread = threading.Thread(target=drip)
    thread.start()
    begin = time.monotonic()
    pair.stream.limit_wait(begin + 0.3, 0.2)
    with pytest.raises(TimeoutError):
        read(pair.stream)
    assert 0.2 < time.monotonic() - begin < 1.0
    stop.set()
    thread.join()


def test_silence_is_cut_off_before_the_deadline(pair: Pair) -> None:
    begin = time.monotonic()
    pair.stream.limit_wait(begin + 30, 0.1)
    with pytest.raises(TimeoutError):
        read(pair.stream)
    assert time.monotonic() - begin < 5


def test_a_peer_that_does_not_read_is_cut_off(pair: Pair) -> None:
    pair.stream.limit_wait(time.monotonic() + 0.2, 0.2)
    with pytest.raises(TimeoutError):
        pair.stream.send(b"head", [b"x" * 50_000_000])


def test_an_idle_connection_is_stale_when_closed_or_talking(pair: Pair) -> None:
    assert not pair.stream.is_stale()
    pair.peer.sendall(b"x")
    assert pair.stream.is_stale()
    other = Pair()
    other.peer.close()
    assert other.stream.is_stale()
    other.close()
    assert other.stream.is_stale()


def test_small_messages_leave_in_one_piece_and_large_ones_whole(pair: Pair) -> None:
    pair.stream.send(b"head ", [b"a", memoryview(b"b")])
    assert pair.peer.recv(100) == b"head ab"
    body = bytes(range(256)) * 4096
    thread = threading.Thread(target=pair.stream.send, args=(b"head ", [body, b"end"]))
    thread.start()
    got = b""
    while len(got) < len(body) + 8:
        got += pair.peer.recv(1 << 20)
    thread.join()
    assert got == b"head " + body + b"end"


@given(st.binary(max_size=2000))
@settings(derandomize=True, max_examples=50)
def test_compressed_bodies_come_back(data: bytes) -> None:
    assert bytes(decompress(compress(data), "gzip", 2000)) == data
    assert bytes(decompress(zlib.compress(data), "deflate", 2000)) == data
    assert bytes(decompress(data, "identity", 2000)) == data


def test_compressed_bodies_are_bounded_and_checked() -> None:
    bomb = gzip.compress(b"\0" * 50_000_000)
    with pytest.raises(InputError, match="over the limit"):
        decompress(bomb, "gzip", 1000)
    whole = gzip.compress(b"abc")
    for damaged in (whole[:-1], whole + b"x", b"abc", whole[:5] + b"\xff" * 9):
        with pytest.raises(InputError):
            decompress(damaged, "gzip", 1000)
    with pytest.raises(InputError, match="'br'"):
        decompress(b"", "br", 1000)
