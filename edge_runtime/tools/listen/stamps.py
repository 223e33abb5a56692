"""Stamps found among fields: where, in which unit, how far from this machine's clock, and how regular."""

from __future__ import annotations

import itertools
import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from edge_runtime.errors import InputError
from edge_runtime.io.codecs.numbers import UNITS_PER_S, TimeUnit, iso8601, unit_of_date
from edge_runtime.io.recordings.columns import is_time, unit_in_name
from edge_runtime.tools.listen.fields import Field, TopicFields

_OTHER_NAMES: Final = frozenset(
    """
    tst last_seen received_at dt datetime measured_at created_at sent_at epoch utc when stamp last_updated last_changed
    timestamp_ms ts_ms time_ms millis loggingtime sampletime
    """.split()  # noqa: SIM905 - a text reads better than words in quotes
)
_ENDINGS: Final = ("time", "timestamp", "stamp", "_at", "_ts", "date", "_time", ".ts", "_t")
_CENTURY_S: Final = 946_684_800.0
"""2000-01-01 UTC."""
_NEVER: Final = ("uptime", "runtime", "timeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stamps:
    """Stamps of a topic's messages."""

    path: str
    unit: TimeUnit
    reason: str
    offset_s: float = math.nan
    """Median of arrival minus stamp, seconds; NaN where arrivals are not known or stamps do not count from 1970."""
    whole_seconds: bool = False
    """All of them are whole seconds."""
    repeated: float = 0.0
    """Share of stamps that are the same as the one before."""
    step_s: float = math.nan
    """Median seconds from one to the next, repeats left out."""
    jitter_s: float = math.nan
    """95 of 100 steps differ from the median by at most this."""
    in_samples: bool = True
    """Each sample has its own, where a message has a list of samples."""

    @property
    def coarse(self) -> bool:
        """Return whether several samples share a stamp, which would lose all but one of them."""
        return self.whole_seconds and self.repeated > 0.2


def duration(seconds: float) -> str:
    """Write a time for people: ``40 s``, ``3.2 hours``, ``12.0 days``, ``3.0 years``."""
    units = (("years", 365.25 * 86400), ("days", 86400.0), ("hours", 3600.0))
    return next((f"{seconds / size:.1f} {unit}" for unit, size in units if seconds >= 2 * size), f"{seconds:.0f} s")


def is_stamp(one: Field) -> bool:
    """Return whether a field may be a stamp: it is called like one and holds numbers or dates."""
    last = one.path.replace("]", ".").rsplit(".", 1)[-1]
    plain = last.strip().lower()
    if plain.endswith(_NEVER):
        return False
    called = is_time(last) or plain in _OTHER_NAMES or plain.endswith(_ENDINGS)
    called = called or _counts_on(one)
    if called and one.kind in ("text", "flag", "nothing"):
        return _is_date(one)
    return called and one.kind != "rows"


def _counts_on(one: Field) -> bool:
    """Return whether numbers are moments of this century, each later than the one before."""
    pairs = list(itertools.pairwise(one.series))
    return len(pairs) > 2 and all(
        (unit := unit_of_date(later))
        and _CENTURY_S < before / UNITS_PER_S[unit] < later / UNITS_PER_S[unit] < 3 * _CENTURY_S
        for before, later in pairs
    )


def _is_date(one: Field) -> bool:
    return bool(one.texts) and not math.isnan(_seconds(one.texts[-1]))


def find_stamps(seen: TopicFields, arrivals: Sequence[float]) -> Stamps | None:
    """Find the stamps of a topic's messages.

    1. A date and time as text, or a number that is a moment from 1973 on in one of the units, counts before a number
       that may count from any start.
    2. A stamp in each sample counts before one around all of them, and a shallow one before a deep one.
    3. A number that counts from some start is in the unit of its name, else in the one in which it grows as fast as
       this machine's clock; else it is in seconds.

    Args:
        seen: the topic.
        arrivals: wall-clock seconds, of each message; NaN where unknown.

    Returns:
        The most likely ones; None where messages carry none.
    """
    likely: list[tuple[bool, bool, int, int, Field]] = []
    for one in seen.fields.values():
        if not is_stamp(one) or (one.constant and one.count > 5):
            continue
        dated = one.kind == "text" or bool(one.series and unit_of_date(one.series[-1]))
        likely.append((not dated, one.around, one.path.count("."), len(likely), one))
    if not likely:
        return None
    _, _, _, _, chosen = min(likely, key=lambda entry: entry[:4])
    return _examined(chosen, _heard_with(chosen, seen, arrivals))


def _heard_with(one: Field, seen: TopicFields, arrivals: Sequence[float]) -> Sequence[float]:
    """Return the arrivals of the messages whose stamps were kept, which are the first ones."""
    stamps = one.count * max(1, one.longest)
    return arrivals[: max(1, round(seen.documents * len(one.series) / stamps))] if one.series and stamps else arrivals


def _examined(one: Field, arrivals: Sequence[float]) -> Stamps:
    unit, reason, dated = _unit(one, arrivals)
    path = one.path.rsplit("].", 1)[-1]
    if unit == "iso8601":
        seconds = [moment for text in one.texts if not math.isnan(moment := _seconds(text))]
    else:
        seconds = [number / UNITS_PER_S[unit] for number in one.series]
    steps = [b - a for a, b in itertools.pairwise(seconds)]
    moved = sorted(step for step in steps if step > 0)
    step = statistics.median(moved) if moved else math.nan
    off = sorted(abs(each - step) for each in moved)
    known = [arrival for arrival in arrivals if not math.isnan(arrival)]
    return Stamps(
        path=path,
        unit=unit,
        reason=reason,
        offset_s=known[-1] - seconds[-1] if known and dated and seconds else math.nan,
        whole_seconds=bool(seconds) and all(value == int(value) for value in seconds),
        repeated=steps.count(0.0) / len(steps) if steps else 0.0,
        step_s=step,
        jitter_s=off[min(len(off) - 1, int(0.95 * len(off)))] if off else math.nan,
        in_samples=not one.around,
    )


def keeps_time(one: Field, arrivals: Sequence[float]) -> bool:
    """Return whether a field without a name holds stamps: dates, or numbers that grow as a clock does."""
    if one.kind == "text":
        return _is_date(one)
    series = one.series
    if one.kind not in ("number", "number as text") or len(series) < 2:
        return bool(series) and unit_of_date(series[-1]) is not None
    grows = all(a <= b for a, b in itertools.pairwise(series)) and series[-1] > series[0]
    return grows and (unit_of_date(series[-1]) is not None or _paced(series, arrivals) is not None)


def _unit(one: Field, arrivals: Sequence[float]) -> tuple[TimeUnit, str, bool]:
    """Return unit, reason, and whether the stamps count from 1970."""
    if one.kind == "text":
        return "iso8601", "date and time as text", True
    last = one.series[-1] if one.series else 0.0
    if (unit := unit_of_date(last)) is not None:
        return unit, f"in {unit}, {last:.0f} is a moment of these years", True
    name = one.path.rsplit(".", 1)[-1]
    if (named := unit_in_name(name)) is not None:
        return named, f"the name {name!r} says so; counted from a start of the sensor's own", False
    if (paced := _paced(one.series, arrivals)) is not None:
        return paced, "it grows as fast as this machine's clock; counted from a start of the sensor's own", False
    return "s", "nothing says otherwise; counted from a start of the sensor's own", False


def _paced(series: Sequence[float], arrivals: Sequence[float]) -> TimeUnit | None:
    """Find the unit in which stamps grow about as fast as arrivals."""
    known = [arrival for arrival in arrivals if not math.isnan(arrival)]
    if len(known) < 2 or len(series) < 2 or known[-1] <= known[0]:
        return None
    pace = (series[-1] - series[0]) / (known[-1] - known[0])
    units: tuple[TimeUnit, ...] = ("s", "ms", "us", "ns")
    return next((unit for unit in units if 0.5 <= pace / UNITS_PER_S[unit] <= 2), None)


def _seconds(text: str) -> float:
    try:
        return iso8601(text)
    except InputError:
        return math.nan
