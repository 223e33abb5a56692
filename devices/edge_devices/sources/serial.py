"""A serial port as a source: a microcontroller on USB, a UART of the board, an RS-485 adapter.

Needs pyserial (``pip install "edge-runtime[serial]"``). A port that is not there yet, or is unplugged, is opened again
when it is back. While the pipeline is behind, messages are counted as ``overrun`` and left out: a wire cannot wait, and
what the kernel would drop instead is half a message.
"""

from __future__ import annotations

import errno
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

from edge_devices.sources.device_stream import DeviceStream
from edge_devices.sources.reopening import Unreachable
from edge_runtime.clock import Clock
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.codecs.config import CodecConfig, is_text
from edge_runtime.io.codecs.json import JsonConfig
from edge_runtime.io.sources.build import SourceParts
from edge_runtime.io.sources.decoding import Decoder
from edge_runtime.io.sources.framing import Checksum, Cobs, Fixed, Framer, Lines, refuser
from edge_runtime.metrics import Metrics

IN_FLIGHT: Final = 64
"""Deliveries that may wait for their `done`."""

BY_ID: Final = Path("/dev/serial/by-id")
"""Where udev links USB ports under names that stay the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SerialConfig:
    """Settings of a serial port, and of the framing that cuts its bytes into messages."""

    type: Literal["serial"] = "serial"
    port: str
    """``/dev/serial/by-id/...`` names a USB device whatever else is plugged in; ``/dev/ttyACM0`` the first of its kind.
    pyserial's URLs (``socket://``, ``rfc2217://``) are not taken."""
    baud: int = 115_200
    parity: Literal["none", "even", "odd"] = "none"
    stop_bits: Literal[1, 2] = 1
    flow: Literal["none", "rts_cts", "xon_xoff"] = "none"
    framing: Literal["auto", "lines", "cobs", "fixed"] = "auto"
    """``lines``: a message per line. ``cobs``: stuffed frames, each ended by a zero byte. ``fixed``: frames of
    `frame_bytes` behind `marker`. ``auto``: lines for text (JSON, line protocol and so on), COBS for what is binary."""
    frame_bytes: int = 0
    """With framing ``fixed``: bytes of a message, without marker and checksum."""
    marker: str = ""
    """With framing ``fixed``: what each frame begins with, in hexadecimal, for example ``55aa``."""
    checksum: Checksum = "none"
    """Behind each frame's message, little-endian: ``crc16`` (XMODEM) or ``crc32``. Not for lines."""
    key: str = ""
    """Key of every message; empty: the messages name theirs."""
    max_bytes: int = 64 * 1024
    """Largest message; a longer one is refused and counted."""
    codec: CodecConfig = field(default_factory=JsonConfig)

    def __post_init__(self) -> None:
        if not self.port or "://" in self.port:
            raise ValueError(f"port must name a device such as '/dev/ttyACM0', got '{self.port}'")
        if not 50 <= self.baud <= 20_000_000:
            raise ValueError("baud must be 50 to 20,000,000")
        if not 1 <= self.max_bytes <= 2**24:
            raise ValueError("max_bytes must be 1 to 2**24")
        if self.framing == "lines" and not is_text(self.codec):
            raise ValueError(f"codec {self.codec.type} is binary, and a line end may stand inside it; use framing cobs")
        if (self.framing == "fixed") != bool(self.frame_bytes) or (self.framing == "fixed") != bool(self.marker):
            raise ValueError("framing fixed, and it alone, needs frame_bytes and marker")
        if self.framing == "fixed" and not 1 <= self.frame_bytes <= self.max_bytes:
            raise ValueError("frame_bytes must be 1 to max_bytes")
        if self.by_lines and self.checksum != "none":
            raise ValueError("lines carry no checksum; use framing cobs or fixed")
        try:
            bytes.fromhex(self.marker)
        except ValueError:
            raise ValueError(f"marker must be bytes in hexadecimal such as '55aa', got '{self.marker}'") from None

    @property
    def by_lines(self) -> bool:
        """Return whether messages are lines."""
        return self.framing == "lines" or (self.framing == "auto" and is_text(self.codec))


