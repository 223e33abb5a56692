"""Answers: replies, replies that another thread works on, streams of events, and refusals, before they are sent."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, Protocol

import orjson

from edge_runtime.base.http.parser import Head
from edge_runtime.base.oip import JSON_LENGTH_HEADER, Body
from edge_runtime.errors import EdgeError

STREAM_BYTES: Final = 256 * 1024
"""Most that waits for the caller of a stream; further messages are left out and counted."""


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


class EventStream:
    """Server-sent events to one caller (WHATWG HTML, section 9.2). Everything happens on the server's loop.

    A caller that reads too slowly misses messages: what waits for it has a bound, and what is left out is counted.

    Args:
        closed: called once, when the caller has left or was dropped.
        headers: whole lines besides those that each stream has.
    """

    def __init__(self, closed: Callable[[EventStream], None], headers: str = "") -> None:
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


def _nothing(_: EventStream) -> None:
    pass


def json_reply(status: int, document: Mapping[str, Any]) -> Reply:
    """Build an answer of a JSON object."""
    return Reply(status, Body((orjson.dumps(document),)))


def metrics_reply(head: Head, render: RenderMetrics) -> Reply:
    """Build the answer to a scraper, in the format that it asks for."""
    openmetrics = "application/openmetrics-text" in head.headers.get("accept", "")
    kind = "application/openmetrics-text; version=1.0.0" if openmetrics else "text/plain; version=0.0.4"
    return Reply(200, Body((render(openmetrics=openmetrics),)), content_type=f"{kind}; charset=utf-8")
