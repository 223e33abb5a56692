"""Names of channels and fields, as people and programs write them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.tools.listen.names import name_of


@pytest.mark.parametrize(
    ("text", "quantity", "axis", "unit"),
    [
        ("ax", "acceleration", "x", ""),
        ("accelX", "acceleration", "x", ""),
        ("acc_y", "acceleration", "y", ""),
        ("ax (m/s2)", "acceleration", "x", "m/s2"),
        ("[name=accelerometer].values.z", "acceleration", "z", ""),
        ("linearAccelerationX", "linear acceleration", "x", ""),
        ("x_axis", "", "x", ""),
        ("yAxis", "", "y", ""),
        ("axis-z", "", "z", ""),
        ("zaxis", "", "z", ""),
        ("AccelXAxis", "acceleration", "x", ""),
        ("accel_y_axis", "acceleration", "y", ""),
        ("accelerationX", "acceleration", "x", ""),
        ("accelerationx", "acceleration", "x", ""),
        ("xAccel", "acceleration", "x", ""),
        ("zacc", "acceleration", "z", ""),
        ("userAccelerationY", "linear acceleration", "y", ""),
        ("GyroscopeZ", "rotation rate", "z", ""),
        ("wx", "rotation rate", "x", ""),
        ("gyro_x_dps", "rotation rate", "x", "deg/s"),
        ("rotationRate.alpha", "rotation rate", "z", ""),
        ("esp/imu/accel_x/state", "acceleration", "x", ""),
        ("params.temperature:0.tC", "temperature", "", "Cel"),
        ("params.temperature:0.tF", "temperature", "", "[degF]"),
        ("AM2301.Temperature", "temperature", "", ""),
        ("temperature_c", "temperature", "", "Cel"),
        ("HumidityRatio", "humidity ratio", "", ""),
        ("pressure_hpa", "pressure", "", "hPa"),
        ("battery", "", "", ""),
    ],
)
def test_a_name_says_quantity_axis_and_unit(text: str, quantity: str, axis: str, unit: str) -> None:
    found = name_of(text)
    assert (found.quantity, found.axis, found.unit) == (quantity, axis, unit)


@pytest.mark.parametrize(("name", "unit", "quantity"), [("x", "g", "acceleration"), ("c1", "Cel", "temperature")])
def test_the_unit_of_a_channel_tells_the_quantity_where_the_name_does_not(name: str, unit: str, quantity: str) -> None:
    assert name_of(name, unit).quantity == quantity


@given(st.text(max_size=80))
def test_any_text_is_taken_apart(text: str) -> None:
    assert isinstance(name_of(text).words, frozenset)


@pytest.mark.parametrize("text", ["x_axis", "values.x", "payload.sensor.raw_x", "x value"])
def test_words_that_say_nothing_beside_an_axis_are_left_out(text: str) -> None:
    """Mutation that this finds: a phone that sends its accelerometer alone is not matched."""
    found = name_of(text)
    assert (found.words, found.axis) == (frozenset(), "x")