class SerialSource(DeviceStream):
    """Reads messages from a serial port.

    Args:
        config: the port's settings.
        decoder: decoder of messages.
        metrics: counts reopened ports.
        clock: source of the times of arrival.
        name: the source's name in messages and metrics.
        rng: spreads the attempts to open it again.

    Raises:
        ConfigError: pyserial is not installed.
    """

    def __init__(
        self,
        config: SerialConfig,
        decoder: Decoder,
        metrics: Metrics,
        clock: Clock | None = None,
        *,
        name: str = "serial",
        rng: random.Random | None = None,
    ) -> None:
        super().__init__(name, config.port, metrics, clock, in_flight=IN_FLIGHT, rng=rng)
        self._config = config
        self._decoder = decoder
        self._library = _pyserial(name)
        self._framer = _framer(config, decoder)
        self._port: Any = None

    def _connect(self) -> None:
        config = self._config
        try:
            self._port = self._library.Serial(
                port=config.port,
                baudrate=config.baud,
                parity={"none": "N", "even": "E", "odd": "O"}[config.parity],
                stopbits=config.stop_bits,
                rtscts=config.flow == "rts_cts",
                xonxoff=config.flow == "xon_xoff",
                timeout=0,
                exclusive=True,
            )
        except (OSError, ValueError) as error:  # its SerialException is an OSError
            raise self._refusal(error) from error
        self._framer.reset()
        self._follow(self._port.fileno())

    def _refusal(self, error: OSError | ValueError) -> Unreachable | ConfigError:
        port, number = self._config.port, getattr(error, "errno", None)
        if number in {errno.EACCES, errno.EPERM}:
            return ConfigError(
                f"{self.name}: {port} may not be opened by this user; run: sudo usermod -aG dialout $USER, and log in "
                "again (for a service: SupplementaryGroups=dialout)"
            )
        if number == errno.ENOENT:
            return Unreachable(f"{port} is not there; plug the device in, or correct the port ({_present()})")
        if number in {errno.EAGAIN, errno.EBUSY}:
            return Unreachable(f"{port} is in use by another program; end that one")
        if isinstance(error, ValueError):
            return ConfigError(f"{self.name}: {port} does not take these settings: {error}")
        return Unreachable(f"{port} cannot be opened: {error}")

    def _disconnect(self) -> None:
        self._unfollow()
        if self._port is not None:
            port, self._port = self._port, None
            try:
                port.close()
            except OSError:
                return  # the device is gone, and its settings with it

    def _take(self, data: bytes) -> None:
        key, messages = self._config.key, self._framer.feed(data)
        if self._behind:
            for message in messages:
                self._decoder.refuse(InputError("overrun", "the pipeline is behind"), key, message)
            return
        self._hand_over(self._decoder([(key, message) for message in messages], self._clock.wall()))


def _framer(config: SerialConfig, decoder: Decoder) -> Framer:
    refuse = refuser(decoder.refuse, config.key)
    if config.by_lines:
        return Lines(config.max_bytes, refuse)
    if config.framing == "fixed":
        return Fixed(config.frame_bytes, bytes.fromhex(config.marker), refuse, config.checksum)
    return Cobs(config.max_bytes, refuse, config.checksum)


def _present() -> str:
    """List the ports that could be meant."""
    names = sorted(str(path) for folder, pattern in ((BY_ID, "*"), (Path("/dev"), "ttyACM*"), (Path("/dev"), "ttyUSB*"))
                   for path in folder.glob(pattern))  # fmt: skip
    return f"there are: {', '.join(names)}" if names else "no USB serial port is there at all"


def _pyserial(name: str) -> Any:
    try:
        import serial  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise ConfigError(f'{name}: serial ports need pyserial; run: pip install "edge-runtime[serial]"') from error
    return serial


def make_source(config: SerialConfig, parts: SourceParts) -> SerialSource:
    """Make the source; see `edge_runtime.io.sources.build`."""
    return SerialSource(config, parts.decoder(config.codec), parts.metrics, parts.clock, name=parts.name)
