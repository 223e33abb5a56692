"""Names of channels and fields taken apart: quantity, axis, stated unit."""

from __future__ import annotations

import itertools
import re
from functools import lru_cache
from typing import Final, NamedTuple

from edge_runtime.units import split_name

_QUANTITIES: Final[dict[str, str]] = {
    "acceleration": "a acc accel acceleration accelerometer totalacceleration accelerationincludinggravity",
    "linear acceleration": "lin linear linacc linearaccel linearacceleration useraccel useracceleration",
    "gravity": "grav gravity",
    "rotation rate": "w g gyr gyro gyroscope omega rotationrate angvel angularrate angularvelocity angular anglvel",
    "magnetic field": "m mag magn magnet magnetometer magneticfield",
    "temperature": "t temp temperature tempc tempf tc tf tmp atmp airtemperature degc degf",
    "humidity": "h hum rhum humid humidity rh relativehumidity humidityrelative",
    "pressure": "p press pressure baro barometer relativepressure",
    "light": "light lux lx illuminance illumination brightness",
    "carbon dioxide": "co2 eco2 carbondioxide",
    "humidity ratio": "humidityratio ratio",
    "voltage": "u v volt volts voltage",
    "current": "i amp amps ampere current",
    "power": "power watt watts apower",
    "sound": "sound audio mic microphone",
    "heart": "ecg ekg ppg",
    "vibration": "vib vibration",
    "distance": "distance dist range",
    "altitude": "alt altitude",
    "speed": "speed velocity vel",
}
"""Names of a quantity. Single letters count only before an axis, or where nothing else stands."""
_OF: Final = {word.lower(): quantity for quantity, words in _QUANTITIES.items() for word in words.split()}
_LETTERS: Final = frozenset(word for word in _OF if len(word) == 1)
_QUANTITY_OF_UNIT: Final = {
    "m/s2": "acceleration", "g": "acceleration", "mg": "acceleration", "[g]": "acceleration",
    "rad/s": "rotation rate", "deg/s": "rotation rate", "Cel": "temperature", "K": "temperature",
    "[degF]": "temperature", "degF": "temperature", "%RH": "humidity", "Pa": "pressure", "hPa": "pressure",
    "kPa": "pressure", "bar": "pressure", "mbar": "pressure", "lx": "light", "ppm": "carbon dioxide",
    "V": "voltage", "mV": "voltage", "A": "current", "mA": "current", "W": "power", "uT": "magnetic field",
}  # fmt: skip
_AXES: Final = {
    "x": "x",
    "y": "y",
    "z": "z",
    "roll": "x",
    "pitch": "y",
    "yaw": "z",
    "beta": "x",
    "gamma": "y",
    "alpha": "z",
}
_WORD: Final = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+")
_LONGEST_UNIT: Final = 16
_AXIS: Final = re.compile(r"^(?:(.*?[xyz])[ _-]?ax[ie]s|ax[ie]s[ _-]?([xyz]))$", re.IGNORECASE)
"""``x_axis``, ``AccelXAxis``, ``axis-z``: the word says nothing beside the letter."""
_FILLERS: Final = frozenset(
    ("axis", "axes", "value", "values", "val", "raw", "reading", "readings", "data", "payload", "component", "sensor")
)
"""Words that say nothing beside an axis."""
_AHEAD: Final = re.compile(r"^([xyz])_?([a-z]{2,24})$")
_GLUED: Final = re.compile(r"^([a-z]{1,24}?)_?([xyz])$")
_TAIL_UNITS: Final = {
    "c": ("temperature", "Cel"), "f": ("temperature", "[degF]"), "k": ("temperature", "K"), "pct": ("humidity", "%"),
    "percent": ("humidity", "%"), "hpa": ("", "hPa"), "kpa": ("", "kPa"), "pa": ("", "Pa"), "mbar": ("", "mbar"),
    "bar": ("", "bar"), "mg": ("", "mg"), "g": ("acceleration", "g"), "ms2": ("", "m/s2"), "mps2": ("", "m/s2"),
    "dps": ("", "deg/s"), "rads": ("", "rad/s"), "radps": ("", "rad/s"), "lux": ("light", "lx"), "lx": ("", "lx"),
    "mv": ("", "mV"), "ma": ("", "mA"), "ut": ("", "uT"), "ppm": ("", "ppm"),
}  # fmt: skip
"""Last words of a name that are a unit: of any quantity, or of the one named."""
_WHOLE: Final = {"tc": ("temperature", "Cel"), "tf": ("temperature", "[degF]"), "rh": ("humidity", "%")}
"""Whole names that say quantity and unit, as Shelly's."""


