"""A serial port, played by a pseudo terminal."""

from __future__ import annotations

import errno
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edge_devices.sources import serial
from edge_devices.sources.serial import IN_FLIGHT, SerialConfig, SerialSource

from edge_runtime import schema
from edge_runtime.errors import ConfigError
from edge_runtime.io.codecs.config import load_codec
from edge_runtime.io.codecs.raw import RawConfig
from edge_runtime.io.sources.decoding import Decoder
from edge_runtime.manifest import Channel
from edge_runtime.metrics import Metrics
from tests.edge_devices.sources.sensors import Listener, Port
from tests.edge_runtime.io.sources.frames import crc16, stuffed

library = pytest.importorskip("serial", reason='needs pyserial: pip install "edge-runtime[serial]"')

CHANNELS = (Channel(name="ax", unit="g"),)
RAW = RawConfig()


def line(i: int) -> bytes:
    return b'{"key":"k","t":%d,"values":[%d]}\n' % (i, i)


def sample(value: float) -> bytes:
    return np.float32(value).tobytes()


class Wired(Listener):
    """A source on a port."""

    def __init__(self, port: Port, **config: Any) -> None:
        self.metrics = Metrics()
        self.config = SerialConfig(port=str(port.path), **config)
        decoder = Decoder(load_codec(self.config.codec, CHANNELS, rate_hz=10), self.metrics)
        super().__init__(SerialSource(self.config, decoder, self.metrics, rng=random.Random(0)))


@pytest.fixture
def port(tmp_path: Path) -> Iterator[Port]:
    made = Port(tmp_path)
    yield made
    made.unplug()


@pytest.fixture
def wired(port: Port) -> Iterator[list[Wired]]:
    made: list[Wired] = []
    yield made
    for one in made:
        one.close()


def start(wired: list[Wired], port: Port, **config: Any) -> Wired:
    one = Wired(port, **config)
    wired.append(one)
    one.open()
    return one


def test_frames_arrive_whole_and_damaged_ones_are_counted(wired: list[Wired], port: Port) -> None:
    one = start(wired, port, codec=RAW, key="imu", checksum="crc16")
    frames = [stuffed(crc16(sample(i))) for i in range(5)]
    frames[2] = frames[2][:-2] + bytes([frames[2][-2] ^ 0x40]) + b"\0"
    port.send(b"\0" + b"".join(frames))
    one.until(lambda: len(one.readings) == 4)
    assert one.values() == [0, 1, 3, 4]
    assert {reading.key for reading in one.readings} == {"imu"}
    assert set(one.metrics.dropped) <= {"checksum", "malformed"}
    assert one.metrics.dropped.total() == 1


def test_fixed_frames_behind_a_marker(wired: list[Wired], port: Port) -> None:
    one = start(wired, port, codec=RAW, key="imu", framing="fixed", frame_bytes=4, marker="55 AA")
    port.send(b"\x99" + b"".join(b"\x55\xaa" + sample(i) for i in range(3)))
    one.until(lambda: one.values() == [0, 1, 2])


def test_a_port_that_is_not_there_yet_is_opened_when_it_comes(
    wired: list[Wired], port: Port, caplog: pytest.LogCaptureFixture
) -> None:
    port.unplug()
    one = start(wired, port)
    one.loop.iterate(0)
    assert re.search(r"is not there; plug the device in, or correct the port \(.+\)", caplog.text)
    port.plug()
    one.until(lambda: _watched(one))
    port.send(line(1))
    one.until(lambda: one.values() == [1])


def _watched(one: Wired) -> bool:
    return one.source._fd >= 0  # type: ignore[attr-defined, no-any-return]


def test_an_unplugged_device_is_opened_again_and_its_half_line_forgotten(
    wired: list[Wired], port: Port, caplog: pytest.LogCaptureFixture
) -> None:
    one = start(wired, port)
    port.send(line(1) + b'{"key":"k","t":2,"val')
    one.until(lambda: one.values() == [1])
    for times in (1, 2):
        port.unplug()
        one.until(lambda: not _watched(one))
        port.plug()
        one.until(lambda: _watched(one))
        port.send(line(10 * times))
        one.until(lambda times=times: one.values()[-1] == 10 * times)  # type: ignore[misc]
        assert one.metrics.counts["source_reopens_total"] == times
    assert one.values() == [1, 10, 20]
    assert one.metrics.dropped == {}
    assert caplog.text.count("is gone") == 2


