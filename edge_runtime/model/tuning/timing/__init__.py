"""Interleaved benchmark: the time of each model file on this machine, measured so that figures can be compared.

One core serves the export toolchain, its remote measurement and a device that tunes itself: `time_interleaved` times
models alternately in one process; `measure` does so in child processes, where a model that dies takes nothing with it;
and ``edge-runtime time BUNDLE --json`` does it for a bundle and prints what `Measurement.from_json` reads.
"""

from __future__ import annotations

from edge_runtime.model.tuning.timing.interleaved import TimedModel, Timing, TimingPlan, time_interleaved
from edge_runtime.model.tuning.timing.machine import Machine, this_machine
from edge_runtime.model.tuning.timing.measure import Measurement, measure, measure_bundle

__all__ = [
    "Machine",
    "Measurement",
    "TimedModel",
    "Timing",
    "TimingPlan",
    "measure",
    "measure_bundle",
    "this_machine",
    "time_interleaved",
]
