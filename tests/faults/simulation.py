"""A day in minutes: outbox and escalation on a simulated clock, in one thread, with a cloud that comes and goes.

What the two threads of `Escalator` do when they are woken is called here in turns, a simulated second at a time, so
that nothing waits and every run with one seed is the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from edge_runtime.base.system.loop import Loop
from edge_runtime.base.system.retry import RECONNECT
from edge_runtime.clock import SimulatedClock
from edge_runtime.cloud.config import EscalationConfig
from edge_runtime.cloud.escalator import Escalator
from edge_runtime.cloud.question import CloudModel
from edge_runtime.metrics import Metrics
from edge_runtime.store.durable.outbox import Outbox, OutboxConfig
from edge_runtime.store.durable.outbox.schema import connect_sqlite
from edge_runtime.types import Correction, FinalAnswer, Hard, Prediction
from tests.edge_runtime.cloud.clouds import FakeCloud
from tests.edge_runtime.manifests import manifest

SHAPE = (2, 8)


def case(number: int) -> Hard:
    """Case `number` of stream ``k``."""
    prediction = Prediction(
        f"k@{number}", "k", float(number), number + 0.4, "low", 0.6, [0.6, 0.4], "provisional", True, "m/1", "v", 0.1,
    )  # fmt: skip
    return Hard(prediction, np.full(SHAPE, number, np.float32), 0.6, False)


class Device:
    """The part of a device behind the gate, from one start to the next.

    Args:
        config: of the outbox, which may hold something already.
        clock: of this boot.
        corrected: called with each correction.
        rng: jitter of the back-off.
        cloud: that it asks.
    """

    def __init__(
        self,
        config: OutboxConfig,
        clock: SimulatedClock,
        corrected: Callable[[Correction], None],
        rng: random.Random,
        cloud: FakeCloud,
    ) -> None:
        self.clock, self.metrics, self.cloud = clock, Metrics(), cloud
        self.outbox = Outbox(config, clock, connect_sqlite)
        self.outbox.open()
        self._loop = Loop(clock=clock)
        self._corrected = corrected
        self.escalator = Escalator(
            model=CloudModel(EscalationConfig(), manifest(), cloud, self.metrics, clock),
            outbox=self.outbox,
            loop=self._loop,
            publish=self._publish,
            metrics=self.metrics,
            clock=clock,
            retry=RECONNECT,
        )
        self.escalator.forwarder.rng = self.escalator.forwarder.breaker._rng = rng

    def _publish(self, answers: Sequence[Correction | FinalAnswer], done: Callable[[], None]) -> None:
        for answer in answers:
            if isinstance(answer, Correction):
                self._corrected(answer)
        done()

    def submit(self, numbers: Sequence[int]) -> None:
        """New hard cases; committed when this returns."""
        self.escalator.submit([case(number) for number in numbers], None)
        self._commit()

    def forward(self) -> bool:
        """Ask the cloud once, if there is anything to ask and it is time."""
        worked = self.escalator.forwarder.forward_some()
        self._loop.iterate(0)  # corrections are published
        self._commit()  # and their cases leave
        return worked

    def _commit(self) -> None:
        while self.escalator.writer.commits.waiting:
            self.escalator.writer.commits.run_once(0.0)
            self._loop.iterate(0)

    def close(self) -> None:
        """The power goes, in order."""
        self.outbox.close()
        self._loop.close()


def outbox_config(folder: Path, max_bytes: int, **more: float) -> OutboxConfig:
    """Of an outbox in `folder`."""
    return OutboxConfig(path=folder / "outbox.db", max_bytes=max_bytes, **more)  # type: ignore[arg-type]