def test_what_comes_while_the_pipeline_is_behind_is_counted_and_left_out(wired: list[Wired], port: Port) -> None:
    one = start(wired, port)
    one.held = []
    sent = 0
    while len(one.held) < IN_FLIGHT:
        port.send(line(sent))
        sent += 1
        count = len(one.held)
        one.until(lambda count=count: len(one.held or ()) > count)  # type: ignore[misc]
    port.send(line(sent) + line(sent + 1))
    one.until(lambda: one.metrics.dropped["overrun"] == 2)
    for done in one.held:
        done()
    one.held = None
    port.send(line(1000))
    one.until(lambda: one.values()[-1] == 1000)
    assert len(one.values()) == sent + 1


def test_the_settings_reach_the_port(monkeypatch: pytest.MonkeyPatch, wired: list[Wired], port: Port) -> None:
    seen: dict[str, Any] = {}
    real = library.Serial

    def opened(**settings: Any) -> Any:
        seen.update(settings)
        return real(**settings)

    monkeypatch.setattr(library, "Serial", opened)
    start(wired, port, baud=921_600, parity="even", stop_bits=2, flow="xon_xoff")
    assert {name: seen[name] for name in ("baudrate", "parity", "stopbits", "xonxoff", "rtscts", "exclusive")} == {
        "baudrate": 921_600, "parity": "E", "stopbits": 2, "xonxoff": True, "rtscts": False, "exclusive": True,
    }  # fmt: skip


def test_a_port_that_this_user_may_not_open_is_a_mistake_with_its_remedy(
    monkeypatch: pytest.MonkeyPatch, wired: list[Wired], port: Port
) -> None:
    def refused(**_settings: Any) -> Any:
        raise library.SerialException(errno.EACCES, "could not open port: Permission denied")

    monkeypatch.setattr(library, "Serial", refused)
    with pytest.raises(ConfigError, match="usermod -aG dialout") as caught:
        start(wired, port)
    assert "\n" not in str(caught.value)


def test_a_port_in_use_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, wired: list[Wired], port: Port, caplog: pytest.LogCaptureFixture
) -> None:
    real = library.Serial
    errors = [
        library.SerialException(errno.EAGAIN, "Could not exclusively lock port"),
        library.SerialException(
            errno.EACCES, "udev has not been here yet"
        ),  # a mistake at first, and no reason to stop
    ]

    def opened(**settings: Any) -> Any:
        if errors:
            raise errors.pop(0)
        return real(**settings)

    monkeypatch.setattr(library, "Serial", opened)
    one = start(wired, port)
    assert "in use by another program" in caplog.text
    one.until(lambda: _watched(one))
    assert not errors


def test_without_pyserial_the_error_has_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch, port: Port) -> None:
    monkeypatch.setitem(__import__("sys").modules, "serial", None)
    with pytest.raises(ConfigError, match=r'pip install "edge-runtime\[serial\]"'):
        Wired(port)


def test_closing_lets_go_of_the_port(wired: list[Wired], port: Port) -> None:
    fds = Path("/proc/self/fd")
    before = set(fds.iterdir())
    one = Wired(port)
    one.open()
    one.close()
    one.source.close()
    assert set(fds.iterdir()) <= before


@pytest.mark.parametrize(
    ("table", "complaint"),
    [
        ({}, "'port' is missing"),
        ({"port": ""}, "must name a device"),
        ({"port": "socket://sensor:7000"}, "must name a device"),
        ({"port": "/dev/ttyACM0", "baud": 1}, "baud must be"),
        ({"port": "/dev/ttyACM0", "stop_bits": 3}, "must be one of 1, 2"),
        ({"port": "/dev/ttyACM0", "framing": "lines", "codec": {"type": "raw"}}, "use framing cobs"),
        ({"port": "/dev/ttyACM0", "framing": "fixed"}, "needs frame_bytes and marker"),
        ({"port": "/dev/ttyACM0", "marker": "55"}, "needs frame_bytes and marker"),
        ({"port": "/dev/ttyACM0", "framing": "fixed", "frame_bytes": 4, "marker": "xy"}, "in hexadecimal"),
        ({"port": "/dev/ttyACM0", "checksum": "crc16"}, "lines carry no checksum"),
        ({"port": "/dev/ttyACM0", "bauds": 9600}, "did you mean 'baud'"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(table: dict[str, Any], complaint: str) -> None:
    with pytest.raises(schema.SchemaError, match=complaint):
        schema.load(SerialConfig, table)


def test_what_could_be_meant_is_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "usb-Arduino").touch()
    monkeypatch.setattr(serial, "BY_ID", tmp_path)
    assert str(tmp_path / "usb-Arduino") in serial._present()
