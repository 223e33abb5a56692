"""CSV recordings, written row by row so that a crash leaves whole rows.

The columns are ``time`` (seconds since 1970), ``key``, ``person`` and ``label`` where there are labels, then the
channels with their units: ``ax (m/s2)``. ``edge-runtime replay`` and ``edge-export auto`` read such a file as it is.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np
import orjson

from edge_runtime.base.system.durable_file import sync_folder, write_all
from edge_runtime.errors import ConfigError
from edge_runtime.io.recordings.spreadsheet import guarded
from edge_runtime.manifest import Channel
from edge_runtime.types import Float32, Float64

_FLAGS: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_DIGITS: Final = 6
"""Decimals of a stamp: microseconds, which is what a double holds of today's seconds."""


class RecordingWriter:
    """A CSV file that only grows.

    What was written is handed to the kernel at once, whole rows at a time, so a killed process loses none of it;
    `sync` brings it onto the disk, so a power cut costs what came after, and at most one row is torn.

    Args:
        path: the file; it must not exist.
        channels: each row's channels, in order.
        labelled: whether rows have a label.

    Raises:
        ConfigError: the file exists, or cannot be made.
    """

    def __init__(self, path: Path, channels: Sequence[Channel], *, labelled: bool) -> None:
        self.path = path
        self.rows = 0
        self._labelled = labelled
        try:
            self._fd = os.open(path, _FLAGS, 0o644)
        except FileExistsError:
            raise ConfigError(
                f"{path}: exists already, and a recording is never overwritten; name another file"
            ) from None
        except OSError as error:
            raise ConfigError(f"{path}: cannot be written: {error.strerror or error}") from None
        names = [f"{one.name} ({one.unit})" if one.unit not in ("", "1") else one.name for one in channels]
        header = _cells(["time", "key", "person", *(["label"] if labelled else []), *names]) + "\n"
        self._size = 0
        self._append(header.encode())
        sync_folder(path.parent)

    def write(self, key: str, t: Float64, values: Float32, *, person: str = "", label: str = "") -> None:
        """Append samples.

        Args:
            key: the samples' key.
            t: stamps, (n,) seconds.
            values: (n, channels).
            person: the person who moves; empty: the key stands for the person.
            label: class of all of them; only where the file has labels.

        Raises:
            OSError: the disk is full or gone; the file ends with its last whole row.
        """
        if not len(t):
            return
        whose = _cells([key, person or key, *([label] if self._labelled else [])])
        rows = orjson.dumps(np.ascontiguousarray(values), option=orjson.OPT_SERIALIZE_NUMPY).decode()[2:-2].split("],[")
        lines = [f"{stamp:.{_DIGITS}f},{whose},{row}\n" for stamp, row in zip(t.tolist(), rows, strict=True)]
        self._append("".join(lines).encode())
        self.rows += len(lines)

    def sync(self) -> None:
        """Bring everything onto the disk.

        Raises:
            OSError: it is not there.
        """
        os.fsync(self._fd)

    def close(self) -> None:
        """Sync and close. May be called twice."""
        if self._fd >= 0:
            fd, self._fd = self._fd, -1
            try:
                os.fsync(fd)
            finally:
                os.close(fd)

    def _append(self, data: bytes) -> None:
        try:
            write_all(self._fd, data)
        except OSError:
            os.ftruncate(self._fd, self._size)
            raise
        self._size += len(data)


def _cells(cells: Sequence[str]) -> str:
    """Write cells as CSV, quoted where they must be, and none of them a formula."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\r\n").writerow(map(guarded, cells))  # what ends lines is quoted in cells
    return text.getvalue()[:-2]
