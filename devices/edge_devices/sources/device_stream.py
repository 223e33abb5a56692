"""Life of a device behind a source: opened, read as bytes come, lost, and opened again.

::

    connecting ─► reading ─► lost ─┐
        ▲                          │ back-off, see `edge_devices.sources.reopening`
        └──────────────────────────┘

A source says how its device is opened and closed, what its bytes mean, and what to tell the user once it is gone.
"""

from __future__ import annotations

import os
import random
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Final

from edge_devices.sources.reopening import Reopening
from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import Clock, SystemClock
from edge_runtime.io.sources import Deliver
from edge_runtime.metrics import Metrics
from edge_runtime.types import Reading

READ_BYTES: Final = 64 * 1024
"""How much is read in one go, unless the device says otherwise."""


class DeviceStream(ABC):
    """A source over a device that may vanish and come back. Everything happens on the loop's thread.

    Args:
        name: the source's name in messages and metrics.
        device: what the user calls the device.
        metrics: counts reopened devices, and what a source counts besides.
        clock: source of the times of arrival.
        in_flight: deliveries that may wait for their `done`; then `_behind` is true.
        rng: spreads the attempts to open it again.
    """

    END: ClassVar[str] = "it hung up"
    """Meaning of an end of file."""

    def __init__(
        self,
        name: str,
        device: str,
        metrics: Metrics,
        clock: Clock | None,
        *,
        in_flight: int,
        rng: random.Random | None,
    ) -> None:
        self.name = name
        self._device = device
        self._metrics = metrics
        self._clock = clock or SystemClock()
        self._reopening = Reopening(name, self._connect, metrics, rng=rng)
        self.most_unacked = in_flight
        self._in_flight = 0
        self._fd = -1  # what is read, while it is connected
        self._read_bytes = READ_BYTES
        self._reading = False  # the loop watches it
        self._loop: Loop | None = None
        self._deliver: Deliver | None = None

    @property
    def finished(self) -> bool:
        """Never: a device may speak again."""
        return False

    def open(self, loop: Loop, deliver: Deliver) -> None:
        """See `edge_runtime.io.sources.Source`.

        Raises:
            ConfigError: as `_connect`.
        """
        self._loop = loop
        self._deliver = deliver
        self._reopening.start(loop)

    def pause(self) -> None:
        """See `edge_runtime.io.sources.Source`."""
        self._reopening.stop()
        self._disconnect()
        self._deliver = None

    def close(self) -> None:
        """See `edge_runtime.io.sources.Source`."""
        self.pause()

    # -- what a source says of its device ----------------------------------------------------------------------------

    @abstractmethod
    def _connect(self) -> None:
        """Open the device, and `_follow` its descriptor.

        Raises:
            Unreachable: it cannot be opened now.
            ConfigError: trying again would not help.
        """

    @abstractmethod
    def _disconnect(self) -> None:
        """Close the device, if it is open; `_unfollow` comes before its descriptor is closed."""

    @abstractmethod
    def _take(self, data: bytes) -> None:
        """Make readings of what came, at least one byte, and `_hand_over` them."""

    def _end_reason(self, reason: str) -> str:
        """Describe for the log a device that was lost. It is not closed yet."""
        return f"{self._device} is gone ({reason})"

    # -- reading -----------------------------------------------------------------------------------------------------

    def _follow(self, fd: int, read_bytes: int = READ_BYTES) -> None:
        """Read from a descriptor whenever something has come."""
        self._fd, self._read_bytes = fd, read_bytes
        self._resume()

    def _unfollow(self) -> None:
        """Read no more from it; the one who opened it closes it."""
        self._hold()
        self._fd = -1

    def _hold(self) -> None:
        """Leave what comes where it is, until `_resume`."""
        if self._reading and self._loop is not None:
            self._loop.unwatch(self._fd)
        self._reading = False

    def _resume(self) -> None:
        if self._fd >= 0 and not self._reading and self._loop is not None:
            self._reading = True
            self._loop.watch(self._fd, self._read, lingers=True)

    def _read(self) -> None:
        # One read per wake-up returns what is there; a second one might wait.
        try:
            data = os.read(self._fd, self._read_bytes)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lost(error.strerror or str(error))
            return
        if not data:
            self._lost(self.END)
            return
        self._reopening.worked()
        self._take(data)

    def _lost(self, reason: str) -> None:
        """Close what is left of the device, and open it again after a moment."""
        why = self._end_reason(reason)
        self._disconnect()
        self._reopening.lost(why)

    # -- handing over ------------------------------------------------------------------------------------------------

    @property
    def _behind(self) -> bool:
        """Return whether the pipeline has as much in hand as it may."""
        return self._in_flight >= self.most_unacked

    def _hand_over(self, readings: Sequence[Reading]) -> None:
        if readings and self._deliver is not None:
            if self._loop is not None:
                self._loop.arrived(len(readings))
            self._in_flight += 1
            self._deliver(readings, self._clock.monotonic(), self._done)

    def _hand_over_samples(self, readings: Sequence[Reading], size: int) -> None:
        """Count and hand over what no codec has counted.

        Args:
            readings: the samples.
            size: bytes that they came in.
        """
        self._metrics.counts["messages_total"] += 1
        self._metrics.counts["message_bytes_total"] += size
        self._hand_over(readings)

    def _done(self) -> None:
        self._in_flight -= 1
