"""Downloader: gets the file of one announcement, over HTTP or joined from chunks, one at a time."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from edge_runtime.base.system.barrier import Barrier
from edge_runtime.base.system.secrets import ClientTls, SecretFile
from edge_runtime.clock import Clock
from edge_runtime.errors import UpdateRefused
from edge_runtime.io.mqtt.packets import Publish
from edge_runtime.operate.update import fetch
from edge_runtime.operate.update.announcement import Announcement
from edge_runtime.operate.update.chunks import Chunks
from edge_runtime.operate.update.config import UpdateConfig
from edge_runtime.operate.update.job import Jobs
from edge_runtime.operate.update.update_store import UpdateStore

if TYPE_CHECKING:
    from edge_runtime.io.mqtt.client import BrokerClient
    from edge_runtime.io.mqtt.routing import Subscription


@dataclass(slots=True)
class _Active:
    announced: Announcement
    done: Callable[[Announcement], None]
    failed: Callable[[Announcement, Exception], None]
    cancelled: threading.Event = field(default_factory=threading.Event)
    chunks: Chunks | None = None
    subscription: Subscription | None = None
    have: int = 0


class Downloader:
    """Downloads one file at a time into the update folder; the caller verifies and takes it.

    Args:
        config: hosts, credentials and time-out of the downloads.
        store: the update folder.
        refused: called with the error of a chunk that is none.
        clock: monotonic time for deadlines.

    Raises:
        ConfigError: a file that the configuration names is missing or unusable.
    """

    def __init__(
        self, config: UpdateConfig, store: UpdateStore, refused: Callable[[UpdateRefused, str], None], clock: Clock
    ) -> None:
        self._store = store
        self._refused = refused
        self._clock = clock
        self._server = fetch.ServerAccess(
            hosts=config.hosts,
            tls=functools.cache(lambda: ClientTls(config.ca_file, config.cert_file, config.key_file)),
            token=SecretFile(config.token_file, "update.token_file") if config.token_file else None,
            timeout_s=config.timeout_s,
        )
        if config.ca_file or config.cert_file:
            self._server.tls()  # a wrong file is an error at the start
        self._writing = threading.Lock()  # one that was cancelled may still wait for its server
        self._jobs: Jobs | None = None
        self._broker_client: BrokerClient | None = None
        self._barrier: Barrier | None = None
        self._active: _Active | None = None

    def open(self, jobs: Jobs, broker_client: BrokerClient | None, barrier: Barrier) -> None:
        """Be ready to begin."""
        self._jobs, self._broker_client, self._barrier = jobs, broker_client, barrier

    @property
    def announced(self) -> Announcement | None:
        """Announcement of the bundle that is being downloaded."""
        return self._active.announced if self._active is not None else None

    @property
    def progress(self) -> tuple[str, int, int] | None:
        """Name of the bundle that is being downloaded, its bytes so far, and its bytes in all."""
        if (active := self._active) is None:
            return None
        have = active.have if active.chunks is None else active.chunks.have
        return active.announced.model, have, active.announced.size

    def begin(
        self,
        announced: Announcement,
        done: Callable[[Announcement], None],
        failed: Callable[[Announcement, Exception], None],
    ) -> None:
        """Begin; one of the two is called on the loop in the end, unless `cancel` comes before.

        Args:
            announced: its file has the announced size and digest when `done` is called.
            done: the file is there.
            failed: `UpdateRefused`: it cannot be had. Others may pass.
        """
        assert self._jobs is not None
        self.cancel()
        active = self._active = _Active(announced, done, failed)
        part = self._store.part(announced.sha256)
        if announced.chunks:
            self._join(active, part)
            return

        def progress(have: int) -> None:
            active.have = have

        def work() -> None:
            with self._writing:
                fetch.fetch(announced.url, part, announced.size, self._server, self._clock, active.cancelled, progress)
                fetch.check(part, announced.size, announced.sha256)

        self._jobs.run(work, lambda _: self._finish(active, None), lambda error: self._finish(active, error))

    def cancel(self) -> None:
        """Give up what is under way; what is here of it stays."""
        if (active := self._active) is not None:
            self._active = None
            self._end(active)

    def _finish(self, active: _Active, error: Exception | None) -> None:
        if active is not self._active:
            return
        self._active = None
        self._end(active)
        if error is None:
            active.done(active.announced)
        else:
            active.failed(active.announced, error)

    def _end(self, active: _Active) -> None:
        active.cancelled.set()
        if active.subscription is not None and self._broker_client is not None:
            self._broker_client.unsubscribe(active.subscription)
        if active.chunks is not None:
            active.chunks.close()

    # -- chunks ------------------------------------------------------------------------------------------------------

    def _join(self, active: _Active, part: Path) -> None:
        if self._broker_client is None or self._barrier is None:
            self._finish(active, UpdateRefused("chunk", "chunks need update.broker"))
            return
        try:
            active.chunks = Chunks(active.announced, part)
        except OSError as error:
            self._finish(active, error)
            return
        # At every attempt: subscribing is what makes a broker send what it retains.
        active.subscription = self._broker_client.listen(
            [(active.announced.topic_filter, 1)],
            functools.partial(self._take_chunk, active),
            self._barrier,
            lambda: self._finish(active, UpdateRefused("unexpected", "a chunk made the update fail")),
        )

    def _take_chunk(self, active: _Active, publish: Publish) -> None:
        if active is not self._active or active.chunks is None or not publish[1]:
            return  # of an earlier bundle, or taken back
        try:
            whole = active.chunks.add(publish[0], publish[1])
        except UpdateRefused as error:
            self._refused(error, active.announced.model)
            return
        except OSError as error:
            self._finish(active, error)
            return
        if whole:
            self._check(active)

    def _check(self, active: _Active) -> None:
        assert self._jobs is not None
        assert active.chunks is not None
        active.chunks.close()
        wanted = active.announced
        part = self._store.part(wanted.sha256)
        self._jobs.run(
            lambda: fetch.check(part, wanted.size, wanted.sha256),
            lambda _: self._finish(active, None),
            lambda error: self._finish(active, error),
        )
