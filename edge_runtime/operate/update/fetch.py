"""Download of a file over HTTP: straight to the disk, and what is there is kept when the connection or the device goes.

Nothing looks into what was fetched before all of it is here and has the size and the SHA-256 that were announced.
Redirections are not followed, and addresses of this machine and of private networks are refused unless
`UpdateConfig.hosts` names their host: a signer of announcements has no business in the device's own network.

Source: RFC 9110 section 14 (range requests).
"""

from __future__ import annotations

import functools
import hashlib
import ipaddress
import os
import re
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from edge_runtime._version import __version__
from edge_runtime.base.http.client import open_stream, reason_of
from edge_runtime.base.http.endpoint import Endpoint
from edge_runtime.base.http.framing import Head, SocketStream
from edge_runtime.base.oip import Buffer
from edge_runtime.base.system import durable_file
from edge_runtime.base.system.secrets import ClientTls, SecretFile
from edge_runtime.clock import Clock
from edge_runtime.errors import ConnectionFailed, InputError, UpdateRefused

SYNC_BYTES = 256 * 1024
"""At most this much is fetched again after a power cut."""
SLOWEST_BYTES_S = 500.0
"""A server that sends less on average is given up."""
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_RANGE = re.compile(r"bytes (\d{1,15})-(\d{1,15})/(\d{1,15}|\*)")
_HASH_BYTES = 2**20

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAccess:
    """Settings of the connection to a server."""

    hosts: tuple[str, ...]
    """Hosts that may be asked, whatever their address; empty: every host with a public address."""
    tls: Callable[[], ClientTls]
    """Called for the first ``https://``: reading the system's certificates takes a board a while."""
    token: SecretFile | None
    timeout_s: float


def fetch(
    url: str, part: Path, size: int, server: ServerAccess, clock: Clock, cancelled: threading.Event, progress: Progress
) -> None:
    """Complete a file, from where an earlier attempt got to.

    What comes goes to the disk at once, never more than `size` of it; memory holds one block.

    Args:
        url: address of the file.
        part: what is there of it; grows.
        size: what it must have in the end.
        server: how to connect.
        clock: what deadlines are measured with.
        cancelled: gives up when set.
        progress: called with the number of bytes that are here.

    Raises:
        UpdateRefused: this URL will not give it, now or later.
        ConnectionFailed: worth another try.
        OSError: the file cannot be written.
    """
    host = urlsplit(url).hostname or ""
    if server.hosts and host not in server.hosts:
        raise UpdateRefused("host", f"{host} is not among update.hosts ({', '.join(server.hosts)})")
    if cancelled.is_set():
        raise ConnectionFailed("fetching was cancelled")
    fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        have = os.fstat(fd).st_size
        if have > size:
            os.ftruncate(fd, 0)
            have = 0
        writing = _Writing(fd, have, size, cancelled, progress)
        if have < size:
            try:
                _get(url, have, size, server, clock, writing)
            finally:
                os.fsync(fd)
    finally:
        os.close(fd)


class _Writing:
    """The file that grows, block by block."""

    def __init__(self, fd: int, have: int, size: int, cancelled: threading.Event, progress: Progress) -> None:
        self._fd = fd
        self._have = have
        self._size = size
        self._synced = have
        self._cancelled = cancelled
        self._progress = progress

    def begin_at(self, offset: int) -> None:
        """Go on at an offset; what lies behind it is of no use."""
        os.ftruncate(self._fd, offset)
        os.lseek(self._fd, offset, os.SEEK_SET)
        self._have = self._synced = offset

    def __call__(self, block: Buffer) -> None:
        if self._cancelled.is_set():
            raise ConnectionFailed("fetching was cancelled")
        if self._have + len(block) > self._size:
            raise InputError("too_large", "it has more bytes than were announced")
        durable_file.write_all(self._fd, block)
        self._have += len(block)
        if self._have - self._synced >= SYNC_BYTES:
            os.fsync(self._fd)
            self._synced = self._have
        self._progress(self._have)


