"""Fetching over HTTP and joining chunks: resumed, bounded, and believed in nothing before the digest is right."""

from __future__ import annotations

import hashlib
import itertools
import random
import socket
import threading
import time
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from edge_runtime.base.system.secrets import ClientTls, SecretFile
from edge_runtime.clock import SystemClock
from edge_runtime.errors import ConnectionFailed, UpdateRefused
from edge_runtime.operate.update import fetch
from edge_runtime.operate.update.announcement import Announcement
from edge_runtime.operate.update.chunks import Chunks
from edge_runtime.operate.update.fetch import ServerAccess
from tests.edge_runtime.operate.update.files import FileServer
from tests.mosquitto import free_port

DATA = random.Random(3).randbytes(3 * fetch.SYNC_BYTES + 1234)


def server(**more: Any) -> ServerAccess:
    values: dict[str, Any] = {
        "hosts": ("127.0.0.1",), "tls": lambda: ClientTls(None, None, None), "token": None, "timeout_s": 5.0,
    }  # fmt: skip
    return ServerAccess(**values | more)


def get(url: str, part: Path, size: int = len(DATA), **more: Any) -> list[int]:
    """Fetch; how far it got, each time."""
    seen: list[int] = []
    fetch.fetch(url, part, size, server(**more), SystemClock(), threading.Event(), seen.append)
    return seen


def get_and_check(url: str, part: Path, size: int) -> None:
    get(url, part, size)
    fetch.check(part, size, hashlib.sha256(DATA).hexdigest())


def test_a_file_comes_in_one_exchange(tmp_path: Path) -> None:
    with FileServer(DATA) as files:
        seen = get(files.url, tmp_path / "part")
        assert len(files.requests) == 1
    assert (tmp_path / "part").read_bytes() == DATA
    assert seen == sorted(seen)
    assert seen[-1] == len(DATA)
    fetch.check(tmp_path / "part", len(DATA), hashlib.sha256(DATA).hexdigest())


def test_what_is_here_is_not_fetched_again(tmp_path: Path) -> None:
    """Mutation: `fetch` begins at 0: the first request asks for the first byte."""
    (tmp_path / "part").write_bytes(DATA[:100_000])
    with FileServer(DATA) as files:
        get(files.url, tmp_path / "part")
        assert files.requests[0]["Range"].startswith("bytes=100000-")
    assert (tmp_path / "part").read_bytes() == DATA


