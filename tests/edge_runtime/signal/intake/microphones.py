"""A microphone before an intake: right sound, and sound that was converted from a lower rate."""

from __future__ import annotations

import dataclasses

import numpy as np

from edge_runtime.clock import SimulatedClock
from edge_runtime.manifest import Channel, InputContract, Manifest, Reference
from edge_runtime.metrics import Metrics
from edge_runtime.signal.intake.config import CHECKS, Check, IntakeConfig
from edge_runtime.signal.intake.intake import Intake
from edge_runtime.signal.windowing.window import Windower
from edge_runtime.types import Float32, Reading
from tests.edge_runtime.base.media.sounds import resampled
from tests.edge_runtime.batches import marks_after
from tests.edge_runtime.manifests import manifest

RATE = 8000
CONTRACT = InputContract(channels=(Channel(name="sound", unit="1"),), rate_hz=RATE, window=4000, hop=2000)
QUANTILES = (-0.01, -0.005, -0.002, -0.001, 0.0, 0.001, 0.002, 0.005, 0.01)
"""Of quiet sound: louder sound is no fault."""


def reference(top_hz: float | None = RATE / 2) -> Reference:
    return Reference(channels=("sound",), quantiles=QUANTILES, span_s=10.0, top_hz=top_hz)


def described(contract: InputContract = CONTRACT, *references: Reference) -> Manifest:
    return dataclasses.replace(
        manifest(), schema_version=2, input=contract, references=references or (reference(),)
    )  # fmt: skip


def noise(seconds: float, rate_hz: float = RATE, seed: int = 0) -> Float32:
    return np.random.default_rng(seed).normal(0, 0.1, round(seconds * rate_hz)).astype(np.float32)


def converted(seconds: float, low_hz: int = 4000) -> Float32:
    """What a microphone of a lower rate sends whose sound is converted, as 16-bit numbers."""
    low = noise(seconds + 1, low_hz)
    sound = resampled(low[:, None], low_hz, RATE)[: round(seconds * RATE), 0]
    return np.asarray(np.round(sound * 32767) / 32768, np.float32)


class Microphone:
    """An intake, and the windower behind it."""

    def __init__(self, *checks: Check, model: Manifest | None = None) -> None:
        self.metrics = Metrics()
        self.intake = Intake(IntakeConfig(checks=checks or CHECKS), 100, self.metrics, SimulatedClock())
        self.model = model or described()
        self.intake.use(self.model)
        self.windower = Windower(self.model.input)
        self.marks: dict[tuple[str, int], str] = {}
        self.samples = 0

    def send(self, sound: Float32, key: str = "mic", size: int = 800) -> None:
        for at in range(0, len(sound), size):
            piece = sound[at : at + size, None]
            reading = Reading(key, 1000 + (self.samples + np.arange(len(piece))) / RATE, piece)
            self.samples += len(piece)
            self.intake.read([reading])
            self.marks |= marks_after(self.intake, self.windower.push([reading]))
