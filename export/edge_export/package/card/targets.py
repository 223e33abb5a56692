"""True values of a regression's quantities, from files: they set the intervals, and measure them on keys left out.

1. A window's true value is the mean of the values that its samples have in the quantity's column, if half of them have
   one; or the last of these (`at` = ``end``).
2. With a table of targets, it is the value of the stretch that covers most of the window, if half of it is covered; as
   labels are (`edge_runtime.io.recordings.labels`).
3. Windows without a true value are left out. A value that is no finite number is refused.
4. The half width is that of all windows (`edge_export.conformal`). How well it holds elsewhere is told by
   leaving out one key after another: the half width of the others, and the share of its windows inside.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from edge_export.conformal import half_widths
from edge_runtime.errors import ConfigError
from edge_runtime.io.recordings.columns import is_empty
from edge_runtime.io.recordings.labels import LEAST, Labels, Played, labels_for, read_labels
from edge_runtime.io.recordings.layout import RecordingLayout
from edge_runtime.io.recordings.reader import columns_of, iter_readings
from edge_runtime.manifest import AnyOutput, InputContract
from edge_runtime.manifest.outputs import Quantity, RegressionOutput
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Float32, Float64

At = Literal["mean", "end"]
Array = npt.NDArray[np.float64]

_TABLES = frozenset((".csv", ".tsv", ".parquet", ".jsonl", ".ndjson"))


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRecordings:
    """Recordings whose true values are known.

    Attributes:
        recordings: path and key of each.
        table: of targets; None: a column of the recordings.
        at: where in a window its true value is taken.
    """

    recordings: Sequence[tuple[Path, str]] = ()
    table: Path | None = None
    at: At = "mean"


class _Interval(NamedTuple):
    """Interval of a quantity, and how it held."""

    quantity: Quantity
    windows: int
    """With a true value."""
    inside: Mapping[str, float]
    """Share of each key's windows inside the interval of the other keys."""
    shares: float
    """The same over all windows; NaN where one key is all there is."""

    def text(self, coverage: float) -> str:
        """Describe it in a line."""
        one = self.quantity
        said = f"{one.name}: half width {one.half_width:.4g} {one.unit} for {coverage:g}, of {self.windows} windows"
        if math.isnan(self.shares):
            return f"{said} of one key; give recordings of several keys, so that it is measured on keys left out"
        worst, best = min(self.inside.values()), max(self.inside.values())
        return (
            f"{said}; of each of {len(self.inside)} keys, by the half width of the others: {self.shares:.3f} inside, "
            f"worst key {worst:.3f}, best {best:.3f}"
        )


class Targets:
    """True values of all quantities.

    Args:
        output: names the quantities.
        contract: what a window is.
        measured: files.
        layout: places of things in the recordings; None for the default ones.

    Raises:
        ConfigError: a column is missing, or holds what is no finite number.
    """

    def __init__(
        self,
        output: RegressionOutput,
        contract: InputContract,
        measured: MeasuredRecordings,
        layout: RecordingLayout | None,
    ) -> None:
        self._contract = contract
        self._at = measured.at
        self._tables: list[Labels] = []
        self._samples: list[dict[str, tuple[Float64, Array]]] = []
        for quantity in output.quantities:
            if measured.table is not None:
                self._tables.append(_table(measured, measured.table, quantity, contract))
            else:
                self._samples.append(_columns(measured, quantity, contract, layout or RecordingLayout()))

    def of(self, window: Window) -> list[float]:
        """Return the true value of each quantity; NaN where it is not known."""
        length_s = self._contract.window / self._contract.rate_hz
        end = window.start + length_s
        if self._tables:
            found = (labels.of(window.id, window.key, window.start, end) for labels in self._tables)
            return [float(text) if text else math.nan for text in found]
        return [self._sampled(samples.get(window.key), window.start, end) for samples in self._samples]

    def _sampled(self, samples: tuple[Float64, Array] | None, start: float, end: float) -> float:
        if samples is None:
            return math.nan
        half_s = 0.5 / self._contract.rate_hz
        t, values = samples
        own = values[slice(*np.searchsorted(t, (start - half_s, end - half_s)).tolist())]
        known = own[np.isfinite(own)]
        if len(known) < LEAST * len(own) or not len(known):
            return math.nan
        return float(known[-1] if self._at == "end" else known.mean())


def _table(measured: MeasuredRecordings, path: Path, quantity: Quantity, contract: InputContract) -> Labels:
    labels = labels_for(contract)
    column = _column(path, quantity)
    for cell in columns_of(path)[column]:
        if not is_empty(cell):
            _number(str(cell), path, quantity)
    read_labels(path, labels, Played(tuple(measured.recordings)), column)
    return labels


