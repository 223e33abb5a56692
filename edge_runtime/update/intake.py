"""From an announcement, or a dropped file, to a file that is here in full and may be looked into.

One at a time, the newest announcement first. What fails for reasons that may pass (network, a full disk) is tried again
with back-off, from where it got to; what is refused is not, until something else is announced.
"""

from __future__ import annotations

import functools
import logging
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from edge_runtime.backoff import Retry
from edge_runtime.clock import Clock
from edge_runtime.credentials import ClientTls, SecretFile
from edge_runtime.errors import UpdateRefused
from edge_runtime.loop import Loop, Timer
from edge_runtime.manifest import Manifest
from edge_runtime.metrics import Metrics
from edge_runtime.mqtt.link import Link
from edge_runtime.mqtt.packets import Publish
from edge_runtime.mqtt.session import Done
from edge_runtime.update import announcement, check, fetch, inbox
from edge_runtime.update.announcement import Announcement, in_canary
from edge_runtime.update.chunks import Chunks
from edge_runtime.update.config import UpdateConfig
from edge_runtime.update.depot import Depot
from edge_runtime.update.job import Jobs

log = logging.getLogger(__name__)

RETRY = Retry(base_s=2.0, cap_s=300.0)
_LOOK_AGAIN_S = 600.0
"""How often a date to come is looked at: the clock may jump."""


@dataclass(slots=True)
class Arrived:
    """A file in `incoming`, of the right size and digest where these were announced."""

    sha256: str
    announced: Announcement | None = None
    dropped: Path | None = None
    """What it was copied from: to be removed, or set aside."""

    @property
    def what(self) -> str:
        """For people."""
        if self.announced is not None:
            return self.announced.model
        return self.dropped.name if self.dropped is not None else self.sha256[:12]


class Receiver(Protocol):
    """Who decides about bundles: `edge_runtime.update.updates.Updates`."""

    @property
    def busy(self) -> bool:
        """A bundle is being checked or tried; the next one has to wait."""
        ...

    @property
    def running(self) -> Manifest:
        """Of the bundle that an update would replace."""
        ...

    def arrived(self, file: Arrived) -> None:
        """A file is here."""
        ...

    def refused(self, error: UpdateRefused, what: str) -> None:
        """Count and tell."""
        ...

    def tell(self) -> None:
        """Something changed that the status shows."""
        ...


@dataclass(slots=True)
class _Fetch:
    announced: Announcement
    cancelled: threading.Event = field(default_factory=threading.Event)
    chunks: Chunks | None = None
    have: int = 0


