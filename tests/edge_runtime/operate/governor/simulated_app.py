"""A pipeline under a simulated clock, with a model that costs time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from edge_runtime.answer.gate.budget import Budget
from edge_runtime.answer.gate.config import GateConfig
from edge_runtime.answer.pipeline import Pipeline, Stages
from edge_runtime.clock import SimulatedClock
from edge_runtime.io.sinks.memory import MemorySink
from edge_runtime.manifest import Channel, File, GateSpec, InputContract, Manifest, OutputContract, Variant
from edge_runtime.metrics import Metrics
from edge_runtime.model.serving.loading import Answers
from edge_runtime.model.tasks.classification import Classification
from edge_runtime.operate.governor.config import GovernorConfig
from edge_runtime.signal.windowing.window import Window, Windower
from edge_runtime.types import Reading

CONFIG = GovernorConfig()


HOP = 2


class Steady:
    """Answers every window alike, for a price in time."""

    def __init__(self, clock: SimulatedClock) -> None:
        self.manifest = Manifest(
            schema_version=1, name="steady", version=1,
            input=InputContract(channels=(Channel(name="a", unit="1"),), rate_hz=10.0, window=4, hop=HOP),
            output=OutputContract(labels=("low", "high")), gate=GateSpec(threshold=0.5),
            variants=(
                Variant(
                    name="v", file="variants/v.onnx", format="onnx", precision="fp32", size=1, sha256="0" * 64,
                    golden="g.npy",
                ),
            ),
            golden_inputs="i.npy", files=(File(file="i.npy", size=1, sha256="0" * 64),),
        )  # fmt: skip
        self.variant = self.manifest.variants[0]
        self.max_batch = 32
        self.states = None
        self.cost_s = 0.0
        self.busy_s = 0.0
        self._clock = clock

    def predict(self, windows: Sequence[Window]) -> Answers:
        cost = self.cost_s * len(windows)
        self.busy_s += cost
        self._clock.advance(cost)
        return Answers(np.full((len(windows), 2), 0.5, np.float32), windows)


class Bench:
    """A pipeline on a simulated clock, fed by hand."""

    def __init__(self, keys: int = 2) -> None:
        self.clock = SimulatedClock()
        self.metrics = Metrics()
        self.sink = MemorySink()
        self.model = Steady(self.clock)
        self.budget = Budget(GateConfig(max_share=0.8), self.clock)
        self.pipeline = Pipeline(
            model=self.model, windower=Windower(self.model.manifest.input, metrics=self.metrics),
            stages=Stages(task=Classification(self.model.manifest)), sinks=[self.sink],
            metrics=self.metrics, clock=self.clock,
        )  # fmt: skip
        self.keys = [f"k{i}" for i in range(keys)]
        self.accepted = self.sent = 0

    def arrive(self, at: float) -> None:
        """Five samples of every key arrive; the turn ends."""
        values = np.zeros((5, 1), np.float32)
        for key in self.keys:
            self.sent += 1
            self.pipeline.deliver([Reading(key, 1e9 + at, values)], at, self._accept)
        self.pipeline.flush_iteration()

    def _accept(self) -> None:
        self.accepted += 1

    def balance(self) -> None:
        """Every window is answered or counted, every reading acknowledged."""
        counts, dropped = self.metrics.counts, self.metrics.dropped
        assert counts["windows_total"] == counts["predictions_total"] + dropped["rate_reduced"]
        assert len(self.sink.answers) == counts["predictions_total"]
        assert self.accepted == self.sent
