"""Units and device classes as Home Assistant writes them; a class is given only with a unit that it takes.

From Home Assistant's developer documentation ("Sensor entity", available device classes).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from edge_runtime import units

_SPELT: Final[Mapping[str, str]] = {
    "1": "", "Cel": "°C", "[degF]": "°F", "K": "K", "Ohm": "Ω", "kOhm": "kΩ", "mm[Hg]": "mmHg", "[psi]": "psi",
    "[in_i'Hg]": "inHg", "[in_i]": "in", "[ft_i]": "ft", "[mi_i]": "mi", "[mi_i]/h": "mph", "[kn_i]": "kn",
    "[lb_av]": "lb", "W/m2": "W/m²", "m3": "m³", "m3/h": "m³/h", "m3/s": "m³/s", "g/m3": "g/m³", "mg/m3": "mg/m³",
    "ug/m3": "µg/m³", "m/s2": "m/s²", "deg": "°", "deg/s": "°/s", "N.m": "Nm", "dB[A]": "dBA", "[pH]": "pH",
    "uV": "µV", "uA": "µA", "uW": "µW", "us": "µs", "um": "µm", "uT": "µT", "uS/cm": "µS/cm",
}  # fmt: skip

_TAKES: Final[Mapping[str, str]] = {
    "apparent_power": "VA", "atmospheric_pressure": "bar hPa kPa inHg mbar mmHg Pa psi", "battery": "%",
    "carbon_dioxide": "ppm", "carbon_monoxide": "ppm", "current": "A mA",
    "distance": "km m cm mm mi ft in", "duration": "d h min s ms", "energy": "J kJ MJ Wh kWh MWh",
    "energy_storage": "J kJ MJ Wh kWh MWh", "frequency": "Hz kHz MHz GHz", "humidity": "%", "illuminance": "lx",
    "irradiance": "W/m²", "moisture": "%", "power": "W kW MW", "pressure": "bar hPa kPa inHg mbar mmHg Pa psi",
    "reactive_power": "var", "signal_strength": "dB dBm", "sound_pressure": "dB dBA",
    "speed": "km/h kn m/s mph mm/s", "temperature": "°C °F K", "voltage": "V mV", "volume": "L mL m³",
    "volume_flow_rate": "m³/h L/min", "volume_storage": "L mL m³", "weight": "kg lb", "wind_speed": "km/h kn m/s mph",
}  # fmt: skip
"""Units of each class. Those with a micro sign are left out: its code point has changed between releases."""

_ACCUMULATE: Final = frozenset(("energy", "volume"))
"""Classes that go with totals; a measurement of such a quantity is a storage."""


def unit_of(unit: str) -> str:
    """Write a unit as Home Assistant does; empty for none.

    >>> unit_of("Cel"), unit_of("1"), unit_of("furlong")
    ('°C', '', 'furlong')
    """
    known = units.canonical(unit)
    return _SPELT.get(known, known or unit.strip())


def class_of(kind: str, unit: str) -> str:
    """Return the device class of a measurement; empty where its unit is none of the class's.

    >>> class_of("temperature", "°C"), class_of("temperature", "kW"), class_of("energy", "kWh")
    ('temperature', '', 'energy_storage')
    """
    name = f"{kind}_storage" if kind in _ACCUMULATE else kind
    return name if unit in _TAKES.get(name, "").split() else ""
