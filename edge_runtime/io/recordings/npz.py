"""NPZ recordings, as streams: the arrays of several hours of sensor data never stand in memory as a whole."""

from __future__ import annotations

import math
import zipfile
import zlib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from edge_runtime.errors import ConfigError, InputError, one_line
from edge_runtime.io.codecs.numbers import UNITS_PER_S, check_key
from edge_runtime.io.recordings.columns import unit_of
from edge_runtime.io.recordings.tables import KEY, NO_TIME, ROWS, Block, find_channels, of_all, sent, to_physical
from edge_runtime.manifest import InputContract
from edge_runtime.types import Float32

if TYPE_CHECKING:
    from edge_runtime.io.recordings.layout import RecordingLayout, Refused

_FORMAT: Any = np.lib.format  # its functions have no types before numpy 2.3
_MAX_RECORDINGS = 1_000_000
_MAX_COLUMNS = 4096
_MAX_BYTES = 2**28
"""Of an array that is read whole; a compressed one may have any size."""
_NPZ_ERRORS = (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error, RuntimeError, NotImplementedError)


def npz_blocks(
    path: Path, contract: InputContract, layout: RecordingLayout, fallback: str, refuse: Refused
) -> Iterator[Block]:
    """Blocks of an .npz file: ``x`` (rows, channels), ``t`` (rows) or a rate, and maybe ``offset``, keys and ``scale``.

    Several recordings in one file that has no stamps are laid one after another on one line of time, with a silence
    between them that no window spans. Arrays are read as streams; object arrays (pickles) are refused.
    """
    with ExitStack() as stack:
        try:
            archive = stack.enter_context(zipfile.ZipFile(path))
            npz = _Npz(archive, path)
            values = npz.open(stack, layout.values)
            if not values.shape or values.dtype.kind not in "fiu":
                raise ConfigError(f"{path}: array {layout.values!r} must hold numbers, (rows, channels)")
            pick, columns = npz.columns(values.shape[1] if len(values.shape) == 2 else 1, contract, layout)
            time = npz.stamps(stack, values.shape[0], layout)
            ends = npz.ends(values.shape[0], layout)
            keys = npz.keys(len(ends), layout, fallback)
            labels = npz.labels(values.shape[0], ends, layout)
            rate_hz = layout.rate_hz or npz.rate() or contract.rate_hz
            factors = npz.scale(pick)
        except _NPZ_ERRORS as error:
            raise ConfigError(f"{path}: not a usable .npz file: {one_line(error)}") from None
        physical = to_physical(path, contract, layout, columns, factors)
        channels = of_all(tuple(columns), contract)
        silence_s = max(1.0, 2 * contract.max_gap_s)
        row = 0
        try:
            for i, (end, key) in enumerate(zip(ends, keys, strict=True)):
                while row < end:
                    n = min(ROWS, end - row)
                    table = values.read(n).reshape(n, -1)
                    if time is None:
                        t = np.arange(row, row + n) / rate_hz + i * silence_s
                    else:
                        t = time[0].read(n).astype(np.float64) / time[1]
                    numbers = physical(table[:, pick])
                    yield Block(t, numbers, key, range(row + 1, row + n + 1), "row", labels(row, n), channels)
                    row += n
        except _NPZ_ERRORS as error:
            refuse(InputError("malformed", f"{path}: cannot be read past row {row}: {one_line(error)}"))


class _Stream:
    """An array of an .npz file of one or two dimensions, read row by row from its start.

    Args:
        reopen: opens the file of the array again.
        path: the file's path, for messages.
        name: the array's name.

    Raises:
        ConfigError: the array cannot be read in this way.
    """

    def __init__(self, reopen: Callable[[], IO[bytes]], path: Path, name: str) -> None:
        file = reopen()
        version = _FORMAT.read_magic(file)
        if version not in ((1, 0), (2, 0)):
            raise ValueError(f"array {name!r} has .npy version {version}")
        read = _FORMAT.read_array_header_1_0 if version == (1, 0) else _FORMAT.read_array_header_2_0
        self.shape: tuple[int, ...]
        self.dtype: np.dtype[Any]
        self.shape, fortran, self.dtype = read(file)
        if self.dtype.hasobject:
            raise ConfigError(f"{path}: array {name!r} holds Python objects (a pickle), which are never loaded")
        if len(self.shape) > 2:
            raise ConfigError(f"{path}: array {name!r} has {len(self.shape)} dimensions, one or two are needed")
        width = self.shape[1] if len(self.shape) == 2 else 1
        if width > _MAX_COLUMNS:
            raise ConfigError(f"{path}: array {name!r} has {width} columns; at most {_MAX_COLUMNS} are read")
        # In Fortran order the columns lie one after another: each of them becomes a stream of its own.
        self._files = [file]
        self._row_items = width
        if fortran and width > 1:
            self._row_items = 1
            start = file.tell()
            for column in range(1, width):
                other = reopen()
                other.seek(start + column * self.shape[0] * self.dtype.itemsize)
                self._files.append(other)

    def read(self, rows: int) -> npt.NDArray[Any]:
        """Read the next rows: (rows,) or (rows, columns).

        Raises:
            EOFError: the array is shorter than its header says.
        """
        want = rows * self._row_items * self.dtype.itemsize
        columns = []
        for file in self._files:
            data = file.read(want)
            if len(data) < want:
                raise EOFError("the file is cut short")
            columns.append(np.frombuffer(data, self.dtype))
        table = columns[0] if len(columns) == 1 else np.stack(columns, axis=1)
        return table.reshape(rows, *self.shape[1:])


