"""A microphone as a source: raw samples from ALSA's own recorder, ``arecord``, through a pipe.

No sound library is loaded: the recorder is a program that every ALSA system has, and one that dies takes nothing with
it. It is started again with back-off. Samples become floats with full scale 1. Stamps count samples from the first
one (`edge_runtime.base.media.sound_stream`), and are reset after an overrun, a restart, or when the sound card's clock
has drifted half a second away.

Source: arecord(1) of alsa-utils; its message at an overrun is ``overrun!!! (at least 12.345 ms long)``.
"""

from __future__ import annotations

import os
import random
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from edge_devices.sources.device_stream import DeviceStream
from edge_devices.sources.reopening import Unreachable
from edge_runtime.base.media.sound_stream import SoundStream
from edge_runtime.clock import Clock
from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.sources.build import SourceParts
from edge_runtime.io.sources.decoding import Refusals
from edge_runtime.io.sources.framing import Records
from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.types import Reading

_ERROR_BYTES: Final = 4096

IN_FLIGHT: Final = 16
"""Deliveries that may wait for their `done`; then the pipe is not read, and the recorder reports an overrun itself."""

RESYNC_S: Final = 0.5
"""Stamps further than this from the time of arrival are reset to it."""

STOP_S: Final = 1.0
"""Longest wait for the recorder to end; then it is killed."""

