"""Windower state over a restart: unanswered windows, snapshots, and the file of the default mode.

`SavedWindows` is the default mode's file. It is written at an orderly stop, so a reading costs no write. What it shares
with the other mode: `edge_runtime.store.durable.progress`.

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
from collections.abc import Sequence
from pathlib import Path

from edge_runtime.answer.durability import Durability, Late, Play
from edge_runtime.clock import Clock
from edge_runtime.errors import StoreError, StoreInUse, StoreUnusable
from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.model.serving.model_states import ModelStates
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.join import AnyWindower
from edge_runtime.signal.windowing.window import Window
from edge_runtime.store.durable.answer_states import AnswerStates
from edge_runtime.store.durable.progress import WindowProgress, counted_before, nothing
from edge_runtime.store.durable.reading_log_file import LogEntry, ReadingLogFile
from edge_runtime.types import Done

log = logging.getLogger(__name__)


class SavedWindows(Durability):
    """Begun windows of the default mode, over an orderly stop. All methods belong to the loop's thread.

    Args:
        path: the file's path; its folder must exist.
        max_bytes: what it may have.
        metrics: receives the windows that are answered again as ``windows_total``, and keys whose begun windows could
            not be kept as ``window_restarts_total``.
        clock: see `WindowProgress`.
        file: the unopened file; a test passes one on a disk of its own.
        events: states of answers that are kept with the windows.
    """

    keeps_windows = True

    def __init__(
        self,
        path: Path,
        max_bytes: int,
        *,
        metrics: Metrics,
        clock: Clock,
        file: ReadingLogFile | None = None,
        events: AnswerStates | None = None,
    ) -> None:
        self._path = path
        self._file = file or ReadingLogFile(path, max_bytes)
        self._metrics = metrics
        self._progress = WindowProgress(path, clock, events)
        self._config = WindowConfig()
        self._stopped = False
        self._held = False  # the file holds a snapshot that this run has taken over

    def recover(
        self,
        contract: InputContract,
        config: WindowConfig,
        windower: AnyWindower,
        late: Late | None = None,  # noqa: ARG002 - the file is read at once
        play: Play | None = None,
    ) -> tuple[list[Window], Done]:
        """Restore what an orderly stop has saved (rule 2).

        Args:
            contract: what a window is.
            config: how samples are ordered.
            windower: fresh.
            late: called for nothing.
            play: see `WindowProgress.restore`.

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
            return [], nothing
        self._held = bool(left.snapshot or left.entries)
        with counted_before(self._metrics):
            windows, _, acked = self._progress.restore(left, windower, play)
        self._progress.report(self._metrics)
        self._metrics.counts["windows_total"] += len(windows)
        if not windows:
            return [], acked

        def safe() -> None:
            acked()
            if not self._stopped:  # else it would take the place of what was saved since
                self._replace(self._progress.contract if self._progress.stateful else "", None)

        return windows, safe

    def begin(self) -> None:
        """Give the snapshot up, since readings come now (rule 3)."""
        if self._held or self._progress.stateful:  # states: so that a start after a crash knows that there were some
            self._held = False
            self._replace(self._progress.contract, None)

    def keep(self, model: ModelStates | None, _windower: AnyWindower | None = None) -> None:
        """Save these states of a model from now on."""
        self._progress.keep(model)

    def change(self, contract: InputContract, _windower: AnyWindower) -> None:
        """Windows are other ones from now on."""
        self._progress.use(contract, self._config)

    @property
    def marks(self) -> tuple[int, int]:
        """See `WindowProgress.marks`."""
        return self._progress.marks

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
