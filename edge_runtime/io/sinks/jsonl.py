"""JSON Lines sink: answers as lines of JSON in a file."""

from __future__ import annotations

import errno
import itertools
import logging
import os
import stat
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

from edge_runtime.base.system.fs_errors import NOT_THE_DISK
from edge_runtime.base.system.group_commit import GroupCommit
from edge_runtime.base.system.loop import Loop, Timer
from edge_runtime.errors import ConfigError
from edge_runtime.io.sinks.guard import PATIENCE_S, SinkPolicy
from edge_runtime.metrics import Metrics
from edge_runtime.types import Done, JsonLine

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""How long after a failed write it is tried again, if no answer comes earlier."""
MOVED_S: Final = 1.0
"""Shortest time between two looks for a file that was moved or removed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonlSinkConfig(SinkPolicy):
    """Settings of the file, and how it is kept."""

    type: Literal["jsonl"] = "jsonl"
    path: Path
    """Appended to; made where it does not exist. Its folder has to exist."""
    fsync: Literal["never", "batch"] = "never"
    """``batch``: an answer counts as handed over when the disk has it, and not when the system has it. Waited for on a
    thread of its own, once for all that was written meanwhile."""
    max_bytes: int = 0
    """Begin a new file rather than let this one grow beyond; 0: never."""
    keep: int = 5
    """Old files that are kept, as ``path.1`` (the newest) to ``path.N``."""
    mode: int = 0o600
    """Permissions of a file that is made; one that exists keeps its own. ``0o640`` lets a group read the answers."""
    max_pending_bytes: int = 1024 * 1024
    """Answers held while the disk is full or failing; beyond it the oldest are dropped and counted."""
    patience_s: float | Literal["forever"] | None = PATIENCE_S
    """As of every sink, but bounded for the only sink as well, so that a full disk does not stop the device."""

    def __post_init__(self) -> None:
        SinkPolicy.__post_init__(self)
        if self.max_bytes < 0 or not 0 <= self.keep <= 1000 or self.max_pending_bytes < 0:
            raise ValueError("max_bytes and max_pending_bytes must be at least 0, keep 0 to 1000")
        if self.mode & ~0o777 or self.mode & 0o600 != 0o600:
            raise ValueError("mode must be 0o600 to 0o777, and let the owner read and write")


class _Batch(NamedTuple):
    data: bytes
    answers: int
    done: Done | None


class _Written(NamedTuple):
    """For the thread that waits for the disk: a batch was written to a file, or (None) the file is finished."""

    fd: int
    batch: _Batch | None


def to_lines(answers: Sequence[JsonLine]) -> bytes:
    """Write one line of JSON per answer, the last one ended as well."""
    return b"".join([answer.to_json() + b"\n" for answer in answers])


