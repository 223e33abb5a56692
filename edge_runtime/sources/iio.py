"""Sensors of the board itself, through Linux Industrial I/O: I2C and SPI accelerometers, gyroscopes, barometers, ADCs.

Two ways, both of the kernel's own interface and without a library. *Polling* reads a file of sysfs for each channel
and sample: any driver can do it, up to some 200 samples a second. *Buffered* lets the driver collect samples by
interrupt or trigger, and reads them as records from the character device: exact times, any rate.

Values arrive in the units of the kernel's interface (m/s^2, rad/s, ...) and are turned into those of the model's
channels where both are known; otherwise the configuration says by which factor.

Sources: see `edge_runtime.sources.iio_layout`.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import random
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt

from edge_runtime.clock import Clock, SystemClock
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.loop import Loop, Timer
from edge_runtime.manifest import InputContract
from edge_runtime.message import Float32, Reading
from edge_runtime.metrics import Metrics
from edge_runtime.sources import Deliver
from edge_runtime.sources.decoding import Refusals
from edge_runtime.sources.iio_layout import ScanElement, factor_between, kind_of, record_dtype, unit_of
from edge_runtime.sources.reopening import Reopening, Unreachable

IN_FLIGHT: Final = 64
"""Deliveries that may wait for their `done`; while they do, samples are counted as ``overrun`` and left out."""

MAX_POLL_HZ: Final = 500.0
"""A poll costs a transfer on the bus for each channel, on the one thread that computes."""

RESYNC_S: Final = 0.5
"""Stamps of a clock other than the wall clock that are off by more than this are aligned with it anew."""

_HINT: Final = (
    "let a udev rule give the files to a group of this user (docs/sources.md has one), or run the service in that group"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class IioConfig:
    """Which sensor, which of its channels, and how it is read."""

    type: Literal["iio"] = "iio"
    device: str
    """Its name (file ``name``, for example ``mpu6050``), its label, or ``iio:device0``."""
    channels: tuple[str, ...]
    """One for each channel of the model, in its order, as sysfs names them without ``in_``: ``accel_x``, ``voltage0``,
    ``temp``. One with a repeat count (``rot_quaternion``) stands for several."""
    mode: Literal["auto", "buffered", "polled"] = "auto"
    """``auto``: buffered where the driver and its trigger allow it."""
    rate_hz: float = 0.0
    """Written to ``sampling_frequency``; 0 leaves it as it is. When polling, how often; 0: the model's rate."""
    factor: tuple[float, ...] = ()
    """From the kernel's unit to the model's, one for all or one per channel; empty: worked out from the units."""
    trigger: str = ""
    """Written to ``trigger/current_trigger``; empty leaves it as it is. Many drivers bring their own."""
    batch: int = 0
    """Samples delivered together; 0: as many as come in a tenth of a second."""
    key: str = ""
    """Key of the readings; empty: the device's label or name."""
    sysfs: Path = Path("/sys/bus/iio/devices")
    dev: Path = Path("/dev")

    def __post_init__(self) -> None:
        if not self.device or "/" in self.device:
            raise ValueError(f"device must be a name such as 'mpu6050' or 'iio:device0', got '{self.device}'")
        if not self.channels or any(not re.fullmatch(r"[A-Za-z0-9_\-]+", name) for name in self.channels):
            raise ValueError("channels must name the sensor's channels, for example 'accel_x'")
        if len(set(self.channels)) < len(self.channels):
            raise ValueError("a channel is named twice")
        if not 0 <= self.rate_hz <= 1e6 or not 0 <= self.batch <= 65_536:
            raise ValueError("rate_hz must be 0 to 1e6, batch 0 to 65536")
        if any(not 0 < abs(factor) < 1e30 for factor in self.factor):
            raise ValueError("factor must not be 0 and lie within +-1e30")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Channel:
    """A channel as it was found."""

    name: str
    offset: float
    scale: float
    """Offset, scale and the factor to the model's unit: value = (number + offset) * scale."""
    file: Path
    """Read when polling."""
    element: ScanElement | None


