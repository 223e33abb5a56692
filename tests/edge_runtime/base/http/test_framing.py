from __future__ import annotations

import gzip
import socket
import threading
import time
import zlib
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.base.http.framing import SocketStream, compress, decompress
from edge_runtime.clock import SystemClock
from edge_runtime.errors import InputError

CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3;note=1\r\nabc\r\n2\r\nde\r\n0\r\nX: y\r\n\r\n"
SIZED = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabcde"


class Pair:
    """A stream and the socket at its other end."""

    def __init__(self) -> None:
        ours, self.peer = socket.socketpair()
        self.stream = SocketStream(ours, SystemClock())
        self.stream.limit_wait(time.monotonic() + 2.0, 2.0)

    def close(self) -> None:
        self.stream.close()
        self.peer.close()


@pytest.fixture
def pair() -> Iterator[Pair]:
    pair = Pair()
    yield pair
    pair.close()


def read(stream: SocketStream) -> tuple[tuple[str, str, str], bytes]:
    head = stream.read_head()
    return head.start, bytes(stream.read_body(head, 1000))


def test_a_kept_connection_reads_one_answer_after_the_other(pair: Pair) -> None:
    pair.peer.sendall(CHUNKED + SIZED + SIZED)
    for _ in range(3):
        assert read(pair.stream) == (("HTTP/1.1", "200", "OK"), b"abcde")
    assert pair.stream.received == len(CHUNKED + SIZED + SIZED)
    assert not pair.stream.is_stale()


def test_the_pieces_of_a_body_can_go_elsewhere(pair: Pair) -> None:
    pair.peer.sendall(CHUNKED)
    pieces = bytearray()
    head = pair.stream.read_head()
    assert pair.stream.read_body_into(head, 5, pieces.extend) == 5
    assert pieces == b"abcde"


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
