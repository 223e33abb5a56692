"""Readers of a recipe: the places of values, stamps, labels and groups in its files.

A reader is a frozen table of a recipe. The folder it reads is named on the command line by the reader's key (``--data
har=FOLDER``), so a recipe holds no path of one machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from edge_runtime.io.codecs.numbers import TimeUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Origin of data, as the bundle's provenance and the report name it."""

    name: str
    source: str
    licence: str
    cite: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Events:
    """Annotated moments of an NPZ: arrays of sample numbers."""

    label: str
    array: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensor:
    """Arrays of one sensor in an NPZ of several that have stamps of their own."""

    channels: tuple[str, ...]
    """Names in the recipe, in the order of the columns of `values`."""
    values: str
    time: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NpzReader:
    """Arrays of NPZ files, one file a group or one array of groups.

    Attributes:
        key: names the folder on the command line.
        origin: of the data.
        files: pattern of the files in the folder; ``**`` goes into subfolders.
        group: regular expression over the file's path in the folder; its first group, or all of it, names the group.
        group_column: array with the group, one for the file or for each recording or sample; instead of `group`.
        values: array (samples,) or (samples, channels).
        scale: physical value = number * scale: one factor for all channels or one per channel.
        divide_by: array with one number that values are divided by, such as an amplifier's gain.
        time: array of stamps; empty: samples lie one period apart.
        time_unit: of the stamps.
        sensors: instead of `values` and `time`: several sensors with stamps of their own, each joined by its channels'
            rules, as on a device. Labels, runs and boundaries count samples of the first.
        boundaries: array with the first sample of each recording and the end of the last; empty: one recording a file.
        run: array with a number per sample; a recording ends where it changes. Empty for none.
        label: array with one label per recording or per sample: class indices, or class names.
        label_names: class of each number in `label`, where numbers are not indices into the recipe's classes.
        events: instead of `label`: annotated moments; later ones overrule earlier ones at the same sample.
        reach_s: seconds around a moment that its label holds for; 0: halfway to the next one.
        share: of the windows that training draws, this part is of this data, before classes are balanced; 0: by its
            windows, where a recording of one window counts as a window.
    """

    type: Literal["npz"] = "npz"
    key: str
    origin: Origin
    files: str = "*.npz"
    group: str = r"([^/]+)\.npz$"
    group_column: str = ""
    values: str = "x"
    scale: tuple[float, ...] = ()
    divide_by: str = ""
    time: str = ""
    time_unit: Literal["s", "ms", "us", "ns"] = "s"
    sensors: tuple[Sensor, ...] = ()
    boundaries: str = ""
    run: str = ""
    label: str = ""
    label_names: tuple[str, ...] = ()
    events: tuple[Events, ...] = ()
    reach_s: float = 0.0
    share: float = 0.0

    def __post_init__(self) -> None:
        _check_share(self.share)
        if bool(self.label) == bool(self.events):
            raise ValueError("needs label or events, one of them")
        if self.boundaries and self.run:
            raise ValueError("boundaries and run both cut recordings; name one")
        if self.sensors and (self.time or len(self.scale) > 1):
            raise ValueError("sensors have stamps of their own and share a scale; leave time out, and name one factor")
        _check_pattern(self.group)


@dataclass(frozen=True, slots=True, kw_only=True)
class TableReader:
    """CSV or Parquet files with a column per channel.

    Attributes:
        key: names the folder on the command line.
        origin: of the data.
        files: pattern of the files in the folder.
        columns: column of each channel that is called otherwise than in the recipe.
        group: as in `NpzReader`; unused where `group_column` is set.
        group_column: column with the group of each row; a recording ends where it changes.
        time: column of stamps; empty: rows lie one period apart. With stamps, rows with an empty cell are left out.
        time_unit: of the stamps; ``iso8601`` for dates and times.
        label: regular expression over the file's path that finds the class; empty: see `label_column`.
        label_column: column with the class of each row.
        label_names: as in `WavReader`, for `label`; files of labels that it does not list are left out.
        scale: as in `NpzReader`.
        partial: a row with empty cells holds samples of the other channels: sensors that send on their own. Each
            channel is then joined by its own rule, as on a device. Needs `time`.
        share: as in `NpzReader`.
    """

    type: Literal["table"] = "table"
    key: str
    origin: Origin
    files: str = "**/*.csv"
    columns: dict[str, str] = field(default_factory=dict)
    group: str = r"([^/]+)\.[^./]+$"
    group_column: str = ""
    time: str = ""
    time_unit: TimeUnit = "s"
    label: str = ""
    label_column: str = ""
    label_names: dict[str, str] = field(default_factory=dict)
    scale: tuple[float, ...] = ()
    partial: bool = False
    share: float = 0.0

    def __post_init__(self) -> None:
        _check_share(self.share)
        if self.partial and not self.time:
            raise ValueError("partial needs time: without stamps, a row with an empty cell has no place")
        if bool(self.label) == bool(self.label_column):
            raise ValueError("needs label (a pattern over paths) or label_column, one of them")
        if self.label_names and not self.label:
            raise ValueError("label_names renames what label finds in paths; a column holds the classes themselves")
        _check_pattern(self.group)
        _check_pattern(self.label)


@dataclass(frozen=True, slots=True, kw_only=True)
class WavReader:
    """PCM WAV files, one recording each.

    Attributes:
        key: names the folder on the command line.
        origin: of the data.
        files: pattern of the files in the folder.
        group: as in `NpzReader`.
        label: regular expression over the file's path that finds the class; the default is the file's folder.
        label_names: class by what `label` finds, where they differ; what it does not list is left out.
        share: as in `NpzReader`.
    """

    type: Literal["wav"] = "wav"
    key: str
    origin: Origin
    files: str = "**/*.wav"
    group: str
    label: str = r"([^/]+)/[^/]+$"
    label_names: dict[str, str] = field(default_factory=dict)
    share: float = 0.0

    def __post_init__(self) -> None:
        _check_share(self.share)
        _check_pattern(self.group)
        _check_pattern(self.label)


@dataclass(frozen=True, slots=True, kw_only=True)
class SeglearnReader:
    """Reader of the shoulder-exercise recordings in the Python package ``seglearn`` 1.2.5 (see `seglearn`).

    Attributes:
        key: names the package's wheel, or a folder with its data, on the command line.
        share: as in `NpzReader`.
    """

    type: Literal["seglearn"] = "seglearn"
    key: str
    origin: Origin
    share: float = 0.0

    def __post_init__(self) -> None:
        _check_share(self.share)


Reader = NpzReader | TableReader | WavReader | SeglearnReader


def _check_share(share: float) -> None:
    if not 0 <= share < 1:
        raise ValueError("share must be 0 or more, and below 1")


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise ValueError(f"{pattern!r} is not a regular expression: {error}") from error
