"""Listener: the thread that answers who looks in, over a Unix socket and over TCP.

The thread has a loop of its own, so a caller that hangs or floods costs the application's loop nothing but what it asks
of it (one picture each `EVERY_S` as long as a caller looks on, and one answer a request, at most `ASKS_PER_S` a second)
and the thread's own share of a core (`edge_runtime.operate.observe.duty`), handed back within `_SWITCH_S`.
It is started by the first connection to the Unix socket, or at once where a TCP address is configured.
"""

from __future__ import annotations

import logging
import socket
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any, Final, Protocol

import orjson

from edge_runtime.base.system.barrier import Barrier
from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import Clock
from edge_runtime.errors import EdgeError, InputError
from edge_runtime.operate.observe.access import Guard, url_of
from edge_runtime.operate.observe.config import ObserveConfig, address_of
from edge_runtime.operate.observe.duty import Duty
from edge_runtime.operate.observe.page import page_files
from edge_runtime.operate.observe.report import Query
from edge_runtime.operate.observe.routes import OnLoop, Routes, Work, query_of, router_of
from edge_runtime.operate.observe.textfile import TextFile
from edge_runtime.operate.serving.answers import EventStream, Pending, Refused, RenderMetrics
from edge_runtime.operate.serving.connection import Phase, ServerCounts
from edge_runtime.operate.serving.front import LINGER_S, Front, FrontLimits
from edge_runtime.operate.serving.router import HttpRouter

log = logging.getLogger(__name__)

EVERY_S: Final = 0.5
"""Time between two pictures of a stream."""
ASKS_PER_S: Final = 20
"""Requests to the application's loop in a second, of all callers together; more are answered 503."""
_RECEIVED_BYTES: Final = 4 * 2**20
_STOP_S: Final = 1.0
_SWITCH_S: Final = 0.0005
"""Longest time for which the application's loop waits for this thread to hand over the interpreter; 5 ms otherwise."""


class Pictures(Protocol):
    """Pictures of one application (`edge_runtime.operate.observe.report.Report`), or of several."""

    def live(self, query: Query) -> dict[str, Any]:
        """Take one, where `Listener` was told to submit it."""
        ...

    def complete(self, found: dict[str, Any]) -> dict[str, Any]:
        """Add to it what may wait for a disk or a sensor, on the listener's thread."""
        ...


