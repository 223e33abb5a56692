"""A made-up sensor with three axes, and what training says of it."""

from __future__ import annotations

import dataclasses

import numpy as np

from edge_runtime.clock import SimulatedClock
from edge_runtime.manifest import Channel, InputContract, Manifest
from edge_runtime.manifest.drift import OwnPast, Repair, SensorReference, features_of
from edge_runtime.metrics import Metrics
from edge_runtime.signal.drift.config import DETECTORS, Detector, DriftConfig
from edge_runtime.signal.drift.features import features, measure
from edge_runtime.signal.drift.monitor import Drift
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Float32
from tests.edge_runtime.batches import marks_after
from tests.edge_runtime.manifests import manifest

CHANNELS = ("ax", "ay", "az")
ROWS = 50
SWAP = Repair(fault="ax and ay swapped", cause="orientation", takes=("ay", "ax", "az"), threshold=2.0)
FLIP = Repair(fault="az flipped", cause="orientation", takes=("ax", "ay", "-az"), threshold=2.0)
UNIT = Repair(
    fault="ax, ay, az in m/s2 instead of g", cause="unit", factors=(1 / 9.80665,) * 3, unit="m/s2", threshold=2.0
)
Marks = dict[tuple[str, int], str]


def windows(count: int, seed: int = 0) -> Float32:
    """Two activities in turn, (count, rows, channels): gravity lies on z, and x moves most."""
    rng = np.random.default_rng(seed)
    rest = np.arange(count)[:, np.newaxis, np.newaxis] % 2
    size = np.where(rest, (0.05, 0.02, 0.02), (0.5, 0.2, 0.1))
    steps = rng.normal(0, 1, (count, ROWS, 3))
    steps[:, :, 1] += 0.8 * steps[:, :, 0]
    return (steps * size + (0.1, -0.2, 1.0)).astype(np.float32)


def reference(*repairs: Repair, own: bool = True) -> SensorReference:
    """What training says of `windows`."""
    statistics = measure(windows(400, seed=1))
    floors = 0.01 * np.sqrt(np.mean(statistics.deviation**2, axis=0))
    rows = features(statistics, floors)
    centres = np.array([rows[at::2].mean(axis=0) for at in (0, 1)])
    apart = rows - np.tile(centres, (200, 1))
    spread = apart.std(axis=0)
    above = np.triu_indices(features_of(3), 1)
    past = OwnPast(windows=20, spread=(0.2,) * 9, correlations=(0.0,) * 36, threshold=6.0)
    return SensorReference(
        channels=CHANNELS,
        floors=tuple(floors.tolist()),
        centres=tuple(tuple(row) for row in centres.tolist()),
        spread=tuple(spread.tolist()),
        correlations=tuple((0.8 * np.corrcoef(apart.T)[above]).tolist()),
        repairs=repairs or (SWAP, FLIP, UNIT),
        own=past if own else None,
    )


def described(known: SensorReference | None = None) -> Manifest:
    """A bundle of such a sensor, with windows that overlap by half."""
    contract = InputContract(
        channels=tuple(Channel(name=name, unit="g") for name in CHANNELS), rate_hz=25.0, window=ROWS, hop=ROWS // 2
    )
    return dataclasses.replace(
        manifest(), schema_version=2, input=contract, sensors=reference() if known is None else known
    )


def streamed(x: Float32, key: str = "w", first: int = 0) -> list[Window]:
    """Windows of a stream that does not pause: those of `x`, and between them those that overlap two."""
    rows = x.reshape(-1, x.shape[2])
    hop = ROWS // 2
    return [
        Window(key, first * ROWS + at, (first * ROWS + at) / 25.0, rows[at : at + ROWS], rows[at : at + ROWS], 0.0)
        for at in range(0, len(rows) - ROWS + 1, hop)
    ]


def drift_of(*detectors: Detector, max_keys: int = 100, known: Manifest | None = None) -> tuple[Drift, Metrics]:
    metrics = Metrics()
    drift = Drift(DriftConfig(detectors=detectors or DETECTORS), max_keys, metrics, SimulatedClock())
    drift.use(described() if known is None else known)
    return drift, metrics


def look(drift: Drift, x: Float32, key: str = "w", first: int = 0, marks: Marks | None = None) -> Marks:
    marks = {} if marks is None else marks
    for window in streamed(x, key, first):
        marks_after(drift, [window], marks)
    return marks


def swapped(x: Float32) -> Float32:
    return x[:, :, [1, 0, 2]]
