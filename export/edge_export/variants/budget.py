"""Time that a search may take: what is begun in time is finished, what is not begun is named."""

from __future__ import annotations

from edge_runtime.clock import Clock
from edge_runtime.errors import ConfigError


class OutOfTimeError(ConfigError):
    """End of the time before something was tried."""


class Budget:
    """Seconds from now on.

    Args:
        seconds: that the search may take.
        clock: that counts them.
    """

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds, self._clock, self._until = seconds, clock, clock.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        """Whether the time is over."""
        return self._clock.monotonic() >= self._until

    @property
    def reason(self) -> str:
        """Why something was not tried."""
        return f"not tried, {self._seconds:g} s were over; more by --seconds"

    def check(self) -> None:
        """Go on, or end.

        Raises:
            OutOfTimeError: the time is over.
        """
        if self.is_over:
            raise OutOfTimeError(self.reason)
