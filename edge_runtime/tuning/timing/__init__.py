"""How long each model file takes on this machine, measured so that the figures can be compared.

One core serves the export toolchain, its remote measurement and a device that tunes itself: `race` times models in one
process, taking turns; `measure` does so in child processes, where a model that dies takes nothing with it; and
``edge-runtime time BUNDLE --json`` does it for a bundle and prints what `Measurement.from_json` reads.
"""

from __future__ import annotations

from edge_runtime.tuning.timing.machine import Machine, this_machine
from edge_runtime.tuning.timing.measure import Measurement, measure, measure_bundle
from edge_runtime.tuning.timing.race import Contender, Plan, Timing, race

__all__ = [
    "Contender",
    "Machine",
    "Measurement",
    "Plan",
    "Timing",
    "measure",
    "measure_bundle",
    "race",
    "this_machine",
]
