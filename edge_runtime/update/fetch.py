"""Get a file over HTTP, in pieces that are kept when the connection or the device goes.

Nothing looks into what was fetched before all of it is here and has the size and the SHA-256 that were announced.
Redirections are not followed: `UpdateConfig.hosts` would mean nothing then.

Source: RFC 9110 section 14 (range requests).
"""

from __future__ import annotations

import hashlib
import os
import re
import socket
import ssl
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from edge_runtime._version import __version__
from edge_runtime.clock import Clock
from edge_runtime.credentials import ClientTls, SecretFile
from edge_runtime.errors import ConnectionFailed, InputError, UpdateRefused
from edge_runtime.http1 import Head, Stream, handshake
from edge_runtime.update import durable

PIECE_BYTES = 256 * 1024
"""What one request asks for: at most this much is fetched again after a cut."""
_RANGE = re.compile(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15}|\*)")
_HASH_BYTES = 2**20

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    """How servers are talked to."""

    hosts: tuple[str, ...]
    tls: Callable[[], ClientTls]
    """Called for the first ``https://``: reading the system's certificates takes a board a while."""
    token: SecretFile | None
    timeout_s: float


def fetch(
    url: str, part: Path, size: int, server: Server, clock: Clock, cancelled: threading.Event, progress: Progress
) -> None:
    """Complete a file, from where an earlier attempt got to.

    Args:
        url: where it is.
        part: what is there of it; grows.
        size: what it must have in the end.
        server: how to connect.
        clock: what deadlines are measured with.
        cancelled: gives up when set.
        progress: told how many bytes are here.

    Raises:
        UpdateRefused: this URL will not give it, now or later.
        ConnectionFailed: worth another try.
        OSError: the file cannot be written.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    if server.hosts and host not in server.hosts:
        raise UpdateRefused("host", f"{host} is not among update.hosts ({', '.join(server.hosts)})")
    fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        have = os.fstat(fd).st_size
        if have > size:
            os.ftruncate(fd, 0)
            have = 0
        while have < size:
            if cancelled.is_set():
                raise ConnectionFailed("fetching was cancelled")
            offset, data = _piece(url, have, min(PIECE_BYTES, size - have), size, server, clock)
            os.lseek(fd, offset, os.SEEK_SET)
            durable.write_all(fd, data)
            os.fsync(fd)
            have = offset + len(data)
            progress(have)
    finally:
        os.close(fd)


def check(part: Path, size: int, sha256: str) -> None:
    """Whether a fetched file is the one that was announced; one that is not is removed.

    Raises:
        UpdateRefused: it is not.
    """
    found = part.stat().st_size
    if found != size:
        durable.remove(part)
        raise UpdateRefused("size", f"it has {found} bytes, {size} were announced")
    digest = hashlib.sha256()
    with part.open("rb") as file:
        while block := file.read(_HASH_BYTES):
            digest.update(block)
    if digest.hexdigest() != sha256:
        durable.remove(part)
        raise UpdateRefused("digest", "it does not have the SHA-256 that was announced")


def _piece(url: str, start: int, count: int, size: int, server: Server, clock: Clock) -> tuple[int, bytes]:
    """Some bytes and where they belong: from `start` on, or the whole file where a server knows no ranges."""
    parts = urlsplit(url)
    where = f"{parts.scheme}://{parts.netloc}"
    deadline = clock.monotonic() + 2 * server.timeout_s + 600.0  # a piece at 500 bytes a second
    stream: Stream | None = None
    try:
        stream = _connect(parts.hostname or "", parts.port, parts.scheme == "https", server, clock)
        stream.limit_wait(deadline, server.timeout_s)
        stream.send(_request(url, start, count, server))
        head = stream.read_head()
        if head.start[1] == "206":
            _check_range(head, start, count, size, where)
            body = bytes(stream.read_body(head, count))
            if len(body) != count:
                raise ConnectionFailed(f"{where} sent {len(body)} of {count} bytes")
            return start, body
        if head.start[1] == "200":
            body = bytes(stream.read_body(head, size))
            if len(body) < size:
                raise UpdateRefused("size", f"{where} has {len(body)} bytes of it, {size} were announced")
            return 0, body
        raise _status(head, where)
    except InputError as error:
        if error.reason == "too_large":
            raise UpdateRefused("size", f"{where} has more of it than was announced") from error
        raise ConnectionFailed(f"{where}: unreadable answer: {error}") from error
    except TimeoutError as error:
        raise ConnectionFailed(f"{where} did not answer in time") from error
    except OSError as error:
        raise ConnectionFailed(f"{where} cannot be reached: {error.strerror or error}") from error
    finally:
        if stream is not None:
            stream.close()


def _connect(host: str, port: int | None, secure: bool, server: Server, clock: Clock) -> Stream:
    limit = clock.monotonic() + server.timeout_s
    sock = socket.create_connection((host, port or (443 if secure else 80)), server.timeout_s)
    if not secure:
        return Stream(sock, clock)
    try:
        return Stream(handshake(sock, server.tls().context(), clock, limit, server_hostname=host), clock)
    except ssl.SSLError as error:
        sock.close()
        raise ConnectionFailed(f"https://{host}: TLS failed: {error.reason or error}") from error


def _request(url: str, start: int, count: int, server: Server) -> bytes:
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    lines = [
        f"GET {target} HTTP/1.1",
        f"Host: {parts.netloc}",
        f"User-Agent: edge-runtime/{__version__}",
        "Accept-Encoding: identity",
        f"Range: bytes={start}-{start + count - 1}",
        "Connection: close",
    ]
    if server.token is not None and (parts.scheme == "https" or parts.hostname in ("localhost", "127.0.0.1")):
        lines.append(f"Authorization: Bearer {server.token.value()}")
    return "\r\n".join([*lines, "", ""]).encode("ascii")


def _check_range(head: Head, start: int, count: int, size: int, where: str) -> None:
    found = _RANGE.fullmatch(head.headers.get("content-range", ""))
    if found is None or int(found[1]) != start:
        raise ConnectionFailed(f"{where} sent another part than it was asked for")
    if found[3] != "*" and int(found[3]) != size:
        raise UpdateRefused("size", f"{where} has {found[3]} bytes of it, {size} were announced")
    if int(found[2]) != start + count - 1:
        raise ConnectionFailed(f"{where} sent another part than it was asked for")


def _status(head: Head, where: str) -> Exception:
    status = head.start[1]
    if status.startswith("3"):
        return UpdateRefused("http", f"{where} answers {status}; announce the final address, none is followed")
    if status == "416":
        return UpdateRefused("size", f"{where} has less of it than was announced")
    return ConnectionFailed(f"{where} answers {status} {head.start[2][:60]}".rstrip())
