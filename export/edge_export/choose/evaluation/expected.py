"""Expectations of a bundle about its sensors, by labelled recordings: references, and how sensors are mounted."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from edge_export.choose.evaluation.sensors import Cost, measure_sensors, triads_of
from edge_export.data.dataset import Dataset, Windows
from edge_export.data.references import measure_references, rates_of
from edge_export.step_cache import Say
from edge_runtime.manifest import InputContract, Reference, SensorReference
from edge_runtime.signal.drift import words as drift_words
from edge_runtime.signal.intake import words


class Expected(NamedTuple):
    """Expectations that are written into the bundle."""

    references: tuple[Reference, ...] = ()
    sensors: SensorReference | None = None


def measure_expected(
    windows: Windows,
    recordings: Dataset,
    contract: InputContract,
    triads: Sequence[Sequence[str]],
    cost: Cost,
    say: Say,
) -> Expected:
    """Measure both, and say what was found.

    Args:
        windows: windows of all groups that may be learnt from.
        recordings: the recordings that they were cut from.
        contract: their channels.
        triads: sensors' axes as a recipe names them; empty finds them by name and unit.
        cost: a fault's cost, in accuracy.
        say: takes a line for each.
    """
    references = measure_references(windows, contract, triads, rates_of(recordings, contract))
    for name, text in words.references(references, contract).items():
        say(f"reference: {name}: {text}")
    sensors = measure_sensors(windows, contract, triads_of(contract, triads), cost)
    for name, text in drift_words.notices(sensors).items():
        say(f"sensors: {name}: {text}")
    return Expected(references, sensors)
