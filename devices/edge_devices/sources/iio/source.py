"""Reads a sensor of Industrial I/O, through the driver's buffer or by polling its files."""

from __future__ import annotations

import contextlib
import errno
import os
import random
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from edge_devices.sources.device_stream import DeviceStream
from edge_devices.sources.iio.config import IioConfig
from edge_devices.sources.iio.sysfs import IioSensor, SensorChannel, find_sensor
from edge_devices.sources.reopening import Unreachable
from edge_runtime.base.system.loop import Timer
from edge_runtime.clock import Clock
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs.numbers import arrival
from edge_runtime.io.sources.decoding import Refusals
from edge_runtime.io.sources.framing import Records
from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.types import Float32, Float64, Reading

IN_FLIGHT: Final = 64
"""Deliveries that may wait for their `done`; while they do, samples are counted as ``overrun`` and left out."""

RESYNC_S: Final = 0.5
"""Stamps of a clock other than the wall clock that are off by more than this are realigned with it."""

_HINT: Final = (
    "let a udev rule give the files to a group of this user (docs/sources.md has one), or run the service in that group"
)


class IioSource(DeviceStream):
    """Reads a sensor through Industrial I/O.

    Args:
        config: the sensor's settings.
        contract: channels, units and rate of the model.
        metrics: counts what was read, and what was not.
        clock: source of the times of arrival.
        name: the source's name in messages and metrics.
        rng: spreads the attempts to open it again.
    """

    END = "its buffer was closed"

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
        super().__init__(name, config.device, metrics, clock, in_flight=IN_FLIGHT, rng=rng)
        self._config = config
        self._contract = contract
        self._refusals = Refusals(metrics)
        self._sensor: IioSensor | None = None  # the one that was there last
        self._key = config.key
        self._channels: list[SensorChannel] = []
        self._period_s = 0.0
        self._batch = 1
        # Buffered.
        self._record: np.dtype[Any] = np.dtype(np.uint8)
        self._records = Records(1)
        self._wall_stamps = False
        self._wall_offset_s: float | None = None
        # Polled.
        self._files: list[int] = []
        self._timer: Timer | None = None
        self._due = 0.0
        self._rows: list[list[float]] = []
        self._times: list[float] = []

    def _connect(self) -> None:
        where = self._config.sysfs
        try:
            where = find_sensor(self._config, self.name, known=self._sensor is not None)
            self._sensor = sensor = IioSensor(where, self._config, self._contract, self.name)
            buffered = sensor.is_buffered()
            self._channels = sensor.channels(buffered=buffered)
            self._key = self._config.key or sensor.label()
            self._period_s = 1 / sensor.set_rate(buffered=buffered)
            self._batch = self._config.batch or max(1, round(0.1 / self._period_s))
            if buffered:
                self._start_buffer(sensor)
            else:
                self._start_polling()
        except OSError as error:
            self._disconnect()
            what = error.filename or where
            if error.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
                raise ConfigError(f"{self.name}: {what} may not be used by this user; {_HINT}") from error
            raise Unreachable(f"{self._config.device} does not answer: {error.strerror} ({what})") from error
        except BaseException:
            self._disconnect()
            raise

    def _disconnect(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for fd in self._files:
            os.close(fd)
        self._files.clear()
        if self._fd >= 0 and self._sensor is not None:
            fd = self._fd
            self._unfollow()
            os.close(fd)
            with contextlib.suppress(OSError):  # it may be gone
                self._sensor.stop_buffer()

    # -- buffered ----------------------------------------------------------------------------------------------------

    def _start_buffer(self, sensor: IioSensor) -> None:
        length = max(64, 8 * self._batch)
        self._record = sensor.start_buffer(self._channels, self._batch, length)
        self._records = Records(self._record.itemsize)
        self._wall_stamps = sensor.stamps_by_wall_clock()
        self._wall_offset_s = None
        fd = os.open(self._config.dev / sensor.folder.name, os.O_RDONLY | os.O_NONBLOCK)
        self._follow(fd, self._record.itemsize * length)

    def _take(self, data: bytes) -> None:
        whole = self._records.feed(data)
        if not whole:
            return
        records = np.frombuffer(whole, self._record)
        columns = []
        for channel in self._channels:
            assert channel.element is not None
            columns.append(channel.physical(channel.element.numbers(records[channel.name])))
        self._enqueue(_narrow(np.hstack(columns)), self._stamps(records), len(whole))

    def _stamps(self, records: npt.NDArray[Any]) -> float | Float64:
        arrived = self._clock.wall()
        if "timestamp" not in (self._record.names or ()):
            return arrival(arrived, len(records), self._period_s)
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
                channel.physical(float(os.pread(fd, 64, 0)))
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
            self._enqueue(values, times, values.nbytes)
        self._poll_later()

    # -- both --------------------------------------------------------------------------------------------------------

    def _enqueue(self, values: Float32, t: float | Float64, size: int) -> None:
        if self._behind:
            self._refuse("overrun", "the pipeline is behind")
        elif not np.isfinite(values).all():
            self._refuse("not_finite", "a value is too large for a number of 32 bits")
        else:
            self._hand_over_samples([Reading(self._key, t, values, self._period_s)], size)

    def _refuse(self, reason: str, detail: str) -> None:
        self._refusals(InputError(reason, detail), self.name)


def _narrow(values: npt.NDArray[np.float64]) -> Float32:
    """Convert to float32; what does not fit becomes infinite, and is refused later."""
    with np.errstate(over="ignore"):
        return values.astype(np.float32)