class Intake:
    """Watches for news and gets what they are about.

    Args:
        config: where from.
        depot: where to.
        receiver: told what has arrived.
        metrics: counts chunks that are none.
        clock: for back-off and dates.

    Raises:
        ConfigError: a file that the configuration names is missing or unusable.
    """

    def __init__(self, config: UpdateConfig, depot: Depot, receiver: Receiver, metrics: Metrics, clock: Clock) -> None:
        self._config = config
        self._depot = depot
        self._receiver = receiver
        self._metrics = metrics
        self._clock = clock
        self._server = fetch.Server(
            hosts=config.hosts,
            tls=functools.cache(lambda: ClientTls(config.ca_file, config.cert_file, config.key_file)),
            token=SecretFile(config.token_file, "update.token_file") if config.token_file else None,
            timeout_s=config.timeout_s,
        )
        if config.ca_file or config.cert_file:
            self._server.tls()  # a wrong file is said at the start
        folders = [depot.requests] + ([config.drop] if config.drop is not None else [])
        self._folders = [inbox.DropFolder(folder) for folder in folders]
        self._rng = random.Random()  # noqa: S311 - jitter
        self._loop: Loop | None = None
        self._jobs: Jobs | None = None
        self._link: Link | None = None
        self._taking = False
        self._latest: Announcement | None = None
        self._given_up: Announcement | None = None
        self._fetch: _Fetch | None = None
        self._failures = 0
        self._timer: Timer | None = None
        self.note = ""
        """Why nothing is being fetched although something is announced; for people."""

    @property
    def progress(self) -> tuple[str, int, int] | None:
        """What is being fetched, bytes that are here, and bytes in all."""
        if self._fetch is None:
            return None
        have = self._fetch.have if self._fetch.chunks is None else self._fetch.chunks.have
        return self._fetch.announced.model, have, self._fetch.announced.size

    def open(self, loop: Loop, jobs: Jobs, link: Link | None) -> None:
        """Begin to listen; before the sources, whose topics may overlap."""
        self._loop, self._jobs, self._link = loop, jobs, link
        if link is not None and self._config.topic:
            link.subscribe([(self._config.topic, 1)], self._receive)

    def close(self) -> None:
        """Give up what is under way; what is here of it stays."""
        self._stop_fetching()
        self._cancel_timer()

    # -- announcements -----------------------------------------------------------------------------------------------

    def _receive(self, publishes: list[Publish], _received: float, done: Done | None) -> None:
        for publish in publishes:
            self.announced(publish[1])
        if done is not None:
            done()

    def announced(self, payload: bytes) -> None:
        """A message on the topic; an empty one takes the announcement back."""
        self._latest, self._given_up, self._failures = None, None, 0
        if payload:
            try:
                self._latest = announcement.parse(payload)
            except UpdateRefused as error:
                self._receiver.refused(error, "announcement")
        self.consider()

    def again(self) -> None:
        """Take up what was given up: an operator wants another try."""
        self._given_up, self._failures = None, 0
        self.consider()

    def consider(self) -> None:
        """Look at the latest announcement again: something that it depends on may have changed."""
        self._cancel_timer()
        latest = self._latest
        if self._fetch is not None:
            if self._fetch.announced == latest:
                return
            self._stop_fetching()
        self.note = ""
        if latest is None or latest == self._given_up:
            return
        try:
            wanted = self._wanted(latest)
        except UpdateRefused as error:
            self._given_up = latest
            self._receiver.refused(error, latest.model)
            return
        if wanted and not self._receiver.busy:
            self._begin(latest)
        self._receiver.tell()

    def _wanted(self, latest: Announcement) -> bool:
        config = self._config
        if not check.admit(self._depot.state, self._receiver.running, latest.name, latest.version, latest.sha256):
            return False
        if latest.size > config.max_bytes:
            raise UpdateRefused("too_large", f"it has {latest.size} bytes, more than update.max_bytes "
                                f"({config.max_bytes})")  # fmt: skip
        if not in_canary(config.identity, latest.model, latest.canary):
            self.note = f"{latest.model} is for a share of {latest.canary:g} of the devices, this one not among them"
        elif (wait := latest.due() - self._clock.wall()) > 0:
            self.note = f"{latest.model} is not before {latest.not_before}"
            self._again(min(wait, _LOOK_AGAIN_S))
        elif self._depot.state.on_hold:
            self.note = f"{latest.model} waits: an operator put updates on hold"
        else:
            return True
        return False

    # -- fetching ----------------------------------------------------------------------------------------------------

    def _begin(self, latest: Announcement) -> None:
        assert self._jobs is not None
        self._depot.forget_parts(keep=latest.sha256)
        current = self._fetch = _Fetch(latest)
        part = self._depot.part(latest.sha256)
        log.info("update: fetching %s, %d bytes", latest.model, latest.size)
        if latest.chunks:
            self._join(current, part)
            return

        def work() -> None:
            fetch.fetch(
                latest.url, part, latest.size, self._server, self._clock, current.cancelled, self._progress(current)
            )
            fetch.check(part, latest.size, latest.sha256)

        self._jobs.run(work, lambda _: self._fetched(current), lambda error: self._failed(current, error))

    @staticmethod
    def _progress(current: _Fetch) -> Callable[[int], None]:
        def set_have(have: int) -> None:
            current.have = have

        return set_have

    def _join(self, current: _Fetch, part: Path) -> None:
        if self._link is None:
            self._failed(current, UpdateRefused("chunk", "chunks need update.broker"))
            return
        try:
            current.chunks = Chunks(current.announced, part)
        except OSError as error:
            self._failed(current, error)
            return
        # At every attempt: subscribing is what makes a broker send what it retains.
        self._link.subscribe([(current.chunks.topic_filter, 1)], self._receive_chunks)

    def _receive_chunks(self, publishes: list[Publish], _received: float, done: Done | None) -> None:
        for publish in publishes:
            self._take_chunk(publish[0], publish[1])
        if done is not None:
            done()

    def _take_chunk(self, topic: bytes, payload: bytes) -> None:
        current = self._fetch
        if current is None or current.chunks is None or not payload:
            return  # of an earlier bundle, or taken back
        try:
            whole = current.chunks.take(topic, payload)
        except UpdateRefused as error:
            self._receiver.refused(error, current.announced.model)
            return
        except OSError as error:
            self._failed(current, error)
            return
        if whole:
            assert self._jobs is not None
            wanted = current.announced
            current.chunks.close()
            part = self._depot.part(wanted.sha256)
            self._jobs.run(
                lambda: fetch.check(part, wanted.size, wanted.sha256),
                lambda _: self._fetched(current),
                lambda error: self._failed(current, error),
            )

    def _fetched(self, current: _Fetch) -> None:
        if current is not self._fetch:
            return
        self._fetch = None
        self._failures = 0
        self._receiver.arrived(Arrived(current.announced.sha256, announced=current.announced))

    def _failed(self, current: _Fetch, error: Exception) -> None:
        if current is not self._fetch:
            return
        self._stop_fetching()
        if isinstance(error, UpdateRefused):
            self._given_up = current.announced
            self._receiver.refused(error, current.announced.model)
            return
        self._failures += 1
        self.note = f"{current.announced.model}: {error}; trying again"
        log.warning("update: %s", self.note)
        self._metrics.counts["update_fetch_failures_total"] += 1
        self._again(RETRY.delay(self._failures, None, self._rng))
        self._receiver.tell()

    def later(self, file: Arrived, error: Exception) -> None:
        """What arrived could not be dealt with for a reason that may pass. A dropped file is still where it was."""
        self._failures += 1
        self._metrics.counts["update_fetch_failures_total"] += 1
        self.note = f"{file.what}: {error}; trying again"
        log.error("update: %s", self.note)
        self._again(RETRY.delay(self._failures, None, self._rng))
        self._receiver.tell()

    def _stop_fetching(self) -> None:
        if self._fetch is not None:
            self._fetch.cancelled.set()
            if self._fetch.chunks is not None:
                self._fetch.chunks.close()
            self._fetch = None

    def _again(self, seconds: float) -> None:
        self._cancel_timer()
        if self._loop is not None:
            self._timer = self._loop.call_later(seconds, self.consider)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- dropped files -----------------------------------------------------------------------------------------------

    def look(self) -> None:
        """See whether a bundle was dropped."""
        if self._taking or self._receiver.busy or self._fetch is not None or self._depot.state.on_hold:
            return
        for folder in self._folders:
            path = folder.look()
            if path is not None:
                self._take(path)
                return

    def _take(self, path: Path) -> None:
        assert self._jobs is not None
        self._taking = True

        def taken(sha256: str) -> None:
            self._taking = False
            self._receiver.arrived(Arrived(sha256, dropped=path))

        def failed(error: Exception) -> None:
            self._taking = False
            refusal = error if isinstance(error, UpdateRefused) else UpdateRefused("unreadable", str(error))
            inbox.set_aside(path)
            self._receiver.refused(refusal, path.name)

        self._jobs.run(
            lambda: inbox.copy_in(path, self._depot, self._config.max_bytes),
            taken,
            failed,
        )
