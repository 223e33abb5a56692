"""Sensor references in a manifest."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from edge_runtime.manifest import dump, parse
from edge_runtime.manifest.drift import OwnPast, Repair, SensorReference
from tests.edge_runtime.manifests import manifest
from tests.edge_runtime.signal.drift.sensors import SWAP, UNIT, described, reference


def test_a_manifest_with_sensors_is_read_as_it_was_written() -> None:
    known = described(reference(SWAP, UNIT))
    assert parse(dump(known)) == known


def test_a_manifest_without_sensors_has_no_word_of_them() -> None:
    assert b"sensors" not in dump(manifest())
    assert b"factors" not in dump(described(reference(SWAP)))


def test_the_first_schema_has_no_room_for_sensors() -> None:
    with pytest.raises(ValueError, match="write 2"):
        dataclasses.replace(described(), schema_version=1)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"channels": ("ax", "ax", "az")}, "all different"),
        ({"floors": (0.1, 0.0, 0.1)}, "above 0"),
        ({"centres": ((1.0, 2.0),)}, "rows of 12 features"),
        ({"spread": (1.0,) * 11}, "12 numbers above 0"),
        ({"correlations": (0.0,) * 65}, "66 numbers between"),
        (
            {"own": OwnPast(windows=0, spread=(1.0,) * 9, correlations=(0.0,) * 36, threshold=1.0)},
            "at least one window",
        ),
        ({"repairs": (dataclasses.replace(SWAP, takes=("ay", "ay", "az")),)}, "take each of ax, ay, az once"),
        ({"repairs": (dataclasses.replace(UNIT, factors=(1.0,)),)}, "a factor for each channel"),
    ],
)
def test_a_reference_that_contradicts_itself_is_refused(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        dataclasses.replace(reference(), **change)


def test_a_reference_of_a_channel_that_no_sensor_sends_is_refused() -> None:
    known = reference()
    other = SensorReference(
        channels=("ax", "ay", "wz"),
        floors=known.floors,
        centres=known.centres,
        spread=known.spread,
        correlations=known.correlations,
    )
    with pytest.raises(ValueError, match="'wz'"):
        described(other)


@pytest.mark.parametrize(("field", "value"), [("fault", ""), ("threshold", 0.0), ("factors", (1.0, -1.0, 1.0))])
def test_a_repair_that_cannot_be_is_refused(field: str, value: Any) -> None:
    with pytest.raises(ValueError, match="repair"):
        dataclasses.replace(Repair(fault="one", cause="unit", unit="g"), **{field: value})
