"""Prediction of arrivals: whether waiting for the latency budget would find another message."""

from __future__ import annotations

from typing import Final

_WEIGHT: Final = 1 / 8
"""Of one message in the mean interval: after eight of another rate, two thirds of the change are in it."""

_LONGEST: Final = 4.0
"""Longest interval that counts, in budgets, so that the first messages of a burst are enough to be noticed."""


class Arrivals:
    """Mean interval between messages, exponentially weighted by message.

    1. `count` messages that were read together, `span_s` after those before them, count as `count` intervals of
       ``span_s / count``. So the mean is that of the sensors, whether the loop waits for the budget or not.
    2. An interval counts as `_LONGEST` budgets at most. Before the first message the mean is that.
    3. Another message is expected within the budget when the mean is at most the budget. Then a wait finds one or more
       to share the iteration with, on average; else it would only make the answer late, and cost a wake-up.

    Args:
        budget_s: the latency budget.
    """

    def __init__(self, budget_s: float) -> None:
        self._budget_s = budget_s
        self._mean_s = _LONGEST * budget_s  # rule 2
        self._last = 0.0

    def note(self, count: int, now: float) -> None:
        """Take note of `count` messages that were read together at monotonic second `now`."""
        interval = min((now - self._last) / count, _LONGEST * self._budget_s)  # rules 1 and 2
        kept = (1 - _WEIGHT) ** count
        self._mean_s = kept * self._mean_s + (1 - kept) * interval
        self._last = now

    @property
    def expected(self) -> bool:
        """Return whether another message will probably come within the budget (rule 3)."""
        return self._mean_s <= self._budget_s
