"""Windower state over a restart: unanswered windows, snapshots, and the file of the default mode.

`Progress` is what both modes of durability share. `SavedWindows` is the default mode's file. It is written at an
orderly stop, so a reading costs no write.

States of events are saved as they were after the last window whose answer is safe. The windows after it are answered
again, and make the same events again, with the same ids.

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
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import orjson

from edge_runtime.clock import Clock
from edge_runtime.durable.reading_log_file import LogEntry, ReadingLogFile, Recovered
from edge_runtime.durable.reading_log_records import (
    decode_events,
    decode_readings,
    decode_snapshot,
    decode_snapshot_events,
    encode_snapshot,
)
from edge_runtime.errors import StoreError, StoreInUse, StoreUnusable
from edge_runtime.events.rules import KeyState as EventState
from edge_runtime.events.tracker import Changed, EventTracker
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.types import Done
from edge_runtime.windowing.config import WindowConfig
from edge_runtime.windowing.join import AnyWindower, is_joined
from edge_runtime.windowing.window import Window

log = logging.getLogger(__name__)


class Progress:
    """Completed windows whose answers are not safe yet, by iteration of the loop; snapshots of them and of a windower.

    Args:
        path: of the file, for messages.
        clock: restored windows count as received when they are restored.
        events: whose states are saved with the windows.
    """

    def __init__(self, path: Path, clock: Clock, events: EventTracker | None = None) -> None:
        self._path = path
        self._clock = clock
        self._events = events or EventTracker(())
        self._rules = self._events.rules
        self._safe_events: dict[str, EventState] = {}
        self._event_changes: deque[tuple[int, Changed]] = deque()  # with the iteration that made them
        self._open: dict[int, Sequence[Window]] = {}
        self._safe_out_of_turn: set[int] = set()
        self.seq = 0
        """Number of the last iteration."""
        self.contract = ""
        """Of the windows, as text: a snapshot of other ones is of no use."""

    def use(self, contract: InputContract, config: WindowConfig) -> None:
        """Set what windows are from now on; completed ones of before are not kept."""
        fields, bounds = asdict(contract), asdict(config)
        # What says nothing of how windows are cut: files of earlier releases do not name it.
        del fields["fill"]
        if fields["frame"] is None:
            del fields["frame"]
        fields["channels"] = [_as_earlier(channel) for channel in fields["channels"]]
        if not is_joined(contract, config):
            for name in ("parts", "wait_s", "max_waiting"):
                del bounds[name]
        self.contract = orjson.dumps([fields, bounds]).decode()
        self._open.clear()
        self._safe_out_of_turn.clear()

    def hold(self, windows: Sequence[Window]) -> Done | None:
        """Begin an iteration that has completed `windows`; returns what to call when their answers are safe."""
        seq = self.next_seq()
        if not windows:
            return None
        self._open[seq] = windows
        return lambda: self._forget(seq)

    def next_seq(self) -> int:
        """Begin an iteration, or number a snapshot."""
        self._collect_events()
        self.seq += 1
        return self.seq

    @property
    def acked(self) -> int:
        """All windows of the iterations up to this one are answered, and their answers safe."""
        return next(iter(self._open), self.seq + 1) - 1

    @property
    def event_backlog(self) -> int:
        """States of events that have changed and are not taken yet, about."""
        return self._events.backlog

    def newly_safe_events(self) -> Changed | None:
        """Take the states of events that have become safe since this was asked last.

        Returns:
            By key, to be written with the iteration's readings; None: a snapshot has to be, since rules have changed.
        """
        rules = self._rules
        self._collect_events()
        safe: dict[str, EventState | None] = {}
        while self._event_changes and self._event_changes[0][0] <= self.acked:
            safe |= self._event_changes.popleft()[1]
        for key, state in safe.items():
            self._safe_events.pop(key, None)  # the key silent longest comes first
            if state is not None:
                self._safe_events[key] = state
        return safe if self._rules is rules else None

    def _collect_events(self) -> None:
        changed = self._events.changed()
        if self._events.rules is not self._rules:  # all keys have changed
            self._rules = self._events.rules
            self._event_changes.clear()
            self._safe_events = {key: state for key, state in changed.items() if state is not None}
        elif changed:
            self._event_changes.append((self.seq, changed))

    def snapshot(self, windower: AnyWindower | None) -> bytes:
        """Encode the completed windows, and the states of `windower` and of events where there is one."""
        self.newly_safe_events()
        held = [(seq, window) for seq, windows in self._open.items() for window in windows]
        if windower is None:
            return encode_snapshot(held, [])
        events = {"rules": self._rules, "keys": self._safe_events} if self._rules else None
        return encode_snapshot(held, windower.state(), events)

    def restore(self, left: Recovered, windower: AnyWindower, *, late: bool = False) -> tuple[list[Window], int, Done]:
        """Bring a fresh windower, and events, to where the run before was.

        Args:
            left: what it has left.
            windower: a fresh one.
            late: this run has answered windows meanwhile, so the states of events stay what they are.

        Returns:
            Windows to answer, how many readings were replayed, and what to call when the answers are safe.
        """
        self.seq = max(self.seq, left.seq)
        windows: list[Window] = []
        readings = 0
        if left.contract == self.contract:
            windows, readings = self._replay(left, windower)
            if not late:
                self._restore_events(left)
        elif left.snapshot or left.entries:
            log.warning("the reading log %s was written for other windows and is recreated", self._path)
        acked = self.hold(windows)  # as if an iteration had completed them now
        return windows, readings, acked or _nothing

    def _replay(self, left: Recovered, windower: AnyWindower) -> tuple[list[Window], int]:
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

    def _restore_events(self, left: Recovered) -> None:
        saved = decode_snapshot_events(left.snapshot)
        if not saved:
            return
        keys = saved["keys"]
        for entry in left.entries:
            for key, state in decode_events(entry.body).items():
                keys.pop(key, None)
                if state is not None:
                    keys[key] = state
        try:
            self._events.restore(saved["rules"], keys)
        except ValueError as error:
            log.warning("events: what the run before knew of them is given up: path=%s error=%s", self._path, error)

    def _forget(self, seq: int) -> None:
        if not self._rules:
            self._open.pop(seq, None)
            return
        # Events need their windows without a hole: what is safe out of turn is answered again with those before it.
        if seq in self._open:
            self._safe_out_of_turn.add(seq)
        while self._open and (first := next(iter(self._open))) in self._safe_out_of_turn:
            self._safe_out_of_turn.remove(first)
            del self._open[first]


def _as_earlier(channel: dict[str, object]) -> dict[str, object]:
    """Leave out what earlier releases do not name, where it has its default."""
    plain = asdict(Channel(name="", unit=""))
    return {name: value for name, value in channel.items() if name in {"name", "unit"} or value != plain[name]}


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
        events: whose states are kept with the windows.
    """

    writes_readings = False

    def __init__(
        self,
        path: Path,
        max_bytes: int,
        *,
        metrics: Metrics,
        clock: Clock,
        file: ReadingLogFile | None = None,
        events: EventTracker | None = None,
    ) -> None:
        self._path = path
        self._file = file or ReadingLogFile(path, max_bytes)
        self._metrics = metrics
        self._progress = Progress(path, clock, events)
        self._config = WindowConfig()
        self._stopped = False
        self._held = False  # the file holds a snapshot that this run has taken over

    def recover(
        self, contract: InputContract, config: WindowConfig, windower: AnyWindower, _late: object = None
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

    def change(self, contract: InputContract, _windower: AnyWindower) -> None:
        """Windows are other ones from now on."""
        self._progress.use(contract, self._config)

    def drained(self) -> bool:
        """Nothing waits for the disk."""
        return True

    def take(self, _readings: object, done: Done) -> None:
        """Nothing is written for a reading."""
        done()

    def flush_iteration(self, windows: Sequence[Window], _windower: AnyWindower) -> Done | None:
        """Remember the windows of an iteration until `Done` is called."""
        self._progress.newly_safe_events()
        return self._progress.hold(windows) if windows else None

    def stop(self, windower: AnyWindower, _timeout_s: float) -> None:
        """Save the state (rule 1), and close the file."""
        self._stopped = True
        if not self._replace(self._progress.contract, windower):
            self._metrics.counts["window_restarts_total"] += len(windower)
        self.close()

    def close(self) -> None:
        """Give the file back. May be called twice."""
        self._file.close()

    def _replace(self, contract: str, windower: AnyWindower | None) -> bool:
        seq = self._progress.next_seq()
        body = self._progress.snapshot(windower) if contract else b""
        try:
            self._file.replace(contract, LogEntry(seq, body))
        except StoreError as error:
            log.warning("begun windows cannot be kept in %s: %s", self._path, error)
            return False
        return True
