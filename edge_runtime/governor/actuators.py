"""What can be done less of when the board is hot: see `edge_runtime.governor.governor`, which pulls these."""

from __future__ import annotations

from typing import Final, Protocol

from edge_runtime.gate.budget import Budget
from edge_runtime.governor.config import LeverName
from edge_runtime.model.failover import Lineup
from edge_runtime.pipeline import Pipeline

_SHARES: Final = (0.5, 0.0)
"""Of the configured share that may go to the cloud."""


class Lever(Protocol):
    """Something that can be done less of, in steps."""

    name: LeverName

    def down(self, reason: str) -> bool:
        """Take one step; False if there is none left."""
        ...

    def up(self) -> None:
        """Take the last step back."""
        ...

    def state(self) -> object:
        """Where it stands, for people."""
        ...


class RateLever:
    """Answers every second, fourth, ... window.

    Args:
        pipeline: answers them.
        most: the last multiple.
    """

    name: LeverName = "rate"

    def __init__(self, pipeline: Pipeline, most: int) -> None:
        self._pipeline = pipeline
        self._most = most
        self._every = 1

    def down(self, reason: str) -> bool:  # noqa: ARG002 - the log and the status say it
        """See `Lever`."""
        if self._every >= self._most:
            return False
        self._set(self._every * 2)
        return True

    def up(self) -> None:
        """See `Lever`."""
        self._set(max(1, self._every // 2))

    def state(self) -> object:
        """Every so manieth window is answered."""
        return self._every

    def _set(self, every: int) -> None:
        self._every = every
        self._pipeline.answer_every(every)


class VariantLever:
    """Lets a lighter variant answer.

    Args:
        lineup: knows which; None has nothing lighter.
    """

    name: LeverName = "variant"

    def __init__(self, lineup: Lineup | None) -> None:
        self._lineup = lineup
        self._reasons: list[str] = []

    def down(self, reason: str) -> bool:
        """See `Lever`."""
        if self._lineup is None or not self._lineup.step_down(reason):
            return False
        self._reasons.append(reason)
        return True

    def up(self) -> None:
        """See `Lever`."""
        self._reasons.pop()
        if self._lineup is not None:
            self._lineup.step_up()

    def state(self) -> object:
        """The best variant that may answer."""
        return None if self._lineup is None else self._lineup.rungs[self._lineup.limit].name

    def follow(self, lineup: Lineup | None) -> None:
        """Another model has taken over: the steps taken hold for it too, as far as it has any."""
        self._lineup = lineup
        if lineup is None:
            return
        while lineup.step_up():  # one that comes back may hold steps of an earlier time
            pass
        for reason in self._reasons:
            lineup.step_down(reason)


class CloudLever:
    """Sends less to the cloud.

    Args:
        budget: of what may be sent.
        share: that may be sent while all is well.
    """

    name: LeverName = "cloud"

    def __init__(self, budget: Budget, share: float) -> None:
        self._budget = budget
        self._share = share
        self._steps = 0

    def down(self, reason: str) -> bool:  # noqa: ARG002 - the log and the status say it
        """See `Lever`."""
        if self._steps >= len(_SHARES):
            return False
        self._set(self._steps + 1)
        return True

    def up(self) -> None:
        """See `Lever`."""
        self._set(max(0, self._steps - 1))

    def state(self) -> object:
        """The share of windows that may be sent."""
        return self._share * _SHARES[self._steps - 1] if self._steps else self._share

    def _set(self, steps: int) -> None:
        self._steps = steps
        self._budget.restrict(self._share * _SHARES[steps - 1] if steps else None)
