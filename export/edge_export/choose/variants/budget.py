"""Time that a search may take: it ends between two layers or two trials, and names what it left out."""

from __future__ import annotations

from edge_runtime.clock import Clock
from edge_runtime.errors import ConfigError


class OutOfTimeError(ConfigError):
    """End of the time before something was done."""


class TimeBudget:
    """Seconds from now on.

    Args:
        seconds: seconds that the search may take.
        clock: the clock that counts them.
    """

    def __init__(self, seconds: float, clock: Clock) -> None:
        self._seconds, self._clock, self._until = seconds, clock, clock.monotonic() + seconds

    @property
    def is_over(self) -> bool:
        """True once the time is over."""
        return self._clock.monotonic() >= self._until

    @property
    def reason(self) -> str:
        """Reason of whatever was not made, for the report."""
        return f"no time left of {self._seconds:g} s; --seconds gives it more"

    def check(self) -> None:
        """Go on, or end.

        Raises:
            OutOfTimeError: the time is over.
        """
        if self.is_over:
            raise OutOfTimeError(self.reason)
