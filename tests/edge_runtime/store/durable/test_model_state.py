"""States of a model over a crash: answers are those of an uninterrupted run, bit for bit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.clock import SystemClock
from edge_runtime.errors import InputError
from edge_runtime.manifest import Manifest, Variant
from edge_runtime.metrics import Metrics
from edge_runtime.model.engines.base import Array, Engine
from edge_runtime.model.serving.loading import LoadedVariant, calls, play
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.window import Window, Windower
from edge_runtime.store.durable.progress import WindowProgress
from edge_runtime.store.durable.reading_log_file import LogEntry, Recovered
from edge_runtime.store.durable.reading_log_records import encode_readings
from edge_runtime.store.durable.window_state import SavedWindows
from edge_runtime.types import Done, Reading
from tests.edge_runtime.store.durable.bench import Bench
from tests.integration.running import load_model
from tests.stateful import stateful_bundle, stream

Answered = dict[str, bytes]
"""Numbers, by the id of the window."""


class Picky:
    """An engine that refuses some windows, and runs keys alone, since this model's bits depend on the batch."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.name, self.inputs, self.outputs = engine.name, engine.inputs, engine.outputs

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        if np.abs(arrays[0]).max() > 1e30:
            raise InputError("not_finite", "too large to compute with")
        rows = [
            [np.array(one) for one in self._engine.run(*(array[at : at + 1] for array in arrays))]
            for at in range(len(arrays[0]))
        ]
        return tuple(np.concatenate(parts) for parts in zip(*rows, strict=True))

    def close(self) -> None:
        self._engine.close()


class Loaded:
    def __init__(self, manifest: Manifest, variant: Variant, engine: Engine) -> None:
        self.manifest, self.variant, self.engine = manifest, variant, Picky(engine)

    def fresh(self, metrics: Metrics | None = None, max_keys: int = 10) -> LoadedVariant:
        """As after a start: nothing is known of any key."""
        made = LoadedVariant(self.manifest, self.variant, self.engine, 3)
        assert made.states is not None
        made.states.bound(max_keys, metrics or Metrics())
        return made


@pytest.fixture(scope="module")
def loaded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loaded]:
    path = stateful_bundle(tmp_path_factory.mktemp("stateful") / "leaky.edge")
    with load_model(path, "onnx-fp32") as model:
        yield Loaded(model.manifest, model.variant, model.engine)


def readings(keys: Sequence[int]) -> list[Reading]:
    """Six samples each of the key that is named; some numbers are too large to compute with."""
    made = []
    sent = dict.fromkeys(range(3), 0)
    for i, key in enumerate(keys):
        values = stream(6, seed=i)[:6]
        if i % 17 == 14:
            values = np.full_like(values, 3e38)
        first = sent[key]
        sent[key] += 6 + (150 if i % 23 == 20 else 0)
        made.append(Reading(f"k{key}", (first + np.arange(6)) / 50.0, values))
    return made


def answer(model: LoadedVariant, windows: list[Window]) -> Answered:
    found: Answered = {}
    for part in calls(model, windows):
        try:
            rows, answered = model.predict(part)
        except InputError:
            if len(part) > 1:
                for window in part:
                    found |= answer(model, [window])
            continue
        found |= {window.id: row.tobytes() for window, row in zip(answered, rows, strict=True)}
    return found