class Name(NamedTuple):
    """A name, taken apart."""

    words: frozenset[str]
    """In lower case, without those that say quantity and axis."""
    quantity: str = ""
    axis: str = ""
    unit: str = ""
    """As stated in the name; empty where it is not."""


@lru_cache(maxsize=4096)
def name_of(text: str, unit: str = "") -> Name:
    """Take a name apart: ``accel_x (g)``, ``imu.gyro.z``, ``[name=accelerometer].values.y``, ``ax``, ``tC``.

    Args:
        text: a channel, or the path of a field.
        unit: a channel's unit, which may tell the quantity where the name does not.
    """
    stated = unit
    bare, bracketed = split_name(text)
    if bracketed and len(bracketed.strip()) <= _LONGEST_UNIT:
        text, stated = bare, bracketed.strip()
    text = re.sub(r"\[[^\[\]=]+=", "[", text)  # of ``[name=accelerometer]``, the sensor alone says something
    steps = [step for step in re.split(r"[.\[\]=/:\s]+", text) if step]
    words: list[str] = []
    quantity = axis = ""
    for step in steps:
        own, own_quantity, own_axis, own_unit = _step(step)
        words += own
        if quantity and step.lower() in _LETTERS:
            own_quantity = ""  # the value of what stands before
        quantity, axis, stated = own_quantity or quantity, own_axis or axis, stated or own_unit
    if not quantity and unit:
        quantity = _QUANTITY_OF_UNIT.get(unit, "")
    return Name(frozenset(words) - (_FILLERS if axis else frozenset()), quantity, axis, stated)


def _step(step: str) -> tuple[list[str], str, str, str]:
    """Take one step of a path apart: its other words, quantity, axis and unit."""
    if match := _AXIS.match(step):
        step = match[1] or match[2]
    if (known := _known(re.sub(r"[^a-z0-9]", "", step.lower()))) is not None:
        return [], *known
    words, unit = _without_unit([word.lower() for word in _WORD.findall(step)])
    axis = next((_AXES[word] for word in reversed(words) if word in _AXES), "")
    rest = [word for word in words if word not in _AXES and (word not in _OF or word in _LETTERS)]
    return rest, _quantity(words, axis), axis, unit


def _known(plain: str) -> tuple[str, str, str] | None:
    """Look a whole step up: its quantity, axis and unit; None where only its words may say."""
    if plain in _WHOLE:
        quantity, unit = _WHOLE[plain]
        return quantity, "", unit
    if plain in _AXES:
        return "", _AXES[plain], ""
    if plain in _OF:
        return _OF[plain], "", ""
    glued = _GLUED.match(plain)
    if glued and glued[1] in _OF:
        return _OF[glued[1]], glued[2], ""
    ahead = _AHEAD.match(plain)
    if ahead and ahead[2] in _OF:
        return _OF[ahead[2]], ahead[1], ""
    return None


def _without_unit(words: list[str]) -> tuple[list[str], str]:
    """Split a unit from the end of a name's words."""
    if len(words) > 1 and words[-1] in _TAIL_UNITS:
        of, unit = _TAIL_UNITS[words[-1]]
        if not of or any(_OF.get(word) == of for word in words[:-1]):
            return words[:-1], unit
    return words, ""


def _quantity(words: list[str], axis: str) -> str:
    """Find a quantity: of two words together, of the last word, or of a letter before an axis."""
    together = [_OF[a + b] for a, b in itertools.pairwise(words) if a + b in _OF]
    alone = [_OF[word] for word in words if word in _OF and word not in _LETTERS]
    letters = [_OF[word] for word in words if axis and word in _LETTERS and word != axis]
    return next(iter([*together, *reversed(alone), *letters]), "")
