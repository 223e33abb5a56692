"""References: what the sensors delivered in training, by which a device notices values in another unit.

A triad is measured by its norm: single axes depend on how a sensor is worn. Measured on the rows of training windows,
which is what a device compares with them: resampled, joined and cut by the same code.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from edge_export.data.dataset import Dataset, Float32, Windows
from edge_runtime.manifest import REFERENCE_LEVELS, InputContract, Reference
from edge_runtime.signal.intake.clipped import SHARE, TIMES, rails
from edge_runtime.signal.intake.spectrum import measure_tops
from edge_runtime.signal.intake.stuck import SAME
from edge_runtime.signal.intake.triads import find_triads

SPAN_S: Final = 10.0
"""Shortest comparison: the median norm of 10 s lay within .9 to 2.3 times that of training for people who were not in
it, while the next unit is 9.8 times away (`python -m benchmarks intake`)."""

SPAN_ROWS: Final = 64
"""Fewest rows of a comparison."""

_RAIL: Final = SHARE / TIMES
"""Natural shares below it change no limit of the device."""

NATURAL: Final = 0.5
"""Share of a recording in one value from on which nothing can be said of a channel that rests."""


def measure_references(
    windows: Windows,
    contract: InputContract,
    triads: Sequence[Sequence[str]] = (),
    rates_hz: tuple[float, float] | None = None,
) -> tuple[Reference, ...]:
    """Measure the references of a bundle.

    Args:
        windows: windows of training, in the order in which they were cut.
        contract: their channels and rate.
        triads: names of channels that are the axes of one sensor; empty finds them by name and unit.
        rates_hz: the recordings' rates, see `rates_of`.

    Returns:
        One for each triad, and one for each other channel that a sensor sends.
    """
    names = [channel.name for channel in contract.channels]
    groups = [[names.index(name) for name in triad] for triad in triads] or [
        list(triad) for triad in find_triads(contract.channels)
    ]
    taken = {column for group in groups for column in group}
    groups += [[i] for i, channel in enumerate(contract.channels) if i not in taken and not channel.mask_of]
    hop = contract.hop
    rows = windows.x[:, :, -hop:].transpose(0, 2, 1).reshape(-1, len(names))
    begins = np.ones(len(windows), bool)  # where rows do not go on from those before
    begins[1:] = (np.diff(windows.recording) != 0) | (np.diff(windows.start) != hop)
    stretches = np.repeat(np.cumsum(begins), hop)
    tops = measure_tops(((start, x.T) for start, x in zip(windows.start.tolist(), windows.x, strict=True)), contract)
    return tuple(
        Reference(
            channels=tuple(names[column] for column in group),
            quantiles=quantiles(rows[:, group]),
            span_s=max(SPAN_S, SPAN_ROWS / contract.rate_hz),
            still_s=_longest([_still(rows[:, column], stretches) for column in group], contract.rate_hz),
            rates_hz=rates_hz,
            top_hz=tops.get(names[group[0]]) if len(group) == 1 else None,
            rail_share=_rail_share(windows.x, group),
        )
        for group in groups
    )


def _rail_share(x: Float32, columns: Sequence[int]) -> float:
    """Return the largest share of samples at an end of a channel in a window; 0 where none is worth mentioning."""
    limits = np.full(len(columns), _RAIL)
    found = (rail.share for one in x for rail in rails(one.T, columns, limits))
    return float(f"{max(found, default=0.0):.3g}")


def rates_of(dataset: Dataset, contract: InputContract) -> tuple[float, float] | None:
    """Measure the slowest and the fastest rate of recordings, in three digits, leaving out one in twenty at both ends.

    None where several sensors have stamps of their own: each may have another rate.

    Args:
        dataset: recordings, with stamps or at the rate of the set.
        contract: says what a gap is.
    """
    if any(recording.tables for recording in dataset.recordings):
        return None
    rates = []
    for recording in dataset.recordings:
        steps = np.empty(0) if recording.t is None else np.diff(recording.t)
        steps = steps[steps <= contract.max_gap]
        rates.append(len(steps) / steps.sum() if steps.sum() > 0 else dataset.rate_hz)
    low, high = np.quantile(rates, (0.05, 0.95))
    return float(f"{low:.3g}"), float(f"{high:.3g}")


def quantiles(rows: Float32) -> tuple[float, ...]:
    """Measure rows (n, channels), their norm if there are several, at `REFERENCE_LEVELS`; short in the manifest."""
    values = rows.astype(np.float64)
    sizes = np.sqrt(np.square(values).sum(axis=1)) if values.shape[1] > 1 else values[:, 0]
    return tuple(float(f"{value:.4g}") for value in np.quantile(sizes, REFERENCE_LEVELS))


def _longest(rows: Sequence[int | None], rate_hz: float) -> float | None:
    """Return the longest of some times in seconds; None where one is unknown."""
    known = [count for count in rows if count is not None]
    return float(f"{max(known) / rate_hz:.4g}") if len(known) == len(rows) else None


def _still(values: npt.NDArray[np.float32], stretches: npt.NDArray[np.int64]) -> int | None:
    """Count the rows of the longest run of one value; None where one fills `NATURAL` of its stretch."""
    ends = (np.abs(np.diff(values)) > SAME * np.abs(values[1:])) | (np.diff(stretches) != 0)
    edges = np.concatenate(([-1], np.flatnonzero(ends), [len(values) - 1]))
    runs = np.diff(edges)
    lengths = np.bincount(stretches)[stretches[edges[1:]]]
    return None if (runs >= NATURAL * lengths).any() else int(runs.max())
