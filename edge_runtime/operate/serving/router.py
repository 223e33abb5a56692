"""Router: a table of routes as a server; the place for access, methods, limits and errors of all that we serve.

1. A caller without the token is refused with 401 before its body is read, but for routes that are open.
2. A ``Host`` that is not known is refused with 421 (DNS rebinding), and with 403 what another site made.
3. A path without a route is 404, one that is asked by another method 405; HEAD goes with GET.
4. An error of the parser or of a route becomes the answer: `Refused` its own status, `InputError` that of its reason.

No socket is touched here: `edge_runtime.operate.serving.connection` reads requests and sends what a router says.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, Literal, TypeAlias
from urllib.parse import parse_qsl, quote, unquote, urlsplit

import orjson

from edge_runtime.base.http.parser import Head
from edge_runtime.base.oip import Buffer
from edge_runtime.base.system.secrets import Secret
from edge_runtime.errors import InputError
from edge_runtime.operate.serving.answers import EventStream, Pending, Refused, Reply, json_reply

SMALL_BODY_BYTES: Final = 64 * 1024
"""Longest body of a request that takes none; and names, shapes and parameters of one that does."""
COOKIE: Final = "edge_token"
ANY: Final = "*"
"""Segment of a route's path that stands for any segment of a request's."""

Path: TypeAlias = tuple[str, ...]
"""Segments of a path, unquoted."""

_ABSOLUTE = re.compile(r"https?://([A-Za-z0-9\-._~!$&'()*+,;=%:\[\]]+)((?:[/?].*)?)", re.IGNORECASE)
# Status of each reason of the parser and of `decompress` (RFC 9110, section 15; RFC 6585 for 431).
_STATUS_OF: Final = {
    "coding": 501,
    "encoding": 415,
    "expectation": 417,
    "fields_too_large": 431,
    "target_too_long": 414,
    "too_large": 413,
    "version": 505,
}


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """A request that was read and may be answered."""

    head: Head
    body: Buffer
    """All of it, decompressed."""
    path: Path
    ready: bool
    """Whether new requests are welcome, for those who ask."""
    peer: str
    """Address of the caller; empty for a Unix socket."""

    @property
    def parameters(self) -> Mapping[str, str]:
        """Parameters of the target."""
        return dict(parse_qsl(urlsplit(self.head.start[1]).query))

    def asked(self) -> Mapping[str, Any]:
        """Return what is asked for: the JSON object of a POST, else the parameters.

        The type that a document needs is what keeps other sites' forms out (CORS, simple requests).

        Raises:
            Refused: it is of another type.
            InputError: it is none.
        """
        if self.head.start[0] != "POST":
            return self.parameters
        if self.head.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            raise Refused(415, "send application/json")
        try:
            found = orjson.loads(self.body)
        except orjson.JSONDecodeError:
            raise InputError("json", "the body is no JSON") from None
        if not isinstance(found, dict):
            raise InputError("json", "the body is no JSON object")
        return found


Handler: TypeAlias = Callable[[HttpRequest], Reply | Pending | EventStream]
"""Answers a request; raises `Refused` and `InputError`."""


@dataclass(frozen=True, slots=True)
class Route:
    """Answer of a path, and its terms."""

    method: Literal["GET", "POST"]
    answer: Handler
    open: bool = False
    """Whether it needs no token."""
    max_body: int = 0
    """Longest body; 0: the router's own limit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AccessTerms:
    """Terms under which a server answers a caller.

    Args:
        realm: what the token opens, for callers without one.
        token: what callers must send; None lets everybody in.
        advice: end of the line for callers without the token.
        hosts: names that browsers may ask under, in lower case; None asks for no name.
        browsers: whether the token counts as ``?token=`` and as the page's cookie, too.
    """

    realm: str
    token: Secret | None = None
    advice: str = ""
    hosts: frozenset[str] | None = None
    browsers: bool = False

    def sent(self, head: Head) -> str:
        """Return the token that a request has: in a header, in its target, or as a cookie; empty without one."""
        scheme, _, credentials = head.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            return credentials.strip()
        if not self.browsers:
            return ""
        return dict(parse_qsl(urlsplit(head.start[1]).query)).get("token", "") or _cookie(head)

    def admits(self, head: Head) -> bool:
        """Return whether a request has the token."""
        return self.token is None or self.token.matches(self.sent(head))

    def kept(self, head: Head) -> str:
        """Return the line that has a browser keep the token that it sent; empty where it sent none, or a wrong one."""
        if self.token is None or not self.admits(head):  # never what a caller made up
            return ""
        value = quote(self.sent(head), safe="")
        return f"Set-Cookie: {_cookie_name(head)}={value}; HttpOnly; SameSite=Strict; Path=/\r\n"

    def check_origin(self, head: Head) -> None:
        """Hold browsers to the server's own origin (rule 2).

        Raises:
            Refused: it is another one.
        """
        if self.hosts is None:
            return
        host = _name_of(head.headers.get("host", ""))
        if host not in self.hosts:
            raise Refused(421, f"not under the name {host[:60]!r}: add it to hosts under [observe]")
        origin = head.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc.lower() != head.headers.get("host", "").lower():
            raise Refused(403, "another site may not ask for this")


