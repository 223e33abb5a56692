"""Linger policy: skips the latency budget while the broker waits for our acknowledgements."""

from __future__ import annotations

from typing import Final

_SURE_AFTER: Final = 3
_SMALLEST: Final = 10
"""Brokers' defaults begin here; below, a few sensors that send at the same moment look like a window."""


class LingerPolicy:
    """Detector of the broker's window: how many unacknowledged messages it allows, and when they are all out.

    A broker sends up to a window of QoS 1 and 2 messages and then waits for acknowledgements (mosquitto: 20). With a
    latency budget of 5 ms that would be 20 messages every 5 ms, however many there are. The window is not announced in
    our direction, but it shows: the count of unacknowledged messages reaches the same peak again and again. While
    messages come at the rate at which it would limit them, the budget is not waited for. A broker with a wide window
    is never near it, and the budget goes on to save CPU.

    Args:
        budget_s: the latency budget; with 0 there is nothing to find out.
        known: a window that is known beforehand, our own receive maximum.
    """

    def __init__(self, budget_s: float, known: int) -> None:
        self._budget_s = budget_s
        self._known = known
        self._peak = 0
        self._hits = 0
        self._count = 0
        self._period_ends = 0.0
        self._busy = False
        self._skipped_linger = False

    @property
    def _enough(self) -> float:
        """Messages that use up the window, or nearly; infinite while no window is known."""
        if self._peak < self._known and (self._hits < _SURE_AFTER or self._peak < _SMALLEST):
            return float("inf")
        return 0.8 * self._peak

    def received(self, count: int, unacked: int, now: float) -> bool:
        """Take note of messages of QoS 1 and 2 that came together.

        Args:
            count: how many.
            unacked: how many are unacknowledged now, these included.
            now: monotonic seconds.

        Returns:
            Whether the next iteration should not wait for the latency budget.
        """
        if not self._budget_s:
            return False
        if unacked > self._peak:
            self._peak, self._hits = unacked, 0
        if unacked == self._peak:
            self._hits += 1
        elif not self._skipped_linger and self._hits < _SURE_AFTER:
            self._hits = 0  # the budget was waited for and less came: not a window, only the most so far
        enough = self._enough
        if now >= self._period_ends:
            self._busy = self._count >= enough
            self._period_ends = now + self._budget_s
            self._count = 0
        self._count += count
        self._skipped_linger = self._busy or self._count >= enough
        return self._skipped_linger

    def full(self, unacked: int) -> bool:
        """Return whether the broker sends nothing more before it gets an acknowledgement."""
        return unacked >= self._enough
