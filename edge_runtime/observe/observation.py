"""Observation: all that looks into one application, built, opened and closed together.

Nothing is computed for observers that are not there. A Unix socket is bound at the start, and watched by the
application's loop; the first connection starts the listener's thread, and the answers are kept from then on. With
`ObserveConfig.listen` both begin at once, so that a page has a past to show.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from edge_runtime._version import __version__
from edge_runtime.errors import ConfigError, EdgeError, InputError
from edge_runtime.hardware import this_device
from edge_runtime.hardware.readings import Board
from edge_runtime.observe.config import ObserveConfig
from edge_runtime.observe.exposition import Figures, render
from edge_runtime.observe.listener import Listener, listen_tcp, listen_unix
from edge_runtime.observe.live import Live
from edge_runtime.observe.page import page_files
from edge_runtime.observe.report import Report, drawn, process_figures, stats_of
from edge_runtime.observe.review import Review
from edge_runtime.observe.site import Routes, Work
from edge_runtime.observe.subject import Subject
from edge_runtime.observe.textfile import TextFile
from edge_runtime.server.site import Refused
from edge_runtime.sinks import Sink
from edge_runtime.system.barrier import Barrier

if TYPE_CHECKING:
    from edge_runtime.observe.otlp import Otlp

log = logging.getLogger(__name__)

_MAX_RESET: Final = 1000


class Observation:
    """Owner of all that looks into an application.

    Args:
        config: who may look, and where.
        subject: the application.
        socket_path: of the Unix socket; None binds none.
        attach: adds a sink to the pipeline.

    Raises:
        ConfigError: a package or a file that the configuration needs is missing.
    """

    def __init__(
        self, config: ObserveConfig, subject: Subject, socket_path: Path | None, attach: Callable[[Sink], None]
    ) -> None:
        self._config = config
        self._subject = subject
        self._path = socket_path
        self._attach = attach
        self._barrier = Barrier("observe", subject.metrics)
        self._unix: socket.socket | None = None
        self._listener: Listener | None = None
        self._live: Live | None = None
        self._report: Report | None = None
        self._textfile: TextFile | None = None
        self._began = subject.clock.monotonic()
        self._address = ("", 0)
        self._otlp = self._build_otlp()

    def open(self) -> None:
        """Bind what is to be listened on.

        Raises:
            ConfigError: an address cannot be listened on.
        """
        if self._path is not None:
            try:
                self._unix = listen_unix(self._path)
            except ConfigError as error:
                if self._config.socket is not None:
                    raise
                log.warning("%s; edge-runtime watch and status cannot reach this application", error)
        config = self._config
        if config.listen:
            tcp = listen_tcp(config.listen)
            self._start(tcp)
            self._address = tcp.getsockname()[:2]
            log.info("observe: listening: url=http://%s:%d/", *self._address)
        elif config.textfile is not None or config.stats_s:
            self._start(None)
        elif self._unix is not None:
            self._subject.loop.watch(self._unix.fileno(), self._first_caller)
        if self._otlp is not None:
            self._open_otlp(self._otlp)

    @property
    def address(self) -> tuple[str, int]:
        """Return the address of the metrics and the page, once it is open; port 0 where there is none."""
        return self._address

    def close(self) -> None:
        """End it all. May be called twice."""
        if self._otlp is not None:
            self._otlp.close()
        if self._listener is not None:
            self._listener.stop()
            if self._textfile is not None:
                self._textfile.remove()
        elif self._unix is not None:
            self._subject.loop.unwatch(self._unix.fileno())
            self._unix.close()
        if self._unix is not None and self._path is not None:
            self._path.unlink(missing_ok=True)
        self._listener = None
        self._unix = None

    def metrics(self, *, openmetrics: bool) -> bytes:
        """Render the metrics, from any thread."""
        return render(self._subject.metrics, openmetrics=openmetrics, **self.figures()._asdict())

    def figures(self) -> Figures:
        """Collect what exporters show besides the metrics, from any thread; it may wait for a disk."""
        subject = self._subject
        gauges = {f"process_{name}": value for name, value in process_figures().items()}
        counts = {"process_cpu_seconds_total": gauges.pop("process_cpu_s")}
        gauges["uptime_seconds"] = subject.clock.monotonic() - self._began
        if self._listener is not None:
            gauges["observers"] = self._listener.counts.connections
        outbox = subject.outbox()
        if outbox is not None:
            gauges |= {
                "outbox_queued": outbox["queued"],
                "outbox_dead": outbox["dead"],
                "outbox_used_bytes": outbox["used_bytes"],
                "outbox_oldest_seconds": outbox["oldest_age_s"],
            }
        info = {"version": __version__, "model": subject.manifest().model, "application": subject.name}
        return Figures(counts, gauges, info)

    # -- a collector ---------------------------------------------------------------------------------------------------

    def _build_otlp(self) -> Otlp | None:
        config, subject = self._config.otlp, self._subject
        if config is None:
            return None
        try:
            from edge_runtime.observe.otlp import Otlp  # noqa: PLC0415 - an extra
        except ModuleNotFoundError as error:
            raise ConfigError(f'[observe.otlp] needs {error.name}; run: pip install "edge-runtime[otlp]"') from error
        return Otlp(
            config,
            subject.name,
            metrics=subject.metrics,
            figures=self.figures,
            clock=subject.clock,
            barrier=self._barrier,
        )

    def _open_otlp(self, otlp: Otlp) -> None:
        if otlp.tracer is not None:
            self._attach(otlp.tracer)
            self._subject.tap(otlp.tracer.note)
        otlp.open()

    # -- the listener --------------------------------------------------------------------------------------------------

    def _first_caller(self) -> None:
        assert self._unix is not None
        self._subject.loop.unwatch(self._unix.fileno())
        self._barrier.call(lambda: self._start(None))

    def _start(self, tcp: socket.socket | None) -> None:
        subject = self._subject
        live = self._live = Live(subject.clock)
        self._attach(live)
        subject.tap(live.windows)
        report = self._report = Report(subject, live, None if subject.governor() is not None else self._board())
        self._listener = Listener(
            self._config,
            subject,
            report,
            metrics=self.metrics,
            routes=self._routes(Review(subject.cases)),
            files=page_files,
            barrier=self._barrier,
        )
        config = self._config
        if config.textfile is not None:
            self._textfile = TextFile(config.textfile, lambda: self.metrics(openmetrics=False))
            self._listener.every(config.textfile_s, self._textfile.write)
        if config.stats_s:
            self._listener.every(config.stats_s, self._publish_stats)
        self._listener.start(self._unix, tcp)

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
            found = None if self._report is None else self._report.key(key)
            if found is None:
                raise Refused(404, f"no key {key[:60]!r} has answered lately")
            return found

        return work

    def _explain(self, asked: Mapping[str, Any]) -> Work:
        key = str(asked.get("key", ""))

        def work() -> dict[str, Any]:
            assert self._live is not None
            window = self._live.look_at(key)
            if window is None:
                raise EdgeError(f"no window of key {key[:60]!r} is kept yet; ask again after its next answer")
            subject = self._subject
            return {"id": window.id, "window": drawn(window, subject.manifest()), **subject.explain(window)}

        return work

    def _reset(self, asked: Mapping[str, Any]) -> Work:
        keys = asked.get("keys")
        if not isinstance(keys, list) or len(keys) > _MAX_RESET or not all(isinstance(key, str) for key in keys):
            raise InputError("keys", f"keys must be a list of at most {_MAX_RESET} names")

        def work() -> dict[str, Any]:
            return {"done": self._subject.reset(keys)}

        return work


def observation_of(
    config: ObserveConfig | None, subject: Subject, socket_path: Path | None, attach: Callable[[Sink], None]
) -> Observation:
    """Build what looks into an application; see `Observation`. Without a table, there is the Unix socket alone."""
    return Observation(config or ObserveConfig(), subject, socket_path, attach)
