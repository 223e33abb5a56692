"""Layout of a recorded file: its format, columns, stamps, keys and units."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

from edge_runtime.codecs.json import JsonConfig
from edge_runtime.errors import InputError

Format = Literal["auto", "jsonl", "csv", "parquet", "npz"]
Refused = Callable[[InputError], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingLayout:
    """Layout of a recording. The defaults fit files whose columns are named as the model's channels."""

    format: Format = "auto"
    """``auto`` goes by the file's suffix."""
    key: str = ""
    """Key of all readings; empty: what the file says, or else the file's name without suffix."""
    key_column: str = ""
    """Column with the key of each row; in an NPZ the array with the key of each recording."""
    time: str = ""
    """Column with the stamps; empty: the one called as `edge_runtime.recordings.columns.TIME_COLUMNS` says, for example
    t, time, timestamp or datetime. Without any, rows are `rate_hz` apart, counted from 0."""
    time_unit: Literal["auto", "s", "ms", "us", "ns", "iso8601"] = "auto"
    """``auto``: texts are ISO 8601, Parquet's own time types are what they are, numbers are in the unit of the column's
    name (``time_ms``), or else seconds; of numbers too large for that, the unit in which they are dates."""
    columns: dict[str, str] = field(default_factory=dict)
    """Channel name of the model to column; channels left out are called as in the model."""
    values: str = "x"
    """NPZ: the array (rows, channels). Column names may stand in an array ``channels``; otherwise the order is the
    model's."""
    boundaries: str = "offset"
    """NPZ: the array with the first row of each recording and the end of the last, where there are several."""
    scale: tuple[float, ...] = ()
    """Physical value = number * scale: one factor for all channels or one per channel. Empty: what an NPZ says in an
    array ``scale``, or else numbers are physical already. Not for JSONL."""
    rate_hz: float = 0.0
    """Rows per second where there are no stamps. 0: for an NPZ what its array ``rate`` says, or the model's rate."""
    delimiter: str = ""
    """CSV: one character; empty: comma, semicolon, tab or bar, whichever the header holds most of."""
    chunk_s: float = 1.0
    """Longest span of a reading cut from a table."""
    json: JsonConfig = field(default_factory=JsonConfig)
    """Codec of the lines of a JSONL file."""

    def __post_init__(self) -> None:
        if not 0 < self.chunk_s <= 3600:
            raise ValueError("chunk_s must be above 0 and at most 3600")
        if not 0 <= self.rate_hz <= 1e6:
            raise ValueError("rate_hz must be 0 to 1e6")
        if len(self.delimiter) > 1:
            raise ValueError("delimiter must be one character")
        if any(not 0 < abs(factor) < 1e30 for factor in self.scale):
            raise ValueError("scale must not be 0")
        if not self.json.time:
            raise ValueError("json.time must name a field: a recording has no time of arrival")
