"""Industrial I/O: sensors whose files vanish or hold nonsense, buffered and polled.

Attribute names and values are those of real drivers: st_accel (LSM6DS-like), bmp280, mpu6050, hid-sensor rotation.
"""

from __future__ import annotations

import errno
import os
import random
import struct
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edge_devices.sources.iio import IioConfig, IioSource
from edge_devices.sources.iio.source import IN_FLIGHT
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime import schema
from edge_runtime.base.system.loop import Loop
from edge_runtime.errors import ConfigError
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics
from tests.edge_devices.sources.sensors import Iio, Listener

AXES = tuple(Channel(name=f"a{axis}", unit="m/s2") for axis in "xyz")
ACCEL = ("accel_x", "accel_y", "accel_z")

POLLED = {"in_accel_x_raw": "1024", "in_accel_y_raw": "-512", "in_accel_z_raw": "0", "in_accel_scale": "0.01"}
BUFFERED = {
    **POLLED,
    "in_accel_z_scale": "0.5",  # its own goes before that of all
    "in_accel_x_offset": "4",
    "sampling_frequency": "104",
    "current_timestamp_clock": "realtime",
    "buffer/enable": "0",
    "buffer/length": "2",
    "buffer/watermark": "1",
    **{f"scan_elements/in_accel_{axis}_en": "0" for axis in "xyz"},
    **{f"scan_elements/in_accel_{axis}_index": str(i) for i, axis in enumerate("xyz")},
    "scan_elements/in_accel_x_type": "le:s12/16>>4",
    "scan_elements/in_accel_y_type": "be:s16/16>>0",
    "scan_elements/in_accel_z_type": "le:u8/8>>0",
    "scan_elements/in_anglvel_x_en": "1",  # left on by another program
    "scan_elements/in_anglvel_x_index": "3",
    "scan_elements/in_anglvel_x_type": "le:s16/16>>0",
    "scan_elements/in_timestamp_en": "0",
    "scan_elements/in_timestamp_index": "4",
    "scan_elements/in_timestamp_type": "le:s64/64>>0",
}


def contract(channels: Sequence[Channel] = AXES, rate_hz: float = 50.0) -> InputContract:
    return InputContract(channels=tuple(channels), rate_hz=rate_hz, window=10, hop=5)


def record(x: int, y: int, z: int, ns: int) -> bytes:
    """x 12 bits at the top of 16, y big-endian, z a byte, padding to 8, the time."""
    return struct.pack("<h", x << 4) + struct.pack(">h", y) + struct.pack("<B3xq", z, ns)


class Mounted(Listener):
    """A source on a folder of sysfs."""

    def __init__(self, iio: Iio, model: Sequence[Channel] = AXES, model_hz: float = 50.0, **config: Any) -> None:
        self.metrics = Metrics()
        config = {"device": "iio:device0", "channels": ACCEL, "sysfs": iio.sysfs, "dev": iio.dev, **config}
        source = IioSource(IioConfig(**config), contract(model, model_hz), self.metrics, rng=random.Random(0))
        super().__init__(source, Loop())


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., tuple[Iio, Mounted]]]:
    made: list[tuple[Iio, Mounted]] = []

    def mount(files: dict[str, str], *, name: str = "lsm6ds3_accel", **config: Any) -> tuple[Iio, Mounted]:
        iio = Iio(tmp_path, name, files)
        if "buffer/enable" in files or "buffer0/enable" in files:
            iio.make_node()
        one = Mounted(iio, **config)
        made.append((iio, one))
        return iio, one

    yield mount
    for iio, one in made:
        one.close()
        iio.close()


Make = Callable[..., tuple[Iio, Mounted]]


# -- buffered --------------------------------------------------------------------------------------------------------


def test_records_become_readings_in_physical_units_with_the_driver_s_times(make: Make) -> None:
    iio, one = make(BUFFERED)
    one.open()
    t0 = 1_700_000_000_000_000_000
    iio.send(record(100, -7, 3, t0) + record(-2048, 32767, 255, t0 + 9_615_385))
    one.until(lambda: one.readings)
    (reading,) = one.readings
    np.testing.assert_allclose(reading.values, [[1.04, -0.07, 1.5], [(-2048 + 4) * 0.01, 327.67, 127.5]], rtol=1e-6)
    np.testing.assert_allclose(reading.t, [1_700_000_000.0, 1_700_000_000.009615385], rtol=0, atol=1e-6)
    assert reading.key == "lsm6ds3_accel"
    assert one.metrics.counts["messages_total"] == 1


