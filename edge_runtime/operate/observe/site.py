"""Site of a running application: its metrics, its picture as JSON, a stream of pictures, and the page.

====== =================== =====================================================================================
GET    ``/metrics``        Prometheus text, or OpenMetrics where the caller asks for it
GET    ``/api/report``     one picture (`edge_runtime.operate.observe.report`); ``?keys=50&filter=text``
GET    ``/api/stream``     server-sent events: a picture each half second; the same parameters
GET    ``/api/key``        one key with its last window; ``?key=NAME``
POST   ``/api/explain``    why the last window of a key has its answer; ``{"key": NAME}``
POST   ``/api/reset``      let the states of keys begin again; ``{"keys": [NAME, ...]}``
GET    ``/api/cases``      kept cases, ``/api/cases/one``, ``/api/cases/export`` (`edge_runtime.operate.observe.review`)
POST   ``/api/cases/...``  ``label``, ``erase``
GET    ``/``               the page
====== =================== =====================================================================================

Who may ask for what: `edge_runtime.operate.observe.access`. Browsers are held to the page's own origin: a ``Host`` that
is not known is refused (DNS rebinding), and so is a POST that another site made.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import orjson

from edge_runtime.base.http.parser import Head
from edge_runtime.base.oip import Body, Buffer
from edge_runtime.base.system.secrets import Secret
from edge_runtime.errors import EdgeError, InputError, StoreError
from edge_runtime.operate.observe.access import FIGURES, GUARDED, Guard
from edge_runtime.operate.observe.report import MOST_KEYS, Query
from edge_runtime.operate.serving.site import (
    Pending,
    Refused,
    RenderMetrics,
    Reply,
    Site,
    Stream,
    json_reply,
    metrics_reply,
    only,
    segments,
)

log = logging.getLogger(__name__)

COOKIE: Final = "edge_token"
_MOST_STREAMS: Final = 16

Work = Callable[[], dict[str, Any]]
"""Runs on the application's loop; raises `EdgeError` for what cannot be done."""


Here = Callable[[Mapping[str, Any]], dict[str, Any] | Reply]
"""Runs on the server's thread; raises `Refused`, `InputError` and `StoreError`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Answers by path."""

    works: Mapping[str, Callable[[Mapping[str, str]], Work]]
    """Done by the application's loop: takes the parameters of the request."""
    posts: Mapping[str, Callable[[Mapping[str, Any]], Work]]
    """The same for requests that change something: takes their document."""
    reads: Mapping[str, Here]
    """Answered on the server's thread, which may wait for a disk: takes the parameters."""
    changes: Mapping[str, Here]
    """The same for requests that change something."""


class OnLoop:
    """A `Pending` answer that the application's loop gives.

    Args:
        work: what to do there.
        submit: has a function called on that loop.
        back: has a function called on the server's loop.
        finish: makes the document of what `work` returned, on the server's loop.
    """

    def __init__(
        self,
        work: Work,
        submit: Callable[[Callable[[], None]], None],
        back: Callable[[Callable[[], None]], None],
        finish: Callable[[dict[str, Any]], dict[str, Any]],
    ) -> None:
        self._work = work
        self._submit = submit
        self._back = back
        self._finish = finish
        self._found: dict[str, Any] | None = None
        self._error: EdgeError | None = None
        self._withdrawn = False

    def start(self, done: Callable[[], None]) -> None:
        """Have it done (see `Pending`)."""

        def run() -> None:
            if self._withdrawn:
                return
            try:
                self._found = self._work()
            except EdgeError as error:
                self._error = error
            self._back(done)

        self._submit(run)

    def withdraw(self) -> Refused:
        """Give up: the application's loop is busy, or hangs."""
        self._withdrawn = True
        return Refused(503, "the application did not answer in time: it is busy, or an engine hangs", retry=True)

    def reply(self) -> Reply:
        """Return the document."""
        if self._error is not None:
            if isinstance(self._error, Refused | InputError):
                raise self._error
            raise Refused(409, str(self._error))
        assert self._found is not None
        return _private(json_reply(200, self._finish(self._found)))