class HttpRouter:
    """Answers requests by a table of routes.

    Args:
        routes: routes by path; `ANY` as a segment takes any one.
        access: terms for callers.
        unknown: line for a path without a route.
        small_bytes: longest body where a route says nothing else.
        retry_after_s: seconds after which a caller who was turned away for want of room may come back.
    """

    def __init__(
        self,
        routes: Mapping[Path, Route],
        access: AccessTerms,
        *,
        unknown: Callable[[Path], str],
        small_bytes: int = SMALL_BODY_BYTES,
        retry_after_s: int = 1,
    ) -> None:
        self._routes = routes
        self._access = access
        self._unknown = unknown
        self._small = small_bytes
        self._retry_after_s = retry_after_s

    def _route(self, path: Path) -> Route | None:
        if (found := self._routes.get(path)) is not None:
            return found
        some = (self._routes.get((*path[:at], ANY, *path[at + 1 :])) for at in range(len(path)))
        return next((one for one in some if one is not None), None)

    def unauthorized(self, head: Head) -> Reply | None:
        """Refuse a caller without the token (rule 1); None where all is well.

        Raises:
            Refused: the request target is none.
        """
        if self._access.token is None:
            return None
        route = self._route(segments(head))
        if (route is not None and route.open) or self._access.admits(head):
            return None
        reply = self.error(401, f"a bearer token is needed, or the one sent is not right{self._access.advice}")
        return Reply(reply.status, reply.body, f'WWW-Authenticate: Bearer realm="{self._access.realm}"\r\n')

    def body_limit(self, head: Head) -> int:
        """Return the longest body of a request."""
        try:
            route = self._route(segments(head))
        except Refused:  # `answer` says so
            return self._small
        return self._small if route is None else route.max_body or self._small

    def answer(self, head: Head, body: Buffer, *, ready: bool, peer: str = "") -> Reply | Pending | EventStream:
        """Do what a request asks for.

        Args:
            head: request line and headers.
            body: all of the request's body, decompressed.
            ready: whether new requests are welcome, for those who ask.
            peer: address of the caller; empty for a Unix socket.

        Raises:
            Refused: it cannot be done.
            InputError: its body is wrong.
        """
        self._access.check_origin(head)
        path = segments(head)
        route = self._route(path)
        if route is None:  # rule 3
            raise Refused(404, self._unknown(path))
        if head.start[0] not in {route.method, "HEAD" if route.method == "GET" else route.method}:
            allowed = "GET, HEAD" if route.method == "GET" else route.method
            raise Refused(405, f"use {route.method} here", headers=f"Allow: {allowed}\r\n")
        return route.answer(HttpRequest(head, body, path, ready, peer))

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
        """Build the answer to a request that the parser, a route or a `Pending` raised this error for (rule 4)."""
        if isinstance(error, Refused):
            reply = self.error(error.status, str(error), retry=error.retry)
            return Reply(reply.status, reply.body, reply.headers + error.headers)
        status = _STATUS_OF.get(error.reason, 400) if isinstance(error, InputError) else 500
        return self.error(status, str(error))


def segments(head: Head) -> Path:
    """Split the path of a request, by its four forms (RFC 9112, section 3.2).

    1. ``/path?query``. 2. ``http://host/path?query``, as to a proxy: the path counts. 3. ``host:port`` with CONNECT and
    4. ``*`` with OPTIONS ask for what no server of ours does.

    Raises:
        Refused: 501 for forms 3 and 4; 400 for what is none of them.
    """
    method, target, _ = head.start
    return _split(method, target)


@lru_cache(maxsize=256)  # a caller asks for the same path over and over
def _split(method: str, target: str) -> Path:
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


def _name_of(host: str) -> str:
    """Return the name of a ``Host``, in lower case, without its port."""
    if host.startswith("["):
        return host.partition("]")[0].removeprefix("[").lower()
    return host.partition(":")[0].lower()


def _cookie_name(head: Head) -> str:
    """Return the cookie's name, with the port: browsers send the cookies of all ports of a host to each of them."""
    port = head.headers.get("host", "").rpartition(":")[2]
    return f"{COOKIE}_{port}" if port.isdecimal() else COOKIE


def _cookie(head: Head) -> str:
    wanted = _cookie_name(head)
    for part in head.headers.get("cookie", "").split(";"):
        name, _, value = part.strip().partition("=")
        if name == wanted:
            return unquote(value)
    return ""