def test_the_buffer_is_set_up_and_given_back(make: Make) -> None:
    iio, one = make(BUFFERED)
    one.open()
    on = {path.name for path in (iio.folder / "scan_elements").glob("*_en") if path.read_text().strip() == "1"}
    assert on == {"in_accel_x_en", "in_accel_y_en", "in_accel_z_en", "in_timestamp_en"}
    assert iio.get("buffer/enable") == "1"
    assert iio.get("buffer/watermark").startswith("10")  # a tenth of a second of 104 Hz
    assert int(iio.get("buffer/length")[:2]) >= 64
    one.source.close()
    assert iio.get("buffer/enable") == "0"


@given(cuts=st.lists(st.integers(1, 40), min_size=1, max_size=6))
@settings(deadline=None, max_examples=15, derandomize=True)
def test_records_that_arrive_in_pieces_are_put_together(
    tmp_path_factory: pytest.TempPathFactory, cuts: list[int]
) -> None:
    iio = Iio(tmp_path_factory.mktemp("iio"), "lsm6ds3_accel", BUFFERED)
    iio.make_node()
    one = Mounted(iio)
    one.open()
    stream = b"".join(record(i, i, i, 10**18 + i * 10**7) for i in range(10))
    at, turn = 0, 0
    while at < len(stream):
        step = cuts[turn % len(cuts)]
        iio.send(stream[at : at + step])
        one.loop.iterate(0)
        at, turn = at + step, turn + 1
    one.until(lambda: sum(len(reading.values) for reading in one.readings) == 10)
    z = np.concatenate([reading.values[:, 2] for reading in one.readings])
    np.testing.assert_allclose(z, np.arange(10) * 0.5)
    one.close()
    iio.close()