class ObserveSite(Site):
    """Routes of a running application.

    Args:
        guard: decides who may ask; None lets all callers in (a Unix socket).
        hosts: names that browsers may ask under, in lower case; None asks for no name (a Unix socket).
        metrics: renders the metrics; see `RenderMetrics`.
        routes: what can be asked for, besides the metrics, the stream and the page.
        pending: makes the answer of a work of the application's loop.
        streams: register of the open streams of pictures, with their queries.
        files: the page: by path, content type and bytes. Empty: no page.
    """

    def __init__(
        self,
        *,
        guard: Guard | None,
        hosts: frozenset[str] | None,
        metrics: RenderMetrics,
        routes: Routes,
        pending: Callable[[Work], Pending],
        streams: dict[Stream, Query],
        files: Mapping[str, tuple[str, bytes]],
    ) -> None:
        if unknown := {*routes.works, *routes.posts, *routes.reads, *routes.changes} - FIGURES - GUARDED:
            raise LookupError(f"no row in edge_runtime.operate.observe.access: {', '.join(sorted(unknown))}")
        token, advice = (None, "") if guard is None else (guard.token, guard.advice())
        super().__init__("edge-runtime", token=token, advice=advice)
        self._guard = guard
        self._hosts = hosts
        self._metrics = metrics
        self._routes = routes
        self._pending = pending
        self._streams = streams
        self._files = files

    def open_to_all(self, head: Head) -> bool:
        """Return whether a path needs no token: the page's files, and what the guard opens."""
        path = "/".join(segments(head))
        return path in self._files or (self._guard is not None and self._guard.opens(path))

    def admitted(self, head: Head, token: Secret) -> bool:
        """Accept the token as a bearer token, as ``?token=`` or as the page's cookie."""
        return token.matches(_sent_token(head))

    def answer(self, head: Head, body: Buffer, *, ready: bool, peer: str = "") -> Reply | Pending | Stream:
        """Answer a request (see the module)."""
        del ready, peer
        self._check_origin(head)
        parameters = dict(parse_qsl(urlsplit(head.start[1]).query))
        path = "/".join(segments(head))
        if (reply := self._routed(head, body, path, parameters)) is not None:
            return reply
        only(head, "GET")
        if path == "metrics":
            return metrics_reply(head, self._metrics)
        if path == "api/stream":
            return self._stream(parameters)
        if path in self._files:
            return self._file(head, path, parameters)
        raise Refused(404, "no such path; there is /metrics, /api/report, /api/stream and /api/key")

    def _routed(self, head: Head, body: Buffer, path: str, parameters: Mapping[str, str]) -> Reply | Pending | None:
        routes = self._routes
        if path in routes.posts or path in routes.changes:
            only(head, "POST")
            document = _document(head, body)
            change = routes.changes.get(path)
            return self._pending(routes.posts[path](document)) if change is None else _here(change, document)
        if path in routes.works or path in routes.reads:
            only(head, "GET")
            read = routes.reads.get(path)
            return self._pending(routes.works[path](parameters)) if read is None else _here(read, parameters)
        return None

    def _check_origin(self, head: Head) -> None:
        if self._hosts is None:
            return
        host = _name_of(head.headers.get("host", ""))
        if host not in self._hosts:
            raise Refused(421, f"not under the name {host[:60]!r}: add it to hosts under [observe]")
        origin = head.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != head.headers.get("host", "").lower():
            raise Refused(403, "another site may not ask for this")

    def _stream(self, parameters: Mapping[str, str]) -> Stream:
        if len(self._streams) >= _MOST_STREAMS:
            raise Refused(503, f"{_MOST_STREAMS} others look on already", retry=True)
        query = query_of(parameters)
        stream = Stream(self._forget)
        self._streams[stream] = query
        return stream

    def _forget(self, stream: Stream) -> None:
        self._streams.pop(stream, None)

    def _file(self, head: Head, path: str, parameters: Mapping[str, str]) -> Reply:
        kind, data = self._files[path]
        headers = (
            "Cache-Control: no-cache\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
            "Content-Security-Policy: default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; "
            "base-uri 'none'; form-action 'none'\r\n"
        )
        sent = _sent_token(head)
        if self._token is not None and self._token.matches(sent):  # never what a caller made up
            kept = quote(sent, safe="")
            headers = f"Set-Cookie: {_cookie_name(head)}={kept}; HttpOnly; SameSite=Strict; Path=/\r\n{headers}"
            if "token" in parameters:  # it leaves the address line
                return Reply(303, Body((b"",)), f"Location: /\r\n{headers}", content_type=kind)
        return Reply(200, Body((data,)), headers, content_type=kind)


def query_of(parameters: Mapping[str, str]) -> Query:
    """Read which keys a caller wants to see.

    Raises:
        InputError: a number that is none.
    """
    try:
        keys = int(parameters.get("keys", "50"))
    except ValueError:
        raise InputError("parameter", "keys must be a number") from None
    return Query(max(1, min(keys, MOST_KEYS)), parameters.get("filter", "")[:200])


def _here(work: Here, asked: Mapping[str, Any]) -> Reply:
    try:
        found = work(asked)
    except StoreError as error:
        raise Refused(503, str(error)) from None
    return _private(found if isinstance(found, Reply) else json_reply(200, found))


def _private(reply: Reply) -> Reply:
    return Reply(reply.status, reply.body, "Cache-Control: no-store\r\n" + reply.headers, reply.content_type)


def _document(head: Head, body: Buffer) -> Mapping[str, Any]:
    """Read the JSON object of a request. The type is what keeps other sites' forms out (CORS, simple requests)."""
    if head.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused(415, "send application/json")
    try:
        found = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise InputError("json", "the body is no JSON") from None
    if not isinstance(found, dict):
        raise InputError("json", "the body is no JSON object")
    return found


def _name_of(host: str) -> str:
    """Return the name of a ``Host``, in lower case, without its port."""
    if host.startswith("["):
        return host.partition("]")[0].removeprefix("[").lower()
    return host.partition(":")[0].lower()


def _cookie_name(head: Head) -> str:
    """Return the cookie's name, with the port: browsers send the cookies of all ports of a host to each of them."""
    port = head.headers.get("host", "").rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isdecimal() else COOKIE


def _sent_token(head: Head) -> str:
    """Return the token that a request has: in a header, in its target, or as a cookie."""
    scheme, _, credentials = head.headers.get("authorization", "").partition(" ")
    if scheme.lower() == "bearer":
        return credentials.strip()
    return dict(parse_qsl(urlsplit(head.start[1]).query)).get("token", "") or _cookie(head)


def _cookie(head: Head) -> str:
    wanted = _cookie_name(head)
    for part in head.headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == wanted:
            return unquote(value)
    return ""