class Run:
    """One run of an application, as far as its reading log and its model go."""

    def __init__(self, loaded: Loaded, left: Recovered | None) -> None:
        self.model = loaded.fresh()
        self.windower = Windower(loaded.manifest.input)
        self.progress = WindowProgress(Path("log.db"), SystemClock())
        self.progress.use(loaded.manifest.input, WindowConfig())
        self.progress.keep(self.model.states)
        self.again: list[Window] = []
        self.waiting: list[Done] = []
        if left is not None:
            self.again, _, done = self.progress.restore(left, self.windower, lambda windows: play(self.model, windows))
            self.waiting.append(done)
        self.unsafe: list[tuple[list[Done], Answered]] = []
        self.write_snapshot()

    def write_snapshot(self) -> None:
        seq = self.progress.next_seq()
        self.left = Recovered(self.progress.contract, self.progress.snapshot(self.windower), seq, [], 0, 0)

    def take(self, batch: Sequence[Reading], *, kill: str = "") -> bool:
        """An iteration; `kill` ends it before or after the model is asked."""
        windows = self.windower.push(batch)
        if (done := self.progress.hold(windows)) is not None:
            self.waiting.append(done)
        entry = LogEntry(self.progress.seq, encode_readings(batch))
        self.left = self.left._replace(seq=entry.seq, entries=[*self.left.entries, entry], acked=self.progress.acked)
        if kill == "before the call":
            return False
        answers = answer(self.model, [*self.again, *windows])
        self.again = []
        if kill == "after the call":
            return False
        self.unsafe.append((self.waiting, answers))
        self.waiting = []
        return True

    def ack(self, place: int) -> Answered:
        """The sinks have the answers of one of the iterations that wait for it."""
        done, answers = self.unsafe.pop(place)
        for one in done:
            one()
        return answers


@pytest.mark.slow
@settings(max_examples=60)
@given(keys=st.lists(st.integers(0, 2), min_size=12, max_size=50), data=st.data())
def test_a_kill_at_any_call_changes_no_answer(loaded: Loaded, keys: list[int], data: st.DataObject) -> None:
    """Mutations that this finds: states saved as they are, not as they were before the first window that is not safe;
    windows whose answers are safe not computed again; what is safe out of turn not answered again.
    """
    batches = readings(keys)
    whole = Run(loaded, None)
    whole.take(batches)
    expected = whole.ack(0)
    run, found = Run(loaded, None), Answered()
    while batches:
        n = data.draw(st.integers(1, min(8, len(batches))))
        kill = data.draw(st.sampled_from([""] * 6 + ["before the call", "after the call"]))
        alive = run.take(batches[:n], kill=kill)
        batches = batches[n:]
        if alive:
            for _ in range(data.draw(st.integers(0, len(run.unsafe)))):
                more = run.ack(data.draw(st.integers(0, len(run.unsafe) - 1)))
                assert all(expected[name] == row for name, row in more.items())
                found |= more
        what = data.draw(st.sampled_from(["go on", "snapshot", "snapshot", "crash"])) if alive else "crash"
        if what == "snapshot":
            run.write_snapshot()
        elif what == "crash":
            run = Run(loaded, run.left)
    run.take([])
    while run.unsafe:
        found |= run.ack(0)
    assert found == expected


class Default:
    """One run in the default mode."""

    def __init__(self, loaded: Loaded, folder: Path) -> None:
        self.metrics = Metrics()
        self.model = loaded.fresh(self.metrics)
        self.windower = Windower(loaded.manifest.input)
        self.saved = SavedWindows(folder / "windows.db", 2**22, metrics=self.metrics, clock=SystemClock())
        self.saved.keep(self.model.states)
        windows, self.safe = self.saved.recover(
            loaded.manifest.input, WindowConfig(), self.windower, None, lambda windows: play(self.model, windows)
        )
        self.found = answer(self.model, windows)

    def take(self, batch: Sequence[Reading], *, safe: bool = True) -> None:
        self.saved.begin()
        windows = self.windower.push(batch)
        done = self.saved.flush_iteration(windows, self.windower)
        self.found |= answer(self.model, windows)
        if safe and done is not None:
            done()

    def resets(self) -> int:
        return self.metrics.counts['state_resets_total{reason="restart"}']


@pytest.mark.parametrize("safe", [True, False])
def test_an_orderly_stop_keeps_the_states_and_a_crash_begins_again(
    loaded: Loaded, tmp_path: Path, caplog: pytest.LogCaptureFixture, *, safe: bool
) -> None:
    batches = readings([0, 1, 2] * 8)
    whole = Run(loaded, None)
    whole.take(batches)
    expected = whole.ack(0)
    found = Answered()
    for part in (batches[:6], batches[6:10], batches[10:]):
        run = Default(loaded, tmp_path)
        run.safe()
        run.take(part[:-2])
        run.take(part[-2:], safe=safe)
        run.saved.stop(run.windower, 1.0)
        assert not run.resets()
        found |= run.found
    assert found == expected
    crashed = Default(loaded, tmp_path)
    crashed.take(readings([0, 1, 2] * 2))
    crashed.saved.close()
    assert not [one for one in caplog.messages if "begin again" in one]
    after = Default(loaded, tmp_path)
    assert after.resets() == 1
    assert "states of keys begin again: the run before was killed" in caplog.text
    after.saved.close()