def check(part: Path, size: int, sha256: str) -> None:
    """Return whether a fetched file is the one that was announced; one that is not is removed.

    Raises:
        UpdateRefused: it is not.
    """
    found = part.stat().st_size
    if found != size:
        durable_file.remove(part)
        raise UpdateRefused("size", f"it has {found} bytes, {size} were announced")
    digest = hashlib.sha256()
    with part.open("rb") as file:
        while block := file.read(_HASH_BYTES):
            digest.update(block)
    if digest.hexdigest() != sha256:
        durable_file.remove(part)
        raise UpdateRefused("digest", "it does not have the SHA-256 that was announced")


def _get(url: str, start: int, size: int, server: ServerAccess, clock: Clock, writing: _Writing) -> None:
    """Get, in one exchange, the bytes from `start` on, or the whole file where a server knows no ranges."""
    try:
        endpoint = Endpoint.parse(url)
    except ValueError as error:
        raise UpdateRefused("host", f"{(urlsplit(url).hostname or '')[:100]!r} is no host name") from error
    where = endpoint.origin
    # The whole of it has an end, however slowly the server sends.
    deadline = clock.monotonic() + 2 * server.timeout_s + (size - start) / SLOWEST_BYTES_S
    stream: SocketStream | None = None
    try:
        stream = open_stream(
            endpoint,
            server.tls() if endpoint.encrypted else None,
            clock,
            deadline,
            connect_timeout_s=server.timeout_s,
            admit=None if server.hosts else functools.partial(_check_public, endpoint.host),
        )
        stream.limit_wait(deadline, server.timeout_s)
        stream.send(_request(endpoint, start, size - start, server))
        head = stream.read_head()
        if head.start[1] == "206":
            _check_range(head, start, size - start, size, where)
            writing.begin_at(start)
        elif head.start[1] == "200":
            start = 0
            writing.begin_at(start)
        else:
            raise _status(head, where)
        found = start + stream.read_body_into(head, size - start, writing)
        if found < size:
            raise _short(head, where, found, size)
    except InputError as error:
        if error.reason == "too_large":
            raise UpdateRefused("size", f"{where} has more of it than was announced") from error
        raise ConnectionFailed(f"{where}: unreadable answer: {error}") from error
    except TimeoutError as error:
        raise ConnectionFailed(f"{where} did not answer in time") from error
    except OSError as error:
        raise ConnectionFailed(f"{where} cannot be reached: {reason_of(error)}") from error
    finally:
        if stream is not None:
            stream.close()


def _short(head: Head, where: str, found: int, size: int) -> Exception:
    """Return the error for an answer that ended well, and too soon."""
    if head.start[1] == "206" or not {"content-length", "transfer-encoding"} & head.headers.keys():
        return ConnectionFailed(f"{where} sent {found} of {size} bytes")
    return UpdateRefused("size", f"{where} has {found} bytes of it, {size} were announced")


def _check_public(host: str, address: str) -> None:
    """Refuse an address of a private network that the configuration does not allow by name."""
    if not is_public(address):
        raise UpdateRefused("host", f"{host} is the address {address} of this machine or a private network; "
                            "put it into update.hosts if that is meant")  # fmt: skip


def is_public(address: str) -> bool:
    """Return whether an address is one of the public Internet: not loopback, link-local, private, multicast, ...

    An IPv6 address that stands for an IPv4 one (mapped, 6to4, NAT64) is what that one is.
    """
    found = ipaddress.ip_address(address.partition("%")[0])
    if isinstance(found, ipaddress.IPv6Address):
        inner = found.ipv4_mapped or found.sixtofour
        if inner is None and found in _NAT64:
            inner = ipaddress.IPv4Address(found.packed[12:])
        if inner is not None:
            found = inner
    return found.is_global and not found.is_multicast


def _request(endpoint: Endpoint, start: int, count: int, server: ServerAccess) -> bytes:
    lines = [
        f"GET {endpoint.target} HTTP/1.1",
        f"Host: {endpoint.netloc}",
        f"User-Agent: edge-runtime/{__version__}",
        "Accept-Encoding: identity",
        f"Range: bytes={start}-{start + count - 1}",
        "Connection: close",
    ]
    if server.token is not None and not endpoint.clear_text:
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
