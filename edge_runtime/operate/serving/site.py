"""Site: what a server answers, from a request that was read to a reply; base of all that a `Front` can serve.

No socket is touched here: `edge_runtime.operate.serving.connection` reads requests and sends what a site says.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Any, Final, Protocol
from urllib.parse import unquote

import orjson

from edge_runtime.base.http.parser import Head
from edge_runtime.base.oip import JSON_LENGTH_HEADER, Body, Buffer
from edge_runtime.base.system.secrets import Secret
from edge_runtime.errors import EdgeError, InputError

SMALL_BODY_BYTES: Final = 64 * 1024
"""Longest body of a request that takes none; and names, shapes and parameters of one that does."""

STREAM_BYTES: Final = 256 * 1024
"""Most that waits for the caller of a stream; further messages are left out and counted."""

_ABSOLUTE = re.compile(r"https?://([A-Za-z0-9\-._~!$&'()*+,;=%:\[\]]+)((?:[/?].*)?)", re.IGNORECASE)
# What the parser and `decompress` say of a request, as a status (RFC 9110, section 15; RFC 6585 for 431).
_STATUS_OF: Final = {
    "coding": 501,
    "encoding": 415,
    "expectation": 417,
    "fields_too_large": 431,
    "target_too_long": 414,
    "too_large": 413,
    "version": 505,
}


class Refused(EdgeError):  # noqa: N818 - an answer, named as the caller sees it
    """A request that the server answers with an error.

    Attributes:
        status: HTTP status.
        retry: whether to invite the caller to come back (`Retry-After`).
        headers: whole lines that the answer has besides.
    """

    def __init__(self, status: int, message: str, *, retry: bool = False, headers: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.retry = retry
        self.headers = headers


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that has not been sent."""

    status: int
    body: Body
    headers: str = ""
    """Whole lines, besides those that every answer has."""
    content_type: str = ""
    """Empty: what the body says of itself, JSON or tensors."""

    def head(self, option: str = "") -> bytes:
        """Status line and headers.

        Args:
            option: the ``Connection`` line; empty for none.
        """
        body = self.body
        length = "" if body.json_bytes is None else f"{JSON_LENGTH_HEADER}: {body.json_bytes}\r\n"
        return (
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n"
            f"Content-Type: {self.content_type or body.content_type}\r\n{length}{self.headers}{option}"
            f"Content-Length: {sum(map(len, body.parts))}\r\n\r\n"
        ).encode("latin-1")


class Pending(Protocol):
    """An answer that is worked on by another thread."""

    def start(self, done: Callable[[], None], /) -> None:
        """Begin; `done` is called on the server's loop when `reply` has it.

        Raises:
            Refused: there is no room for it.
        """
        ...

    def withdraw(self) -> Refused:
        """Give up, since it took too long or the caller left; returns what to tell a caller who is still there."""
        ...

    def reply(self) -> Reply:
        """Return the answer.

        Raises:
            InputError: the request was wrong after all.
            Refused: it could not be answered.
        """
        ...


class RenderMetrics(Protocol):
    """Renders metrics, from any thread."""

    def __call__(self, *, openmetrics: bool) -> bytes:
        """Render them in Prometheus' own format, or as OpenMetrics."""
        ...


class Stream:
    """Server-sent events to one caller (WHATWG HTML, section 9.2). Everything happens on the server's loop.

    A caller that reads too slowly misses messages: what waits for it has a bound, and what is left out is counted.

    Args:
        closed: called once, when the caller has left or was dropped.
        headers: whole lines besides those that each stream has.
    """

    def __init__(self, closed: Callable[[Stream], None], headers: str = "") -> None:
        self._closed = closed
        self._headers = headers
        self._waiting: deque[bytes] = deque()
        self._bytes = 0
        self._wake: Callable[[], None] | None = None
        self.left_out = 0

    def head(self) -> bytes:
        """Status line and headers; the stream ends with the connection."""
        return (
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n"
            f"{self._headers}Connection: close\r\n\r\n"
        ).encode("latin-1")

    def put(self, message: bytes) -> None:
        """Queue a message, which the caller gets as soon as it reads."""
        if self._bytes and self._bytes + len(message) > STREAM_BYTES:
            self.left_out += 1
            return
        self._waiting.append(message)
        self._bytes += len(message)
        if self._wake is not None:
            self._wake()

    def read(self, wake: Callable[[], None]) -> bytes:
        """Read all that waits; `wake` is called when there is more, until the next call."""
        data = b"".join(self._waiting)
        self._waiting.clear()
        self._bytes = 0
        self._wake = None if data else wake
        return data

    def close(self) -> None:
        """Say that the caller has left. May be called twice."""
        closed, self._closed = self._closed, _nothing
        self._wake = None
        closed(self)


def _nothing(_: Stream) -> None:
    pass


