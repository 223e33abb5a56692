"""Observation: all that looks into one application, built, opened and closed together.

Nothing is computed for observers that are not there. A Unix socket is bound at the start, and watched by the
application's loop; the first connection starts the listener's thread, and the answers are kept from then on. With
`ObserveConfig.listen` both begin at once, so that a page has a past to show.
"""

from __future__ import annotations

import logging
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from edge_runtime._version import __version__
from edge_runtime.base.system.barrier import Barrier
from edge_runtime.errors import ConfigError
from edge_runtime.io.sinks import Sink
from edge_runtime.operate.observe.access import Guard, guard_of
from edge_runtime.operate.observe.config import ObserveConfig
from edge_runtime.operate.observe.exposition import Figures, render
from edge_runtime.operate.observe.process import process_figures
from edge_runtime.operate.observe.sockets import listen_tcp, listen_unix
from edge_runtime.operate.observe.subject import Subject
from edge_runtime.schema import Packaged

if TYPE_CHECKING:
    from edge_runtime.operate.observe.inspection import Inspection

log = logging.getLogger(__name__)


_OTLP: Final = Packaged("edge_devices.integrations.otlp:Otlp", 'pip install "edge-runtime[otlp]" edge-devices')


class Exporter(Protocol):
    """Sender of metrics and traces to a collector, of another package."""

    tracer: Any
    """Sink that notes the times of traced windows, with `note` for the pipeline's tap; None where nothing is traced."""

    def open(self) -> None:
        """Begin to send."""
        ...

    def close(self) -> None:
        """Send what waits, and end. May be called twice."""
        ...


class Observation:
    """Owner of all that looks into an application.

    Args:
        config: settings of who may look, and where.
        subject: the application.
        socket_path: the Unix socket's path; None binds none.
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
        self._inspection: Inspection | None = None
        self._began = subject.clock.monotonic()
        self._address = ("", 0)
        self._guard: Guard | None = None
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
            self._address = tcp.getsockname()[:2]
            self._guard = guard_of(config, self._path)
            self._start(tcp)
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

    @property
    def link(self) -> str:
        """Return the page's link with the token; empty where there is none."""
        return "" if self._guard is None else self._guard.link(self._address)

    def close(self) -> None:
        """End it all. May be called twice."""
        if self._otlp is not None:
            self._otlp.close()
        if self._inspection is not None:
            self._inspection.stop()
        elif self._unix is not None:
            self._subject.loop.unwatch(self._unix.fileno())
            self._unix.close()
        if self._unix is not None and self._path is not None:
            self._path.unlink(missing_ok=True)
        self._inspection = None
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
        if self._inspection is not None:
            gauges["observers"] = self._inspection.connections
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

    def _build_otlp(self) -> Exporter | None:
        config, subject = self._config.otlp, self._subject
        if config is None:
            return None
        try:
            made: Any = _OTLP.load()
        except ValueError as error:
            raise ConfigError(f"[observe.otlp] {error}") from error
        exporter: Exporter = made(
            config,
            metrics=subject.metrics,
            figures=self.figures,
            clock=subject.clock,
            barrier=self._barrier,
        )
        return exporter

    def _open_otlp(self, otlp: Exporter) -> None:
        if otlp.tracer is not None:
            self._attach(otlp.tracer)
            self._subject.tap(otlp.tracer.note)
        otlp.open()

    # -- the listener --------------------------------------------------------------------------------------------------

    def _first_caller(self) -> None:
        assert self._unix is not None
        self._subject.loop.unwatch(self._unix.fileno())
        threading.Thread(target=self._load, name="observe: load", daemon=True).start()

    def _load(self) -> None:
        """Load what answers, off the application's loop, then start it there."""
        import edge_runtime.operate.observe.inspection  # noqa: PLC0415, F401 - found loaded by `_start`

        self._subject.loop.call_soon_threadsafe(lambda: self._barrier.call(self._start_for_first))

    def _start_for_first(self) -> None:
        if self._unix is not None and self._inspection is None:  # not closed meanwhile
            self._start(None)

    def _start(self, tcp: socket.socket | None) -> None:
        from edge_runtime.operate.observe.inspection import Inspection  # noqa: PLC0415 - with the first caller

        self._inspection = Inspection(
            self._config,
            self._subject,
            metrics=self.metrics,
            barrier=self._barrier,
            attach=self._attach,
            unix=self._unix,
            tcp=tcp,
            guard=self._guard,
        )
