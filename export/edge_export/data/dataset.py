"""Labelled sensor recordings, the windows cut from them, and the compact file that holds them.

Everything here is plain numpy. A *group* is what a split must not tear apart: a person, a machine, a room. Windows
of one group look alike, so a model that has seen a group in training is not tested by it.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from edge_runtime.errors import ConfigError
from edge_runtime.manifest import Channel
from edge_runtime.signal.windowing.recorded import Table

Float32 = npt.NDArray[np.float32]
Float64 = npt.NDArray[np.float64]
Int64 = npt.NDArray[np.int64]

UNLABELLED = -1
"""Label of samples and windows that are neither trained on nor evaluated."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """One piece of one sensor's stream, with one label or one for each sample.

    Attributes:
        name: unique within its data set; becomes a stream's key when the recording is played.
        group: what a split must keep together.
        label: index into the data set's classes; `UNLABELLED` where `marks` says it sample by sample.
        values: (n_samples, n_channels) float32 in physical units.
        tags: further facts as text, for example which wrist.
        t: (n_samples,) stamps in seconds, rising; None where samples lie one period of the data set's rate apart.
        tables: what each of several sensors gave, with stamps of its own, in place of `values`; those have no column
            then, and `t` has the stamps of `marks`.
        marks: (n_samples,) label of each sample, `UNLABELLED` where it is unknown; None where `label` holds for all.
        left_out: rows of its file that were left out, since a cell was empty.
        share: of the windows that training draws, for all recordings that state one together; 0: as many as there are.
    """

    name: str
    group: str
    label: int
    values: Float32
    tags: Mapping[str, str] = field(default_factory=dict)
    t: Float64 | None = None
    marks: Int64 | None = None
    left_out: int = 0
    tables: tuple[Table, ...] = ()
    share: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """Recordings that share channels, rate and classes.

    Attributes:
        name: short identifier.
        channels: in the order of the columns of `Recording.values`.
        rate_hz: samples per second.
        classes: label names.
        recordings: all of them, in a stable order.
    """

    name: str
    channels: tuple[Channel, ...]
    rate_hz: float
    classes: tuple[str, ...]
    recordings: tuple[Recording, ...]

    @property
    def groups(self) -> tuple[str, ...]:
        """Groups in order of first appearance."""
        return tuple(dict.fromkeys(recording.group for recording in self.recordings))

    def only(self, groups: Iterable[str]) -> Dataset:
        """Select the recordings of these groups.

        Raises:
            ConfigError: a group is not in the data set.
        """
        wanted = frozenset(groups)
        if missing := wanted.difference(self.groups):
            raise ConfigError(f"data set {self.name!r} has no group {min(missing)!r}; it has {', '.join(self.groups)}")
        return replace(self, recordings=tuple(r for r in self.recordings if r.group in wanted))


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows:
    """Windows of many recordings, each with the context that precedes it.

    Attributes:
        contexts: (n, n_channels, n_context) float32; the window is the last `samples` columns. What lies before the
            start of a recording repeats its first sample.
        samples: length of a window.
        y: (n,) class indices.
        group: (n,) group names.
        recording: (n,) index of the recording each window was cut from.
        start: (n,) first sample of the window within its recording.
    """

    contexts: Float32
    samples: int
    y: Int64
    group: npt.NDArray[np.str_]
    recording: Int64
    start: Int64

    def __len__(self) -> int:
        return len(self.y)

    @property
    def x(self) -> Float32:
        """(n, n_channels, samples) float32: what the device sees."""
        return np.ascontiguousarray(self.contexts[:, :, -self.samples :])

    def at(self, places: npt.NDArray[np.bool_] | Int64) -> Windows:
        """Return some of the windows, by a mask or by their places."""
        return replace(
            self,
            contexts=self.contexts[places],
            y=self.y[places],
            group=self.group[places],
            recording=self.recording[places],
            start=self.start[places],
        )


def spread(count: int, wanted: int) -> Int64:
    """Choose at most `wanted` of `count` places, evenly spread, the first and the last among them.

    >>> spread(7, 3).tolist()
    [0, 3, 6]
    """
    return np.linspace(0, count - 1, min(count, wanted)).astype(np.int64)


def write_npz(path: Path, arrays: Mapping[str, npt.NDArray[Any]], *, compress: bool = True) -> None:
    """Write arrays as .npz without pickles, the same bytes for the same content."""
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            body = io.BytesIO()
            np.lib.format.write_array(body, array, allow_pickle=False)
            # ZipInfo's default date is 1980-01-01: the same content gives the same bytes on every day.
            method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
            archive.writestr(zipfile.ZipInfo(f"{name}.npy"), body.getvalue(), method, 9 if compress else None)


def load_recordings(path: Path) -> Dataset:
    """Read recordings in an npz of plain arrays: the demo's.

    Raises:
        ConfigError: the file is missing, damaged, or lacks an array.
    """
    try:
        # Opened here: numpy leaves a file open that turns out not to be an archive.
        with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
            arrays = {name: stored[name] for name in stored.files}
        scale, offset = arrays["scale"], arrays["offset"]
        values = arrays["x"].astype(np.float32) * scale
        recordings = tuple(
            Recording(
                name=str(arrays["name"][i]),
                group=str(arrays["subject"][i]),
                label=int(arrays["label"][i]),
                values=values[offset[i] : offset[i + 1]],
                tags=dict(pair.split("=", 1) for pair in str(arrays["tags"][i]).split(";") if pair),
            )
            for i in range(len(arrays["label"]))
        )
        return Dataset(
            name=str(arrays["dataset"]),
            channels=tuple(
                Channel(name=str(n), unit=str(u)) for n, u in zip(arrays["channels"], arrays["units"], strict=True)
            ),
            rate_hz=float(arrays["rate_hz"]),
            classes=tuple(str(c) for c in arrays["classes"]),
            recordings=recordings,
        )
    except (OSError, EOFError, ValueError, TypeError, KeyError, IndexError, zipfile.BadZipFile) as error:
        raise ConfigError(f"{path.name} is not a file of recordings: {error}") from error
