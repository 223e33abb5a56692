"""Actuators of the governor: rate, variant and share of the cloud, each stepped down while the board is hot."""

from __future__ import annotations

from typing import Final, Protocol

from edge_runtime.answer.gate.budget import Budget
from edge_runtime.answer.pipeline import Pipeline
from edge_runtime.model.serving.failover import FallbackChain
from edge_runtime.operate.governor.config import ActuatorName

_SHARES: Final = (0.5, 0.0)
"""Of the configured share that may go to the cloud."""


class Actuator(Protocol):
    """Actuator: something that can be done less of, in steps."""

    name: ActuatorName

    def down(self, reason: str) -> bool:
        """Take one step; False if there is none left."""
        ...

    def up(self) -> None:
        """Take the last step back."""
        ...

    def state(self) -> object:
        """Return its present setting, for people."""
        ...


class RateActuator:
    """Answers every second, fourth, ... window.

    Args:
        pipeline: answers them.
        most: the last multiple.
    """

    name: ActuatorName = "rate"

    def __init__(self, pipeline: Pipeline, most: int) -> None:
        self._pipeline = pipeline
        self._most = most
        self._every = 1

    def down(self, reason: str) -> bool:  # noqa: ARG002 - the log and the status say it
        """See `Actuator`."""
        if self._every >= self._most:
            return False
        self._set(self._every * 2)
        return True

    def up(self) -> None:
        """See `Actuator`."""
        self._set(max(1, self._every // 2))

    def state(self) -> object:
        """Return the decimation factor n: one window in n is answered."""
        return self._every

    def _set(self, every: int) -> None:
        self._every = every
        self._pipeline.answer_every(every)


class VariantActuator:
    """Lets a lighter variant answer.

    Args:
        fallback_chain: knows which; None has nothing lighter.
    """

    name: ActuatorName = "variant"

    def __init__(self, fallback_chain: FallbackChain | None) -> None:
        self._fallback_chain = fallback_chain
        self._reasons: list[str] = []

    def down(self, reason: str) -> bool:
        """See `Actuator`."""
        if self._fallback_chain is None or not self._fallback_chain.step_down(reason):
            return False
        self._reasons.append(reason)
        return True

    def up(self) -> None:
        """See `Actuator`."""
        self._reasons.pop()
        if self._fallback_chain is not None:
            self._fallback_chain.step_up()

    def state(self) -> object:
        """Return the best variant that may answer."""
        return None if self._fallback_chain is None else self._fallback_chain.backends[self._fallback_chain.limit].name

    def use(self, fallback_chain: FallbackChain | None) -> None:
        """Another model has taken over: the steps taken hold for it too, as far as it has any."""
        self._fallback_chain = fallback_chain
        if fallback_chain is None:
            return
        while fallback_chain.step_up():  # one that comes back may hold steps of an earlier time
            pass
        for reason in self._reasons:
            fallback_chain.step_down(reason)


class CloudActuator:
    """Sends less to the cloud.

    Args:
        budget: bounds of what may be sent.
        share: share of windows that may be sent while all is well.
    """

    name: ActuatorName = "cloud"

    def __init__(self, budget: Budget, share: float) -> None:
        self._budget = budget
        self._share = share
        self._steps = 0

    def down(self, reason: str) -> bool:  # noqa: ARG002 - the log and the status say it
        """See `Actuator`."""
        if self._steps >= len(_SHARES):
            return False
        self._set(self._steps + 1)
        return True

    def up(self) -> None:
        """See `Actuator`."""
        self._set(max(0, self._steps - 1))

    def state(self) -> object:
        """Return the share of windows that may be sent."""
        return self._share * _SHARES[self._steps - 1] if self._steps else self._share

    def _set(self, steps: int) -> None:
        self._steps = steps
        self._budget.restrict(self._share * _SHARES[steps - 1] if steps else None)
