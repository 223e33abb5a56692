"""Windower state over a restart: unanswered windows, snapshots, and the file of the default mode.

`Progress` is what both modes of durability share. `SavedWindows` is the default mode's file. It is written at an
orderly stop, so a reading costs no write.

Rules of the file, for ``durability = "window"``:

1. An orderly stop writes a snapshot: grids, samples that wait for the lateness bound, contexts, and completed windows
   whose answers are not safe yet.
2. A start restores it. Completed windows are answered again, under the same ids.
3. Before the first reading is taken, the snapshot is replaced by the completed windows alone, and by nothing once their
   answers are safe. A snapshot is true only until the next reading is acknowledged: used after a crash, it would bridge
   acknowledged readings that are gone, and answer a window again with other values.
4. A start that fails before a reading is taken leaves the snapshot as it is.

So a crash costs the windows that had begun. A snapshot now and then would not change that: by rule 3 it is of no use to
any key that has sent a reading since.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import orjson

from edge_runtime.clock import Clock
from edge_runtime.durable.reading_log_file import LogEntry, ReadingLogFile, Recovered
from edge_runtime.durable.reading_log_records import decode_readings, decode_snapshot, encode_snapshot
from edge_runtime.errors import StoreError, StoreInUse, StoreUnusable
from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.types import Done
from edge_runtime.windowing.config import WindowConfig
from edge_runtime.windowing.window import Window, Windower

log = logging.getLogger(__name__)


class Progress:
    """Completed windows whose answers are not safe yet, by iteration of the loop; snapshots of them and of a windower.

    Args:
        path: of the file, for messages.
        clock: restored windows count as received when they are restored.
    """

    def __init__(self, path: Path, clock: Clock) -> None:
        self._path = path
        self._clock = clock
        self._open: dict[int, Sequence[Window]] = {}
        self.seq = 0
        """Number of the last iteration."""
        self.contract = ""
        """Of the windows, as text: a snapshot of other ones is of no use."""

    def use(self, contract: InputContract, config: WindowConfig) -> None:
        """Set what windows are from now on; completed ones of before are not kept."""
        fields = asdict(contract)
        del fields["fill"]  # says nothing of how windows are cut, and files of earlier releases do not name it
        self.contract = orjson.dumps([fields, asdict(config)]).decode()
        self._open.clear()

    def hold(self, windows: Sequence[Window]) -> Done | None:
        """Begin an iteration that has completed `windows`; returns what to call when their answers are safe."""
        self.seq += 1
        seq = self.seq
        if not windows:
            return None
        self._open[seq] = windows
        return lambda: self._forget(seq)

    @property
    def acked(self) -> int:
        """All windows of the iterations up to this one are answered, and their answers safe."""
        return next(iter(self._open), self.seq + 1) - 1

    def snapshot(self, windower: Windower | None) -> bytes:
        """Encode the completed windows, and the state of `windower` where there is one."""
        held = [(seq, window) for seq, windows in self._open.items() for window in windows]
        return encode_snapshot(held, [] if windower is None else windower.state())

    def restore(self, left: Recovered, windower: Windower) -> tuple[list[Window], int, Done]:
        """Bring a fresh windower to where the run before was.

        Returns:
            Windows to answer, how many readings were replayed, and what to call when the answers are safe.
        """
        self.seq = max(self.seq, left.seq)
        windows: list[Window] = []
        readings = 0
        if left.contract == self.contract:
            windows, readings = self._replay(left, windower)
        elif left.snapshot or left.entries:
            log.warning("the reading log %s was written for other windows and is recreated", self._path)
        acked = self.hold(windows)  # as if an iteration had completed them now
        return windows, readings, acked or _nothing

    def _replay(self, left: Recovered, windower: Windower) -> tuple[list[Window], int]:
        held, states = decode_snapshot(left.snapshot)
        windower.restore(states)
        received = self._clock.monotonic()
        windows = [window._replace(received=received) for seq, window in held if seq > left.acked]
        readings = 0
        for entry in left.entries:
            replayed = decode_readings(entry.body)
            readings += len(replayed)
            completed = windower.push(replayed, received)
            if entry.seq > left.acked:
                windows += completed
        log.info(
            "reading log: restored the run before: keys=%d readings=%d windows=%d",
            len(windower), readings, len(windows),
        )  # fmt: skip
        return windows, readings

    def _forget(self, seq: int) -> None:
        self._open.pop(seq, None)


def _nothing() -> None:
    pass


@contextmanager
def counted_before(metrics: Metrics) -> Iterator[None]:
    """Within, nothing is counted: the run before has counted what is replayed."""
    counts, dropped = metrics.counts.copy(), metrics.dropped.copy()
    yield
    for counter, before in ((metrics.counts, counts), (metrics.dropped, dropped)):
        counter.clear()
        counter.update(before)


class SavedWindows:
    """Begun windows of the default mode, over an orderly stop. All methods belong to the loop's thread.

    Args:
        path: of the file; its folder must exist.
        max_bytes: what it may have.
        metrics: receives the windows that are answered again as ``windows_total``, and keys whose begun windows could
            not be kept as ``window_restarts_total``.
        clock: see `Progress`.
        file: the unopened file; a test passes one on a disk of its own.
    """

    writes_readings = False

    def __init__(
        self, path: Path, max_bytes: int, *, metrics: Metrics, clock: Clock, file: ReadingLogFile | None = None
    ) -> None:
        self._path = path
        self._file = file or ReadingLogFile(path, max_bytes)
        self._metrics = metrics
        self._progress = Progress(path, clock)
        self._config = WindowConfig()
        self._stopped = False
        self._held = False  # the file holds a snapshot that this run has taken over

    def recover(
        self, contract: InputContract, config: WindowConfig, windower: Windower, _late: object = None
    ) -> tuple[list[Window], Done]:
        """Restore what an orderly stop has saved (rule 2).

        Args:
            contract: what a window is.
            config: how samples are ordered.
            windower: fresh.

        Returns:
            Windows to answer, and what to call when the answers are safe.

        Raises:
            StoreInUse, StoreUnusable: the file is another program's, or its path or permissions are wrong.
        """
        self._config = config
        self._progress.use(contract, config)
        try:
            left = self._file.read()
        except (StoreInUse, StoreUnusable):
            raise
        except StoreError as error:
            log.warning("windows that the run before had begun are lost: %s", error)
            self._held = True
            return [], _nothing
        self._held = bool(left.snapshot or left.entries)
        with counted_before(self._metrics):
            windows, _, acked = self._progress.restore(left, windower)
        self._metrics.counts["windows_total"] += len(windows)
        if not windows:
            return [], acked

        def safe() -> None:
            acked()
            if not self._stopped:  # else it would take the place of what was saved since
                self._replace("", None)

        return windows, safe

    def begin(self) -> None:
        """Give the snapshot up, since readings come now (rule 3)."""
        if self._held:
            self._held = False
            self._replace(self._progress.contract, None)

    def change(self, contract: InputContract, _windower: Windower) -> None:
        """Windows are other ones from now on."""
        self._progress.use(contract, self._config)

    def drained(self) -> bool:
        """Nothing waits for the disk."""
        return True

    def take(self, _readings: object, done: Done) -> None:
        """Nothing is written for a reading."""
        done()

    def flush_iteration(self, windows: Sequence[Window], _windower: Windower) -> Done | None:
        """Remember the windows of an iteration until `Done` is called."""
        return self._progress.hold(windows) if windows else None

    def stop(self, windower: Windower, _timeout_s: float) -> None:
        """Save the state (rule 1), and close the file."""
        self._stopped = True
        if not self._replace(self._progress.contract, windower):
            self._metrics.counts["window_restarts_total"] += len(windower)
        self.close()

    def close(self) -> None:
        """Give the file back. May be called twice."""
        self._file.close()

    def _replace(self, contract: str, windower: Windower | None) -> bool:
        self._progress.seq += 1
        body = self._progress.snapshot(windower) if contract else b""
        try:
            self._file.replace(contract, LogEntry(self._progress.seq, body))
        except StoreError as error:
            log.warning("begun windows cannot be kept in %s: %s", self._path, error)
            return False
        return True
