"""A recording as a source, played on a simulated loop."""

from __future__ import annotations

from collections.abc import Sequence

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import SimulatedClock
from edge_runtime.io.sources.recording import RecordingConfig, RecordingSource
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.types import Done, Reading

CONTRACT = InputContract(channels=(Channel(name="ax", unit="g"),), rate_hz=10, window=10, hop=5)


class Simulated(Loop):
    """A loop whose waiting is the clock's advancing."""

    def iterate(self, timeout: float | None) -> None:
        if wait := self._wait(timeout):
            self.clock.sleep(wait)
        super().iterate(0)


class Player:
    """A source on a simulated loop, and what it delivered."""

    def __init__(self, config: RecordingConfig, *, hold: bool = False, contract: InputContract = CONTRACT) -> None:
        self.metrics = Metrics()
        self.clock = SimulatedClock()
        self.loop = Simulated(clock=self.clock)
        self.source = RecordingSource(config, contract, self.metrics, self.clock)
        self.hold = hold
        self.held: list[Done] = []
        self.deliveries: list[tuple[float, list[Reading]]] = []

    def deliver(self, readings: Sequence[Reading], received: float, done: Done | None) -> None:
        assert done is not None
        self.deliveries.append((received, list(readings)))
        if self.hold:
            self.held.append(done)
        else:
            done()

    def play(self, turns: int = 10_000) -> Player:
        try:
            self.source.open(self.loop, self.deliver)
            for _ in range(turns):
                if self.source.finished:
                    break
                self.loop.iterate(1.0)
        finally:
            self.source.close()
            self.source.close()
            self.loop.close()
        return self

    @property
    def readings(self) -> list[Reading]:
        return [reading for _, readings in self.deliveries for reading in readings]
