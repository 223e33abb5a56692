"""Units of measurement: a table of those that sensors have, with exact factors and offsets.

Names are UCUM's (https://ucum.org/ucum) with the sensor world's exceptions: ``g`` and ``mg`` are accelerations, as data
sheets of accelerometers have them, not masses; ``%RH`` is ``%``. Other spellings are known, too: ``m/s²``, ``°/s``,
``C``, ``kph``. Factors are ratios of whole numbers, so a conversion is rounded once; only rad goes through pi.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Final

_PI_180: Final = "{}/{}".format(*(180 / math.pi).as_integer_ratio())

# By kind: each unit's factor to the kind's first unit, and an offset in that unit where its zero is another.
_KINDS: Final[dict[str, dict[str, str]]] = {
    "number": {"1": "1", "%": "1/100", "m%": "1e-5", "ppth": "1e-3", "ppm": "1e-6", "ppb": "1e-9"},
    "acceleration": {"m/s2": "1", "g": "9.80665", "mg": "0.00980665", "cm/s2": "0.01", "mm/s2": "0.001"},
    "angle": {"deg": "1", "rad": _PI_180, "mrad": f"{_PI_180}e3"},
    "angular velocity": {"deg/s": "1", "rad/s": _PI_180, "mdeg/s": "0.001", "mrad/s": f"{_PI_180}e3", "rpm": "6"},
    "temperature": {"K": "1", "Cel": "1 273.15", "mCel": "0.001 273.15", "[degF]": "5/9 2298.35/9"},
    "pressure": {
        "Pa": "1", "hPa": "100", "mbar": "100", "kPa": "1000", "bar": "100000", "MPa": "1e6",
        "mm[Hg]": "133.322", "[in_i'Hg]": "3386.3788", "[psi]": "6894.757293168", "atm": "101325",
    },
    "voltage": {"V": "1", "uV": "1e-6", "mV": "0.001", "kV": "1000"},
    "current": {"A": "1", "uA": "1e-6", "mA": "0.001", "kA": "1000"},
    "resistance": {"Ohm": "1", "mOhm": "0.001", "kOhm": "1000", "MOhm": "1e6"},
    "power": {"W": "1", "uW": "1e-6", "mW": "0.001", "kW": "1000", "MW": "1e6"},
    "apparent power": {"VA": "1", "kVA": "1000"},
    "reactive power": {"var": "1", "kvar": "1000"},
    "energy": {"J": "1", "mJ": "0.001", "kJ": "1000", "MJ": "1e6", "Wh": "3600", "kWh": "3.6e6", "MWh": "3.6e9"},
    "charge": {"Ah": "1", "mAh": "0.001"},
    "frequency": {"Hz": "1", "kHz": "1000", "MHz": "1e6", "GHz": "1e9", "/min": "1/60"},
    "time": {"s": "1", "ns": "1e-9", "us": "1e-6", "ms": "0.001", "min": "60", "h": "3600", "d": "86400"},
    "length": {
        "m": "1", "nm": "1e-9", "um": "1e-6", "mm": "0.001", "cm": "0.01", "km": "1000",
        "[in_i]": "0.0254", "[ft_i]": "0.3048", "[mi_i]": "1609.344",
    },
    "speed": {
        "m/s": "1", "mm/s": "0.001", "cm/s": "0.01", "km/h": "1/3.6", "[mi_i]/h": "0.44704", "[kn_i]": "1852/3600",
    },
    "mass": {"kg": "1", "t": "1000", "[lb_av]": "0.45359237"},
    "force": {"N": "1", "mN": "0.001", "kN": "1000"},
    "torque": {"N.m": "1", "mN.m": "0.001"},
    "concentration": {"g/m3": "1", "mg/m3": "0.001", "ug/m3": "1e-6"},
    "volume": {"m3": "1", "L": "0.001", "mL": "1e-6"},
    "flow": {"m3/s": "1", "m3/h": "1/3600", "L/s": "0.001", "L/min": "1/60000", "L/h": "1/3600000"},
    "magnetic field": {"T": "1", "mT": "0.001", "uT": "1e-6", "nT": "1e-9", "G": "1e-4", "mG": "1e-7"},
    "illuminance": {"lx": "1", "klx": "1000"},
    "irradiance": {"W/m2": "1", "mW/cm2": "10"},
    "conductivity": {"S/m": "1", "mS/cm": "0.1", "uS/cm": "1e-4"},
    "level": {"dB": "1"},
    "sound level": {"dB[A]": "1"},
    "signal strength": {"dBm": "1"},
    "acidity": {"[pH]": "1"},
}  # fmt: skip

_SPELLINGS: Final[dict[str, str]] = {
    "1": "/ none ratio", "%": "%RH %EL /100 percent pct %rH %Rh", "ppth": "/1000 ‰",
    "/min": "bpm 1/min beats/min beat/min", "m%": "m%RH",
    "m/s2": "m/s/s m/sec2 mps2 ms-2 m*s-2 m.s-2", "g": "[g] G-force gn g0", "mg": "m[g] mgn", "cm/s2": "Gal",
    "deg": "° degree degrees", "rad": "radian radians",
    "deg/s": "°/s dps degrees/s deg/sec °/sec", "rad/s": "rad/sec", "mdeg/s": "mdps",
    "rpm": "r/min rev/min {rev}/min tr/min",
    "K": "kelvin °K", "Cel": "°C degC C ℃ celsius deg_c", "mCel": "m°C mdegC", "[degF]": "°F degF F ℉ fahrenheit deg_f",
    "mm[Hg]": "mmHg torr Torr", "[in_i'Hg]": "inHg", "[psi]": "psi", "atm": "atmosphere", "bar": "bars",
    "mbar": "mbars millibar", "Ohm": "Ω ohm ohms", "kOhm": "kΩ kohm", "MOhm": "MΩ", "mOhm": "mΩ",
    "V": "volt volts", "A": "amp amps ampere", "W": "watt watts", "Ah": "A.h", "mAh": "mA.h",
    "var": "VAr VAR", "kvar": "kVAr kVAR", "Wh": "W.h", "kWh": "kW.h", "MWh": "MW.h",
    "s": "sec second seconds", "ms": "msec", "us": "usec", "min": "minute minutes", "h": "hour hours hr",
    "d": "day days", "m": "metre meter metres meters", "um": "micron",
    "[in_i]": "in inch inches", "[ft_i]": "ft foot feet", "[mi_i]": "mi mile miles",
    "km/h": "kph kmh km/hr", "[mi_i]/h": "mph mi/h", "[kn_i]": "kn kt knot knots", "m/s": "m/sec mps",
    "[lb_av]": "lb lbs", "N.m": "Nm N*m", "mN.m": "mNm",
    "L": "l litre liter", "mL": "ml", "L/s": "l/s", "L/min": "l/min lpm", "L/h": "l/h",
    "G": "Gs gauss", "mG": "mGs", "T": "tesla", "lx": "lux", "klx": "klux",
    "dB[A]": "dBA dB(A)", "[pH]": "pH",
}  # fmt: skip

MAX_CHARS: Final = 64
"""Longest text that may be a unit."""

_REWRITTEN: Final = str.maketrans({"²": "2", "³": "3", "^": None, "µ": "u", "μ": "u", "·": ".", "⋅": "."})
_IN_NAME: Final = re.compile(r"[(\[]\s*([^()]+?)\s*[)\]]\s*$")


class UnitError(ValueError):
    """Unit that is not known, or that does not convert into another one; the text says what to write."""


def _ratio(text: str) -> tuple[int, int]:
    """Read ``a/b`` with decimal fractions and exponents, exactly."""
    top, _, bottom = text.partition("/")
    (a, b), (c, d) = _decimal(top), _decimal(bottom or "1")
    return a * d, b * c


def _decimal(text: str) -> tuple[int, int]:
    digits, _, exponent = text.partition("e")
    whole, _, fraction = digits.partition(".")
    power = int(exponent or 0) - len(fraction)
    return int(whole + fraction) * 10 ** max(power, 0), 10 ** max(-power, 0)


_KIND: Final = {unit: kind for kind, members in _KINDS.items() for unit in members}
_NAMES: Final = {unit: unit for unit in _KIND} | {
    spelling.translate(_REWRITTEN): unit for unit, spellings in _SPELLINGS.items() for spelling in spellings.split()
}


def canonical(unit: str) -> str:
    """Return the table's name of a unit; empty where it is not known.

    >>> canonical("m/s²"), canonical("°C"), canonical("furlong")
    ('m/s2', 'Cel', '')
    """
    return _NAMES.get(unit.strip().translate(_REWRITTEN), "")


@lru_cache(maxsize=1024)
def convert(given: str, wanted: str) -> tuple[float, float]:
    """Find factor and offset from one unit to another: ``wanted = given * factor + offset``.

    A unit always converts to itself, known or not.

    >>> convert("m/s2", "g"), convert("[degF]", "Cel")
    ((0.10197162129779283, 0.0), (0.5555555555555556, -17.77777777777778))

    Raises:
        UnitError: one of them is not known, or they measure different things.
    """
    if same(given, wanted):
        return 1.0, 0.0
    source, target = canonical(given), canonical(wanted)
    for unit, known in ((given, source), (wanted, target)):
        if not known or len(unit) > MAX_CHARS:
            import difflib  # noqa: PLC0415 - only where something is wrong

            near = difflib.get_close_matches(unit, _NAMES, n=1, cutoff=0.5)
            raise UnitError(f"unit {unit[:40]!r} is not known" + (f"; did you mean {near[0]!r}?" if near else ""))
    if _KIND[source] != _KIND[target]:
        raise UnitError(f"{given!r} is a unit of {_KIND[source]}, {wanted!r} one of {_KIND[target]}")
    (a, b), (c, d) = _scale(source)
    (e, f), (g, h) = _scale(target)
    return a * f / (b * e), (c * h - g * d) * f / (d * h * e)


@lru_cache(maxsize=64)
def conversions(wanted: str) -> tuple[tuple[str, float, float], ...]:
    """Find the other units that convert into one, with factor and offset (see `convert`), common ones first.

    >>> conversions("Cel")[0]
    ('K', 1.0, -273.15)
    """
    kind = _KINDS.get(_KIND.get(canonical(wanted), ""), {})
    return tuple((unit, *convert(unit, wanted)) for unit in kind if not same(unit, wanted))


def _scale(unit: str) -> tuple[tuple[int, int], tuple[int, int]]:
    factor, _, offset = _KINDS[_KIND[unit]][unit].partition(" ")
    return _ratio(factor), _ratio(offset or "0")


def same(a: str, b: str) -> bool:
    """Return whether two texts are the same unit.

    >>> same("°C", "Cel"), same("mV", "MV")
    (True, False)
    """
    return (canonical(a) or a.strip()) == (canonical(b) or b.strip())


def in_name(name: str) -> str:
    """Return the unit that the name of a field states, as ``ax (m/s2)`` or ``temp [°C]``; empty if none."""
    match = _IN_NAME.search(name[-MAX_CHARS:])  # names come from messages, and the search is cubic
    return match[1] if match and canonical(match[1]) else ""


def split_name(name: str) -> tuple[str, str]:
    """Split the name of a field from what stands in brackets behind it; empty where nothing does.

    Without a pattern: names come from messages, and a search that begins at each bracket or space takes minutes.

    >>> split_name("ax (m/s2)"), split_name("ax")
    (('ax', 'm/s2'), ('ax', ''))
    """
    text = name.rstrip()
    if not text.endswith((")", "]")):
        return name, ""
    inner = text[:-1]
    closed = max(inner.rfind(")"), inner.rfind("]"))
    opens = [place for place in (inner.find("(", closed + 1), inner.find("[", closed + 1)) if place >= 0]
    opened = min(opens, default=-1)
    return (inner[:opened].rstrip(), inner[opened + 1 :]) if 0 <= opened < len(inner) - 1 else (name, "")


def is_real(unit: str) -> bool:
    """Return whether a channel's unit says more than that it is a number."""
    return unit.strip() != "" and canonical(unit) != "1"


def line(stated: Iterable[tuple[str, str]]) -> str:
    """Return the line of configuration that states units, as ``units = {ax = "m/s2"}``."""
    return "units = {" + ", ".join(f'{name} = "{unit}"' for name, unit in stated) + "}"
