"""Hints of the user about recordings, where files do not tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from edge_runtime.io.codecs.numbers import TimeUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class Hints:
    """Hints of the user; empty means: find out, or ask.

    Attributes:
        label: regular expression over a file's path that finds its class.
        label_column: column or array with the class.
        labels: CSV with the columns ``file`` and ``label``.
        group: regular expression over a file's path that finds its group.
        group_column: column with the group of each row.
        group_files: each file is a group.
        time: column or array with the stamps.
        time_unit: of the stamps.
        rate_hz: samples per second.
        channels: columns to use, in order.
        units: by channel; the key ``*`` is for all others.
    """

    label: str = ""
    label_column: str = ""
    labels: Path | None = None
    group: str = ""
    group_column: str = ""
    group_files: bool = False
    time: str = ""
    time_unit: TimeUnit | Literal[""] = ""
    rate_hz: float = 0.0
    channels: tuple[str, ...] = ()
    units: Mapping[str, str] = field(default_factory=dict)
