"""Acquisition of updates: announcements and dropped files, until a file is here in full and may be looked into.

One at a time, the newest announcement first; what a person drops comes before anything from the network. What fails for
reasons that may pass (network, a full disk) is tried again with back-off, from where it got to; what is refused is not,
until something else is announced.
"""

from __future__ import annotations

import logging
import random
from collections import deque
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from edge_runtime.base.system.barrier import Barrier, Scheduler
from edge_runtime.base.system.iso8601 import parse_time
from edge_runtime.base.system.loop import Timer
from edge_runtime.base.system.retry import Retry
from edge_runtime.errors import UpdateRefused
from edge_runtime.io.mqtt.packets import Publish
from edge_runtime.manifest import Manifest
from edge_runtime.metrics import Metrics
from edge_runtime.model.bundle.signature import TrustedKey
from edge_runtime.operate.update import announcement, check, freshness, inbox
from edge_runtime.operate.update.announcement import Announcement, in_canary
from edge_runtime.operate.update.config import UpdateConfig
from edge_runtime.operate.update.download import Downloader
from edge_runtime.operate.update.freshness import FloorClock
from edge_runtime.operate.update.job import JobQueue, Jobs
from edge_runtime.operate.update.update_store import UpdateStore

if TYPE_CHECKING:
    from edge_runtime.io.mqtt.client import BrokerClient

log = logging.getLogger(__name__)

RETRY = Retry(base_s=2.0, cap_s=300.0)
_LOOK_AGAIN_S = 600.0
"""How often a date to come is looked at: the clock may jump."""
_SAVE_AGAIN_S = 30.0
"""After a floor could not be written: without it an announcement is not followed."""
_STRANGERS = 8
"""Announcements that no trusted key has signed, and that are looked at again when the keys change."""


@dataclass(slots=True)
class Arrived:
    """A file in `incoming`, of the right size and digest where these were announced."""

    sha256: str
    announced: Announcement | None = None
    dropped: Path | None = None
    """Origin of the copy: to be removed, or set aside."""

    asked: bool = False
    """An operator wants it started; with ``start = "asked"``, an announced one waits for that."""

    @property
    def what(self) -> str:
        """For people."""
        if self.announced is not None:
            return self.announced.model
        return self.dropped.name if self.dropped is not None else self.sha256[:12]


class Receiver(Protocol):
    """Receiver of bundles, which decides about them: `edge_runtime.operate.update.updates.Updates`."""

    @property
    def busy(self) -> bool:
        """A bundle is being checked or tried; the next one has to wait."""
        ...

    @property
    def keys(self) -> tuple[TrustedKey, ...]:
        """Any of these may have signed an announcement."""
        ...

    @property
    def running(self) -> Manifest:
        """Of the bundle that an update would replace."""
        ...

    def arrived(self, file: Arrived) -> None:
        """Take a file that is here."""
        ...

    def refused(self, error: UpdateRefused, what: str, *, flood: bool = False) -> None:
        """Count and log; with `flood`, log each reason once in a while."""
        ...

    def publish_status(self) -> None:
        """Publish the status, since something that it shows has changed."""
        ...


