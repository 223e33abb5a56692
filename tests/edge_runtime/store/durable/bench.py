"""The reading log with the pipeline around it, opened and ended as a process would."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import SystemClock
from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.model.serving.loading import LoadedVariant, play
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.window import Window, Windower
from edge_runtime.store.durable.answer_states import AnswerStates
from edge_runtime.store.durable.config import ReadingLogConfig
from edge_runtime.store.durable.reading_log import ReadingLog
from edge_runtime.store.durable.reading_log_file import ReadingLogFile
from edge_runtime.types import Reading
from tests.edge_runtime.store.durable.streams import contract

PATIENCE_S = 60.0


class Bench:
    """A journal with a windower, as the pipeline uses them, and what was answered."""

    def __init__(
        self,
        folder: Path,
        file: ReadingLogFile | None = None,
        spec: InputContract | None = None,
        events: AnswerStates | None = None,
        model: LoadedVariant | None = None,
    ) -> None:
        self.folder = folder
        self.spec = spec or contract()
        self.windower = Windower(self.spec)
        self.loop = Loop()
        self.metrics = Metrics()
        self.reading_log = ReadingLog(
            ReadingLogConfig(path=folder / "journal.db"),
            loop=self.loop,
            metrics=self.metrics,
            clock=SystemClock(),
            file=file,
            events=events,
        )
        self.acknowledged = 0
        self.late: list[Window] = []
        self.reading_log.keep(None if model is None else model.states)
        recovered, settle = self.reading_log.recover(
            self.spec,
            WindowConfig(),
            self.windower,
            self.take_late,
            None if model is None else lambda windows: play(model, windows),
        )
        self.open: list[tuple[list[Window], Callable[[], object] | None]] = [(recovered, settle)]
        self.recovered = recovered

    def take_late(self, windows: list[Window], settle: Callable[[], object]) -> None:
        self.late += windows
        self.open.append((windows, settle))

    def turn(self, *readings: Reading) -> list[Window]:
        windows = []
        for reading in readings:
            self.reading_log.write([reading], self.acknowledge)
            windows += self.windower.push([reading])
        self.open.append((windows, self.reading_log.flush_iteration(windows, self.windower)))
        return windows

    def acknowledge(self) -> None:
        self.acknowledged += 1

    def settle(self) -> None:
        """All answers so far are safe."""
        for _, settled in self.open:
            if settled is not None:
                settled()
        self.open.clear()

    def wait(self) -> None:
        until = time.monotonic() + PATIENCE_S
        while not self.reading_log.drained():
            assert time.monotonic() < until
            self.loop.iterate(0.01)

    def crash(self, into: Path) -> Path:
        """What a killed process leaves: the files as they are."""
        self.wait()
        into.mkdir()
        for name in ("journal.db", "journal.db-wal"):
            if (self.folder / name).exists():
                shutil.copy(self.folder / name, into / name)
        self.close()
        return into

    def close(self) -> None:
        self.reading_log.close()
        self.loop.close()