def test_states_of_another_model_are_given_up_and_counted(loaded: Loaded) -> None:
    model = loaded.fresh()
    windows = Windower(loaded.manifest.input).push(readings([0, 1, 0, 1, 0, 1]))
    answer(model, windows)
    assert model.states is not None
    saved = model.states.save(whole=True)
    other = loaded.fresh()
    assert other.states is not None
    other.states._model = "another/1 0"
    resets = other.states.restore(saved)
    assert resets is not None
    assert (resets.reason, resets.keys, len(other.states)) == ("replaced", 2, 0)
    again = loaded.fresh(max_keys=1)
    assert again.states is not None
    assert again.states.restore(saved) is None
    assert len(again.states) == 1


def test_the_reading_log_brings_the_states_back(loaded: Loaded, tmp_path: Path) -> None:
    """With its real file and thread; a process is killed after each third reading, some answers not safe yet."""
    batches = readings([0, 1, 2] * 6)
    whole = Run(loaded, None)
    whole.take(batches)
    expected = whole.ack(0)
    found = Answered()
    folder = tmp_path
    for at in range(0, len(batches), 3):
        model = loaded.fresh()
        bench = Bench(folder, spec=loaded.manifest.input, model=model)
        found |= answer(model, bench.recovered)
        for place, reading in enumerate(batches[at : at + 3]):
            found |= answer(model, bench.turn(reading))
            if place == 1:
                bench.settle()
        folder = bench.crash(folder / "crashed")
        assert 'state_resets_total{reason="restart"}' not in bench.metrics.counts
    assert found == expected


@pytest.mark.parametrize("safe", [True, False])
@pytest.mark.parametrize("late", [True, False])
def test_a_reset_that_was_asked_for_survives_a_crash(loaded: Loaded, *, safe: bool, late: bool) -> None:
    """Also where windows before it are answered again."""
    batches = readings([0, 1] * 7)
    whole = Run(loaded, None)
    whole.take(batches[:6])
    assert whole.model.states is not None
    assert whole.model.states.reset("k0")
    whole.take(batches[6:])
    expected = whole.ack(0) | whole.ack(0)
    run, found = Run(loaded, None), Answered()
    run.take(batches[:6])
    if safe:
        found |= run.ack(0)
    assert run.model.states is not None
    assert run.model.states.reset("k0")
    run.write_snapshot()
    if late:
        run.take(batches[6:8])
        while run.unsafe:
            found |= run.ack(0)
        run.take([])
    again = Run(loaded, run.left)
    again.take(batches[8 if late else 6 :])
    while again.unsafe:
        found |= again.ack(0)
    assert found == expected


def test_a_model_that_comes_back_saves_its_states_as_they_are_then(loaded: Loaded) -> None:
    """An update on trial is rolled back. Mutation: windows that the first model held are held for ever."""
    run, other = Run(loaded, None), loaded.fresh()
    first = run.model
    batches = readings([0, 0, 0, 1, 1, 1, 0, 0])
    run.take(batches[:2])
    assert run.progress.keep(other.states)
    assert not run.progress.keep(other.states)
    run.model = other
    run.ack(0)
    run.take(batches[2:4])
    assert run.progress.keep(first.states)
    run.model = first
    run.take(batches[4:])
    while run.unsafe:
        run.ack(0)
    assert first.states is not None
    assert other.states is not None
    again = loaded.fresh()
    assert again.states is not None
    assert again.states.restore(first.states.save(whole=True)) is None
    more = run.windower.push(readings([0, 0, 0, 1, 1, 1, 0, 0, 0, 1])[8:])
    assert more
    assert answer(again, more) == answer(first, more)