def _columns(
    measured: MeasuredRecordings, quantity: Quantity, contract: InputContract, layout: RecordingLayout
) -> dict[str, tuple[Float64, Array]]:
    """Read a quantity's column of all recordings: stamps in order and values, by key."""
    times: defaultdict[str, list[Float64]] = defaultdict(list)
    values: defaultdict[str, list[float]] = defaultdict(list)
    for path, key in measured.recordings:

        def take(key: str, t: Float64, cells: Sequence[str], path: Path = path) -> None:
            times[key].append(np.asarray(t, np.float64))
            values[key] += [math.nan if is_empty(cell) else _number(cell, path, quantity) for cell in cells]

        own = replace(layout, label=_column(path, quantity))
        for _ in iter_readings(path, contract, own, key=key, on_refused=lambda _: None, on_labels=take):
            pass
    found = {}
    for key, parts in times.items():
        t = np.concatenate(parts)
        order = np.argsort(t, kind="stable")
        found[key] = (t[order], np.array(values[key])[order])
    return found


def _column(path: Path, quantity: Quantity) -> str:
    """Find the column that is called like the quantity, or like it with its unit behind."""
    names = (quantity.name, f"{quantity.name} ({quantity.unit})")
    if path.suffix.lower() not in _TABLES:
        return quantity.name
    header = list(columns_of(path))
    for name in names:
        if name in header:
            return name
    raise ConfigError(
        f"{path}: has no column {names[0]!r} or {names[1]!r} with the true values; it has {', '.join(header[:20])}: "
        "name the quantity in the card like its column, or give --targets FILE"
    )


def _number(text: str, path: Path, quantity: Quantity) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ConfigError(
            f"{path}: the true value {text[:40]!r} of {quantity.name} is no finite number; correct it, or leave the "
            "cell empty where the value is not known"
        )
    return value


def intervals(output: RegressionOutput, keys: Sequence[str], answers: Float32, targets: Array) -> list[_Interval]:
    """Set and measure the interval of each quantity.

    Args:
        output: quantities and coverage.
        keys: the windows' keys.
        answers: (n, numbers of the model).
        targets: (n, quantities); NaN where a value is not known.

    Raises:
        ConfigError: there are too few true values for the coverage.
    """
    n = len(output.quantities)
    scale = np.array([one.scale for one in output.quantities])
    numbers = np.asarray(answers, np.float64)
    values = (numbers[:, :n] - [one.offset for one in output.quantities]) * scale
    spread = np.maximum(numbers[:, n:], 0) * np.abs(scale) if output.spread else None
    found = []
    for place, quantity in enumerate(output.quantities):
        column = slice(place, place + 1)
        known = np.isfinite(targets[:, place])
        own = None if spread is None else spread[known, column]
        rows = values[known, column], targets[known, column], own
        (half_width,) = half_widths(rows[0], rows[1], output.coverage, own)
        if half_width <= 0:
            raise ConfigError(f"{quantity.name}: all answers are exact, so there is no interval; were they copied?")
        inside = _left_out(np.array(keys)[known], *rows, output.coverage)
        shares = float(np.concatenate(list(inside.values())).mean()) if inside else math.nan
        by_key = {key: float(one.mean()) for key, one in inside.items()}
        found.append(_Interval(replace(quantity, half_width=half_width), int(known.sum()), by_key, shares))
    return found


def _left_out(
    keys: npt.NDArray[np.str_], values: Array, targets: Array, spread: Array | None, coverage: float
) -> dict[str, npt.NDArray[np.bool_]]:
    """Return which windows of each key lie inside the interval of the other keys (rule 4); none of a single key."""
    found = {}
    names = sorted(set(keys.tolist()))
    for key in names if len(names) > 1 else ():
        out = keys == key
        others = None if spread is None else spread[~out]
        (half_width,) = half_widths(values[~out], targets[~out], coverage, others)
        wide = half_width if spread is None else half_width * spread[out]
        found[key] = (np.abs(targets[out] - values[out]) <= wide).reshape(-1)
    return found


def require_open(output: AnyOutput, measured: MeasuredRecordings) -> RegressionOutput | None:
    """Return the output, if true values set its intervals; None where there are no recordings with any.

    Raises:
        ConfigError: it is no regression, or states its intervals already.
    """
    if not measured.recordings:
        return None
    if not isinstance(output, RegressionOutput):
        raise ConfigError(f"--measured sets the intervals of a regression, and [task] is {output.kind}; leave it out")
    if stated := [one.name for one in output.quantities if one.half_width]:
        raise ConfigError(f"quantity {stated[0]!r} states half_width; leave it out of the card, or --measured")
    return output