class Site:
    """Base of what a server answers: errors, tokens, limits. A site of its own overrides `answer`.

    Args:
        realm: what the token opens, for callers without one.
        token: what callers must send; None lets everybody in.
        small_bytes: longest body where a path says nothing else.
        retry_after_s: seconds after which a caller who was turned away for want of room may come back.
        advice: end of the line for callers without the token.
    """

    def __init__(
        self,
        realm: str,
        *,
        token: Secret | None,
        small_bytes: int = SMALL_BODY_BYTES,
        retry_after_s: int = 1,
        advice: str = "",
    ) -> None:
        self._realm = realm
        self._token = token
        self._small = small_bytes
        self._retry_after_s = retry_after_s
        self._advice = advice

    def answer(self, head: Head, body: Buffer, *, ready: bool, peer: str = "") -> Reply | Pending | Stream:
        """Do what a request asks for.

        Args:
            head: its request line and headers.
            body: all of its body, decompressed.
            ready: whether new requests are welcome, for those who ask.
            peer: the caller's address; empty for a Unix socket.

        Raises:
            Refused: it cannot be done.
            InputError: its body is wrong.
        """
        raise NotImplementedError

    def body_limit(self, head: Head) -> int:
        """Return the longest body of a request."""
        del head
        return self._small

    def unauthorized(self, head: Head) -> Reply | None:
        """Refuse a caller without the token; None where all is well.

        Raises:
            Refused: the request target is none.
        """
        if self._token is None or self.open_to_all(head) or self.admitted(head, self._token):
            return None
        reply = self.error(401, f"a bearer token is needed, or the one sent is not right{self._advice}")
        return Reply(reply.status, reply.body, f'WWW-Authenticate: Bearer realm="{self._realm}"\r\n')

    def open_to_all(self, head: Head) -> bool:
        """Return whether a request needs no token."""
        del head
        return False

    def admitted(self, head: Head, token: Secret) -> bool:
        """Return whether a request has the token."""
        scheme, _, credentials = head.headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and token.matches(credentials.strip())

    def error(self, status: int, message: str, *, retry: bool = False) -> Reply:
        """Build an answer that says what is wrong.

        Args:
            status: HTTP status.
            message: one line.
            retry: whether to invite the caller to come back.
        """
        reply = json_reply(status, {"error": message})
        headers = f"Retry-After: {self._retry_after_s}\r\n" if retry else ""
        return Reply(status, reply.body, headers)

    def refusal(self, error: Exception) -> Reply:
        """Build the answer to a request that the parser, `answer` or a `Pending` raised this error for."""
        if isinstance(error, Refused):
            reply = self.error(error.status, str(error), retry=error.retry)
            return Reply(reply.status, reply.body, reply.headers + error.headers)
        status = _STATUS_OF.get(error.reason, 400) if isinstance(error, InputError) else 500
        return self.error(status, str(error))


def json_reply(status: int, document: Mapping[str, Any]) -> Reply:
    """Build an answer of a JSON object."""
    return Reply(status, Body((orjson.dumps(document),)))


def metrics_reply(head: Head, render: RenderMetrics) -> Reply:
    """Build the answer to a scraper, in the format that it asks for."""
    openmetrics = "application/openmetrics-text" in head.headers.get("accept", "")
    kind = "application/openmetrics-text; version=1.0.0" if openmetrics else "text/plain; version=0.0.4"
    return Reply(200, Body((render(openmetrics=openmetrics),)), content_type=f"{kind}; charset=utf-8")


def only(head: Head, method: str) -> None:
    """Refuse other methods than this; HEAD goes with GET.

    Raises:
        Refused: 405.
    """
    if head.start[0] != method and not (method == "GET" and head.start[0] == "HEAD"):
        allowed = "GET, HEAD" if method == "GET" else method
        raise Refused(405, f"use {method} here", headers=f"Allow: {allowed}\r\n")


def segments(head: Head) -> Sequence[str]:
    """Split the path of a request, by its four forms (RFC 9112, section 3.2).

    1. ``/path?query``. 2. ``http://host/path?query``, as to a proxy: the path counts. 3. ``host:port`` with CONNECT and
    4. ``*`` with OPTIONS ask for what no server of ours does.

    Raises:
        Refused: 501 for forms 3 and 4; 400 for what is none of them.
    """
    method, target, _ = head.start
    return _split(method, target)


@lru_cache(maxsize=256)  # a caller asks for the same path over and over
def _split(method: str, target: str) -> Sequence[str]:
    if not target.startswith("/"):
        absolute = _ABSOLUTE.fullmatch(target)
        if absolute is not None:  # form 2
            target = absolute[2]
        elif method == "CONNECT" or (method == "OPTIONS" and target == "*"):  # forms 3 and 4
            raise Refused(501, f"{method} {target[:60]} is not implemented; use GET or POST with a path")
        else:
            raise Refused(400, f"the request target {target[:60]!r} is not a path")
    if "#" in target:
        raise Refused(400, "a request target has no fragment")
    return tuple(unquote(part) for part in target.partition("?")[0].strip("/").split("/"))
