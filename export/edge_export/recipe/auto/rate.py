"""Sampling rate and unit of stamps: as the user said, from the files' headers, or from their stamps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from edge_export.recipe.auto.contents import Content, Kind
from edge_export.recipe.auto.hints import Hints
from edge_export.recipe.splits import UNALIKE
from edge_runtime.base.media.resample import ratio
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs.numbers import UNITS_PER_S, TimeUnit, unit_of_date
from edge_runtime.io.recordings.columns import are_texts, seconds_of, time_positions, unit_in_name

OTHER_UNIT = 30.0
"""Ratio of two files' rates from on which one of them has stamps in another unit."""
SLOWEST_HZ, FASTEST_HZ = 2.0, 500.0
"""Between these lies the rate of most sensors: at most one unit of whole-numbered stamps gives such a rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """Place of the samples in time.

    Attributes:
        hz: samples a second that all files are read at.
        time: column of the stamps; empty where samples lie one period apart.
        unit: of the stamps.
        notes: what it rests on, and what is odd, a line each.
    """

    hz: float
    time: str
    unit: TimeUnit
    notes: tuple[str, ...]


def time_column(files: Sequence[Content], hints: Hints) -> str:
    """Find the column of the stamps; empty where there is none.

    Raises:
        ConfigError: several columns are called so, or a file lacks it.
    """
    names = list(files[0].columns)
    found = [names[place] for place in time_positions(names)]
    if not hints.time and len(found) > 1:
        raise ConfigError(f"{files[0].name}: which are the stamps, {' or '.join(found)}? say --time-column COLUMN")
    time = hints.time or next(iter(found), "")
    for file in files:
        if time and time not in file.columns:
            raise ConfigError(f"{file.name}: has no column {time!r} for the time; it has {', '.join(file.columns)}")
    return time


def rate_of(kind: Kind, files: Sequence[Content], hints: Hints, time: str) -> Rate:
    """Find the samples per second, and the unit of the stamps.

    Args:
        kind: the files' kind.
        files: all of them.
        hints: what is known already.
        time: column of the stamps; empty for none.

    Raises:
        ConfigError: no file tells, files differ by more than a rate may, or stamps can be read in two ways.
    """
    if kind == "wav":
        rates = sorted({file.rate_hz for file in files})
        rate = hints.rate_hz or _common_rate(rates, files)
        said = f"{', '.join(f'{each:g}' for each in rates)} Hz in the files"
        return Rate(hz=rate, time="", unit="s", notes=("as --rate says" if hints.rate_hz else said,))
    if not time:
        return _without_stamps(files, hints)
    stamps = [_stamps(file, time) for file in files]
    steps = [_step(each) for each in stamps]
    if not any(steps):
        raise ConfigError(f"column {time!r} does not rise; name the stamps with --time-column, or say --rate HZ")
    typical = float(np.median([step for step in steps if step]))
    if coarse := _coarse(stamps):
        if not hints.rate_hz:
            raise ConfigError(
                f"column {time!r} stands still for about {coarse} rows at a time, so it is too coarse to tell samples "
                "apart; say --rate HZ, and rows count as one period apart"
            )
        return Rate(
            hz=hints.rate_hz, time="", unit="s", notes=(f"as --rate says; column {time!r} is too coarse and not used",)
        )
    unit, why = _unit(files[0], time, stamps[0], typical, hints)
    if not unit:
        return Rate(hz=hints.rate_hz, time="", unit="s", notes=(why,))
    return _from_steps(files, steps, time, unit, why, hints)


def _without_stamps(files: Sequence[Content], hints: Hints) -> Rate:
    stated = {float(file.columns[name]) for file in files for name in ("rate_hz", "rate") if _is_single(file, name)}
    if hints.rate_hz:
        return Rate(hz=hints.rate_hz, time="", unit="s", notes=("as --rate says; no stamps",))
    if len(stated) == 1 and (rate := stated.pop()) > 0:
        return Rate(hz=rate, time="", unit="s", notes=("as the files say; no stamps",))
    raise ConfigError(f"{files[0].name}: has no column of stamps; say --rate HZ, or --time-column COLUMN")


def _is_single(file: Content, name: str) -> bool:
    return name in file.columns and np.ndim(file.columns[name]) == 0


def _from_steps(
    files: Sequence[Content], steps: Sequence[float], time: str, unit: TimeUnit, why: str, hints: Hints
) -> Rate:
    rates = [UNITS_PER_S.get(unit, 1.0) / step if step else 0.0 for step in steps]
    typical = float(np.median([rate for rate in rates if rate]))
    for file, rate in zip(files, rates, strict=True):
        if rate and not 1 / OTHER_UNIT < rate / typical < OTHER_UNIT:
            raise ConfigError(
                f"{file.name}: its stamps give {rate:.4g} Hz, those of others {typical:.4g} Hz; are they in another "
                "unit? convert them, or move the file away"
            )
    slowest, fastest = min(rate for rate in rates if rate), max(rates)
    notes = [f"median step of column {time!r} in {unit} gives {typical:.4g} Hz{why}"]
    if fastest > (1 + UNALIKE) * slowest:
        odd = files[rates.index(slowest)].name
        notes.append(
            f"files differ: {slowest:.4g} Hz ({odd}) to {fastest:.4g} Hz "
            f"({files[rates.index(fastest)].name}); all are resampled to one rate"
        )
        typical = slowest  # what is slower than the model's rate would have holes between its samples
    nice = round(typical) if abs(typical - round(typical)) < 0.03 * typical and typical > 3 else typical
    return Rate(hz=float(f"{hints.rate_hz or nice:.6g}"), time=time, unit=unit, notes=tuple(notes))


def _common_rate(rates: Sequence[float], files: Sequence[Content]) -> float:
    """Find the fastest rate of at most 16 kHz that divides all rates; else the slowest file's, or 16 kHz."""
    lowest = rates[0]
    for divisor in range(1, 64):
        rate = lowest / divisor
        if rate <= 16_000 and all(each % rate == 0 for each in rates):
            return rate
    rate = min(lowest, 16_000.0)
    for file in files:
        try:
            ratio(file.rate_hz, rate)
        except ConfigError as error:
            raise ConfigError(f"{file.name}: {error}; or move it away") from None
    return rate