_OVERRUN: Final = re.compile(rb"overrun!!!")
_FORMATS: Final[dict[str, tuple[np.dtype[Any], float]]] = {
    "S16_LE": (np.dtype("<i2"), 2.0**-15),
    "S32_LE": (np.dtype("<i4"), 2.0**-31),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class AlsaConfig:
    """Settings of a sound card; it records the model's number of channels."""

    type: Literal["alsa"] = "alsa"
    device: str = "default"
    """As ``arecord -L`` lists it: ``plughw:CARD=Device`` converts rate and format where the card cannot."""
    format: Literal["S16_LE", "S32_LE"] = "S16_LE"
    """``S32_LE`` is what most I2S microphones give."""
    rate_hz: int = 0
    """Rate of the recording, if that is not the model's rate (0): the sound is then resampled here, free of aliases,
    and not by ALSA. Write the card's own rate with ``hw:``, for example 48000."""
    period_ms: float = 50.0
    """Length of the sound that comes at a time."""
    buffer_ms: float = 500.0
    """Longest time that this program may be busy elsewhere before sound is lost."""
    gain: float = 1.0
    """Multiplies the samples; full scale is 1 without it."""
    key: str = "microphone"
    program: str = "arecord"
    """Program that records, found on the PATH."""
    arguments: tuple[str, ...] = ()
    """Further arguments of `program`."""

    def __post_init__(self) -> None:
        if not self.device or not self.program or not self.key:
            raise ValueError("device, program and key must not be empty")
        if not 1 <= self.period_ms <= self.buffer_ms <= 10_000:
            raise ValueError("need 1 <= period_ms <= buffer_ms <= 10,000")
        if not 0 < abs(self.gain) < 1e30:
            raise ValueError("gain must not be 0")
        if not 0 <= self.rate_hz <= 1_000_000:
            raise ValueError("rate_hz must be 0 (the model's rate) to 1,000,000")


class AlsaSource(DeviceStream):
    """Records from a microphone.

    Args:
        config: the microphone's settings.
        contract: channels and rate of the model.
        metrics: counts what came, and what was lost: each overrun as ``overrun``.
        clock: source of the times of arrival.
        name: the source's name in messages and metrics.
        rng: spreads the attempts to start the recorder again.

    Raises:
        ConfigError: the model's rate is no whole number of samples a second, or `AlsaConfig.rate_hz` does not fit it.
    """

    END = ""  # of its output says nothing; the recorder's last word does

    def __init__(
        self,
        config: AlsaConfig,
        contract: InputContract,
        metrics: Metrics,
        clock: Clock | None = None,
        *,
        name: str = "alsa",
        rng: random.Random | None = None,
    ) -> None:
        if not config.rate_hz and contract.rate_hz != round(contract.rate_hz):
            raise ConfigError(
                f"{name}: the model wants {contract.rate_hz:g} samples a second, and sound has whole ones"
            )
        super().__init__(name, config.device, metrics, clock, in_flight=IN_FLIGHT, rng=rng)
        self._config = config
        self._rate = config.rate_hz or round(contract.rate_hz)
        self._channels = len(contract.channels)
        try:
            self._stream = SoundStream(self._rate, contract.rate_hz, self._channels, settle_s=0.0)
        except ConfigError as error:
            raise ConfigError(f"{name}: {error}") from None
        self._period_s = 1 / contract.rate_hz
        self._refusals = Refusals(metrics)
        self._dtype, scale = _FORMATS[config.format]
        self._scale = np.float32(scale * config.gain)
        self._frames = Records(self._dtype.itemsize * self._channels)
        self._process: subprocess.Popen[bytes] | None = None
        self._errors = b""
        self._last_line = ""  # of the recorder's standard error

    def command(self) -> list[str]:
        """Return the command line that is run."""
        config = self._config
        return [
            config.program, "-q", "-t", "raw", "-D", config.device, "-f", config.format, "-c", str(self._channels),
            "-r", str(self._rate), f"--period-time={config.period_ms * 1000:.0f}",
            f"--buffer-time={config.buffer_ms * 1000:.0f}", *config.arguments,
        ]  # fmt: skip

    def _connect(self) -> None:
        if shutil.which(self._config.program) is None:
            raise ConfigError(f"{self.name}: {self._config.program} is not installed; run: apt-get install alsa-utils")
        try:
            self._process = process = subprocess.Popen(  # noqa: S603 - what the configuration names, without a shell
                self.command(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                env={**os.environ, "LC_ALL": "C"},  # its messages are read
            )  # fmt: skip
        except OSError as error:
            raise Unreachable(f"{self._config.program} cannot be started: {error.strerror}") from error
        self._frames.reset()
        self._errors = b""
        self._stream.forget()
        assert self._loop is not None
        assert process.stdout is not None
        assert process.stderr is not None
        os.set_blocking(process.stderr.fileno(), False)
        self._loop.watch(process.stderr.fileno(), self._read_errors)
        self._follow(process.stdout.fileno())

    def _take(self, data: bytes) -> None:
        whole = self._frames.feed(data)
        if not whole:
            return
        values = (np.frombuffer(whole, self._dtype).astype(np.float32) * self._scale).reshape(-1, self._channels)
        pieces = self._stream.push(values, self._clock.wall() - len(values) / self._rate, RESYNC_S)
        self._hand_over_samples([Reading(self._config.key, t, one, self._period_s) for t, one in pieces], len(whole))
        if self._behind:
            self._hold()

    def _done(self) -> None:
        super()._done()
        self._resume()

    def _read_errors(self) -> None:
        """Read the recorder's messages: overruns, and at last why it ended."""
        process = self._process
        if process is None or process.stderr is None:
            return
        try:
            data = os.read(process.stderr.fileno(), _ERROR_BYTES)
        except BlockingIOError:
            return
        if not data:
            if self._loop is not None:
                self._loop.unwatch(process.stderr.fileno())
            return
        *lines, rest = (self._errors + data).split(b"\n")
        self._errors = rest[-_ERROR_BYTES:]
        for line in lines:
            if _OVERRUN.search(line):
                self._stream.forget()
                self._refusals(InputError("overrun", line.decode("utf-8", "replace").strip()[:200]), "sound")
            elif line.strip():
                self._last_line = line.decode("utf-8", "replace").strip()[:200]

    def _end_reason(self, reason: str) -> str:
        self._read_errors()
        cause, self._last_line = self._last_line or reason, ""
        hint = ""
        if "Permission denied" in cause:
            hint = "; run: sudo usermod -aG audio $USER, and log in again (for a service: SupplementaryGroups=audio)"
        elif "No such" in cause or "Invalid" in cause:
            hint = f"; {self._config.program} -L lists what there is"
        return f"{self._config.program} ended{f': {cause}' if cause else ''}{hint}"

    def _disconnect(self) -> None:
        process = self._process
        if process is None:
            return
        self._unfollow()
        self._process = None
        if process.stderr is not None and self._loop is not None:
            self._loop.unwatch(process.stderr.fileno())
        process.terminate()
        for pipe in (process.stdout, process.stderr):
            if pipe is not None:
                pipe.close()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def make_source(config: AlsaConfig, parts: SourceParts) -> AlsaSource:
    """Make the source; see `edge_runtime.io.sources.build`."""
    return AlsaSource(config, parts.contract, parts.metrics, parts.clock, name=parts.name)