class Listener:
    """Owner of the thread. Everything else than `start` and `stop` happens on its own loop.

    Args:
        config: address to listen on, page and limits.
        clock: source of monotonic time.
        submit: has a function called where pictures and answers are made: on the application's loop.
        report: the picture.
        metrics: renders the metrics.
        routes: what can be asked for besides.
        guard: decides who may ask over TCP; None where no address is listened on.
        barrier: what goes wrong in a work is its to count.
    """

    def __init__(
        self,
        config: ObserveConfig,
        clock: Clock,
        submit: Callable[[Callable[[], None]], None],
        report: Pictures,
        *,
        metrics: RenderMetrics,
        routes: Routes,
        guard: Guard | None,
        barrier: Barrier,
    ) -> None:
        self._config = config
        self._clock = clock
        self._submit = submit
        self._report = report
        self._metrics = metrics
        self._routes = replace(routes, works={"api/report": self._one_report, **routes.works})
        self._barrier = barrier
        self._guard = guard
        self._loop: Loop | None = None
        self._fronts: list[tuple[Front, socket.socket]] = []
        self._thread: threading.Thread | None = None
        self._streams: dict[EventStream, Query] = {}
        self._under_way: set[Query] = set()
        """Queries whose picture the application's loop was asked for."""
        self._regular: list[tuple[float, Callable[[], object]]] = []
        self._asked: deque[float] = deque(maxlen=ASKS_PER_S)
        self._textfile: TextFile | None = None
        if config.textfile is not None:
            self._textfile = TextFile(config.textfile, lambda: metrics(openmetrics=False))
            self.every(config.textfile_s, self._textfile.write)
        self.counts = ServerCounts()

    # -- life ----------------------------------------------------------------------------------------------------------

    def every(self, seconds: float, callback: Callable[[], object]) -> None:
        """Have something done regularly on the thread, from its start on."""
        self._regular.append((seconds, callback))

    def start(self, unix: socket.socket | None, tcp: socket.socket | None) -> None:
        """Answer on these listening, non-blocking sockets from now on, which the listener closes."""
        loop = self._loop = Loop(clock=self._clock)
        router = partial(router_of, self._routes, metrics=self._metrics, pending=self._pending, streams=self._streams)
        if unix is not None:
            self._listen(loop, unix, router(guard=None, hosts=None, files={}))
        if tcp is not None:
            address = host, _ = tcp.getsockname()[:2]
            asked, _ = address_of(self._config.listen)
            hosts = frozenset(
                {host, asked.lower(), "localhost", "127.0.0.1", "::1", *map(str.lower, self._config.hosts)}
            )
            log.info("observe: listening: url=%s", url_of(address))
            if self._guard is not None and self._guard.made:  # one that was named stays out of logs
                log.info(
                    "observe: put changes, windows and kept cases behind a token: link=%s token_file=%s: other callers "
                    "on this machine get figures and answers",
                    self._guard.link(address), self._guard.path or "none",
                )  # fmt: skip
            files = page_files() if self._config.page else {}
            self._listen(loop, tcp, router(guard=self._guard, hosts=hosts, files=files))
        loop.call_every(EVERY_S, self._tick)
        loop.each_iteration(Duty(self._clock).rest)
        for seconds, callback in self._regular:
            loop.call_soon(partial(self._barrier.call, callback))
            loop.call_every(seconds, partial(self._barrier.call, callback))
        self._thread = threading.Thread(target=self._run, args=(loop,), name="observe", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Cut all callers off, and remove the file of metrics. May be called twice."""
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is None or thread is None:
            return

        loop.stop()
        thread.join(_STOP_S)
        if not thread.is_alive():
            loop.close()
        if self._textfile is not None:
            self._textfile.remove()

    def _run(self, loop: Loop) -> None:
        sys.setswitchinterval(min(_SWITCH_S, sys.getswitchinterval()))
        loop.run()
        for front, listener in self._fronts:
            front.drain(listener)
            front.close()

    def _listen(self, loop: Loop, listener: socket.socket, router: HttpRouter) -> None:
        limits = FrontLimits(
            connections=self._config.max_clients,
            connections_per_address=None,
            received_bytes=_RECEIVED_BYTES,
            phases_s={
                Phase.HEAD: 10.0,
                Phase.BODY: 10.0,
                Phase.MODEL: 5.0,
                Phase.SEND: 10.0,
                Phase.STREAM: 30.0,
                Phase.IDLE: 60.0,
                Phase.LINGER: LINGER_S,
            },
        )
        front = Front(loop, router, None, limits, self.counts)
        front.listen(listener)
        self._fronts.append((front, listener))

    # -- work of the application's loop --------------------------------------------------------------------------------

    def _one_report(self, parameters: Mapping[str, str]) -> Work:
        query = query_of(parameters)
        return lambda: self._report.live(query)

    def _pending(self, work: Work) -> Pending:
        if not self._may_ask():
            raise Refused(503, f"more than {ASKS_PER_S} requests a second", retry=True)
        return OnLoop(partial(self._behind_barrier, work), self._submit, self._back, self._finish)

    def _may_ask(self) -> bool:
        now = self._clock.monotonic()
        if len(self._asked) == ASKS_PER_S and now - self._asked[0] < 1:
            return False
        self._asked.append(now)
        return True

    def _behind_barrier(self, work: Work) -> dict[str, Any]:
        try:
            return work()
        except (EdgeError, InputError):
            raise
        except Exception as error:  # noqa: BLE001 - the barrier counts it, the caller gets 500
            self._barrier.caught(error)
            raise Refused(500, "a defect of ours, which the application's log names; please report it") from None

    def _back(self, callback: Callable[[], None]) -> None:
        loop = self._loop
        if loop is not None:
            loop.call_soon_threadsafe(callback)

    def _finish(self, found: dict[str, Any]) -> dict[str, Any]:
        return self._report.complete(found) if "keys_found" in found else found

    # -- streams -------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        """Ask for one picture a query that a caller looks at; the next only when the last one is there."""
        for query in set(self._streams.values()) - self._under_way:
            self._under_way.add(query)
            self._submit(partial(self._picture, query))

    def _picture(self, query: Query) -> None:
        """Take a picture, on the application's loop."""
        found: list[dict[str, Any]] = []

        def take() -> None:
            with suppress(EdgeError):  # there is none now
                found.append(self._report.live(query))

        self._barrier.call(take)
        self._back(partial(self._spread, query, found))

    def _spread(self, query: Query, pictures: list[dict[str, Any]]) -> None:
        self._under_way.discard(query)
        for found in pictures:
            self._send(query, found)

    def _send(self, query: Query, found: dict[str, Any]) -> None:
        data = orjson.dumps(self._report.complete(found), option=orjson.OPT_NON_STR_KEYS, default=_plain)
        message = b"data: " + data + b"\n\n"
        for stream, wanted in list(self._streams.items()):
            if wanted == query:
                stream.put(message)


def _plain(value: object) -> object:
    """Give what JSON does not know as text."""
    return str(value)