class IioSource:
    """Reads a sensor through Industrial I/O.

    Args:
        config: which one.
        contract: channels, units and rate of the model.
        metrics: counts what was read, and what was not.
        clock: when samples arrived.
        name: as it appears in messages and metrics.
        rng: spreads the attempts to open it again.
    """

    def __init__(
        self,
        config: IioConfig,
        contract: InputContract,
        metrics: Metrics,
        clock: Clock | None = None,
        *,
        name: str = "iio",
        rng: random.Random | None = None,
    ) -> None:
        self.name = name
        self._config = config
        self._contract = contract
        self._metrics = metrics
        self._clock = clock or SystemClock()
        self._refusals = Refusals(metrics, self._clock)
        self._reopening = Reopening(name, self._connect, metrics, rng=rng)
        self._loop: Loop | None = None
        self._deliver: Deliver | None = None
        self._in_flight = 0
        self._key = config.key
        self._folder = config.sysfs
        self._channels: list[_Channel] = []
        self._period_s = 0.0
        self._batch = 1
        self._known = False  # the device was there once
        # Buffered.
        self._fd = -1
        self._record: np.dtype[Any] = np.dtype(np.uint8)
        self._rest = b""
        self._wall_offset_s: float | None = None
        self._stamped = False  # records carry the time
        self._wall_stamps = False
        # Polled.
        self._files: list[int] = []
        self._timer: Timer | None = None
        self._due = 0.0
        self._rows: list[list[float]] = []
        self._times: list[float] = []

    @property
    def finished(self) -> bool:
        """Never: a sensor goes on."""
        return False

    def open(self, loop: Loop, deliver: Deliver) -> None:
        """See `edge_runtime.sources.Source`.

        Raises:
            ConfigError: there is no such sensor or channel, its units are not known, or this user may not use it.
        """
        self._loop = loop
        self._deliver = deliver
        self._reopening.start(loop)

    def pause(self) -> None:
        """See `edge_runtime.sources.Source`."""
        self._reopening.stop()
        self._disconnect()
        self._deliver = None

    def close(self) -> None:
        """See `edge_runtime.sources.Source`."""
        self.pause()

    # -- finding it --------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        try:
            self._folder = self._find()
            self._known = True
            buffered = self._is_buffered()
            self._channels = self._describe(buffered)
            self._key = self._config.key or _text(self._folder / "label") or _text(self._folder / "name")
            self._set_rate(buffered)
            self._batch = self._config.batch or max(1, round(0.1 / self._period_s))
            if buffered:
                self._start_buffer()
            else:
                self._start_polling()
        except OSError as error:
            self._disconnect()
            what = error.filename or self._folder
            if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
                raise ConfigError(f"{self.name}: {what} may not be used by this user; {_HINT}") from error
            raise Unreachable(f"{self._config.device} does not answer: {error.strerror} ({what})") from error
        except BaseException:
            self._disconnect()
            raise

    def _find(self) -> Path:
        config = self._config
        folders = sorted(path for path in config.sysfs.glob("iio:device*") if path.is_dir())
        for folder in folders:
            if config.device in {folder.name, _text(folder / "name"), _text(folder / "label")}:
                return folder
        problem = f"no sensor is called {config.device}"
        if self._known:
            raise Unreachable(f"{problem} any more")
        there = ", ".join(f"{_text(folder / 'name') or '?'} ({folder.name})" for folder in folders)
        raise ConfigError(
            f"{self.name}: {problem}; "
            + (f"there are: {there}" if there else "there is none: its driver (a device tree overlay) is not loaded")
        )

    def _is_buffered(self) -> bool:
        config = self._config
        scan = self._scan()
        able = scan is not None and all((scan / f"in_{name}_en").exists() for name in config.channels)
        trigger = self._folder / "trigger" / "current_trigger"
        # Without a trigger of its own, a driver that wants one collects nothing until it is given one.
        waiting = trigger.exists() and not config.trigger and not _text(trigger)
        if config.mode == "buffered":
            if not able:
                raise ConfigError(f"{self.name}: {config.device} has no buffer with these channels; use mode polled")
            if waiting:
                raise ConfigError(
                    f"{self.name}: {config.device} collects samples when a trigger fires, and has none; name one in "
                    "trigger (/sys/bus/iio/devices/trigger*/name), or use mode polled"
                )
        return config.mode != "polled" and able and not waiting

    def _scan(self) -> Path | None:
        """Folder of the buffer's channels: `buffer0` since Linux 5.11, `scan_elements` before (and still)."""
        return next((path for name in ("scan_elements", "buffer0") if (path := self._folder / name).is_dir()), None)

    def _buffer(self) -> Path:
        return next(path for name in ("buffer", "buffer0") if (path := self._folder / name).is_dir())

    def _describe(self, buffered: bool) -> list[_Channel]:
        found, width = [], 0
        for name in self._config.channels:
            raw, processed = self._folder / f"in_{name}_raw", self._folder / f"in_{name}_input"
            scan = self._scan() if buffered else None
            element = None
            if scan is not None:
                element = self._element(scan, name)
            elif not raw.exists() and not processed.exists():
                there = ", ".join(sorted(path.name[3:-4] for path in self._folder.glob("in_*_raw")))
                raise ConfigError(
                    f"{self.name}: {self._config.device} has no channel {name}; it has: {there or 'none to poll'}"
                )
            plain = element is None and not raw.exists()  # _input holds the finished value
            factor = self._factor(name, width)
            found.append(
                _Channel(
                    name=name,
                    offset=0.0 if plain else self._number(name, "offset", 0.0),
                    scale=factor * (1.0 if plain else self._number(name, "scale", 1.0)),
                    file=processed if plain else raw,
                    element=element,
                )
            )
            width += element.repeat if element is not None else 1
        if width != len(self._contract.channels):
            names = ", ".join(channel.name for channel in self._contract.channels)
            raise ConfigError(f"{self.name}: channels give {width} values, the model takes these: {names}")
        return found

    def _element(self, scan: Path, name: str) -> ScanElement:
        path = scan / f"in_{name}_type"
        try:
            return ScanElement.parse(path.read_text(encoding="ascii"))
        except ValueError as error:
            raise ConfigError(f"{self.name}: {path}: {error}; use mode polled") from error

    def _number(self, name: str, what: str, default: float) -> float:
        """An attribute of the channel, or of all channels of its type."""
        for path in (self._folder / f"in_{stem}_{what}" for stem in (name, kind_of(name))):
            if text := _text(path):
                try:
                    value = float(text)
                except ValueError:
                    value = math.nan
                if not math.isfinite(value):
                    raise ConfigError(f"{self.name}: {path} holds '{text[:40]}', which is no number")
                return value
        return default

    def _factor(self, name: str, position: int) -> float:
        config, wanted = self._config, self._contract.channels
        if config.factor:
            if len(config.factor) not in {1, len(config.channels)}:
                raise ConfigError(f"{self.name}: factor needs 1 or {len(config.channels)} numbers, one per channel")
            return config.factor[config.channels.index(name) if len(config.factor) > 1 else 0]
        given, unit = unit_of(name), wanted[min(position, len(wanted) - 1)].unit
        factor = factor_between(given, unit)
        if factor is None:
            raise ConfigError(
                f"{self.name}: channel {name} comes in {given or 'an unknown unit'}, the model wants {unit}; say in "
                "factor what to multiply by"
            )
        return factor

    def _set_rate(self, buffered: bool) -> None:
        first = self._config.channels[0]
        paths = [self._folder / f"{stem}sampling_frequency" for stem in ("", f"in_{kind_of(first)}_", f"in_{first}_")]
        path = next((path for path in paths if path.exists()), None)
        wanted = self._config.rate_hz
        if path is not None and wanted:
            try:
                path.write_text(f"{wanted:g}\n", encoding="ascii")
            except OSError as error:
                if error.errno != errno.EINVAL:
                    raise
                offers = _text(path.with_name(path.name + "_available"))
                raise ConfigError(
                    f"{self.name}: {self._config.device} does not sample at {wanted:g} Hz"
                    + (f"; it offers: {offers}" if offers else "")
                ) from error
        rate = wanted or self._contract.rate_hz
        if buffered and path is not None:
            with contextlib.suppress(ValueError):
                rate = float(_text(path)) or rate
        if not buffered and rate > MAX_POLL_HZ:
            raise ConfigError(f"{self.name}: polling at {rate:g} Hz is more than {MAX_POLL_HZ:g}; set rate_hz lower")
        self._period_s = 1 / rate

    # -- buffered ----------------------------------------------------------------------------------------------------

    def _start_buffer(self) -> None:
        scan, buffer = self._scan(), self._buffer()
        assert scan is not None
        _write(buffer / "enable", "0")
        if self._config.trigger:
            _write(self._folder / "trigger" / "current_trigger", self._config.trigger)
        wanted = {channel.name for channel in self._channels}
        elements: list[tuple[int, str, ScanElement]] = []
        for path in sorted(scan.glob("in_*_en")):
            name = path.name[3:-3]
            self._stamped = self._stamped or name == "timestamp"
            on = name in wanted or name == "timestamp"
            _write(path, "1" if on else "0")
            if on:
                elements.append((int(_text(scan / f"in_{name}_index") or 0), name, self._element(scan, name)))
        self._record = record_dtype([(name, element) for _, name, element in sorted(elements)])
        self._wall_stamps = (_text(self._folder / "current_timestamp_clock") or "realtime") == "realtime"
        self._wall_offset_s = None
        _write(buffer / "length", str(max(64, 8 * self._batch)))
        if (buffer / "watermark").exists():
            _write(buffer / "watermark", str(self._batch))
        _write(buffer / "enable", "1")
        self._rest = b""
        self._fd = os.open(self._config.dev / self._folder.name, os.O_RDONLY | os.O_NONBLOCK)
        assert self._loop is not None
        self._loop.watch(self._fd, self._read, lingers=True)

    def _read(self) -> None:
        size = self._record.itemsize
        try:
            data = os.read(self._fd, size * max(64, 8 * self._batch))
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._lost(error.strerror or str(error))
            return
        if not data:
            self._lost("its buffer was closed")
            return
        data = self._rest + data
        whole = len(data) - len(data) % size
        self._rest = data[whole:]
        if not whole:
            return
        self._reopening.worked()
        records = np.frombuffer(data[:whole], self._record)
        columns = []
        for channel in self._channels:
            assert channel.element is not None
            numbers = channel.element.numbers(records[channel.name])
            columns.append((numbers + channel.offset) * channel.scale)
        self._hand_over(_narrow(np.hstack(columns)), self._stamps(records), whole)

    def _stamps(self, records: npt.NDArray[Any]) -> float | npt.NDArray[np.float64]:
        arrived = self._clock.wall()
        if not self._stamped:
            return arrived - (len(records) - 1) * self._period_s
        seconds = records["timestamp"].astype(np.int64) / 1e9
        if self._wall_stamps:
            return np.asarray(seconds, np.float64)
        # Some other clock: the distances are exact, and the whole is laid to the wall clock.
        latest = float(seconds[-1])
        offset = self._wall_offset_s
        if offset is None or abs(latest + offset - arrived) > RESYNC_S:
            self._wall_offset_s = offset = arrived - latest
        return np.asarray(seconds + offset, np.float64)

    # -- polled ------------------------------------------------------------------------------------------------------

    def _start_polling(self) -> None:
        self._rows.clear()
        self._times.clear()
        for channel in self._channels:
            self._files.append(os.open(channel.file, os.O_RDONLY))
        self._due = self._clock.monotonic()
        self._poll_later()

    def _poll_later(self) -> None:
        if self._loop is not None and self._files:
            self._timer = self._loop.call_later(max(0.0, self._due - self._clock.monotonic()), self._poll)

    def _poll(self) -> None:
        self._timer = None
        try:
            row = [
                (float(os.pread(fd, 64, 0)) + channel.offset) * channel.scale
                for fd, channel in zip(self._files, self._channels, strict=True)
            ]
        except ValueError:
            self._refuse("malformed", "the sensor's file holds no number")
        except BlockingIOError:
            pass  # EAGAIN: the sensor has nothing new yet
        except OSError as error:
            if error.errno in {errno.EBUSY, errno.EIO, errno.ETIMEDOUT, errno.EREMOTEIO}:
                self._refuse("sensor_error", f"the sensor could not be read: {error.strerror}")
            else:
                self._lost(error.strerror or str(error))
                return
        else:
            self._reopening.worked()
            self._rows.append(row)
            self._times.append(self._clock.wall())
        now = self._clock.monotonic()
        self._due += self._period_s
        if self._due < now:  # too late for some: what was not sampled is not made up
            missed = int((now - self._due) / self._period_s)
            self._due += missed * self._period_s
        if len(self._rows) >= self._batch:
            values, times = _narrow(np.array(self._rows)), np.array(self._times)
            self._rows.clear()
            self._times.clear()
            self._hand_over(values, times, values.nbytes)
        self._poll_later()

    # -- both --------------------------------------------------------------------------------------------------------

    def _hand_over(self, values: Float32, t: float | npt.NDArray[np.float64], size: int) -> None:
        if self._deliver is None:
            return
        if self._in_flight >= IN_FLIGHT:
            self._refuse("overrun", "the pipeline is behind")
            return
        if not np.isfinite(values).all():
            self._refuse("not_finite", "a value is too large for a number of 32 bits")
            return
        self._metrics.counts["messages_total"] += 1
        self._metrics.counts["message_bytes_total"] += size
        self._in_flight += 1
        reading = Reading(self._key, t, values, self._period_s)
        self._deliver([reading], self._clock.monotonic(), self._done)

    def _refuse(self, reason: str, detail: str) -> None:
        self._refusals(InputError(reason, detail), self.name)

    def _done(self) -> None:
        self._in_flight -= 1

    def _lost(self, reason: str) -> None:
        self._disconnect()
        self._reopening.lost(f"{self._config.device} is gone ({reason})")

    def _disconnect(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for fd in self._files:
            os.close(fd)
        self._files.clear()
        if self._fd >= 0:
            if self._loop is not None:
                self._loop.unwatch(self._fd)
            os.close(self._fd)
            self._fd = -1
            with contextlib.suppress(OSError):  # it may be gone
                _write(self._buffer() / "enable", "0")


def _narrow(values: npt.NDArray[np.float64]) -> Float32:
    """As float32; what does not fit becomes infinite, and is refused later."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)


def _text(path: Path) -> str:
    """A sysfs attribute without its line end; empty where there is none."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip("\n\0 ")
    except (FileNotFoundError, NotADirectoryError):
        return ""


def _write(path: Path, text: str) -> None:
    """Set a sysfs attribute, in one write as the kernel wants it."""
    fd = os.open(path, os.O_WRONLY)
    try:
        os.write(fd, text.encode("ascii"))
    finally:
        os.close(fd)
