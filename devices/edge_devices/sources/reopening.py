"""Opener of a device that may be unplugged: tries again with back-off, and logs once per outage."""

from __future__ import annotations

import logging
import random
from collections.abc import Callable

from edge_runtime.base.system.loop import Loop, Timer
from edge_runtime.base.system.retry import Retry
from edge_runtime.errors import ConfigError
from edge_runtime.metrics import Metrics

logger = logging.getLogger(__name__)

RETRY = Retry(base_s=0.5, cap_s=10.0)
"""Short waits: a sensor on a cable comes back when it is plugged in."""


class Unreachable(Exception):  # noqa: N818 - a state of the device, not of the program
    """The device cannot be opened now, and may be later; the message says why and what to do."""


class Reopening:
    """Opens a device now or later. Everything happens on the loop's thread.

    Counts ``source_reopens_total``.

    Args:
        name: the source's name, for the log.
        attempt: opens it, or raises `Unreachable`; ConfigError where trying again would not help.
        metrics: the counters.
        retry: the waits between attempts.
        rng: source of the jitter.
    """

    def __init__(
        self,
        name: str,
        attempt: Callable[[], None],
        metrics: Metrics,
        *,
        retry: Retry = RETRY,
        rng: random.Random | None = None,
    ) -> None:
        self._name = name
        self._attempt = attempt
        self._metrics = metrics
        self._retry = retry
        self._rng = rng or random.Random()  # noqa: S311 - spreads attempts, guards nothing
        self._loop: Loop | None = None
        self._timer: Timer | None = None
        self._failures = 0
        self._was_open = False

    def start(self, loop: Loop) -> None:
        """Try at once, and from then on until `stop`.

        Raises:
            ConfigError: trying again would not help.
        """
        self._loop = loop
        try:
            self._attempt()
        except Unreachable as error:
            self._failed(str(error))
        else:
            self._was_open = True

    def lost(self, reason: str) -> None:
        """Try again after a moment to open the device that was open and is gone."""
        self._failed(reason)

    def worked(self) -> None:
        """Reset the back-off, since the device delivered: the next outage begins with a short wait."""
        self._failures = 0

    def stop(self) -> None:
        """Try no more. May be called twice, and before `start`."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _try(self) -> None:
        self._timer = None
        try:
            self._attempt()
        except (Unreachable, ConfigError) as error:
            # Just plugged in, a device may have no group for a moment: udev has not given it one yet.
            self._failed(str(error))
            return
        if self._was_open:
            self._metrics.counts["source_reopens_total"] += 1
            logger.info("%s: opened again", self._name)
        self._was_open = True

    def _failed(self, reason: str) -> None:
        if self._loop is None or self._timer is not None:
            return
        if not self._failures:
            logger.warning("%s: device unavailable, trying again until it works: reason=%s", self._name, reason)
        self._failures += 1
        self._timer = self._loop.call_later(self._retry.delay(self._failures, None, self._rng), self._try)
