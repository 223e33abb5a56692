"""The proxy does to a connection what each toxic says, and nothing else."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing

import pytest

from tests.faults.network.proxy import (
    Bandwidth,
    Latency,
    LimitData,
    Proxy,
    ResetPeer,
    Slicer,
    SlowClose,
    Timeout,
)

WAIT_S = 60.0


@pytest.fixture
def echo() -> Iterator[int]:
    """Sends back what it gets, until the sender has finished."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve(sock: socket.socket) -> None:
        with sock:
            try:
                while data := sock.recv(65536):
                    sock.sendall(data)
            except OSError:
                return

    def accept() -> None:
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(sock,), daemon=True).start()

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(WAIT_S)


@pytest.fixture
def proxy(echo: int) -> Iterator[Proxy]:
    with Proxy(echo) as proxy:
        yield proxy


def connect(proxy: Proxy) -> closing[socket.socket]:
    return closing(socket.create_connection(("127.0.0.1", proxy.port), WAIT_S))


def receive(sock: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count and (more := sock.recv(65536)):
        data += more
    return data


def roundtrip(proxy: Proxy, data: bytes) -> tuple[bytes, float]:
    with connect(proxy) as sock:
        began = time.monotonic()
        sock.sendall(data)
        return receive(sock, len(data)), time.monotonic() - began


def until(condition: Callable[[], object]) -> None:
    end = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_without_toxics_bytes_and_ends_pass(proxy: Proxy) -> None:
    data = bytes(range(256)) * 4000

    def send() -> None:
        sock.sendall(data)
        sock.shutdown(socket.SHUT_WR)

    with connect(proxy) as sock:
        threading.Thread(target=send, daemon=True).start()
        assert receive(sock, len(data)) == data
        assert sock.recv(1) == b""
    assert (proxy.accepted, proxy.cuts) == (1, 0)


def test_latency_delays(proxy: Proxy) -> None:
    proxy.poison(Latency(0.15, 0.01))
    data, seconds = roundtrip(proxy, b"hello")
    assert data == b"hello"
    assert seconds >= 2 * 0.13


def test_bandwidth_limits(proxy: Proxy) -> None:
    proxy.poison(Bandwidth(100_000), down=False)
    data, seconds = roundtrip(proxy, bytes(30_000))
    assert len(data) == 30_000
    assert seconds >= 0.25


def test_slow_close_delays_the_end(proxy: Proxy) -> None:
    proxy.poison(SlowClose(0.3), up=False)
    with connect(proxy) as sock:
        sock.sendall(b"x")
        assert receive(sock, 1) == b"x"
        began = time.monotonic()
        sock.shutdown(socket.SHUT_WR)
        assert sock.recv(1) == b""
        assert time.monotonic() - began >= 0.25


def test_timeout_swallows_and_ends_even_what_was_connected_before(proxy: Proxy) -> None:
    with connect(proxy) as sock:
        sock.sendall(b"x")
        assert receive(sock, 1) == b"x"
        began = time.monotonic()
        proxy.poison(Timeout(0.3))
        sock.sendall(b"lost")
        assert sock.recv(1) == b""
        assert time.monotonic() - began >= 0.25


def test_timeout_0_is_half_open(proxy: Proxy) -> None:
    """One side believes in the connection for as long as it likes."""
    with connect(proxy) as sock:
        sock.sendall(b"x")
        assert receive(sock, 1) == b"x"
        proxy.poison(Timeout(0), up=False)
        sock.sendall(b"y")
        sock.settimeout(0.3)
        with pytest.raises(TimeoutError):
            sock.recv(1)
    proxy.heal()
    assert roundtrip(proxy, b"z")[0] == b"z"


def test_reset_peer_resets(proxy: Proxy) -> None:
    proxy.poison(ResetPeer(0.1))
    with connect(proxy) as sock:
        with pytest.raises(ConnectionResetError):
            sock.recv(1)
    assert proxy.cuts == 1


def test_slicer_cuts_into_pieces(proxy: Proxy) -> None:
    proxy.poison(Slicer(3, 1, 0.002), down=False)
    with connect(proxy) as sock:
        sock.sendall(bytes(60))
        pieces: list[bytes] = []
        while sum(len(piece) for piece in pieces) < 60:
            pieces.append(sock.recv(65536))
    assert len(pieces) > 5


def test_limit_data_ends_after_so_many_bytes(proxy: Proxy) -> None:
    proxy.poison(LimitData(1000), up=False)
    with connect(proxy) as sock:
        sock.sendall(bytes(5000))
        assert len(receive(sock, 5000)) == 1000
    until(lambda: proxy.cuts == 1)


def test_down_refuses_and_cuts_and_up_is_the_same_port(proxy: Proxy) -> None:
    port = proxy.port
    with connect(proxy) as sock:
        sock.sendall(b"x")
        assert receive(sock, 1) == b"x"
        proxy.down()
        assert sock.recv(1) == b""
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), WAIT_S).close()
    proxy.up()
    assert proxy.port == port
    assert roundtrip(proxy, b"again")[0] == b"again"


@pytest.mark.parametrize("reset", [True, False])
def test_a_cut_ends_what_is_connected_as_it_is_told_to(proxy: Proxy, reset: bool) -> None:
    with connect(proxy) as sock:
        sock.sendall(b"x")
        assert receive(sock, 1) == b"x"
        proxy.cut(reset=reset)
        try:
            ended = sock.recv(1)
        except ConnectionResetError:
            ended = b"reset"
        assert ended == (b"reset" if reset else b"")
    assert roundtrip(proxy, b"again")[0] == b"again"


def test_toxics_add_up(proxy: Proxy) -> None:
    proxy.poison(Slicer(10), Latency(0.01), Bandwidth(100_000))
    data, seconds = roundtrip(proxy, bytes(200))
    assert data == bytes(200)
    assert seconds >= 20 * 0.01 * 0.9


def test_an_upstream_that_is_away_resets(proxy: Proxy) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        proxy.upstream = unused.getsockname()[1]
        with pytest.raises(ConnectionResetError):
            with connect(proxy) as sock:  # the reset may be there before connect() returns
                sock.recv(1)
