"""Routes of a running application: its metrics, its picture as JSON, a stream of pictures, and the page.

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

Who may ask for what: `edge_runtime.operate.observe.access`; `edge_runtime.operate.serving.router` holds callers to it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Literal

from edge_runtime.base.oip import Body
from edge_runtime.errors import EdgeError, InputError, StoreError
from edge_runtime.model.serving import resets
from edge_runtime.operate.observe.access import FIGURES, GUARDED, Guard
from edge_runtime.operate.observe.report import MOST_KEYS, Query
from edge_runtime.operate.serving.answers import (
    EventStream,
    Pending,
    Refused,
    RenderMetrics,
    Reply,
    json_reply,
    metrics_reply,
)
from edge_runtime.operate.serving.router import AccessTerms, HttpRequest, HttpRouter, Path, Route

_MOST_STREAMS: Final = 16
_UNKNOWN: Final = "no such path; there is /metrics, /api/report, /api/stream and /api/key"
_PAGE_HEADERS: Final = (
    "Cache-Control: no-cache\r\nX-Content-Type-Options: nosniff\r\nReferrer-Policy: no-referrer\r\n"
    "Content-Security-Policy: default-src 'self'; img-src 'self' data:; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'\r\n"
)

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


def router_of(
    routes: Routes,
    *,
    guard: Guard | None,
    hosts: frozenset[str] | None,
    metrics: RenderMetrics,
    pending: Callable[[Work], Pending],
    streams: dict[EventStream, Query],
    files: Mapping[str, tuple[str, bytes]],
) -> HttpRouter:
    """Make the table of a running application a server.

    Args:
        routes: what can be asked for, besides the metrics, the stream and the page.
        guard: decides who may ask; None lets all callers in (a Unix socket).
        hosts: names that browsers may ask under, in lower case; None asks for no name (a Unix socket).
        metrics: renders the metrics; see `RenderMetrics`.
        pending: makes the answer of a work of the application's loop.
        streams: register of the open streams of pictures, with their queries.
        files: the page: by path, content type and bytes. Empty: no page.

    Raises:
        LookupError: a path has no row in `edge_runtime.operate.observe.access`.
    """
    if unknown := {*routes.works, *routes.posts, *routes.reads, *routes.changes} - FIGURES - GUARDED:
        raise LookupError(f"no row in edge_runtime.operate.observe.access: {', '.join(sorted(unknown))}")
    token, advice = (None, "") if guard is None else (guard.token, guard.advice())
    access = AccessTerms(realm="edge-runtime", token=token, advice=advice, hosts=hosts, browsers=True)
    table: dict[Path, Route] = {}

    def add(
        path: str, method: Literal["GET", "POST"], answer: Callable[[HttpRequest], Reply | Pending | EventStream]
    ) -> None:
        is_open = path in files or (guard is not None and guard.opens(path))
        table[tuple(path.split("/"))] = Route(method, answer, open=is_open)

    for path, work in {**routes.works, **routes.posts}.items():
        add(path, "POST" if path in routes.posts else "GET", partial(_on_loop, pending, work))
    for path, here in {**routes.reads, **routes.changes}.items():
        add(path, "POST" if path in routes.changes else "GET", partial(_here, here))
    for path, (kind, data) in files.items():
        add(path, "GET", partial(_file, access, kind, data))
    add("metrics", "GET", lambda request: metrics_reply(request.head, metrics))
    add("api/stream", "GET", partial(_stream, streams))
    return HttpRouter(table, access, unknown=lambda _: _UNKNOWN)


def _on_loop(
    pending: Callable[[Work], Pending], work: Callable[[Mapping[str, Any]], Work], request: HttpRequest
) -> Pending:
    return pending(work(request.asked()))


def _stream(streams: dict[EventStream, Query], request: HttpRequest) -> EventStream:
    if len(streams) >= _MOST_STREAMS:
        raise Refused(503, f"{_MOST_STREAMS} others look on already", retry=True)
    query = query_of(request.parameters)
    stream = EventStream(streams.__delitem__)
    streams[stream] = query
    return stream


def _file(access: AccessTerms, kind: str, data: bytes, request: HttpRequest) -> Reply:
    kept = access.kept(request.head)
    if kept and "token" in request.parameters:  # it leaves the address line
        return Reply(303, Body((b"",)), f"Location: /\r\n{kept}{_PAGE_HEADERS}", content_type=kind)
    return Reply(200, Body((data,)), kept + _PAGE_HEADERS, content_type=kind)


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


def keys_of(asked: Mapping[str, Any]) -> list[str]:
    """Read the keys of a request that changes them.

    Raises:
        InputError: they are none, or too many.
    """
    keys = asked.get("keys")
    if not resets.are_keys(keys):
        raise InputError("keys", f"keys must be a list of at most {resets.MAX_KEYS} names")
    return keys


def _here(work: Here, request: HttpRequest) -> Reply:
    try:
        found = work(request.asked())
    except StoreError as error:
        raise Refused(503, str(error)) from None
    return _private(found if isinstance(found, Reply) else json_reply(200, found))


def _private(reply: Reply) -> Reply:
    return Reply(reply.status, reply.body, "Cache-Control: no-store\r\n" + reply.headers, reply.content_type)
