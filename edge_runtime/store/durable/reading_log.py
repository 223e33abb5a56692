"""Reading log: a write-ahead log of readings, written before they are acknowledged and replayed after a crash.

The loop hands over one row for each iteration; a thread of its own, which mostly waits for the disk, commits whatever
has been handed over meanwhile in one transaction (group commit), and the loop hears of it. When the rows outweigh the
state that they lead to, a *snapshot* of that state takes their place. Starting again is: take the snapshot, push the
rows after it through the windower, and answer again what had not been answered safely, under the same ids.

If the disk fails or is full, readings are acknowledged without it, loudly: an answer now comes before a promise for
later. The first write that works is a snapshot, and the promise holds again. The same goes for a start on such a disk,
and what the run before has left is read before anything is written over it. docs/decisions/0011-durability.md says why.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from edge_runtime.answer.durability import Durability, Late, Play
from edge_runtime.base.system.group_commit import GroupCommit
from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import Clock
from edge_runtime.errors import StoreError, StoreInUse, StoreUnusable
from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.model.serving.model_states import ModelStates
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.join import AnyWindower, windower_of
from edge_runtime.signal.windowing.window import Window
from edge_runtime.store.durable.answer_states import AnswerStates
from edge_runtime.store.durable.config import ReadingLogConfig
from edge_runtime.store.durable.progress import WindowProgress, counted_before
from edge_runtime.store.durable.reading_log_file import LogEntry, ReadingLogFile, Recovered
from edge_runtime.store.durable.reading_log_records import encode_readings
from edge_runtime.types import Done, Reading

log = logging.getLogger(__name__)


_COMPACT_BYTES: Final = 1 << 20
"""Rows are left alone up to here, whatever the state weighs."""
_EVENT_BACKLOG: Final = 20_000
"""States of events that may wait for a row: none comes where no reading waits for an acknowledgement."""
_ATTEMPTS: Final = 3
"""Commits of the same rows before they are given up; between them a moment for the disk."""
_AGAIN_S: Final = 5.0
"""Seconds until a disk that failed is tried again."""


@dataclass(slots=True)
class _Commit:
    """An iteration on its way to the disk."""

    entry: LogEntry
    acked: int
    readings: int
    done: list[Done]
    contract: str = ""
    """Of a snapshot; empty for an iteration."""


class _TakenOver:
    """The loop holds what the run before has left: it may be written over now."""


_Job = _Commit | _TakenOver


class _State(Enum):
    """State of the file: what may be written to it. Belongs to the committing thread."""

    UNREAD = "unread"
    """Nothing: what the run before has left could not be read yet."""
    READ = "read"
    """Nothing: the loop has still to take what was read."""
    SNAPSHOT_FIRST = "snapshot_first"
    """A snapshot: rows before it are missing, and only a snapshot has no hole before it."""
    WRITING = "writing"
    """Everything."""


class ReadingLog(Durability):
    """Between a pipeline and its reading log file. All methods belong to the loop's thread.

    Args:
        config: path and size of the log.
        file: the open or unopened file; closed here.
        loop: the loop on which the thread's results are taken.
        metrics: receives the gauge ``reading_log_durable``, ``reading_log_iterations_total``,
            ``reading_log_bytes_total``, ``reading_log_commits_total``, ``reading_log_snapshots_total``,
            ``replayed_readings_total``, and readings that were acknowledged without the disk as dropped promises:
            ``reading_log_skipped_total``.
        clock: monotonic time for waiting.
        events: states of answers that are written down with the readings.
    """

    keeps_windows = writes_readings = True

    def __init__(
        self,
        config: ReadingLogConfig,
        *,
        loop: Loop,
        metrics: Metrics,
        clock: Clock,
        file: ReadingLogFile | None = None,
        events: AnswerStates | None = None,
    ) -> None:
        self._config = config
        self._file = file or ReadingLogFile(config.path, config.max_bytes)
        self._loop = loop
        self._metrics = metrics
        self._clock = clock
        self._spec: InputContract | None = None
        self._late: Late | None = None
        self._window_config = WindowConfig()
        self._readings: list[Reading] = []
        self._done: list[Done] = []
        self._progress = WindowProgress(config.path, clock, events)
        self._bytes = 0  # of rows since the last snapshot
        self._state_bytes = 0  # of that snapshot
        self._pending = 0
        self._broken = False
        self._again_at = 0.0
        self._state = _State.SNAPSHOT_FIRST
        self._commits: GroupCommit[_Job] = GroupCommit(
            "journal", self._commit, self._failed, split=_groups, linger_s=config.commit_wait_ms / 1e3
        )

    # -- before and after --------------------------------------------------------------------------------------------

    def recover(
        self,
        contract: InputContract,
        config: WindowConfig,
        windower: AnyWindower,
        late: Late,
        play: Play | None = None,
    ) -> tuple[list[Window], Done]:
        """Bring a windower to where the run before was, and begin to write.

        If the disk fails or is full, that comes later: the windows that the run before completed and may not have
        answered are handed over then, and those that it had only begun are given up.

        Args:
            contract: what a window is; what was written for another one is of no use.
            config: how samples are ordered, likewise.
            windower: fresh; goes on where the one before ended.
            late: takes windows that could not be read at once; called between iterations.
            play: see `WindowProgress.restore`.

        Returns:
            Windows that the run before completed and may not have answered safely, and what to call when they are.

        Raises:
            StoreInUse, StoreUnusable: the file is another program's, or its path or permissions are wrong. A disk that
                fails, or cannot be written to, is no reason not to start.
        """
        self._window_config = config
        self._spec = contract
        self._progress.use(contract, config)
        self._late = late
        try:
            left = self._file.read()
        except (StoreInUse, StoreUnusable):
            raise
        except StoreError as error:
            self._state = _State.UNREAD
            self._show(error)
            self._again_at = self._clock.monotonic() + _AGAIN_S
            self._commits.start()
            return [], lambda: None
        with counted_before(self._metrics):
            windows, readings, acked = self._progress.restore(left, windower, play)
        self._progress.report(self._metrics)
        self._count(windows, readings)
        self._metrics.gauges["reading_log_durable"] = 1.0
        self._commits.start()
        self._submit_snapshot(windower)
        return windows, acked

    def _count(self, windows: Sequence[Window], readings: int) -> None:
        self._metrics.counts["windows_total"] += len(windows)
        self._metrics.counts["replayed_readings_total"] += readings

    def _inherit(self, left: Recovered) -> None:
        """Take over what the run before has left, which was read late; this run has begun windows meanwhile."""
        if self._spec is None or self._late is None:
            return
        # With counts of its own: the run before has counted them.
        begun = windower_of(self._spec, self._window_config, Metrics())
        windows, readings, acked = self._progress.restore(left, begun, late=True)
        self._count(windows, readings)
        self._metrics.counts["window_restarts_total"] += len(begun)
        log.warning(
            "reading log: read the run before late: finished windows answered=%d keys with begun windows lost=%d",
            len(windows), len(begun),
        )  # fmt: skip
        if windows:
            self._late(windows, acked)
        self._commits.put(_TakenOver())
        self._again_at = 0.0  # a snapshot, at the end of this iteration

    def keep(self, model: ModelStates | None, windower: AnyWindower | None = None) -> None:
        """Save these states of a model from now on; at once, where readings are written down already."""
        if self._progress.keep(model) and windower is not None:
            self._submit_snapshot(windower)

    def save(self, windower: AnyWindower) -> None:
        """Write a snapshot now: a state has changed otherwise than by a reading."""
        self._submit_snapshot(windower)

    def change(self, contract: InputContract, windower: AnyWindower) -> None:
        """Windows are other ones from now on. Those of before that are not safe yet are so only if this run goes on."""
        self._spec = contract
        self._progress.use(contract, self._window_config)
        self._submit_snapshot(windower)

    def drained(self) -> bool:
        """Nothing waits for the disk."""
        return self._pending == 0

    @property
    def marks(self) -> tuple[int, int]:
        """See `WindowProgress.marks`."""
        return self._progress.marks

    def stop(self, windower: AnyWindower, timeout_s: float) -> None:
        """Write the state down, so that the next start has little to replay, and end."""
        if self._commits.running and not self._broken:
            self._submit_snapshot(windower)
        self.close(timeout_s)

    def close(self, timeout_s: float = 1.0) -> None:
        """End the thread and give the file back. May be called twice."""
        if self._commits.close(timeout_s):
            self._file.close()

    # -- in an iteration -----------------------------------------------------------------------------------------------

    def write(self, readings: Sequence[Reading], done: Done) -> None:
        """Write these down with the others of the iteration; `done` is called when they are on the disk."""
        self._readings += readings
        self._done.append(done)

    def flush_iteration(self, windows: Sequence[Window], windower: AnyWindower) -> Done | None:
        """Hand the iteration to the thread.

        Args:
            windows: completed in this iteration.
            windower: its state is the one after all readings of this iteration.

        Returns:
            What to call when the answers to `windows` are safe; None if the iteration took no reading to be written
            down.
        """
        if not self._readings:
            many = self._progress.event_backlog > _EVENT_BACKLOG
            if (many or self._broken) and self._clock.monotonic() >= self._again_at:
                self._submit_snapshot(windower)
            return None
        readings, self._readings = self._readings, []
        done, self._done = self._done, []
        acked = self._progress.hold(windows)
        events = self._progress.newly_safe_events()
        if self._broken:
            self._metrics.counts["reading_log_skipped_total"] += len(readings)
            for one in done:
                one()
            if self._clock.monotonic() >= self._again_at:
                self._submit_snapshot(windower)
        else:
            body = encode_readings(readings, events)
            self._bytes += len(body)
            self._pending += 1
            entry = LogEntry(self._progress.seq, body)
            self._commits.put(_Commit(entry, self._progress.acked, len(readings), done))
            if events is None or self._bytes > max(_COMPACT_BYTES, 2 * self._state_bytes):
                self._submit_snapshot(windower)
        return acked

    def _submit_snapshot(self, windower: AnyWindower) -> None:
        self._again_at = self._clock.monotonic() + _AGAIN_S
        self._pending += 1
        seq = self._progress.next_seq()
        body = self._progress.snapshot(windower)
        self._bytes, self._state_bytes = 0, len(body)
        self._commits.put(_Commit(LogEntry(seq, body), 0, 0, [], self._progress.contract))

    def _committed(self, commits: Sequence[_Commit], error: StoreError | None) -> None:
        self._pending -= len(commits)
        counts = self._metrics.counts
        if error is None:
            counts["reading_log_commits_total"] += 1
            counts["reading_log_iterations_total"] += len(commits)
            counts["reading_log_bytes_total"] += sum(len(commit.entry.body) for commit in commits)
            counts["reading_log_snapshots_total"] += sum(bool(commit.contract) for commit in commits)
        else:
            counts["reading_log_skipped_total"] += sum(commit.readings for commit in commits)
        broken = error is not None or (self._broken and not any(commit.contract for commit in commits))
        if broken != self._broken:
            self._show(error)
        for commit in commits:
            for done in commit.done:
                done()

    def _show(self, error: StoreError | None) -> None:
        self._broken = error is not None
        self._metrics.gauges["reading_log_durable"] = float(not self._broken)
        if self._broken:
            log.error("readings are acknowledged without being written down: %s", error)
        else:
            log.info("reading log: readings are written down again")

    # -- the thread --------------------------------------------------------------------------------------------------

    def _commit(self, group: Sequence[_Job]) -> None:
        """Write a group of `_groups`, as far as the state allows it."""
        if isinstance(group[-1], _TakenOver):
            self._state = _State.SNAPSHOT_FIRST
            return
        commits = [job for job in group if isinstance(job, _Commit)]
        last = commits[-1]
        failure: StoreError | None
        if self._state is _State.UNREAD:
            failure = self._read_late()
        elif self._state is _State.READ:
            failure = StoreError("what the run before has left comes first")
        elif self._state is _State.SNAPSHOT_FIRST and not last.contract:
            failure = StoreError("readings before these are not written down; a snapshot comes first")
        else:
            failure = self._write(commits, last)
            self._state = _State.WRITING if failure is None else _State.SNAPSHOT_FIRST
        self._loop.call_soon_threadsafe(lambda: self._committed(commits, failure))

    def _write(self, commits: Sequence[_Commit], last: _Commit) -> StoreError | None:
        failure: StoreError | None = None
        for attempt in range(_ATTEMPTS):
            try:
                if last.contract:
                    self._file.replace(last.contract, last.entry)
                else:
                    self._file.append([commit.entry for commit in commits], last.acked)
            except StoreError as error:
                failure = error
                self._commits.pause(0.05 * (attempt + 1))
            else:
                return None
        return failure

    def _read_late(self) -> StoreError:
        """Read what the run before has left, and hand it to the loop; until it has it, nothing is written over it."""
        try:
            left = self._file.read()
        except StoreError as error:
            return error
        self._state = _State.READ
        self._loop.call_soon_threadsafe(lambda: self._inherit(left))
        return StoreError("what the run before has left comes first")

    def _failed(self, group: Sequence[_Job], error: Exception) -> None:
        """Acknowledge without the disk, as after a `StoreError`; a bug must not hold back readings for ever."""
        log.error("reading log: unexpected error; please report it", exc_info=error)
        if self._state is _State.WRITING:
            self._state = _State.SNAPSHOT_FIRST
        commits = [job for job in group if isinstance(job, _Commit)]
        failure = StoreError(f"unexpected error: {error!r}")
        self._loop.call_soon_threadsafe(lambda: self._committed(commits, failure))


def _groups(jobs: Sequence[_Job]) -> Iterator[Sequence[_Job]]:
    """Cut jobs into transactions: a snapshot takes the place of the iterations before it, and ends theirs."""
    group: list[_Job] = []
    for job in jobs:
        if isinstance(job, _TakenOver) and group:
            yield group
            group = []
        group.append(job)
        if isinstance(job, _TakenOver) or job.contract:
            yield group
            group = []
    if group:
        yield group
