"""Inspection: what answers those who look into an application, once there is one.

Loaded with the first caller, or at the start where an address, a file or a topic is configured: it costs 50 ms of CPU
and 4 MB, which an application that is never looked into does not pay.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any

import orjson

from edge_runtime.base.hardware import this_device
from edge_runtime.base.hardware.readings import Board
from edge_runtime.base.system.barrier import Barrier
from edge_runtime.errors import EdgeError
from edge_runtime.io.sinks import Sink
from edge_runtime.operate.observe.access import Guard
from edge_runtime.operate.observe.config import ObserveConfig
from edge_runtime.operate.observe.listener import Listener
from edge_runtime.operate.observe.live import Live
from edge_runtime.operate.observe.report import Report, drawn, stats_of
from edge_runtime.operate.observe.review import Review
from edge_runtime.operate.observe.routes import Routes, Work, keys_of
from edge_runtime.operate.observe.subject import Subject
from edge_runtime.operate.serving.answers import Refused, RenderMetrics


class Inspection:
    """Keeps the last answers, and answers on the sockets given.

    Args:
        config: settings of who may look, and of what is written besides.
        subject: the application.
        metrics: renders the metrics.
        barrier: what goes wrong for an observer is its to count.
        attach: adds a sink to the pipeline.
        unix: listening sockets, non-blocking, which this closes; None where there is none.
        tcp: the same.
        guard: decides who may ask over `tcp`.
    """

    def __init__(
        self,
        config: ObserveConfig,
        subject: Subject,
        *,
        metrics: RenderMetrics,
        barrier: Barrier,
        attach: Callable[[Sink], None],
        unix: socket.socket | None,
        tcp: socket.socket | None,
        guard: Guard | None,
    ) -> None:
        self._subject = subject
        self._barrier = barrier
        self._live = Live(subject.clock)
        attach(self._live)
        subject.tap(self._live.windows)
        self._report = Report(subject, self._live, None if subject.governor() is not None else self._board())
        self._listener = Listener(
            config,
            subject.clock,
            subject.loop.call_soon_threadsafe,
            self._report,
            metrics=metrics,
            routes=self._routes(Review(subject.cases, subject.fold_outbox)),
            guard=guard,
            barrier=barrier,
        )
        if config.stats_s:
            self._listener.every(config.stats_s, self._publish_stats)
        self._listener.start(unix, tcp)

    @property
    def connections(self) -> int:
        """Return how many callers are connected."""
        return self._listener.counts.connections

    def stop(self) -> None:
        """Cut all callers off, and remove the file of metrics."""
        self._listener.stop()

    def _routes(self, review: Review) -> Routes:
        return Routes(
            works={"api/key": self._key},
            posts={"api/explain": self._explain, "api/reset": self._reset},
            reads={"api/cases": review.listed, "api/cases/one": review.one, "api/cases/export": review.exported},
            changes={"api/cases/label": review.label, "api/cases/erase": review.erase},
        )

    def _publish_stats(self) -> None:
        """Publish the figures without keys and answers, which have topics of their own."""
        document = orjson.dumps(stats_of(self._subject))
        self._subject.loop.call_soon_threadsafe(
            lambda: self._barrier.call(lambda: self._subject.publish_stats(document))
        )

    def _board(self) -> Board | None:
        board = Board(this_device(), self._subject.clock)
        return board if board.has_sensors else None

    # -- what can be asked ---------------------------------------------------------------------------------------------

    def _key(self, parameters: Mapping[str, str]) -> Work:
        key = parameters.get("key", "")

        def work() -> dict[str, Any]:
            found = self._report.key(key) if key else {}  # the page asks for none, to learn whether it may ask
            if found is None:
                raise Refused(404, f"no key {key[:60]!r} has answered lately")
            return found

        return work

    def _explain(self, asked: Mapping[str, Any]) -> Work:
        key = str(asked.get("key", ""))

        def work() -> dict[str, Any]:
            window = self._live.look_at(key)
            if window is None:
                raise EdgeError(f"no window of key {key[:60]!r} is kept yet; ask again after its next answer")
            subject = self._subject
            return {"id": window.id, "window": drawn(window, subject.manifest()), **subject.explain(window)}

        return work

    def _reset(self, asked: Mapping[str, Any]) -> Work:
        keys = keys_of(asked)

        def work() -> dict[str, Any]:
            return {"done": self._subject.reset(keys)}

        return work
