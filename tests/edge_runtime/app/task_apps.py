"""Sources, sinks and settings of whole applications under test, with bundles of any task."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from edge_runtime.app.application import App
from edge_runtime.base.system.loop import Loop
from edge_runtime.io.sinks.memory import MemorySink
from edge_runtime.io.sources import Deliver
from edge_runtime.types import Answer, Done, Reading
from tests.task_bundles import CHANNELS, RATE_HZ, samples

APP = """
[model]
bundle = "task.edge"
unsigned = "allow"
failover = "off"
[gate]
threshold = 1.1
max_calls_per_day = 100000
"""
CLOUD = """
[cloud]
url = "{url}"
model = "linear"
[outbox]
path = "outbox.db"
"""
N = 12


class Fed:
    """A source that gives all windows at once and never ends."""

    finished = False
    name = "fed"

    def __init__(self, start: float = 1000.0) -> None:
        self.start = start

    def open(self, loop: Loop, deliver: Deliver) -> None:
        rows = samples(N).transpose(0, 2, 1).reshape(-1, CHANNELS)
        stamps = self.start + np.arange(len(rows)) / RATE_HZ
        loop.call_soon(lambda: deliver([Reading("k", stamps, rows)], loop.clock.monotonic(), None))

    def pause(self) -> None:
        pass

    def close(self) -> None:
        pass


class Until(MemorySink):
    """Stops the application when it has so many answers of a class."""

    def __init__(self, kind: type[Any], number: int) -> None:
        super().__init__()
        self.kind, self.number = kind, number
        self.app: App | None = None

    def of(self, kind: type[Any]) -> list[Any]:
        return [answer for answer in self.answers if isinstance(answer, kind)]

    def send(self, answers: Sequence[Answer], done: Done | None) -> None:
        super().send(answers, done)
        if self.app is not None and len(self.of(self.kind)) >= self.number:
            self.app.stop()
