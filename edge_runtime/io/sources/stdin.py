"""Standard input as a source: ``sensor | edge-runtime run app.toml``."""

from __future__ import annotations

import logging
import os
import stat
from dataclasses import dataclass, field
from typing import Final, Literal

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import Clock, SystemClock
from edge_runtime.errors import ConfigError
from edge_runtime.io.codecs.config import CodecConfig, is_text
from edge_runtime.io.codecs.json import JsonConfig
from edge_runtime.io.sources import Deliver
from edge_runtime.io.sources.decoding import Decoder
from edge_runtime.io.sources.framing import Framer, Lengths, Lines, refuser

logger = logging.getLogger(__name__)

_READ_BYTES: Final = 256 * 1024

IN_FLIGHT: Final = 8
"""Deliveries that may wait for their `done`; until one reports, nothing is read, and the writer of the pipe waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StdinConfig:
    """Settings of standard input: framing, key and codec."""

    type: Literal["stdin"] = "stdin"
    framing: Literal["auto", "lines", "length"] = "auto"
    """``lines``: a message per line. ``length``: before each message its length in bytes, 4 bytes, little-endian.
    ``auto``: lines for text (JSON, line protocol and so on), lengths for what is binary."""
    key: str = ""
    """Key of every message; empty: the messages name theirs."""
    max_bytes: int = 1024 * 1024
    """Largest message; a longer one is refused and counted."""
    codec: CodecConfig = field(default_factory=JsonConfig)

    def __post_init__(self) -> None:
        if not 1 <= self.max_bytes <= 2**30:
            raise ValueError("max_bytes must be 1 to 2**30")
        if self.framing == "lines" and not is_text(self.codec):
            raise ValueError(
                f"codec {self.codec.type} is binary, and a line end may stand inside it; use framing length"
            )

    @property
    def by_lines(self) -> bool:
        """Return whether messages are lines."""
        return self.framing == "lines" or (self.framing == "auto" and is_text(self.codec))


class StdinSource:
    """Reads messages from a pipe, a terminal or a file, without ever blocking the loop on an empty pipe.

    Args:
        config: how the stream is cut.
        decoder: decoder of messages.
        clock: source of the times of arrival.
        name: the source's name in messages and metrics.
        fd: what to read; it is not closed.
    """

    most_unacked = None
    """It waits without loss, for every sink."""

    def __init__(
        self,
        config: StdinConfig,
        decoder: Decoder,
        clock: Clock | None = None,
        *,
        name: str = "stdin",
        fd: int = 0,
    ) -> None:
        self.name = name
        self._config = config
        self._decoder = decoder
        self._clock = clock or SystemClock()
        self._fd = fd
        refuse = refuser(decoder.refuse, "")
        self._framer: Framer = (Lines if config.by_lines else Lengths)(config.max_bytes, refuse)
        self._in_flight = 0
        self._loop: Loop | None = None
        self._deliver: Deliver | None = None
        self._is_file = False
        self._reading = False
        self._stopped = False
        self._ended = False

    @property
    def finished(self) -> bool:
        """The stream has ended, and every message of it was delivered."""
        return self._ended

    def open(self, loop: Loop, deliver: Deliver) -> None:
        """See `edge_runtime.io.sources.Source`.

        Raises:
            ConfigError: there is no standard input.
        """
        try:
            mode = os.fstat(self._fd).st_mode
            # Pipes, terminals and sockets are waited for. Files and /dev/null always have an answer, and epoll takes
            # neither.
            self._is_file = not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(self._fd))
        except OSError:
            raise ConfigError(f"{self.name}: standard input is closed; pipe something into it") from None
        self._loop = loop
        self._deliver = deliver
        self._start()

    def pause(self) -> None:
        """See `edge_runtime.io.sources.Source`."""
        self._stopped = True
        self._stop()

    def close(self) -> None:
        """See `edge_runtime.io.sources.Source`."""
        self.pause()
        self._framer.reset()

    def _start(self) -> None:
        if self._reading or self._stopped or self._ended or self._loop is None:
            return
        self._reading = True
        if self._is_file:
            self._loop.call_soon(self._read_file)
        else:
            self._loop.watch(self._fd, self._read, lingers=True)

    def _stop(self) -> None:
        if self._reading and not self._is_file and self._loop is not None:
            self._loop.unwatch(self._fd)
        self._reading = False

    def _read_file(self) -> None:
        if not self._reading:
            return
        self._reading = False
        self._read()
        if self._in_flight < IN_FLIGHT:
            self._start()

    def _read(self) -> None:
        # One read per wake-up returns what is there; a second one might wait.
        try:
            data = os.read(self._fd, _READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            logger.error("%s: could not read on, ending: error=%s", self.name, error.strerror)  # noqa: TRY400 - one line
            data = b""
        self._hand_over(self._framer.feed(data) if data else self._end())

    def _hand_over(self, messages: list[bytes]) -> None:
        if not messages or self._deliver is None:
            return
        key = self._config.key
        if self._loop is not None:
            self._loop.arrived(len(messages))
        readings = self._decoder([(key, message) for message in messages], self._clock.wall())
        if not readings:
            return
        self._in_flight += 1
        if self._in_flight >= IN_FLIGHT:
            self._stop()
        self._deliver(readings, self._clock.monotonic(), self._done)

    def _done(self) -> None:
        self._in_flight -= 1
        self._start()

    def _end(self) -> list[bytes]:
        self._stop()
        self._ended = True
        return self._framer.end()