class Acquisition:
    """Watches for news and gets what they are about.

    Args:
        config: places that bundles come from.
        store: the update folder.
        receiver: takes what has arrived.
        metrics: counts.
        clock: time for back-off and dates.

    Raises:
        ConfigError: a file that the configuration names is missing or unusable.
    """

    def __init__(
        self, config: UpdateConfig, store: UpdateStore, receiver: Receiver, metrics: Metrics, clock: FloorClock
    ) -> None:
        self._config = config
        self._store = store
        self._receiver = receiver
        self._metrics = metrics
        self._clock = clock
        self._downloader = Downloader(
            config, store, lambda error, what: receiver.refused(error, what, flood=True), clock
        )
        folders = [store.requests] + ([config.drop] if config.drop is not None else [])
        self._folders = [inbox.DropFolder(folder) for folder in folders]
        self._rng = random.Random()  # noqa: S311 - jitter
        self._loop: Scheduler | None = None
        self._jobs: Jobs | None = None
        self._line: JobQueue | None = None
        self._taking = False
        self._latest: Announcement | None = None
        self._message = b""
        """What `_latest` was read from."""
        self._strangers: deque[bytes] = deque(maxlen=_STRANGERS)
        self._given_up: Announcement | None = None
        self._failures = 0
        self._timer: Timer | None = None
        self.ready: Arrived | None = None
        """Announced, verified, and waiting to be asked for; another announcement puts an end to that."""
        self.note = ""
        """Why nothing is being fetched although something is announced; for people."""

    @property
    def progress(self) -> tuple[str, int, int] | None:
        """Return the name of the bundle that is being fetched, its bytes so far, and its bytes in all."""
        return self._downloader.progress

    def open(
        self, loop: Scheduler, jobs: Jobs, line: JobQueue, broker_client: BrokerClient | None, barrier: Barrier
    ) -> None:
        """Begin to listen; before the sources, whose topics may overlap.

        Args:
            loop: scheduler whose callbacks run behind `barrier`.
            jobs: threads for what takes long.
            line: queue of messages that have to be verified.
            broker_client: client of the announcements' broker, if there is one.
            barrier: the side channel's barrier.
        """
        self._loop, self._jobs, self._line = loop, jobs, line
        self._downloader.open(jobs, broker_client, barrier)
        if broker_client is not None and self._config.topic:
            broker_client.leave(self._store.state.filters)  # which a crash may have left in the session
            broker_client.listen([(self._config.topic, 1)], self._receive, barrier)

    def close(self) -> None:
        """Give up what is under way; what is here of it stays."""
        self._downloader.cancel()
        self._cancel_timer()

    # -- announcements -----------------------------------------------------------------------------------------------

    def _receive(self, publish: Publish) -> None:
        if publish[1]:
            self.submit(publish[1])
        else:  # anybody who may publish can send an empty message, so it withdraws nothing
            self._metrics.dropped["update_announcement_empty"] += 1
            log.info("update: ignored an empty announcement; to stop a rollout, announce a canary share of 0")

    def submit(self, message: bytes) -> None:
        """Verify an announcement, raise the floors on disk, and only then follow it."""
        assert self._line is not None

        def work() -> Announcement:
            signed = announcement.parse(message, self._receiver.keys)
            self._store.change(lambda now: freshness.admitted(now, signed, self._clock.wall()))
            return signed.announcement

        self._line.run(
            work, lambda latest: self._announced(latest, message), lambda error: self._unannounced(error, message)
        )

    def _announced(self, latest: Announcement, message: bytes) -> None:
        if latest != self._latest:
            self._latest, self._message, self.ready = latest, message, None
            self._given_up, self._failures = None, 0
        self.consider()

    def _unannounced(self, error: Exception, message: bytes) -> None:
        if isinstance(error, UpdateRefused):
            if error.reason == "announcement_signature" and message not in self._strangers:
                self._strangers.append(message)
            self._receiver.refused(error, "announcement", flood=True)
            return
        self.note = f"an announcement waits: {error}"
        log.error("update: could not record an announcement, trying again: error=%s", error)
        if self._loop is not None:
            self._loop.call_later(_SAVE_AGAIN_S, lambda: self.submit(message))
        self._receiver.publish_status()

    def keys_changed(self) -> None:
        """Verify again what was followed and what no key had signed: other keys count now."""
        messages = [*self._strangers, *([self._message] if self._latest is not None else [])]
        self._strangers.clear()
        self._latest, self._message, self.ready = None, b"", None
        self._downloader.cancel()
        self.consider()
        for message in messages:
            self.submit(message)

    def again(self) -> None:
        """Take up what was given up: an operator wants another try."""
        self._given_up, self._failures = None, 0
        self.consider()

    def consider(self) -> None:
        """Look at the latest announcement again: something that it depends on may have changed."""
        self._cancel_timer()
        latest = self._latest
        if self._downloader.announced is not None:
            if self._downloader.announced == latest:
                return
            self._downloader.cancel()
        self.note = ""
        if latest is None or latest == self._given_up:
            return
        try:
            wanted = self._wanted(latest)
        except UpdateRefused as error:
            self._given_up = latest
            self._receiver.refused(error, latest.model)
            return
        if wanted and not self._receiver.busy and not self._taking:
            self._begin(latest)
        self._receiver.publish_status()

    def _wanted(self, latest: Announcement) -> bool:
        """Return whether to fetch it now.

        1. It is refused if it has expired, or is no update of what runs (`check.admit`), or is too large.
        2. It is left alone if it is not for this device: by its id, or by the canary share.
        3. It waits for its date, and while an operator has put updates on hold; once verified, to be asked for.
        """
        config = self._config
        now_s = self._clock.wall()
        freshness.require_unexpired(latest, now_s)  # rule 1
        if not latest.concerns(config.identity):  # rule 2, before what would be an error for this device alone
            self.note = f"{latest.model} is for other devices: {config.identity} is not among them"
            return False
        if not check.admit(self._store.state, self._receiver.running, latest.name, latest.version, latest.sha256):
            return False
        if latest.size > config.max_bytes:
            raise UpdateRefused("too_large", f"it has {latest.size} bytes, more than update.max_bytes "
                                f"({config.max_bytes})")  # fmt: skip
        if not in_canary(config.identity, latest.model, latest.canary):  # rule 2
            self.note = f"{latest.model} is for a share of {latest.canary:g} of the devices, this one not among them"
        elif latest.not_before and (wait := parse_time(latest.not_before) - now_s) > 0:  # rule 3
            self.note = f"{latest.model} is not before {latest.not_before}"
            self._again(min(wait, _LOOK_AGAIN_S))
        elif self._store.state.on_hold:
            self.note = f"{latest.model} waits: an operator put updates on hold"
        elif self.ready is not None:
            self.note = f"{latest.model} is verified and waits to be started: edge-runtime update apply"
        else:
            return True
        return False

    # -- fetching ----------------------------------------------------------------------------------------------------

    def _begin(self, latest: Announcement) -> None:
        self._store.forget_parts(keep=latest.sha256)
        log.info("update: began to fetch: model=%s bytes=%d", latest.model, latest.size)
        self._downloader.begin(latest, self._fetched, self._failed)

    def _fetched(self, fetched: Announcement) -> None:
        self._failures = 0
        try:
            freshness.require_unexpired(fetched, self._clock.wall())
        except UpdateRefused as error:
            self._failed(fetched, error)
            return
        self._receiver.arrived(Arrived(fetched.sha256, announced=fetched))

    def _failed(self, failed: Announcement, error: Exception) -> None:
        if isinstance(error, UpdateRefused):
            self._given_up = failed
            self._receiver.refused(error, failed.model)
            return
        self._wait(failed.model, error)
        log.warning("update: could not fetch, trying again: model=%s error=%s", failed.model, error)

    def hold(self, file: Arrived) -> None:
        """Keep a verified file until it is asked for."""
        self.ready = file
        self.consider()

    def take_ready(self) -> Arrived | None:
        """Take out what waits to be asked for, unless it has expired meanwhile."""
        file, self.ready = self.ready, None
        if file is None or file.announced is None:
            return None
        try:
            freshness.require_unexpired(file.announced, self._clock.wall())
        except UpdateRefused as error:
            self._failed(file.announced, error)
            return None
        file.asked = True
        return file

    def later(self, file: Arrived, error: Exception) -> None:
        """Try again later what failed for a reason that may pass. A dropped file stays where it was."""
        self._wait(file.what, error)
        log.error("update: could not install, trying again: update=%s error=%s", file.what, error)

    def _wait(self, what: str, error: Exception) -> None:
        self._failures += 1
        self._metrics.counts["update_fetch_failures_total"] += 1
        self.note = f"{what}: {error}; trying again"
        self._again(RETRY.delay(self._failures, None, self._rng))
        self._receiver.publish_status()

    def _again(self, seconds: float) -> None:
        self._cancel_timer()
        if self._loop is not None:
            self._timer = self._loop.call_later(seconds, self.consider)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- dropped files -----------------------------------------------------------------------------------------------

    def poll(self) -> None:
        """See whether a bundle was dropped. It comes before what is being fetched, which is given up for now."""
        if self._taking or self._receiver.busy or self._store.state.on_hold:
            return
        for folder in self._folders:
            path = folder.poll()
            if path is not None:
                self._downloader.cancel()
                self._cancel_timer()
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
            self.consider()

        self._jobs.run(
            lambda: inbox.copy_in(path, self._store, self._config.max_bytes),
            taken,
            failed,
        )
