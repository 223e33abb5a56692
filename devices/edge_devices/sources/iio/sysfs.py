"""One sensor as Industrial I/O shows it in sysfs: its channels, its rate, its buffer.

A file that cannot be read or written is an OSError and passes through: whether to try again is for the source to say.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

import numpy as np
import numpy.typing as npt

from edge_devices.sources.iio.config import IioConfig
from edge_devices.sources.iio.layout import ScanElement, factor_between, kind_of, record_dtype, unit_of
from edge_devices.sources.reopening import Unreachable
from edge_runtime.errors import ConfigError
from edge_runtime.manifest import InputContract

MAX_POLL_HZ: Final = 500.0
"""A poll costs a transfer on the bus for each channel, on the one thread that computes."""

Numbers = TypeVar("Numbers", float, npt.NDArray[np.float64])


@dataclass(frozen=True, slots=True, kw_only=True)
class SensorChannel:
    """A channel as it was found."""

    name: str
    offset: float
    scale: float
    """Offset, scale and the factor to the model's unit: value = (number + offset) * scale."""
    file: Path
    """Read when polling."""
    element: ScanElement | None
    """Its place in a record, with a buffer."""

    def physical(self, counted: Numbers) -> Numbers:
        """Convert what the sensor counted to the model's unit."""
        return (counted + self.offset) * self.scale


def find_sensor(config: IioConfig, source: str, *, known: bool) -> Path:
    """Find the folder of the sensor that is configured.

    Args:
        config: its name, label or number.
        source: name of the source, for messages.
        known: it was there once, so it may come back.

    Raises:
        ConfigError: there is no such sensor.
        Unreachable: there is none any more.
    """
    folders = sorted(path for path in config.sysfs.glob("iio:device*") if path.is_dir())
    for folder in folders:
        if config.device in {folder.name, read_text(folder / "name"), read_text(folder / "label")}:
            return folder
    problem = f"no sensor is called {config.device}"
    if known:
        raise Unreachable(f"{problem} any more")
    there = ", ".join(f"{read_text(folder / 'name') or '?'} ({folder.name})" for folder in folders)
    raise ConfigError(
        f"{source}: {problem}; "
        + (f"there are: {there}" if there else "there is none: its driver (a device tree overlay) is not loaded")
    )


