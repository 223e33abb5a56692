"""Answers as lines of JSON on standard output: ``edge-runtime run app.toml | jq .label``."""

from __future__ import annotations

import logging
import os
import select
import stat
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import Clock, SystemClock
from edge_runtime.io.sinks.guard import SinkPolicy
from edge_runtime.io.sinks.jsonl import to_lines
from edge_runtime.metrics import Metrics
from edge_runtime.types import Answer, Done

logger = logging.getLogger(__name__)

_PIECE: Final = select.PIPE_BUF
"""So much fits whenever a pipe says that it can be written, so a write of it never waits (POSIX.1-2017, pipe(7))."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StdoutSinkConfig(SinkPolicy):
    """Settings of the stdout sink: the bytes that may wait for a slow reader."""

    type: Literal["stdout"] = "stdout"
    max_pending_bytes: int = 8 * 1024 * 1024
    """Answers held while the reader of the pipe does not read; beyond it new ones are dropped and counted."""

    def __post_init__(self) -> None:
        SinkPolicy.__post_init__(self)
        if self.max_pending_bytes < 1:
            raise ValueError("max_pending_bytes must be at least 1")


class _Batch:
    """Lines on their way."""

    __slots__ = ("answers", "data", "done")

    def __init__(self, data: memoryview, answers: int, done: Done | None) -> None:
        self.data = data
        self.answers = answers
        self.done = done


class StdoutSink:
    """Writes lines to a pipe, a terminal or a file, and never waits for a reader that is slow.

    The descriptor stays in blocking mode, since that is shared with other programs on the terminal; pipes and
    terminals are written to in small pieces, whenever the system says that one fits. A reader that goes away
    (``| head``) is noted once; from then on answers are dropped, counted under ``stdout_closed``, and reported as done.

    Args:
        config: how much may wait.
        metrics: counts what is dropped.
        clock: bounds the time that closing may take.
        name: the sink's name in messages and metrics.
        fd: the descriptor to write to; it is not closed.
    """

    def __init__(
        self,
        config: StdoutSinkConfig,
        metrics: Metrics,
        clock: Clock | None = None,
        *,
        name: str = "stdout",
        fd: int = 1,
    ) -> None:
        self.name = name
        self._config = config
        self._metrics = metrics
        self._clock = clock or SystemClock()
        self._fd = fd
        self._queue: deque[_Batch] = deque()
        self._queued_bytes = 0
        self._loop: Loop | None = None
        self._can_wait = False
        self._watching = False
        self._broken = False

    def open(self, loop: Loop) -> None:
        """See `edge_runtime.io.sinks.Sink`. A closed standard output is noted, and swallows all answers."""
        self._loop = loop
        try:
            mode = os.fstat(self._fd).st_mode
        except OSError as error:
            self._break(error)
            return
        # Regular files and /dev/null never wait, and epoll takes neither.
        self._can_wait = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(self._fd)

    def send(self, answers: Sequence[Answer], done: Done | None) -> None:
        """See `edge_runtime.io.sinks.Sink`."""
        data = to_lines(answers)
        reason = "stdout_closed" if self._broken else "stdout_full"
        if self._broken or self._queued_bytes + len(data) > self._config.max_pending_bytes:
            self._metrics.dropped[reason] += len(answers)
            if done is not None:
                done()
            return
        self._queue.append(_Batch(memoryview(data), len(answers), done))
        self._queued_bytes += len(data)
        if not self._watching:
            self._drain()

    def close(self, timeout_s: float) -> None:
        """See `edge_runtime.io.sinks.Sink`. What the reader does not take in time is counted: ``stdout_closed``."""
        if self._loop is None:
            return
        self._watch(on=False)
        until = self._clock.monotonic() + timeout_s
        while self._queue and not self._broken:
            left = until - self._clock.monotonic()
            if left <= 0 or not self._writable(left):
                break
            self._write_piece()
        for batch in self._queue:
            self._metrics.dropped["stdout_closed"] += batch.answers
        self._queue.clear()
        self._queued_bytes = 0
        self._loop = None

    def _drain(self) -> None:
        while self._queue:
            if not self._writable(0):
                self._watch(on=True)
                return
            self._write_piece()
        self._watch(on=False)

    def _writable(self, seconds: float) -> bool:
        if not self._can_wait:
            return True
        poll = select.poll()
        poll.register(self._fd, select.POLLOUT)
        return bool(poll.poll(seconds * 1000))

    def _write_piece(self) -> None:
        batch = self._queue[0]
        try:
            written = os.write(self._fd, batch.data[:_PIECE] if self._can_wait else batch.data)
        except OSError as error:
            self._break(error)
            return
        batch.data = batch.data[written:]
        self._queued_bytes -= written
        if not batch.data:
            self._queue.popleft()
            if batch.done is not None:
                batch.done()

    def _watch(self, *, on: bool) -> None:
        if self._loop is not None and on != self._watching:
            self._loop.watch_write(self._fd, self._drain if on else None)
            self._watching = on

    def _break(self, error: OSError) -> None:
        self._watch(on=False)
        self._broken = True
        logger.warning("%s: closed, dropping answers from now on: error=%s", self.name, error.strerror or error)
        batches, self._queue = self._queue, deque()
        self._queued_bytes = 0
        for batch in batches:
            self._metrics.dropped["stdout_closed"] += batch.answers
            if batch.done is not None:
                batch.done()