class JsonlSink:
    """Appends to a file, one write per call of `send`.

    1. A write that fails (a full disk) is taken back, so that the file holds whole lines only, and tried again with the
       next answers and once a second; so is opening the file, where the disk and not the path is at fault.
    2. Until then answers wait in memory up to `JsonlSinkConfig.max_pending_bytes`; beyond, the oldest are dropped,
       counted under ``jsonl_full`` and reported as done. How long readings wait meanwhile is the guard's
       (`edge_runtime.io.sinks.guard`).
    3. A file that was moved or removed (logrotate) is left, and the path is opened afresh: at the next write, looked
       for once in `MOVED_S`, or at once by `reopen`.

    Args:
        config: the file.
        metrics: counts what is dropped, and ``jsonl_errors_total``.
        name: the sink's name in messages and metrics.
    """

    def __init__(self, config: JsonlSinkConfig, metrics: Metrics, *, name: str = "jsonl") -> None:
        self.name = name
        self._config = config
        self._metrics = metrics
        self._path = str(config.path)
        self._fd = -1
        self._size = 0
        self._torn = False
        self._pending: deque[_Batch] = deque()
        self._pending_bytes = 0
        self._failing = False
        self._looked = 0.0
        self._timer: Timer | None = None
        self._loop: Loop | None = None
        self._syncs: GroupCommit[_Written] | None = None
        self._synced: deque[tuple[Sequence[_Batch], OSError | None]] = deque()

    def open(self, loop: Loop) -> None:
        """See `edge_runtime.io.sinks.Sink`.

        Raises:
            ConfigError: the file cannot be written; waiting would not help.
        """
        self._loop = loop
        try:
            self._open_file()
        except OSError as error:
            if error.errno in NOT_THE_DISK or error.errno == errno.EINVAL:
                self._loop = None  # it was never opened
                raise ConfigError(f"{self.name}: cannot write {self._path}: {error.strerror or error}") from None
            self._failed(error)
        if self._config.fsync == "batch":
            self._syncs = GroupCommit(f"edge-runtime {self.name} sync", self._sync, self._not_synced, split=_by_file)
            self._syncs.start()

    def send(self, answers: Sequence[JsonLine], done: Done | None) -> None:
        """See `edge_runtime.io.sinks.Sink`."""
        data = to_lines(answers)
        self._pending.append(_Batch(data, len(answers), done))
        self._pending_bytes += len(data)
        self._flush()

    def reopen(self) -> None:
        """Go on in the file that the path names now; one that was moved is closed (rule 3)."""
        if self._fd >= 0:
            old, self._fd = self._fd, -1
            self._leave(old)

    def close(self, timeout_s: float) -> None:
        """See `edge_runtime.io.sinks.Sink`. What cannot be written now is lost, and counted under ``jsonl_closed``."""
        if self._loop is None:
            return
        self._flush()
        if self._timer is not None:
            self._timer.cancel()
        if self._syncs is not None:
            self._syncs.close(max(timeout_s, RETRY_S))
            self._report_synced()
        for batch in self._pending:
            self._metrics.dropped["jsonl_closed"] += batch.answers
        self._pending.clear()
        self._pending_bytes = 0
        self._loop = None
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _flush(self) -> None:
        try:
            self._look_for_path()
            if self._fd < 0:
                self._open_file()
            while self._pending:
                batch = self._pending[0]
                self._write(batch.data)
                self._forget(batch)
                if self._syncs is not None:
                    self._syncs.put(_Written(self._fd, batch._replace(data=b"")))
                elif batch.done is not None:
                    batch.done()
        except OSError as error:
            self._failed(error)
        else:
            if self._failing:
                self._failing = False
                logger.warning("%s: resumed writing: path=%s", self.name, self._path)

    def _forget(self, batch: _Batch) -> None:
        self._pending.popleft()
        self._pending_bytes -= len(batch.data)

    def _failed(self, error: OSError) -> None:
        self._metrics.counts["jsonl_errors_total"] += 1
        if not self._failing:
            self._failing = True
            logger.error(
                "%s: could not write, holding answers: path=%s error=%s", self.name, self._path, error.strerror
            )
        while self._pending_bytes > self._config.max_pending_bytes:
            batch = self._pending[0]
            self._forget(batch)
            self._metrics.dropped["jsonl_full"] += batch.answers
            if batch.done is not None:
                batch.done()
        if self._loop is not None and self._pending and self._timer is None:
            self._timer = self._loop.call_later(RETRY_S, self._again)

    def _look_for_path(self) -> None:
        """Leave a file that was moved or removed (rule 3)."""
        now = 0.0 if self._loop is None else self._loop.clock.monotonic()
        if self._fd < 0 or now - self._looked < MOVED_S:
            return
        self._looked = now
        try:
            same = os.path.samestat(os.stat(self._path), os.fstat(self._fd))  # noqa: PTH116 - plain strings
        except FileNotFoundError:
            same = False
        if not same:
            logger.info("%s: left a file that was moved: path=%s", self.name, self._path)
            self.reopen()

    def _leave(self, fd: int) -> None:
        """Close a file, once what was written to it is on the disk where that is waited for."""
        if self._syncs is not None:
            self._syncs.put(_Written(fd, None))
        else:
            os.close(fd)

    def _again(self) -> None:
        self._timer = None
        self._flush()

    def _write(self, data: bytes) -> None:
        """Append all of it or nothing.

        Raises:
            OSError: nothing was appended, or a torn line that the next write ends first.
        """
        if self._config.max_bytes and self._size and self._size + len(data) > self._config.max_bytes:
            self._rotate()
        if self._torn:
            data = b"\n" + data
        view = memoryview(data)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            if len(view) < len(data):
                self._take_back()
            raise
        self._size += len(data)
        self._torn = False

    def _take_back(self) -> None:
        try:
            os.ftruncate(self._fd, self._size)
        except OSError:
            self._torn = True

    def _rotate(self) -> None:
        """Rename the full file and begin a new one; where that fails, go on with the old one and try next time."""
        try:
            if self._config.keep:
                for i in range(self._config.keep - 1, 0, -1):
                    if os.path.exists(f"{self._path}.{i}"):  # noqa: PTH110 - plain strings, as everything here
                        os.replace(f"{self._path}.{i}", f"{self._path}.{i + 1}")  # noqa: PTH105
                os.replace(self._path, f"{self._path}.1")  # noqa: PTH105
            else:
                os.unlink(self._path)  # noqa: PTH108
            old = self._fd
            try:
                self._open_file()
            except OSError:
                self._fd = old
                raise
            self._leave(old)
        except OSError as error:
            self._metrics.counts["jsonl_errors_total"] += 1
            logger.warning("%s: could not begin a new file: error=%s", self.name, error.strerror or error)

    def _open_file(self) -> None:
        # Never a device or a pipe: opening one could wait for ever. O_NONBLOCK has no effect on a regular file.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        fd = os.open(self._path, flags, self._config.mode)
        status = os.fstat(fd)
        if not stat.S_ISREG(status.st_mode):
            os.close(fd)
            raise OSError(errno.EINVAL, "it is not a regular file")
        self._fd = fd
        self._size = status.st_size
        # A crash may have left half a line; what we append must not become part of it.
        self._torn = bool(self._size) and os.pread(fd, 1, self._size - 1) != b"\n"

    def _report_synced(self) -> None:
        """Report batches that are on the disk, or that the system says it lost; on the loop's thread."""
        while self._synced:
            batches, error = self._synced.popleft()
            if error is not None:
                self._metrics.counts["jsonl_errors_total"] += 1
                logger.error(
                    "%s: may have lost answers: path=%s error=%s", self.name, self._path, error.strerror or error
                )
            for batch in batches:
                if error is not None:
                    self._metrics.dropped["jsonl_sync_failed"] += batch.answers
                if batch.done is not None:
                    batch.done()

    # -- on the thread that waits for the disk -----------------------------------------------------------------------

    def _sync(self, written: Sequence[_Written]) -> None:
        """Bring a file onto the disk, and close it where nothing more is written to it."""
        fd = written[0].fd
        failure: OSError | None = None
        try:
            try:
                os.fdatasync(fd)
            finally:
                if written[-1].batch is None:
                    os.close(fd)
        except OSError as error:
            failure = error
        self._hand_back(written, failure)

    def _not_synced(self, written: Sequence[_Written], error: Exception) -> None:
        self._hand_back(written, OSError(str(error)))

    def _hand_back(self, written: Sequence[_Written], error: OSError | None) -> None:
        self._synced.append(([batch for _, batch in written if batch is not None], error))
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._report_synced)


def _by_file(written: Sequence[_Written]) -> Iterator[list[_Written]]:
    for _, group in itertools.groupby(written, lambda one: one.fd):
        yield list(group)