class IioSensor:
    """A sensor that is there.

    Args:
        folder: the sensor's folder in sysfs.
        config: the channels that are wanted, and how.
        contract: channels, units and rate of the model.
        source: name of the source, for messages.
    """

    def __init__(self, folder: Path, config: IioConfig, contract: InputContract, source: str) -> None:
        self.folder = folder
        self._config = config
        self._contract = contract
        self._source = source

    def label(self) -> str:
        """Return its name."""
        return read_text(self.folder / "label") or read_text(self.folder / "name")

    def is_buffered(self) -> bool:
        """Return whether it is to be read through its buffer, as the configuration wants and the driver can.

        Raises:
            ConfigError: a buffer is wanted, and there is none, or no trigger that would fill it.
        """
        config = self._config
        scan = self._scan()
        able = scan is not None and all((scan / f"in_{name}_en").exists() for name in config.channels)
        trigger = self.folder / "trigger" / "current_trigger"
        # Without a trigger of its own, a driver that wants one collects nothing until it is given one.
        waiting = trigger.exists() and not config.trigger and not read_text(trigger)
        if config.mode == "buffered":
            if not able:
                raise ConfigError(f"{self._source}: {config.device} has no buffer with these channels; use mode polled")
            if waiting:
                raise ConfigError(
                    f"{self._source}: {config.device} collects samples when a trigger fires, and has none; name one in "
                    "trigger (/sys/bus/iio/devices/trigger*/name), or use mode polled"
                )
        return config.mode != "polled" and able and not waiting

    # -- channels ----------------------------------------------------------------------------------------------------

    def channels(self, *, buffered: bool) -> list[SensorChannel]:
        """Find the channels that are configured, in that order.

        Raises:
            ConfigError: one is not there or cannot be read, its unit is not known, or they are not as many values as
                the model has channels.
        """
        found, width = [], 0
        for name in self._config.channels:
            channel = self._channel(name, width, self._scan() if buffered else None)
            found.append(channel)
            width += channel.element.repeat if channel.element is not None else 1
        if width != len(self._contract.channels):
            names = ", ".join(channel.name for channel in self._contract.channels)
            raise ConfigError(f"{self._source}: channels give {width} values, the model takes these: {names}")
        return found

    def _channel(self, name: str, position: int, scan: Path | None) -> SensorChannel:
        raw, processed = self.folder / f"in_{name}_raw", self.folder / f"in_{name}_input"
        element = None
        if scan is not None:
            element = self._element(scan, name)
        elif not raw.exists() and not processed.exists():
            there = ", ".join(sorted(path.name[3:-4] for path in self.folder.glob("in_*_raw")))
            raise ConfigError(
                f"{self._source}: {self._config.device} has no channel {name}; it has: {there or 'none to poll'}"
            )
        plain = element is None and not raw.exists()  # _input holds the finished value
        factor = self._factor(name, position)
        return SensorChannel(
            name=name,
            offset=0.0 if plain else self._number(name, "offset", 0.0),
            scale=factor * (1.0 if plain else self._number(name, "scale", 1.0)),
            file=processed if plain else raw,
            element=element,
        )

    def _element(self, scan: Path, name: str) -> ScanElement:
        path = scan / f"in_{name}_type"
        try:
            return ScanElement.parse(path.read_text(encoding="ascii"))
        except ValueError as error:
            raise ConfigError(f"{self._source}: {path}: {error}; use mode polled") from error

    def _number(self, name: str, what: str, default: float) -> float:
        """Read an attribute of the channel, or of all channels of its type."""
        for path in (self.folder / f"in_{stem}_{what}" for stem in (name, kind_of(name))):
            if text := read_text(path):
                try:
                    value = float(text)
                except ValueError:
                    value = math.nan
                if not math.isfinite(value):
                    raise ConfigError(f"{self._source}: {path} holds '{text[:40]}', which is no number")
                return value
        return default

    def _factor(self, name: str, position: int) -> float:
        config, wanted = self._config, self._contract.channels
        if config.factor:
            if len(config.factor) not in {1, len(config.channels)}:
                raise ConfigError(f"{self._source}: factor needs 1 or {len(config.channels)} numbers, one per channel")
            return config.factor[config.channels.index(name) if len(config.factor) > 1 else 0]
        given, unit = unit_of(name), wanted[min(position, len(wanted) - 1)].unit
        factor = factor_between(given, unit)
        if factor is None:
            raise ConfigError(
                f"{self._source}: channel {name} comes in {given or 'an unknown unit'}, the model wants {unit}; say in "
                "factor what to multiply by"
            )
        return factor

    # -- rate --------------------------------------------------------------------------------------------------------

    def set_rate(self, *, buffered: bool) -> float:
        """Have it sample at the rate that is configured.

        Returns:
            The rate at which samples will come, Hz.

        Raises:
            ConfigError: it does not offer that rate, or polling at it would be too much.
        """
        first = self._config.channels[0]
        paths = [self.folder / f"{stem}sampling_frequency" for stem in ("", f"in_{kind_of(first)}_", f"in_{first}_")]
        path = next((path for path in paths if path.exists()), None)
        wanted = self._config.rate_hz
        if path is not None and wanted:
            self._write_rate(path, wanted)
        rate = wanted or self._contract.rate_hz
        if buffered and path is not None:
            with contextlib.suppress(ValueError):
                rate = float(read_text(path)) or rate
        if not buffered and rate > MAX_POLL_HZ:
            raise ConfigError(f"{self._source}: polling at {rate:g} Hz is more than {MAX_POLL_HZ:g}; set rate_hz lower")
        return rate

    def _write_rate(self, path: Path, wanted: float) -> None:
        try:
            path.write_text(f"{wanted:g}\n", encoding="ascii")
        except OSError as error:
            if error.errno != errno.EINVAL:
                raise
            offers = read_text(path.with_name(path.name + "_available"))
            raise ConfigError(
                f"{self._source}: {self._config.device} does not sample at {wanted:g} Hz"
                + (f"; it offers: {offers}" if offers else "")
            ) from error

    # -- buffer ------------------------------------------------------------------------------------------------------

    def start_buffer(self, channels: Sequence[SensorChannel], watermark: int, length: int) -> np.dtype[Any]:
        """Have the driver collect these channels, and its time stamps where it has them; the others are switched off.

        Args:
            channels: the channels that `channels` gave.
            watermark: samples that make the device readable.
            length: samples that the buffer holds.

        Returns:
            The layout of a record; its fields are the channels' names and ``timestamp``.
        """
        scan, buffer = self._scan(), self._buffer()
        assert scan is not None
        write_text(buffer / "enable", "0")
        if self._config.trigger:
            write_text(self.folder / "trigger" / "current_trigger", self._config.trigger)
        wanted = {"timestamp", *(channel.name for channel in channels)}
        elements: list[tuple[int, str, ScanElement]] = []
        for path in sorted(scan.glob("in_*_en")):
            name = path.name[3:-3]
            write_text(path, "1" if name in wanted else "0")
            if name in wanted:
                elements.append((int(read_text(scan / f"in_{name}_index") or 0), name, self._element(scan, name)))
        write_text(buffer / "length", str(length))
        if (buffer / "watermark").exists():
            write_text(buffer / "watermark", str(watermark))
        write_text(buffer / "enable", "1")
        return record_dtype([(name, element) for _, name, element in sorted(elements)])

    def stop_buffer(self) -> None:
        """Have the driver collect no more."""
        write_text(self._buffer() / "enable", "0")

    def stamps_by_wall_clock(self) -> bool:
        """Return whether the driver's time stamps are of the wall clock."""
        return (read_text(self.folder / "current_timestamp_clock") or "realtime") == "realtime"

    def _scan(self) -> Path | None:
        """Folder of the buffer's channels: `buffer0` since Linux 5.11, `scan_elements` before (and still)."""
        return next((path for name in ("scan_elements", "buffer0") if (path := self.folder / name).is_dir()), None)

    def _buffer(self) -> Path:
        """Folder of the buffer's own settings; where there is none any more, the one whose files cannot be opened."""
        other = self.folder / "buffer0"
        return other if other.is_dir() and not (self.folder / "buffer").is_dir() else self.folder / "buffer"


def read_text(path: Path) -> str:
    """Read a sysfs attribute without its line end; empty where there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip("\n\0 ")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def write_text(path: Path, text: str) -> None:
    """Set a sysfs attribute, in one write as the kernel wants it."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode("ascii"))
    finally:
        os.close(fd)
