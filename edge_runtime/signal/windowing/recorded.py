"""Windows of recordings, cut by the code that cuts them on a device."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from edge_runtime.manifest import InputContract
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.join import windower_of
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Float32, Float64, Reading


class Table(NamedTuple):
    """Samples of one sensor of a recording, with stamps of their own."""

    columns: tuple[int, ...]
    """Columns of the contract that `values` holds, in that order."""
    t: Float64
    """(n,) seconds."""
    values: Float32
    """(n, columns)."""


def cut_recording(contract: InputContract, key: str, t: float | Float64, values: Float32) -> list[Window]:
    """Cut all windows of one recording, as training and evaluation do, so that they see what a device sees.

    Args:
        contract: what a window is.
        key: the windows' key.
        t: stamp of the first sample or of each, seconds.
        values: (n, channels) of all channels that sensors send: masks are not among them.
    """
    windower = windower_of(contract)
    sent = tuple(column for column, channel in enumerate(contract.channels) if not channel.mask_of)
    windows = windower.push([Reading(key, t, values, 0.0, None if len(sent) == len(contract.channels) else sent)])
    windows.extend(windower.flush())
    return windows


def cut_tables(contract: InputContract, key: str, tables: Sequence[Table]) -> list[Window]:
    """Cut all windows of one recording whose sensors have stamps of their own, as `cut_recording` does."""
    windower = windower_of(contract, parts=True)
    windows: list[Window] = []
    for reading in _interleaved(key, tables, WindowConfig().wait(contract) / 2):
        windows += windower.push([reading])
    return windows + windower.flush()


def _interleaved(key: str, tables: Sequence[Table], span_s: float) -> Iterator[Reading]:
    """Play the tables side by side: none gets so far ahead that another one would be late."""
    sorted_tables = []
    for columns, t, values in tables:
        order = np.argsort(t, kind="stable")
        sorted_tables.append((columns, t[order], values[order], np.floor(t[order] / span_s)))
    for span in np.unique(np.concatenate([spans for *_, spans in sorted_tables])):
        for columns, t, values, spans in sorted_tables:
            begin, end = np.searchsorted(spans, span), np.searchsorted(spans, span, side="right")
            if begin < end:
                yield Reading(key, t[begin:end], values[begin:end], 0.0, columns)
