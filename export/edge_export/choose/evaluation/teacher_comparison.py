"""Speed of the device's files against the teacher they learnt from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from edge_export.data.dataset import Float32, Windows, spread
from edge_export.metrics import REFERENCE
from edge_export.package.bundles import TEACHER
from edge_export.package.pack import VariantSource
from edge_runtime.model.bundle.variants import arrange, engine_for
from edge_runtime.model.tuning.timing import TimedModel, measure

COMPARED = 16
"""Windows that all of them are timed on, evenly spread."""


def against_teacher(
    cloud: VariantSource, shipped: Mapping[str, VariantSource], device: str, windows: Windows
) -> dict[str, Any]:
    """Teacher, float student and what ships, timed in the same rounds: ratios that a busy machine cannot bend.

    Args:
        cloud: the teacher's file.
        shipped: the device's files by name.
        device: name of the one that answers on this machine.
        windows: windows to be timed on.

    Returns:
        Microseconds a window, and times faster than the teacher, by name.
    """
    chosen = spread(len(windows), COMPARED)
    candidates = [_candidate(TEACHER, cloud, windows.contexts[chosen])]
    candidates += [_candidate(name, shipped[name], windows.x[chosen]) for name in dict.fromkeys((REFERENCE, device))]
    measured = measure(candidates, reference=TEACHER, threads=(1,))
    return {timing.name: {"p50_us": timing.p50_us, "times_faster": 1 / timing.ratio} for timing in measured.timings}


def _candidate(name: str, source: VariantSource, windows: Float32) -> TimedModel:
    return TimedModel(name=name, engine=engine_for(source), model=source.model, inputs=(arrange(windows, source),))
