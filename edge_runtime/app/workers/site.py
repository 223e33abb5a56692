"""Site of all workers: one page, one address of metrics, one socket for ``watch`` and ``status``, asked of each worker.

The parent asks over the workers' own sockets, on a thread of its own: one that hangs holds up who looks, and neither
the parent nor the other workers. A worker that does not answer is left out of the picture.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

from edge_runtime.app.workers.child import Child
from edge_runtime.app.workers.picture import merged
from edge_runtime.app.workers.share import part_of
from edge_runtime.app.workers.status import facts_of
from edge_runtime.app.workers.sums import Sums
from edge_runtime.base.system.barrier import Barrier
from edge_runtime.clock import Clock
from edge_runtime.errors import ConfigError, EdgeError
from edge_runtime.metrics import Metrics
from edge_runtime.operate.observe.access import guard_of
from edge_runtime.operate.observe.asking import Asker
from edge_runtime.operate.observe.config import ObserveConfig
from edge_runtime.operate.observe.exposition import PREFIX, Family
from edge_runtime.operate.observe.listener import Listener
from edge_runtime.operate.observe.report import Query
from edge_runtime.operate.observe.routes import Routes, Work, keys_of
from edge_runtime.operate.observe.sockets import listen_tcp, listen_unix
from edge_runtime.operate.serving.answers import Refused

log = logging.getLogger(__name__)

_ANSWER_S: Final = 2.0
"""Longest time for which a worker is waited for."""


class WorkersSite:
    """Listener of all workers: page, metrics and socket. Loaded where a socket, an address or a file is configured.

    Args:
        config: settings of the listener: who may look, and where.
        path: path of the Unix socket; None binds none.
        children: the workers.
        restarts: restarts of each worker, by its number.
        clock: wall and monotonic time.
        metrics: the parent's metrics.
        name: the application's name.

    Raises:
        ConfigError: an address cannot be listened on, or a token file not be read.
    """

    def __init__(
        self,
        config: ObserveConfig,
        path: Path | None,
        children: Sequence[Child],
        restarts: Mapping[int, int],
        *,
        clock: Clock,
        metrics: Metrics,
        name: str,
    ) -> None:
        self._children = children
        self._restarts = restarts
        self._path = path
        self._name = name
        self._askers = {child.worker: Asker(child.socket_path, clock, _ANSWER_S) for child in children}
        self._sums = Sums()
        self._pool = ThreadPoolExecutor(1, "workers: ask")
        self._met: set[int] = set()
        self._keeps_a_past = bool(config.listen)
        self._unix: socket.socket | None = None
        barrier = Barrier("observe", metrics)
        self._listener = Listener(
            config,
            clock,
            self._submit,
            self,
            metrics=self.metrics,
            routes=Routes(
                works={"api/key": self._key},
                posts={"api/explain": self._explain, "api/reset": self._reset},
                reads={},
                changes={},
            ),
            guard=guard_of(config, path),
            barrier=barrier,
        )
        tcp = listen_tcp(config.listen) if config.listen else None
        self._unix = self._bind(path, named=config.socket is not None)
        self._listener.start(self._unix, tcp)

    def changed(self) -> None:
        """Have workers that are ready keep their last answers, where there is a page: a first question begins that."""
        for child in self._children:
            if self._keeps_a_past and child.ready and child.pid is not None and child.pid not in self._met:
                self._met.add(child.pid)
                self._submit(partial(self._meet, self._askers[child.worker]))

    def _meet(self, asker: Asker) -> None:
        with suppress(EdgeError):
            asker.metrics()

    def close(self) -> None:
        """Cut all callers off."""
        self._listener.stop()
        self._pool.shutdown(wait=False, cancel_futures=True)
        if self._unix is not None and self._path is not None:
            self._path.unlink(missing_ok=True)

    # -- pictures ------------------------------------------------------------------------------------------------------

    def live(self, query: Query) -> dict[str, Any]:
        """Take a picture of all workers that answer (see `edge_runtime.operate.observe.listener.Pictures`).

        Raises:
            Refused: none does.
        """
        reports = []
        for child in self._children:
            try:
                reports.append(self._askers[child.worker].report(query.keys, query.filter))
            except EdgeError as error:
                log.debug("workers: worker %d gave no picture: %s", child.worker, error)
        if not reports:
            raise Refused(503, "no worker answers: they start, or the log says why they do not", retry=True)
        pids = {str(child.worker): child.pid for child in self._children}
        workers = facts_of(self._children, self._restarts) | {"pids": pids}
        about = {"name": self._name, "workers": workers, "cases": False}
        return merged(reports, query, about)

    def complete(self, found: dict[str, Any]) -> dict[str, Any]:
        """Return it as it is: each worker has completed its own."""
        return found

    def metrics(self, *, openmetrics: bool) -> bytes:
        """Render the metrics of all workers, on the listener's thread."""
        pages = {}
        for child in self._children:
            if (pid := child.pid) is not None and child.ready:
                try:
                    pages[child.worker] = pid, self._askers[child.worker].metrics()
                except EdgeError as error:
                    log.debug("workers: worker %d gave no metrics: %s", child.worker, error)
        up = {f'{PREFIX}worker_up{{worker="{one.worker}"}}': float(one.ready) for one in self._children}
        ended = {
            f'{PREFIX}worker_restarts_total{{worker="{one.worker}"}}': float(self._restarts.get(one.worker, 0))
            for one in self._children
        }
        own = {
            f"{PREFIX}workers": Family("gauge", {f"{PREFIX}workers": float(len(self._children))}),
            f"{PREFIX}worker_up": Family("gauge", up),
            f"{PREFIX}worker_restarts_total": Family("counter", ended),
        }
        return self._sums.page(pages, own, openmetrics=openmetrics)

    # -- what can be asked ---------------------------------------------------------------------------------------------

    def _key(self, parameters: Mapping[str, str]) -> Work:
        key = parameters.get("key", "")
        return (lambda: self._owner(key).key(key)) if key else dict  # as of one application

    def _explain(self, asked: Mapping[str, Any]) -> Work:
        key = str(asked.get("key", ""))
        return lambda: self._owner(key).explain(key)

    def _reset(self, asked: Mapping[str, Any]) -> Work:
        keys = keys_of(asked)

        def work() -> dict[str, Any]:
            return {"done": sum(self._owner(key).ask("/api/reset", {"keys": [key]})["done"] for key in keys)}

        return work

    def _owner(self, key: str) -> Asker:
        return self._askers[1 + part_of(key, len(self._children), b"key/worker")]

    def _submit(self, callback: Callable[[], None]) -> None:
        self._pool.submit(callback)

    def _bind(self, path: Path | None, *, named: bool) -> socket.socket | None:
        """Listen on the application's socket; one that was not named may be missing."""
        if path is None:
            return None
        try:
            return listen_unix(path)
        except ConfigError as error:
            if named:
                raise
            log.warning("%s; edge-runtime watch and status cannot reach this application", error)
            return None