def test_the_rate_is_written_and_a_refused_one_lists_what_there_is(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    iio, one = make({**BUFFERED, "sampling_frequency_available": "12.5 26 52 104"}, rate_hz=52)
    one.open()
    assert iio.get("sampling_frequency") == "52"

    def refused(self: Path, *_args: Any, **_more: Any) -> int:
        raise OSError(errno.EINVAL, "Invalid argument", str(self))

    monkeypatch.setattr(Path, "write_text", refused)
    other = Mounted(iio, rate_hz=60)
    with pytest.raises(ConfigError, match=r"does not sample at 60 Hz; it offers: 12.5 26 52 104"):
        other.open()
    other.close()


def test_without_time_stamps_the_last_sample_is_taken_as_it_arrived(make: Make) -> None:
    files = {path: text for path, text in BUFFERED.items() if "timestamp" not in path}
    iio, one = make(files)
    one.open()
    iio.send(b"".join(record(1, 1, 1, 0)[:6] for _ in range(5)))
    one.until(lambda: one.readings)
    (reading,) = one.readings
    assert isinstance(reading.t, float)
    assert reading.period_s == pytest.approx(1 / 104)
    assert reading.t == pytest.approx(one.loop.clock.wall() - 4 / 104, abs=30)


def test_stamps_of_another_clock_keep_their_distances_and_get_the_wall_clock_s_date(make: Make) -> None:
    iio, one = make({**BUFFERED, "current_timestamp_clock": "monotonic"})
    one.open()
    iio.send(record(1, 1, 1, 5_000_000_000) + record(1, 1, 1, 5_250_000_000))
    one.until(lambda: one.readings)
    stamps = one.readings[0].t
    assert not isinstance(stamps, float)
    assert stamps[1] - stamps[0] == pytest.approx(0.25, abs=1e-6)
    assert stamps[1] == pytest.approx(one.loop.clock.wall(), abs=30)


def test_a_quaternion_is_one_channel_of_four_values(make: Make) -> None:
    files = {
        "in_rot_quaternion_scale": "0.001",
        "buffer0/enable": "0", "buffer0/length": "2",  # as Linux 5.11 and newer name them
        "buffer0/in_rot_quaternion_en": "0", "buffer0/in_rot_quaternion_index": "0",
        "buffer0/in_rot_quaternion_type": "le:s16/16X4>>0",
    }  # fmt: skip
    model = tuple(Channel(name=name, unit="1") for name in "xyzw")
    iio, one = make(files, name="dev_rotation", model=model, channels=("rot_quaternion",))
    one.open()
    iio.send(struct.pack("<4h", 1000, -500, 0, 250))
    one.until(lambda: one.readings)
    np.testing.assert_allclose(one.readings[0].values, [[1.0, -0.5, 0.0, 0.25]], rtol=1e-6)


def test_a_sensor_that_vanishes_is_opened_again(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    iio, one = make(BUFFERED)
    one.open()
    iio.send(record(1, 1, 1, 10**18))
    one.until(lambda: len(one.readings) == 1)
    iio.close()  # the last writer of the pipe: an end of file, as a buffer that was closed gives
    one.until(lambda: "is gone" in caplog.text)
    iio.node.unlink()
    iio.make_node()
    one.until(lambda: one.metrics.counts["source_reopens_total"] == 1)
    iio.send(record(2, 2, 2, 10**18))
    one.until(lambda: len(one.readings) == 2)


def test_a_sensor_whose_files_vanish_with_it_is_opened_again(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    iio, one = make(BUFFERED)
    one.open()
    away = iio.sysfs.with_name("away")
    iio.sysfs.rename(away)  # as when its driver is unbound
    iio.close()
    one.until(lambda: "is gone (its buffer was closed)" in caplog.text)
    away.rename(iio.sysfs)
    iio.node.unlink()
    iio.make_node()
    one.until(lambda: one.metrics.counts["source_reopens_total"] == 1)
    iio.send(record(2, 2, 2, 10**18))
    one.until(lambda: len(one.readings) == 1)


def test_what_comes_while_the_pipeline_is_behind_is_counted_and_left_out(make: Make) -> None:
    iio, one = make(BUFFERED)
    one.held = []
    one.open()
    for i in range(IN_FLIGHT):
        iio.send(record(1, 1, 1, 10**18 + i))
        one.until(lambda i=i: len(one.readings) == i + 1)  # type: ignore[misc]
    iio.send(record(1, 1, 1, 10**18))
    one.until(lambda: one.metrics.dropped["overrun"] == 1)
    one.held[0]()
    iio.send(record(1, 1, 1, 10**18))
    one.until(lambda: len(one.readings) == IN_FLIGHT + 1)


# -- polled ----------------------------------------------------------------------------------------------------------


def test_files_are_polled_at_the_rate_asked_for(make: Make) -> None:
    iio, one = make(POLLED, rate_hz=200, batch=4)
    one.open()
    one.until(lambda: len(one.readings) == 2)
    np.testing.assert_allclose(one.readings[0].values, [[10.24, -5.12, 0]] * 4, rtol=1e-6)
    times = np.concatenate([np.atleast_1d(reading.t) for reading in one.readings])
    assert times[-1] - times[0] >= 6 / 200
    assert np.diff(times).min() > 0
    assert one.readings[0].period_s == pytest.approx(1 / 200)
    iio.put("in_accel_z_raw", "7")
    one.until(lambda: one.readings[-1].values[-1, 2] == np.float32(0.07))


def test_a_finished_value_is_taken_as_it_is(make: Make) -> None:
    files = {"in_temp_input": "23500", "in_pressure_input": "101.3", "in_temp_scale": "100"}
    model = (Channel(name="t", unit="Cel"), Channel(name="p", unit="hPa"))
    _, one = make(files, name="bmp280", device="bmp280", channels=("temp", "pressure"), model=model, batch=1)
    one.open()
    one.until(lambda: one.readings)
    np.testing.assert_allclose(one.readings[0].values, [[23.5, 1013.0]], rtol=1e-6)


def test_nonsense_and_errors_are_counted_and_left_out(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    iio, one = make(POLLED, rate_hz=100, batch=1)
    one.open()
    one.until(lambda: one.readings)
    iio.put("in_accel_y_raw", "nonsense")
    one.until(lambda: one.metrics.dropped["malformed"] >= 2)
    iio.put("in_accel_y_raw", "1e45")
    one.until(lambda: one.metrics.dropped["not_finite"] >= 1)
    iio.put("in_accel_y_raw", "5")
    real = os.pread

    def failing(_fd: int, _size: int, _offset: int) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", failing)
    one.until(lambda: one.metrics.dropped["sensor_error"] >= 2)
    monkeypatch.setattr(os, "pread", real)
    count = len(one.readings)
    one.until(lambda: len(one.readings) > count)


def test_a_polled_sensor_that_vanishes_is_opened_again(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    iio, one = make(POLLED, rate_hz=100, batch=1)
    one.open()
    one.until(lambda: one.readings)
    real = os.pread

    def gone(_fd: int, _size: int, _offset: int) -> bytes:
        raise OSError(errno.ENODEV, "No such device")

    away = iio.sysfs.with_name("away")
    monkeypatch.setattr(os, "pread", gone)
    iio.sysfs.rename(away)
    one.until(lambda: "is gone (No such device)" in caplog.text)
    monkeypatch.setattr(os, "pread", real)
    for _ in range(3):
        one.loop.iterate(0.01)
    away.rename(iio.sysfs)
    count = len(one.readings)
    one.until(lambda: len(one.readings) > count)


def test_polling_is_what_a_driver_without_a_trigger_gets(make: Make) -> None:
    files = {**BUFFERED, "trigger/current_trigger": ""}
    _, one = make(files, batch=1)
    one.open()
    one.until(lambda: one.readings)
    np.testing.assert_allclose(one.readings[0].values[0, 1], -5.12, rtol=1e-6)


def test_a_trigger_is_set(make: Make) -> None:
    iio, one = make({**BUFFERED, "trigger/current_trigger": ""}, trigger="sysfstrig1", mode="buffered")
    one.open()
    assert iio.get("trigger/current_trigger") == "sysfstrig1"
    assert iio.get("buffer/enable") == "1"


# -- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("files", "config", "complaint"),
    [
        (POLLED, {"device": "mpu6050"}, r"no sensor is called mpu6050; there are: lsm6ds3_accel \(iio:device0\)"),
        (POLLED, {"channels": ("accel_x", "accel_w")}, "has no channel accel_w; it has: accel_x, accel_y, accel_z"),
        (POLLED, {"channels": ("accel_x", "accel_y")}, "channels give 2 values, the model takes these: ax, ay, az"),
        (POLLED, {"mode": "buffered"}, "has no buffer with these channels; use mode polled"),
        (POLLED, {"rate_hz": 2000.0}, "polling at 2000 Hz is more than 500"),
        (POLLED, {"factor": (1.0, 2.0)}, "factor needs 1 or 3 numbers"),
        (POLLED, {"model": (Channel(name="t", unit="K"),) * 3}, "comes in m/s2, the model wants K; say in factor"),
        ({**POLLED, "in_accel_scale": "much"}, {}, "holds 'much', which is no number"),
        ({**BUFFERED, "scan_elements/in_accel_x_type": "odd"}, {}, "'odd' is no scan element type; use mode polled"),
        ({**BUFFERED, "trigger/current_trigger": ""}, {"mode": "buffered"}, "has none; name one in trigger"),
    ],
)
def test_a_mistake_is_answered_with_what_to_do(
    make: Make, files: dict[str, str], config: dict[str, Any], complaint: str
) -> None:
    _, one = make(files, **config)
    with pytest.raises(ConfigError, match=complaint) as caught:
        one.open()
    assert "\n" not in str(caught.value)


def test_a_board_without_sensors_says_that_no_driver_is_loaded(make: Make, tmp_path: Path) -> None:
    _, one = make(POLLED, sysfs=tmp_path / "none")
    with pytest.raises(ConfigError, match=r"its driver .* is not loaded"):
        one.open()


def test_files_that_this_user_may_not_use_are_answered_with_the_remedy(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, one = make(BUFFERED)

    def refused(path: Path, *_args: Any) -> int:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "open", refused)
    with pytest.raises(ConfigError, match=r"buffer/enable may not be used by this user; let a udev rule"):
        one.open()


def test_the_factor_that_the_user_names_is_used(make: Make) -> None:
    _, one = make(POLLED, factor=(2.0, -1.0, 3.0), batch=1)
    one.open()
    one.until(lambda: one.readings)
    np.testing.assert_allclose(one.readings[0].values[0], [20.48, 5.12, 0], rtol=1e-6)


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({"device": "a/b", "channels": ["accel_x"]}, "must be a name"),
        ({"device": "a", "channels": []}, "must name the sensor's channels"),
        ({"device": "a", "channels": ["../x"]}, "must name the sensor's channels"),
        ({"device": "a", "channels": ["x", "x"]}, "named twice"),
        ({"device": "a", "channels": ["x"], "batch": -1}, "batch"),
        ({"device": "a", "channels": ["x"], "factor": [0.0]}, "factor must not be 0"),
        ({"device": "a", "channels": ["x"], "mode": "bufferd"}, "did you mean 'buffered'"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(table: dict[str, Any], complaint: str) -> None:
    with pytest.raises(schema.SchemaError, match=complaint):
        schema.load(IioConfig, table)
