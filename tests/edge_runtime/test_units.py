"""Units: exact factors, spellings, and what does not convert."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime import units

EVERY = sorted(units._KIND)


@pytest.mark.parametrize(
    ("given_", "wanted", "factor", "offset"),
    [
        ("m/s2", "g", 1 / 9.80665, 0),
        ("g", "m/s2", 9.80665, 0),
        ("mg", "g", 0.001, 0),
        ("deg/s", "rad/s", math.pi / 180, 0),
        ("rad/s", "deg/s", 180 / math.pi, 0),
        ("rpm", "rad/s", math.pi / 30, 0),
        ("rpm", "deg/s", 6, 0),
        ("Cel", "K", 1, 273.15),
        ("K", "Cel", 1, -273.15),
        ("[degF]", "Cel", 5 / 9, -160 / 9),
        ("Cel", "[degF]", 1.8, 32),
        ("hPa", "mbar", 1, 0),
        ("bar", "kPa", 100, 0),
        ("mV", "V", 0.001, 0),
        ("kWh", "Wh", 1000, 0),
        ("kWh", "J", 3.6e6, 0),
        ("km/h", "m/s", 1 / 3.6, 0),
        ("[mi_i]/h", "km/h", 1.609344, 0),
        ("%", "1", 0.01, 0),
        ("1", "ppm", 1e6, 0),
        ("G", "uT", 100, 0),
        ("L/min", "m3/h", 0.06, 0),
        ("bpm", "Hz", 1 / 60, 0),
    ],
)
def test_conversions_are_those_of_the_standards(given_: str, wanted: str, factor: float, offset: float) -> None:
    found = units.convert(given_, wanted)
    assert found[0] == pytest.approx(factor, rel=1e-15)
    assert found[1] == pytest.approx(offset, rel=1e-15)


def test_decimal_factors_are_exact() -> None:
    assert units.convert("mg", "g") == (0.001, 0.0)
    assert units.convert("Cel", "[degF]") == (1.8, 32.0)
    assert units.convert("mm", "m") == (0.001, 0.0)
    assert units.convert("mbar", "hPa") == (1.0, 0.0)


@pytest.mark.parametrize(
    ("text", "unit"),
    [("m/s²", "m/s2"), ("m/s^2", "m/s2"), ("°C", "Cel"), ("degC", "Cel"), ("C", "Cel"), ("°F", "[degF]"), ("µT", "uT"),
     ("μT", "uT"), ("°/s", "deg/s"), ("dps", "deg/s"), ("%RH", "%"), (" lux ", "lx"), ("kΩ", "kOhm"),
     ("µg/m³", "ug/m3"), ("mph", "[mi_i]/h"), ("dBA", "dB[A]"), ("Gs", "G")],
)  # fmt: skip
def test_other_spellings_mean_the_same(text: str, unit: str) -> None:
    assert units.canonical(text) == unit
    assert units.convert(text, unit) == (1.0, 0.0)
    assert units.same(unit, text)


@given(
    st.sampled_from(EVERY),
    st.sampled_from(EVERY),
    st.floats(-1e6, 1e6).filter(lambda value: not 0 < abs(value) < 1e-200),
)
def test_there_and_back_is_where_it_began(a: str, b: str, value: float) -> None:
    if units._KIND[a] != units._KIND[b]:
        with pytest.raises(units.UnitError, match="is a unit of"):
            units.convert(a, b)
        return
    factor, offset = units.convert(a, b)
    back, back_offset = units.convert(b, a)
    scale = abs(value) + abs(back_offset) + abs(offset * back)
    assert (value * factor + offset) * back + back_offset == pytest.approx(value, rel=1e-12, abs=1e-12 * scale)


def test_a_unit_that_is_not_known_is_named_with_the_nearest() -> None:
    with pytest.raises(units.UnitError, match="'m/ss' is not known; did you mean"):
        units.convert("m/ss", "g")
    with pytest.raises(units.UnitError, match="'counts' is not known"):
        units.convert("g", "counts")
    assert units.convert("counts", " counts") == (1.0, 0.0)
    assert not units.same("", "counts")


@pytest.mark.parametrize(
    ("name", "unit"),
    [("ax (m/s2)", "m/s2"), ("T [°C]", "°C"), ("Acceleration x (m/s^2)", "m/s^2"), ("ax", ""), ("values (raw)", ""),
     ("(g)", "g"), ("power (total)", ""), ("pressure(hPa) ", "hPa"), ("ax (m/s2) filtered", "")],
)  # fmt: skip
def test_the_name_of_a_field_may_state_the_unit(name: str, unit: str) -> None:
    assert units.in_name(name) == unit


def test_real_units_say_more_than_a_number() -> None:
    assert units.is_real("g")
    assert units.is_real("counts")
    assert not units.is_real("1")
    assert not units.is_real("")


@pytest.mark.parametrize(
    ("name", "split"),
    [
        ("ax (m/s2)", ("ax", "m/s2")),
        ("ax[g] ", ("ax", "g")),
        ("a (b) [c]", ("a (b)", "c")),
        ("a (b (c)", ("a", "b (c")),
        ("(g)", ("", "g")),
        ("ax ()", ("ax ()", "")),
        ("ax (g", ("ax (g", "")),
        ("ax", ("ax", "")),
    ],
)
def test_a_name_is_split_from_what_stands_in_brackets_behind_it(name: str, split: tuple[str, str]) -> None:
    assert units.split_name(name) == split


def test_a_name_of_brackets_is_no_work() -> None:
    """Time is the whole of this test's mutation: searched from each bracket, this name takes minutes."""
    for hostile in ("[" * 100_000, "a" + " " * 100_000 + "b ]"):
        assert units.split_name(hostile) == (hostile, "")
    assert units.in_name("[" * 100_000) == ""
    assert units.in_name("(" * 100_000 + "m/s2)") == "m/s2"