def test_a_server_without_ranges_sends_it_whole(tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(DATA[:100_000])
    with FileServer(DATA, ranges=False) as files:
        assert get(files.url, tmp_path / "part")[-1] == len(DATA)
        assert len(files.requests) == 1
    assert (tmp_path / "part").read_bytes() == DATA


def test_a_connection_that_breaks_costs_nothing_that_came(tmp_path: Path) -> None:
    part = tmp_path / "part"
    with FileServer(DATA) as files:
        part.write_bytes(DATA[:100_000])
        files.cut_after = 1000
        with pytest.raises(ConnectionFailed):
            get(files.url, part)
        assert part.read_bytes() == DATA[:101_000]
        files.cut_after = -1
        get(files.url, part)
        assert files.requests[-1]["Range"].startswith("bytes=101000-")
    assert part.read_bytes() == DATA


@pytest.mark.parametrize("ranges", [True, False])
@pytest.mark.parametrize("size", [len(DATA) - 1, len(DATA) + 1, 10])
def test_another_size_than_announced_is_refused(tmp_path: Path, size: int, ranges: bool) -> None:
    """Mutation: `_get` and `_Writing` without their limits: the server decides how much is written."""
    with FileServer(DATA, ranges=ranges) as files:
        with pytest.raises((UpdateRefused, ConnectionFailed)) as caught:
            get_and_check(files.url, tmp_path / "part", size)
    assert not isinstance(caught.value, UpdateRefused) or caught.value.reason in {"size", "digest"}
    assert not (tmp_path / "part").exists() or (tmp_path / "part").stat().st_size <= size


def test_a_left_over_that_is_too_long_is_begun_anew(tmp_path: Path) -> None:
    (tmp_path / "part").write_bytes(b"x" * (len(DATA) + 1))
    with FileServer(DATA) as files:
        get(files.url, tmp_path / "part")
    assert (tmp_path / "part").read_bytes() == DATA


@pytest.mark.parametrize(
    ("status", "headers", "error", "complaint"),
    [
        (302, {"Location": "http://127.0.0.1:1/"}, UpdateRefused, "answers 302; announce the final address"),
        (404, {}, ConnectionFailed, "answers 404"),
        (503, {"Retry-After": "1"}, ConnectionFailed, "answers 503"),
        (416, {}, UpdateRefused, "less of it than was announced"),
        (206, {"Content-Range": "bytes 5-9/10"}, ConnectionFailed, "another part"),
        (206, {}, ConnectionFailed, "another part"),
    ],
)
def test_answers_that_are_no_file(
    tmp_path: Path, status: int, headers: dict[str, str], error: type[Exception], complaint: str
) -> None:
    with FileServer(DATA) as files:
        files.status, files.headers = status, headers
        with pytest.raises(error, match=complaint):
            get(files.url, tmp_path / "part")


def test_nobody_there_is_worth_another_try(tmp_path: Path) -> None:
    with pytest.raises(ConnectionFailed, match="cannot be reached"):
        get(f"http://127.0.0.1:{free_port()}/x", tmp_path / "part")


def test_other_hosts_than_those_named_are_not_asked(tmp_path: Path) -> None:
    with FileServer(DATA) as files:
        with pytest.raises(UpdateRefused, match=r"is not among update\.hosts") as caught:
            get(files.url, tmp_path / "part", hosts=("example.org",))
        assert caught.value.reason == "host"
        assert files.requests == []


def test_the_token_goes_with_the_request(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("sesame\n")
    with FileServer(DATA) as files:
        token = SecretFile(tmp_path / "token", "update.token_file")
        get(files.url, tmp_path / "part", hosts=("127.0.0.1",), token=token)
        assert {request["Authorization"] for request in files.requests} == {"Bearer sesame"}


def test_a_fetch_that_is_cancelled_ends(tmp_path: Path) -> None:
    cancelled = threading.Event()
    cancelled.set()
    with FileServer(DATA) as files:
        with pytest.raises(ConnectionFailed, match="cancelled"):
            fetch.fetch(files.url, tmp_path / "part", len(DATA), server(), SystemClock(), cancelled, lambda _: None)
        assert files.requests == []


def test_a_wrong_digest_is_refused_and_removed(tmp_path: Path) -> None:
    """Mutation: `check` compares nothing."""
    part = tmp_path / "part"
    part.write_bytes(DATA)
    with pytest.raises(UpdateRefused, match="SHA-256") as caught:
        fetch.check(part, len(DATA), "0" * 64)
    assert caught.value.reason == "digest"
    assert not part.exists()
    part.write_bytes(DATA)
    with pytest.raises(UpdateRefused, match="were announced"):
        fetch.check(part, len(DATA) + 1, hashlib.sha256(DATA).hexdigest())


# -- memory, time, addresses -------------------------------------------------------------------------------------------


class Flood:
    """Answers every request with the same head and then with block after block, until the reader goes.

    Args:
        head: what comes before the body.
        block: repeated.
        last: comes after the blocks.
        count: how many blocks; -1: without end.
        pause_s: before each.
    """

    def __init__(self, head: bytes, block: bytes, last: bytes, count: int = -1, pause_s: float = 0.0) -> None:
        self._head, self._block, self._last, self._count, self._pause_s = head, block, last, count, pause_s
        self._server = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self.url = f"http://127.0.0.1:{self._server.getsockname()[1]}/x"
        self.blocks = 0

    def _serve(self) -> None:
        with suppress(OSError):
            while True:
                sock, _ = self._server.accept()
                with suppress(OSError), sock:
                    sock.recv(65536)
                    sock.sendall(self._head)
                    for _ in itertools.repeat(None) if self._count < 0 else range(self._count):
                        time.sleep(self._pause_s)
                        sock.sendall(self._block)
                        self.blocks += 1
                    sock.sendall(self._last)

    def __enter__(self) -> Flood:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join()


BLOCK = bytes(65_536)
COUNT = 512
LARGE = COUNT * len(BLOCK)
LENGTH = b"Content-Length: %d\r\n\r\n" % LARGE
BODIES = {
    "ignores ranges": (b"HTTP/1.1 200 OK\r\n" + LENGTH, BLOCK, b""),
    "ranges": (b"HTTP/1.1 206 OK\r\nContent-Range: bytes 0-%d/%d\r\n" % (LARGE - 1, LARGE) + LENGTH, BLOCK, b""),
    "chunked": (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", b"10000\r\n" + BLOCK + b"\r\n", b"0\r\n\r\n",
    ),
    "until it closes": (b"HTTP/1.1 200 OK\r\n\r\n", BLOCK, b""),
}  # fmt: skip


@pytest.mark.parametrize("how", BODIES)
def test_a_large_file_passes_through_little_memory(tmp_path: Path, how: str) -> None:
    """Mutation: `_get` with `read_body`: 32 MiB at the peak."""
    with Flood(*BODIES[how], count=COUNT) as flood:
        tracemalloc.start()
        try:
            get(flood.url, tmp_path / "part", LARGE)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
    assert (tmp_path / "part").stat().st_size == LARGE
    assert peak < 2 * 2**20


@pytest.mark.parametrize("how", ["chunked", "until it closes"])
def test_a_file_without_end_is_refused_at_the_announced_size(tmp_path: Path, how: str) -> None:
    size = 10 * len(BLOCK) + 1
    with Flood(*BODIES[how]) as flood, pytest.raises(UpdateRefused, match="more of it than was announced"):
        get(flood.url, tmp_path / "part", size)
    assert (tmp_path / "part").stat().st_size <= size
    assert flood.blocks < 1000


@pytest.mark.parametrize("how", ["ignores ranges", "ranges"])
def test_a_length_that_is_too_large_is_refused_before_a_byte_is_written(tmp_path: Path, how: str) -> None:
    with Flood(*BODIES[how], count=COUNT) as flood, pytest.raises(UpdateRefused, match=r"announced"):
        get(flood.url, tmp_path / "part", 1000)
    assert (tmp_path / "part").stat().st_size == 0


def test_a_server_that_drips_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each byte comes within `timeout_s`. Mutation: `_get` without its deadline: the fetch goes on for a week."""
    monkeypatch.setattr(fetch, "SLOWEST_BYTES_S", 1e9)
    head, _, _ = BODIES["until it closes"]
    with Flood(head, b"x", b"", pause_s=0.02) as flood, pytest.raises(ConnectionFailed, match="did not answer in time"):
        get(flood.url, tmp_path / "part", LARGE, timeout_s=0.25)


@pytest.mark.parametrize(
    ("address", "public"),
    [
        ("127.0.0.1", False), ("127.8.8.8", False), ("10.1.2.3", False), ("172.16.0.1", False), ("192.168.1.1", False),
        ("169.254.169.254", False), ("0.0.0.0", False), ("100.64.0.1", False), ("224.0.0.1", False),
        ("239.1.1.1", False), ("255.255.255.255", False), ("240.0.0.1", False), ("8.8.8.8", True), ("1.1.1.1", True),
        ("::1", False), ("::", False), ("fe80::1", False), ("fe80::1%eth0", False), ("fc00::1", False),
        ("ff02::1", False), ("ff0e::1", False), ("::ffff:127.0.0.1", False), ("::ffff:8.8.8.8", True),
        ("64:ff9b::7f00:1", False), ("64:ff9b::808:808", True), ("2002:7f00:1::", False),
        ("2606:4700:4700::1111", True),
    ],
)  # fmt: skip
def test_only_addresses_of_the_internet_are_public(address: str, public: bool) -> None:
    assert fetch.is_public(address) is public


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "0.0.0.0", "[::ffff:127.0.0.1]", "2130706433", "0x7f.1"])
def test_the_devices_own_network_is_not_asked_unless_its_host_is_named(tmp_path: Path, host: str) -> None:
    """Mutation: without `admit`: whoever announces reaches what listens on the device alone."""
    with FileServer(DATA) as files:
        url = files.url.replace("127.0.0.1", host)
        with pytest.raises(UpdateRefused, match=r"put it into update\.hosts") as caught:
            get(url, tmp_path / "part", hosts=())
        assert caught.value.reason == "host"
        assert files.requests == []
        get(files.url, tmp_path / "part", hosts=("127.0.0.1",))


def test_the_address_that_is_checked_is_the_one_that_would_be_connected_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is checked is what is connected to: the name is resolved once."""
    asked: list[str] = []

    def resolve(host: str, port: int, **_: Any) -> list[Any]:
        asked.append(host)
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", port))]

    with FileServer(DATA) as files, monkeypatch.context() as patched:
        patched.setattr(socket, "getaddrinfo", resolve)
        with pytest.raises(UpdateRefused, match=r"127\.0\.0\.1"):
            get(files.url.replace("127.0.0.1", "models.example.org"), tmp_path / "part", hosts=())
        assert files.requests == []
    assert asked == ["models.example.org"]


@pytest.mark.parametrize("host", ["a..b", "." * 3, "a" * 64, "xn--a\u0080"])
def test_a_malformed_host_is_refused_with_a_line(tmp_path: Path, host: str) -> None:
    """Mutation: `Endpoint.parse` without `ValueError`: a traceback in the log."""
    with pytest.raises(UpdateRefused, match="is no host name"):
        get(f"http://{host}/x", tmp_path / "part", hosts=())


# -- chunks ------------------------------------------------------------------------------------------------------------


def announced(size: int, chunk_bytes: int) -> Announcement:
    return Announcement(
        name="watch", version=2, sequence=1, issued="2026-01-01", expires="2027-01-01", devices=("*",),
        sha256="0" * 64, size=size, chunks="fleet/chunks", chunk_bytes=chunk_bytes,
    )  # fmt: skip


@pytest.mark.parametrize(("size", "chunk"), [(1000, 100), (1001, 100), (99, 100), (100, 100), (5, 1)])
def test_chunks_in_any_order_and_repeated_make_the_file(tmp_path: Path, size: int, chunk: int) -> None:
    rng = random.Random(size)
    data = rng.randbytes(size)
    chunks = Chunks(announced(size, chunk), tmp_path / "part")
    parts = [(i, data[i * chunk : (i + 1) * chunk]) for i in range(-(-size // chunk))]
    sent = parts + rng.choices(parts, k=len(parts))
    rng.shuffle(sent)
    whole = 0
    for i, part in sent:
        missing = chunks.missing
        whole += chunks.add(b"fleet/chunks/%d" % i, part)
        assert chunks.missing in {missing, missing - 1}
    assert whole == 1
    assert chunks.have == size
    chunks.close()
    assert (tmp_path / "part").read_bytes() == data


@pytest.mark.parametrize(
    ("topic", "payload"),
    [
        (b"fleet/chunks/10", b"x" * 100),
        (b"fleet/chunks/0", b"x" * 99),
        (b"fleet/chunks/0", b"x" * 101),
        (b"fleet/chunks/9", b"x" * 101),
        (b"fleet/chunks/-1", b"x" * 100),
        (b"fleet/chunks/a", b"x" * 100),
        (b"fleet/chunks/", b"x" * 100),
        (b"fleet/chunks/0/1", b"x" * 100),
        (b"fleet/other/0", b"x" * 100),
        (b"fleet/chunks/999999999999", b"x" * 100),
        (b"fleet/chunks/\xc2\xb2", b"x" * 100),
    ],
)
def test_what_is_no_chunk_is_refused(tmp_path: Path, topic: bytes, payload: bytes) -> None:
    chunks = Chunks(announced(1000, 100), tmp_path / "part")
    with pytest.raises(UpdateRefused) as caught:
        chunks.add(topic, payload)
    assert caught.value.reason == "chunk"
    assert chunks.missing == 10
    chunks.close()
    chunks.close()
