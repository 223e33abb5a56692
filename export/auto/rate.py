"""How many samples a second there are: said, in the files' headers, or in their stamps."""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

from edge_runtime.errors import ConfigError
from export.auto.contents import Content, Kind
from export.auto.wishes import Wishes
from export.readers.spec import UNITS_PER_S


def rate_of(
    kind: Kind, files: Sequence[Content], wishes: Wishes, time: str, notes: dict[str, str]
) -> tuple[float, str]:
    """Samples per second, and the unit of the stamps.

    Args:
        kind: of the files.
        files: all of them.
        wishes: what is known already.
        time: column of the stamps; empty for none.
        notes: takes a line that says where the rate is from.

    Raises:
        ConfigError: no file tells, or files differ.
    """
    if kind == "wav":
        rates = sorted({file.rate_hz for file in files})
        rate = wishes.rate_hz or _common_rate(rates, files)
        said = f"{', '.join(f'{each:g}' for each in rates)} Hz in the files"
        notes["rate"] = "as --rate says" if wishes.rate_hz else said
        return rate, "s"
    if not time:
        if not wishes.rate_hz:
            raise ConfigError(f"{files[0].name}: has no column of stamps; say --rate HZ, or --time COLUMN")
        notes["rate"] = "as --rate says; no stamps"
        return wishes.rate_hz, "s"
    steps = np.concatenate([_steps(file, time) for file in files])
    step = float(np.median(steps[steps > 0])) if (steps > 0).any() else 0.0
    if not step:
        raise ConfigError(f"column {time!r} does not rise; name the stamps with --time, or say --rate HZ")
    unit = wishes.time_unit or _unit_of(time, step)
    rate = UNITS_PER_S[unit] / step
    nice = wishes.rate_hz or (round(rate) if abs(rate - round(rate)) < 0.03 * rate and rate > 3 else rate)
    notes["rate"] = f"median step of column {time!r} in {unit} gives {rate:.4g} Hz"
    return float(f"{nice:.6g}"), unit


def _common_rate(rates: Sequence[float], files: Sequence[Content]) -> float:
    """The fastest of at most 16 kHz that all files reach by leaving out samples."""
    lowest = rates[0]
    for divisor in range(1, 64):
        rate = lowest / divisor
        if rate <= 16_000 and all(each % rate == 0 for each in rates):
            return rate
    odd = next(file.name for file in files if file.rate_hz % lowest)
    raise ConfigError(
        f"{odd}: its rate is no multiple of {lowest:g} Hz, which others have; convert it, or move it away"
    )


def _steps(file: Content, time: str) -> np.ndarray:
    try:
        stamps = np.asarray(file.columns[time], np.float64)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{file.name}: column {time!r} holds other than numbers; give stamps in seconds") from error
    if not np.isfinite(stamps).all():
        raise ConfigError(f"{file.name}: column {time!r} holds a stamp that is no number")
    return np.diff(stamps)


def _unit_of(column: str, step: float) -> str:
    """Unit of stamps: what the column's name ends in, else seconds where that makes more than one sample a second."""
    for unit in ("ms", "us", "ns"):
        if re.search(rf"(?:^|[_\[( ]){unit}[\])]?$", column.lower()):
            return unit
    if step < 1:
        return "s"
    return "ms" if step < 1e4 else "us" if step < 1e7 else "ns"
