"""Saved windows of the default mode: used once, by the next start that takes readings, and never after a crash."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.clock import SystemClock
from edge_runtime.errors import StoreError, StoreInUse
from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.window import Window, Windower
from edge_runtime.store.durable.progress import WindowProgress
from edge_runtime.store.durable.reading_log_file import LogEntry, ReadingLogFile, Recovered
from edge_runtime.store.durable.reading_log_records import encode_readings
from edge_runtime.store.durable.window_state import SavedWindows
from edge_runtime.types import Reading
from tests.edge_runtime.store.durable.streams import contract, same, stream

RUNS: list[Run] = []


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    """Close the file of each run of a test: Python 3.13 warns of one that is left open."""
    yield
    while RUNS:
        RUNS.pop().saved.close()


class Run:
    """One run of an application: a windower and its saved windows."""

    def __init__(
        self,
        folder: Path,
        *,
        spec: InputContract | None = None,
        config: WindowConfig | None = None,
        file: ReadingLogFile | None = None,
        begin: bool = True,
    ) -> None:
        self.spec, config = spec or contract(), config or WindowConfig()
        self.metrics = Metrics()
        self.windower = Windower(self.spec, config, self.metrics)
        self.saved = SavedWindows(folder / "windows.db", 2**22, metrics=self.metrics, clock=SystemClock(), file=file)
        RUNS.append(self)
        self.again, self.safe = self.saved.recover(self.spec, config, self.windower)
        if begin:
            self.saved.begin()
        self.open: list[Callable[[], None]] = []

    def take(self, readings: list[Reading], *, answered: bool = True) -> list[Window]:
        windows = []
        for reading in readings:
            completed = self.windower.push([reading])
            settled = self.saved.flush_iteration(completed, self.windower)
            if settled is not None:
                self.open.append(settled)
                if answered:
                    settled()
            windows += completed
        return windows

    def stop(self) -> None:
        self.saved.stop(self.windower, 1.0)

    def kill(self, folder: Path, into: Path) -> Path:
        """What the disk holds when it is killed now."""
        into.mkdir()
        for path in folder.iterdir():
            shutil.copy(path, into)
        self.saved.close()
        return into


@settings(max_examples=15, deadline=None)
@given(
    seed=st.integers(0, 10_000),
    cuts=st.lists(st.integers(0, 60), max_size=4),
    lateness=st.sampled_from([0.0, 0.7]),
    context=st.sampled_from([0, 12]),
)
def test_any_number_of_orderly_stops_changes_no_window(
    tmp_path_factory: pytest.TempPathFactory, seed: int, cuts: list[int], lateness: float, context: int
) -> None:
    """Held back samples and contexts included. Mutation that this finds: a flush at the stop."""
    folder = tmp_path_factory.mktemp("state")
    spec, config = contract(context=context), WindowConfig(lateness_s=lateness)
    readings = stream(seed, 60)
    whole = Windower(spec, config).push(readings)
    found: list[Window] = []
    places = [0, *sorted(cuts), len(readings)]
    for begin, end in itertools.pairwise(places):
        run = Run(folder, spec=spec, config=config)
        assert run.again == []
        found += run.take(readings[begin:end])
        run.stop()
    same(found, whole)


def test_a_stale_snapshot_is_not_used_after_a_crash(tmp_path: Path) -> None:
    """Mutation that this finds: a snapshot that is left there: acknowledged readings would be bridged by a line, and a
    window answered again with other values."""
    folder = tmp_path / "state"
    folder.mkdir()
    readings = stream(3, 40, keys=1)
    run = Run(folder)
    run.take(readings[:20])
    run.stop()
    run = Run(folder)
    assert len(run.windower) == 1
    run.take(readings[20:30])
    image = run.kill(folder, tmp_path / "image")
    run = Run(image)
    assert (len(run.windower), run.again) == (0, [])
    fresh = Windower(contract()).push(readings[30:])
    same(run.take(readings[30:]), fresh)
    run.stop()


def test_a_start_that_fails_before_it_takes_a_reading_leaves_the_snapshot(tmp_path: Path) -> None:
    readings = stream(4, 40, keys=2)
    run = Run(tmp_path)
    before = run.take(readings[:20])
    run.stop()
    run = Run(tmp_path, begin=False)
    run.saved.close()
    run = Run(tmp_path)
    same(before + run.take(readings[20:]), Windower(contract()).push(readings))
    run.stop()


def test_windows_that_were_not_answered_come_again_until_they_are_and_not_longer(tmp_path: Path) -> None:
    """Over a crash of the run that was to answer them, too. Mutations: dropping them with the snapshot, and keeping
    them after their answers are safe."""
    folder = tmp_path / "state"
    folder.mkdir()
    readings = stream(5, 40, keys=2)
    run = Run(folder)
    answered = run.take(readings[:20])
    waiting = run.take(readings[20:], answered=False)
    assert answered
    assert waiting
    run.stop()
    run = Run(folder)
    same(run.again, waiting)
    assert run.metrics.counts["windows_total"] == len(waiting)
    image = run.kill(folder, tmp_path / "image")
    run = Run(image)
    same(run.again, waiting)
    assert len(run.windower) == 0, "a crash costs the windows that had begun"
    run.safe()
    again = run.kill(image, tmp_path / "again")
    assert Run(again).again == []


def test_an_answer_that_becomes_safe_after_the_stop_takes_nothing_back(tmp_path: Path) -> None:
    """A sink reports while it is closed. Mutation that this finds: emptying the file then."""
    readings = stream(5, 40, keys=2)
    run = Run(tmp_path)
    run.take(readings, answered=False)
    run.stop()
    run = Run(tmp_path)
    assert run.again
    run.stop()
    run.safe()
    run = Run(tmp_path)
    assert run.again
    assert len(run.windower) == 2
    run.stop()


class Refusing(ReadingLogFile):
    """A disk that is full, or that cannot be read."""

    full = unreadable = False

    def read(self) -> Recovered:
        if self.unreadable:
            raise StoreError("input/output error")
        return super().read()

    def replace(self, contract: str, snapshot: LogEntry) -> None:
        if self.full:
            raise StoreError("no room")
        super().replace(contract, snapshot)


def test_a_full_disk_at_the_stop_costs_the_begun_windows_is_said_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = Refusing(tmp_path / "windows.db", 2**22)
    run = Run(tmp_path, file=file)
    run.take(stream(6, 30, keys=3))
    file.full = True
    run.stop()
    assert caplog.text.count("begun windows cannot be kept in") == 1
    assert run.metrics.counts["window_restarts_total"] == 3
    assert len(Run(tmp_path).windower) == 0


def test_a_disk_that_cannot_be_read_at_the_start_is_no_reason_not_to_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = Refusing(tmp_path / "windows.db", 2**22)
    file.unreadable = True
    run = Run(tmp_path, file=file)
    assert "windows that the run before had begun are lost: input/output error" in caplog.text
    run.take(stream(6, 30, keys=3))
    run.stop()
    assert len(Run(tmp_path).windower) == 3


def test_what_was_saved_for_other_windows_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    run = Run(tmp_path)
    run.take(stream(7, 30))
    run.stop()
    run = Run(tmp_path, spec=contract(hop=8))
    assert (len(run.windower), run.again) == (0, [])
    assert "was written for other windows" in caplog.text
    run.stop()


def test_two_applications_do_not_share_a_file(tmp_path: Path) -> None:
    run = Run(tmp_path)
    with pytest.raises(StoreInUse):
        Run(tmp_path)
    run.stop()


def test_files_of_earlier_releases_name_the_same_windows() -> None:
    """How a contract is written down may not change: journals of earlier releases would begin anew."""
    progress = WindowProgress(Path("journal.db"), SystemClock())
    progress.use(contract(), WindowConfig())
    assert progress.contract == (
        '[{"channels":[{"name":"a","unit":"1"},{"name":"b","unit":"1"}],"rate_hz":10.0,"window":8,"hop":3,"context":0,'
        '"resample":"linear","snap":0.25,"max_gap_s":0.0},{"lateness_s":0.0,"max_keys":10000,"max_jump_s":60.0}]'
    )
    progress.use(contract(), WindowConfig(parts=True))
    assert '"parts":true' in progress.contract  # a snapshot of joined channels is of no use for whole readings


def test_turns_of_a_reading_log_are_taken_over_when_the_mode_changes(tmp_path: Path) -> None:
    """From ``reading`` to ``window`` with the same file: readings that were written down are not lost."""
    readings = stream(8, 30, keys=1)
    file = ReadingLogFile(tmp_path / "windows.db", 2**22)
    file.read()
    progress = WindowProgress(tmp_path, SystemClock())
    progress.use(contract(), WindowConfig())
    file.replace(progress.contract, LogEntry(1, progress.snapshot(Windower(contract()))))
    file.append([LogEntry(2 + i, encode_readings([reading])) for i, reading in enumerate(readings)], 1)
    file.close()
    run = Run(tmp_path)
    same(run.again, Windower(contract()).push(readings))
    assert len(run.windower) == 1
    run.stop()