class _Npz:
    """Arrays of an .npz file."""

    def __init__(self, archive: zipfile.ZipFile, path: Path) -> None:
        self._archive = archive
        self._path = path
        self._names = {name.removesuffix(".npy") for name in archive.namelist()}

    def open(self, stack: ExitStack, name: str) -> _Stream:
        if name not in self._names:
            known = ", ".join(sorted(self._names)[:20])
            raise ConfigError(f"{self._path}: array {name!r} is missing; the file has {known}; set values or time")
        return _Stream(lambda: stack.enter_context(self._archive.open(f"{name}.npy")), self._path, name)

    def _small(self, name: str, kinds: str, most: int = _MAX_RECORDINGS) -> npt.NDArray[Any] | None:
        """Read a whole array of one dimension at most, if it is there and of one of the kinds."""
        if name not in self._names:
            return None
        with ExitStack() as stack:
            stream = self.open(stack, name)
            if stream.dtype.kind not in kinds or len(stream.shape) > 1 or (stream.shape or (1,))[0] > most:
                return None
            if math.prod(stream.shape) * stream.dtype.itemsize > _MAX_BYTES:
                raise ConfigError(
                    f"{self._path}: array {name!r} takes more than {_MAX_BYTES >> 20} MB; shorten its texts"
                )
            return stream.read(stream.shape[0]) if stream.shape else stream.read(1)

    def columns(self, width: int, contract: InputContract, layout: RecordingLayout) -> tuple[list[int], dict[int, str]]:
        """Positions of the model's channels among the columns of the values; names of these columns by channel."""
        names = self._small("channels", "U")
        if names is not None and len(names) == width:
            header = [str(name) for name in names]
            places, present = find_channels(self._path, header, contract, layout)
            return places, {channel: header[place] for channel, place in zip(present, places, strict=True)}
        channels = sent(contract)
        if width != len(channels):
            raise ConfigError(
                f"{self._path}: array {layout.values!r} has {width} columns, the model has {len(channels)}"
            )
        return list(range(width)), dict.fromkeys(channels, "")

    def stamps(self, stack: ExitStack, rows: int, layout: RecordingLayout) -> tuple[_Stream, float] | None:
        """Find the array of stamps with its units per second; None where there is none."""
        name = layout.time or "t"
        if name == NO_TIME:
            return None
        if name not in self._names and not layout.time:
            return None
        stream = self.open(stack, name)
        if stream.shape != (rows,) or stream.dtype.kind not in "fiu":
            raise ConfigError(f"{self._path}: array {name!r} must hold one number for each of {rows} rows")
        if layout.time_unit == "iso8601":
            raise ConfigError(f"{self._path}: time_unit iso8601 is not for .npz files")
        return stream, UNITS_PER_S[unit_of(name, 0.0) if layout.time_unit == "auto" else layout.time_unit]

    def ends(self, rows: int, layout: RecordingLayout) -> list[int]:
        """Return where each recording ends: rows before its last one, and itself."""
        offsets = self._small(layout.boundaries, "iu")
        if offsets is None:
            return [rows]
        bounds = [int(offset) for offset in offsets]
        if len(bounds) < 2 or bounds[0] != 0 or bounds[-1] != rows or sorted(bounds) != bounds:
            raise ConfigError(
                f"{self._path}: array {layout.boundaries!r} must rise from 0 to {rows}, the number of rows"
            )
        return bounds[1:]

    def keys(self, recordings: int, layout: RecordingLayout, fallback: str) -> list[str]:
        """Read the key of each recording."""
        if layout.key:
            return [layout.key] * recordings
        names = self._small(layout.key_column or KEY, "Uiu")
        if not layout.key_column and (names is None or len(names) != recordings):
            return [fallback] if recordings == 1 else [f"{fallback}-{i}" for i in range(recordings)]
        if names is None or len(names) != recordings:
            raise ConfigError(f"{self._path}: array {layout.key_column!r} must name each of {recordings} recordings")
        try:
            return [check_key(name) for name in names.tolist()]
        except InputError as error:
            raise ConfigError(f"{self._path}: array {layout.key_column!r}: {error}") from None

    def labels(self, rows: int, ends: list[int], layout: RecordingLayout) -> Callable[[int, int], str | list[str]]:
        """Make the function from a first row and a number of rows, all of one recording, to their labels."""
        if not layout.label:
            return lambda _row, _n: ""
        found = self._small(layout.label, "Uiu", most=rows)
        if found is None or len(found) not in (len(ends), rows):
            raise ConfigError(
                f"{self._path}: array {layout.label!r} must hold a label for each of {len(ends)} recordings or of "
                f"{rows} rows"
            )
        if len(found) == rows:
            return lambda row, n: [str(label) for label in found[row : row + n].tolist()]
        return lambda row, _n: str(found[bisect_right(ends, row)])

    def scale(self, pick: list[int]) -> Float32 | None:
        """Read ``scale``, the factors that make the values physical: one, or one per column."""
        found = self._small("scale", "f")
        if found is None:
            return None
        if found.size == 1:
            return np.full(len(pick), found[0], np.float32)
        if found.size <= max(pick):
            raise ConfigError(f"{self._path}: array 'scale' has {found.size} factors, one per column are needed")
        return found[pick].astype(np.float32)

    def rate(self) -> float:
        """Return rows per second as the file has it in ``rate`` or ``rate_hz``; 0 where it does not say."""
        for name in ("rate", "rate_hz"):
            found = self._small(name, "fiu")
            if found is not None and found.size == 1 and 0 < float(found[0]) <= 1e6:
                return float(found[0])
        return 0.0
