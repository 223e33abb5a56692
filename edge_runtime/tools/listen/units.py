"""Units guessed: from what the name states, the sender's documentation, and the size of the numbers."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from edge_runtime.tools.listen.match import Match, gravity_unit, norms, triads
from edge_runtime.tools.listen.names import name_of
from edge_runtime.tools.listen.senders import Sender

_RANGES: Final[Mapping[str, Sequence[tuple[str, float, float]]]] = {
    "temperature": (("Cel", -40.0, 45.0), ("K", 230.0, 330.0)),
    "humidity": (("%RH", 5.0, 100.0),),
    "pressure": (("hPa", 850.0, 1085.0), ("Pa", 85_000.0, 108_500.0), ("kPa", 85.0, 108.5), ("bar", 0.85, 1.085)),
}
"""What rooms and weather have; a range of one unit overlaps no other's."""
_FASTEST_RAD_S: Final = 40.0
"""Rotation that no wrist and no phone reaches: above it, numbers are degrees per second."""


@dataclass(frozen=True, slots=True)
class UnitGuess:
    """Unit in which a channel comes."""

    unit: str
    """Empty: nothing tells."""
    reason: str
    sure: bool = False
    """Stated by a name or by the sender's documentation, not guessed."""


def guess_units(matches: Sequence[Match], sender: Sender | None) -> dict[str, UnitGuess]:
    """Guess the unit of each matched channel, by the channel's name.

    1. A unit in the field's name counts.
    2. Then what the sender documents.
    3. Then the size: the median norm of three axes of acceleration is near 9.8, 1 or 1000; rotation above
       `_FASTEST_RAD_S` is in degrees; temperature, humidity and air pressure lie in ranges that do not overlap.
    """
    found: dict[str, UnitGuess] = {}
    for one in matches:
        stated = one.candidate.name.unit
        wanted = name_of(one.channel.name, one.channel.unit)
        if stated:  # rule 1
            found[one.channel.name] = UnitGuess(stated, f"as the name {one.candidate.shown!r} states", sure=True)
        elif sender is not None and wanted.quantity in sender.units:  # rule 2
            found[one.channel.name] = UnitGuess(sender.units[wanted.quantity], f"as {sender.name} documents", sure=True)
    for axes in triads(matches):  # rule 3
        if not any(one.channel.name in found for one in axes):
            guess = _of_triad(axes)
            found |= dict.fromkeys((one.channel.name for one in axes), guess)
    for one in matches:
        if one.channel.name not in found:
            found[one.channel.name] = _of_range(one)
    return found


def _of_triad(axes: Sequence[Match]) -> UnitGuess:
    quantity = name_of(axes[0].channel.name, axes[0].channel.unit).quantity
    sizes = norms(axes)
    if not sizes:
        return UnitGuess("", "no sample has all three axes")
    middle, largest = statistics.median(sizes), max(sizes)
    if quantity == "acceleration":
        if unit := gravity_unit(axes):
            return UnitGuess(unit, f"the norm of the three axes is {middle:.3g} in the median, gravity in {unit}")
        return UnitGuess("", f"the norm of the three axes is {middle:.3g} in the median, no gravity in any unit")
    if quantity == "rotation rate":
        if largest > _FASTEST_RAD_S:
            return UnitGuess("deg/s", f"the norm of the three axes reaches {largest:.3g}, too fast for rad/s")
        return UnitGuess("", f"the norm of the three axes reaches {largest:.3g}: rad/s, or slow in deg/s")
    return UnitGuess("", "nothing tells")


def _of_range(one: Match) -> UnitGuess:
    quantity = name_of(one.channel.name, one.channel.unit).quantity
    series = one.candidate.series
    if not series:
        return UnitGuess("", "no number was seen")
    low, high = min(series), max(series)
    for unit, least, most in _RANGES.get(quantity, ()):
        if least <= low and high <= most:
            return UnitGuess(unit, f"{low:.4g} to {high:.4g} is {quantity} in {unit}")
    return UnitGuess("", f"{low:.4g} to {high:.4g} says nothing of the unit")
