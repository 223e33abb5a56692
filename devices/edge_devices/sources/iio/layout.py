"""Records of an Industrial I/O character device, and the units of channel types.

Sources, kernel documentation: ``ABI/testing/sysfs-bus-iio`` (units, ``scan_elements/*_type``),
``driver-api/iio/buffers.rst`` and ``iio/iio_devbuf.rst`` (records); for their alignment ``iio_compute_scan_bytes`` in
``drivers/iio/industrialio-buffer.c``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from edge_runtime import units

_UNITS: Final[dict[str, str]] = {
    "accel": "m/s2", "anglvel": "rad/s", "magn": "Gs", "gravity": "m/s2", "incli": "deg", "rot": "1",
    "temp": "mCel", "pressure": "kPa", "humidityrelative": "m%RH", "illuminance": "lx", "voltage": "mV",
    "altvoltage": "mV", "current": "mA", "power": "mW", "resistance": "Ohm",
}  # fmt: skip
"""Unit of a channel type after offset and scale, as UCUM and SenML write it."""


def unit_of(channel: str) -> str:
    """Find the unit in which the kernel gives a channel, after offset and scale; empty where it states none.

    Args:
        channel: name without ``in_``, for example ``accel_x``.
    """
    return _UNITS.get(kind_of(channel), "")


def kind_of(channel: str) -> str:
    """Type of a channel: ``accel`` for ``accel_x``, ``voltage`` for ``voltage0``."""
    return re.split(r"[_\d]", channel, maxsplit=1)[0]


def factor_between(given: str, wanted: str) -> float | None:
    """Find the factor from the kernel's unit to that of a model; None where that is not known."""
    try:
        factor, offset = units.convert(given, wanted)
    except units.UnitError:
        return None
    return factor if given and not offset else None


@dataclass(frozen=True, slots=True)
class ScanElement:
    """Layout of one channel in a record: ``[be|le]:[s|u]bits/storagebits[Xrepeat][>>shift]``."""

    big_endian: bool
    signed: bool
    bits: int
    storage_bits: int
    repeat: int
    shift: int

    @classmethod
    def parse(cls, text: str) -> ScanElement:
        """Read a ``*_type`` file.

        Raises:
            ValueError: it is not of that form, or of a width that cannot be.
        """
        match = re.fullmatch(r"(be|le):([su])(\d{1,3})/(\d{1,3})(?:X(\d{1,3}))?(?:>>(\d{1,3}))?", text.strip())
        if match is None:
            raise ValueError(f"'{text.strip()[:40]}' is no scan element type")
        bits, storage, repeat, shift = (int(match[i] or default) for i, default in ((3, 0), (4, 0), (5, 1), (6, 0)))
        if storage not in {8, 16, 32, 64} or not 1 <= bits <= storage - shift or not repeat:
            raise ValueError(f"'{text.strip()}' is a scan element that is not known here")
        return cls(match[1] == "be", match[2] == "s", bits, storage, repeat, shift)

    @property
    def size(self) -> int:
        """Bytes that it takes, and a multiple of which its place is."""
        return self.storage_bits // 8 * self.repeat

    @property
    def dtype(self) -> np.dtype[Any]:
        """Unsigned numbers as they lie there."""
        plain = np.dtype(f"{'>' if self.big_endian else '<'}u{self.storage_bits // 8}")
        return plain if self.repeat == 1 else np.dtype((plain, (self.repeat,)))

    def numbers(self, stored: npt.NDArray[Any]) -> npt.NDArray[np.float64]:
        """Decode what the sensor counted: shifted, cut to its bits, with its sign.

        Args:
            stored: (n,) or (n, repeat) of `dtype`.

        Returns:
            (n, repeat) float64.
        """
        value = stored.astype(np.uint64).reshape(len(stored), self.repeat) >> np.uint64(self.shift)
        if self.signed:
            # To the top and back: the arithmetic shift of a signed number copies the sign down.
            spare = np.uint64(64 - self.bits)
            return ((value << spare).astype(np.int64) >> np.int64(64 - self.bits)).astype(np.float64)
        mask = (1 << self.bits) - 1
        return (value & np.uint64(mask)).astype(np.float64)


def record_dtype(elements: Sequence[tuple[str, ScanElement]]) -> np.dtype[Any]:
    """Layout of a record.

    Args:
        elements: name and type of every channel that is on, in the order of their ``*_index``, the time stamp last.
    """
    offset, largest = 0, 1
    offsets = []
    for _, element in elements:
        offset = -(-offset // element.size) * element.size
        offsets.append(offset)
        offset += element.size
        largest = max(largest, element.size)
    return np.dtype({
        "names": [name for name, _ in elements],
        "formats": [element.dtype for _, element in elements],
        "offsets": offsets,
        "itemsize": -(-offset // largest) * largest,
    })  # fmt: skip
