"""Layout of a recorded file: its format, columns, stamps, keys and units."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from edge_runtime.errors import InputError
from edge_runtime.io.codecs.config import CodecConfig, is_text
from edge_runtime.io.codecs.json import JsonConfig
from edge_runtime.types import Float64

Format = Literal["auto", "lines", "csv", "parquet", "npz", "wav", "pictures"]
Refused = Callable[[InputError], None]
Labelled = Callable[[str, Float64, Sequence[str]], None]
"""Takes a key, stamps (n,) in seconds, and the label of each; empty where there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingLayout:
    """Layout of a recording. The defaults fit files whose columns are named as the model's channels."""

    format: Format = "auto"
    """``auto`` goes by the file's suffix. ``lines``: a message per line, read by `codec`."""
    key: str = ""
    """Key of all readings; empty: what the file says, or else the file's name without suffix."""
    key_column: str = ""
    """Column with the key of each row; in an NPZ the array with the key of each recording. Empty: the one called
    ``key``, if there is one."""
    time: str = ""
    """Column with the stamps; empty: the one with a usual name, t, time, timestamp or datetime. Without any,
    rows are `rate_hz` apart, counted from 0; ``-`` says that none is."""
    time_unit: Literal["auto", "s", "ms", "us", "ns", "iso8601"] = "auto"
    """``auto``: texts are ISO 8601, Parquet's own time types are what they are, numbers are in the unit of the column's
    name (``time_ms``), or else seconds; of numbers too large for that, the unit in which they are dates."""
    columns: dict[str, str] = field(default_factory=dict)
    """Channel name of the model to column; channels left out are called as in the model, perhaps with a unit behind:
    ``ax (m/s2)``."""
    partial: bool = False
    """A file, or a row with empty cells, may bring some of the channels; the others come in other files or rows of the
    same key, with stamps of their own. Files are then played side by side, in the order of their stamps."""
    label: str = ""
    """Column, field or array with the class of each row, to compare answers with; an NPZ may have one per recording."""
    units: dict[str, str] = field(default_factory=dict)
    """Channel name of the model to the unit in which its numbers come, as ``{ax = "m/s2"}``; they are converted to the
    model's. A column's name may state it as well. Where `codec` is configured, units stand there."""
    values: str = "x"
    """NPZ: the array (rows, channels). Column names may stand in an array ``channels``; otherwise the order is the
    model's."""
    boundaries: str = "offset"
    """NPZ: the array with the first row of each recording and the end of the last, where there are several."""
    scale: tuple[float, ...] = ()
    """Physical value = number * scale: one factor for all channels or one per channel. Empty: what an NPZ says in an
    array ``scale``, or else numbers are physical already. Sound is -1 to 1. Not for lines."""
    rate_hz: float = 0.0
    """Rows per second where there are no stamps. 0: for an NPZ what its array ``rate`` says, or the model's rate. A WAV
    file knows its own."""
    delimiter: str = ""
    """CSV: one character; empty: comma, semicolon, tab or bar, whichever the header holds most of."""
    chunk_s: float = 0.0
    """Longest span of a reading cut from a table. 0: a second; of what is played as fast as possible 30, which costs a
    third of the CPU and gives the same answers."""
    codec: CodecConfig = field(default_factory=JsonConfig)
    """Codec of lines."""

    def __post_init__(self) -> None:
        if not 0 <= self.chunk_s <= 3600:
            raise ValueError("chunk_s must be 0 to 3600")
        if not 0 <= self.rate_hz <= 1e6:
            raise ValueError("rate_hz must be 0 to 1e6")
        if len(self.delimiter) > 1:
            raise ValueError("delimiter must be one character")
        if any(not 0 < abs(factor) < 1e30 for factor in self.scale):
            raise ValueError("scale must not be 0")
        if not is_text(self.codec):
            raise ValueError(f"codec {self.codec.type} is binary, and a line end may stand inside it")