# -- stamps ------------------------------------------------------------------------------------------------------------


def _stamps(file: Content, time: str) -> np.ndarray:
    """Return the stamps of a file without empty cells: numbers as they stand there, dates as seconds."""
    column = file.columns[time]
    try:
        stamps = seconds_of(column, "iso8601" if are_texts(column) else "s")
    except InputError as error:
        raise ConfigError(f"{file.name}: column {time!r}: {error}") from error
    return stamps[np.isfinite(stamps)]


def _step(stamps: np.ndarray) -> float:
    """Return the median of the steps forward; 0 where there is none."""
    steps = np.diff(stamps)
    return float(np.median(steps[steps > 0])) if (steps > 0).any() else 0.0


def _coarse(stamps: Sequence[np.ndarray]) -> int:
    """Count rows that share a stamp, where most rows have the stamp of the row before; else 0."""
    steps = np.concatenate([np.diff(each) for each in stamps])
    still = float((steps == 0).mean()) if len(steps) else 0.0
    return round(1 / (1 - still)) if 0.5 < still < 1 else 0


def _unit(
    first: Content, time: str, stamps: np.ndarray, step: float, hints: Hints
) -> tuple[TimeUnit | Literal[""], str]:
    """Infer the unit of a column of stamps, with a note; no unit where the column only counts rows.

    1. What was said, dates as texts, a unit in the column's name, and dates as numbers leave no doubt.
    2. A stated rate decides; where it fits none and stamps rise by 1, they count rows.
    3. Fractions count seconds.
    4. Of whole numbers, the unit that gives a rate from 2 to 500 Hz is assumed. Where none does, as with steps of 1
       (seconds, milliseconds or rows), or steps may be whole minutes, it is asked for.
    """
    if hints.time_unit:  # rule 1
        return hints.time_unit, ""
    if are_texts(first.columns[time]):
        return "iso8601", ""
    if (certain := unit_in_name(time) or unit_of_date(float(stamps[0]))) is not None:
        return certain, ""
    rates: dict[TimeUnit, float] = {"s": 1 / step, "ms": 1e3 / step, "us": 1e6 / step, "ns": 1e9 / step}
    if hints.rate_hz:  # rule 2
        for unit, rate in rates.items():
            if 0.5 < rate / hints.rate_hz < 2:
                return unit, ", which fits --rate"
        if step == 1:
            return "", f"as --rate says; column {time!r} counts rows"
        raise ConfigError(
            f"column {time!r} rises by {step:g}, which is {hints.rate_hz:g} Hz in no unit; say --time-unit"
        )
    if step < 1:  # rule 3
        return "s", "; seconds are assumed, as fractions mostly are"
    for unit, rate in rates.items():  # rule 4
        minutes = unit == "ms" and step % 60 == 0 and step <= 3600
        if SLOWEST_HZ < rate < FASTEST_HZ and not minutes:
            return unit, f"; {unit} is assumed, other units would give {rate / 1e3:.2g} or {rate * 1e3:.2g} Hz"
    options = " or ".join(f"{unit} ({rate:.4g} Hz)" for unit, rate in rates.items() if 1e-3 < rate < 1e5)
    raise ConfigError(
        f"column {time!r} rises by {step:g} a row: in which unit? say --time-unit {options}"
        + (", or --rate HZ if it counts rows" if step == 1 else "")
    )
