"""Paths into documents."""

from __future__ import annotations

from typing import Any

import pytest

from edge_runtime.errors import InputError
from edge_runtime.io.codecs.paths import ABSENT, conditions, finder, is_field

SENSORS = [{"id": 3, "v": 1.5}, {"id": "hall", "v": 2.5, "on": True}]


@pytest.mark.parametrize(
    ("path", "document", "expected"),
    [
        ("a", {"a": 1}, 1),
        ("a", {"a": None}, None),
        ("a", {"b": 1}, ABSENT),
        ("a", [1], ABSENT),
        ("a.b", {"a": {"b": 1}}, 1),
        ("a.b", {"a.b": 2, "a": {"b": 1}}, 2),
        ("a.b", {"a": 5}, ABSENT),
        ("1", [5, 6], 6),
        ("1", {"1": 7}, 7),
        ("2", [5, 6], ABSENT),
        ("a.1.x", {"a": [0, {"x": 9}]}, 9),
        ("9999999999", [1], ABSENT),
        (".", 5, 5),
        ("", {"": 5}, ABSENT),
        ("[id=3].v", SENSORS, 1.5),
        ("[id=hall].v", SENSORS, 2.5),
        ("[on=true].v", SENSORS, 2.5),
        ("[id=9].v", SENSORS, ABSENT),
        ("[id=3].v", {"id": 3, "v": 4}, 4),
        ("[id=3].v", {"id": 4, "v": 4}, ABSENT),
        ("all[id=3].v", {"all": SENSORS}, 1.5),
        ("[kind.name=t][unit=C].v", {"kind": {"name": "t"}, "unit": "C", "v": 3}, 3),
        ("ax [m/s2]", {"ax [m/s2]": 3}, 3),
        ("temperature:0.tC", {"temperature:0": {"tC": 3}}, 3),
    ],
)
def test_a_path_leads_to_a_value(path: str, document: Any, expected: Any) -> None:
    assert finder(path, ABSENT)(document) is expected


def test_a_condition_that_several_elements_meet_is_refused() -> None:
    with pytest.raises(InputError, match="read them one by one by samples"):
        finder("[n=a].v")([{"n": "a", "v": 1}, {"n": "a", "v": 2}])


@pytest.mark.parametrize(
    ("path", "plain"), [("ax", True), ("a.x", False), ("0", False), ("[a=b]x", False), ("a [g]", True)]
)
def test_a_field_is_told_from_a_path(path: str, plain: bool) -> None:
    assert is_field(path) is plain


def test_all_conditions_have_to_hold() -> None:
    selected = conditions({"name": "accelerometer", "n": "3"})
    assert selected({"name": "accelerometer", "n": 3})
    assert not selected({"name": "accelerometer", "n": 3.5})
    assert not selected({"name": "accelerometer"})
    assert not selected(5)
    assert conditions({})(5)
