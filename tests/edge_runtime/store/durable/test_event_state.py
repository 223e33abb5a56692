"""Events over a crash: at any time, with answers that are safe or not, they are those of an uninterrupted run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.answer.events.tracker import EventTracker
from edge_runtime.clock import SystemClock
from edge_runtime.event_rule import EventRule
from edge_runtime.manifest.surround import OverTime, Surround, SurroundGate
from edge_runtime.metrics import Metrics
from edge_runtime.model.over_time import AnswersOverTime
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.window import Window, Windower
from edge_runtime.store.durable.answer_states import AnswerStates
from edge_runtime.store.durable.progress import WindowProgress
from edge_runtime.store.durable.reading_log_file import LogEntry, Recovered
from edge_runtime.store.durable.reading_log_records import encode_readings
from edge_runtime.store.durable.window_state import SavedWindows
from edge_runtime.types import Done, Event, Prediction, Reading
from tests.edge_runtime.answer.events.streams import with_rules
from tests.edge_runtime.batches import answers_after, numbers_after
from tests.edge_runtime.store.durable.bench import Bench
from tests.edge_runtime.store.durable.streams import contract

SPEC = contract(hop=2)
RULES = (
    EventRule(name="a", label="high", on=0.6, off=0.4, of=(2, 3), smooth_windows=2, hold_s=1.0),
    EventRule(name="b", label="low", on=0.6, refractory_s=1.0, after="a", within_s=3.0),
)


def readings(levels: Sequence[float]) -> list[Reading]:
    """Of two keys; ten samples a second."""
    made = []
    for i, level in enumerate(levels):
        values = np.full((4, 2), level, np.float32)
        made.append(Reading(f"k{i % 2}", 1_000.0 + 0.4 * (i // 2), values))
    return made


def answer(window: Window) -> Prediction:
    high = float(window.samples[:, 0].mean())
    end = window.start + SPEC.window / SPEC.rate_hz
    scores = [1 - high, high]
    return Prediction(window.id, window.key, window.start, end, "", high, scores, "local", False, "bench/3", "v", 0.0)


def tracker(*rules: EventRule) -> EventTracker:
    made = EventTracker(None)
    made.use(with_rules(*rules, input=SPEC))
    return made


def filters(spec: OverTime | None) -> AnswersOverTime:
    made = AnswersOverTime()
    made.use(replace(with_rules(input=SPEC), surround=Surround(gate=SurroundGate(), over_time=spec)))
    return made


FILTER = OverTime(transition=((0.95, 0.05), (0.1, 0.9)), prior=(0.6, 0.4), weight=0.5)


class Run:
    """One run of an application, as far as its file and its events go."""

    def __init__(
        self, left: Recovered | None, rules: Sequence[EventRule] = RULES, over_time: OverTime | None = None
    ) -> None:
        self.events = tracker(*rules)
        self.over_time = filters(over_time)
        self.windower = Windower(SPEC)
        self.progress = WindowProgress(Path("log.db"), SystemClock(), AnswerStates(self.events, self.over_time))
        self.progress.use(SPEC, WindowConfig())
        self.again: list[Window] = []
        self.waiting: list[Done] = []
        if left is not None:
            self.again, _, done = self.progress.restore(left, self.windower)
            self.waiting.append(done)
        self.unsafe: list[tuple[list[Done], list[Any]]] = []
        self.write_snapshot()

    def write_snapshot(self) -> None:
        seq = self.progress.next_seq()
        self.left = Recovered(self.progress.contract, self.progress.snapshot(self.windower), seq, [], 0, 0)

    def take(self, batch: Sequence[Reading]) -> None:
        """An iteration: the readings are on the disk, the windows are answered."""
        windows = self.windower.push(batch)
        if (done := self.progress.hold(windows)) is not None:
            self.waiting.append(done)
        safe = self.progress.newly_safe_events()
        entry = LogEntry(self.progress.seq, encode_readings(batch, safe))
        self.left = self.left._replace(seq=entry.seq, entries=[*self.left.entries, entry], acked=self.progress.acked)
        if safe is None:
            self.write_snapshot()
        answers = answers_after(self.events, [self.answered(window) for window in [*self.again, *windows]])
        self.again = []
        told = [one for one in answers if isinstance(one, Event) or self.over_time.active]
        self.unsafe.append((self.waiting, told))
        self.waiting = []

    def answered(self, window: Window) -> Prediction:
        plain = answer(window)
        if self.over_time.active:
            scores = numbers_after(self.over_time, [window], np.array([plain.scores], np.float32))
            plain.scores = scores[0].tolist()
        return plain

    def ack(self, place: int) -> list[Any]:
        """The sinks have the answers of one of the iterations that wait for it."""
        done, events = self.unsafe.pop(place)
        for one in done:
            one()
        return events


def lines(events: Sequence[Prediction | Event]) -> list[bytes]:
    return [event.to_json() for event in events]


def uninterrupted(
    stream: Sequence[Reading], rules: Sequence[EventRule] = RULES, over_time: OverTime | None = None
) -> list[bytes]:
    """What one run says of it."""
    whole = Run(None, rules, over_time)
    whole.take(stream)
    return lines(whole.ack(0))


def over_crashes(
    stream: list[Reading], data: st.DataObject, rules: Sequence[EventRule] = RULES, over_time: OverTime | None = None
) -> list[bytes]:
    """What runs say that crash at any time, with any of their answers safe."""
    run, found = Run(None, rules, over_time), list[bytes]()
    while stream:
        n = data.draw(st.integers(1, min(8, len(stream))))
        run.take(stream[:n])
        stream = stream[n:]
        for _ in range(data.draw(st.integers(0, len(run.unsafe)))):
            found += lines(run.ack(data.draw(st.integers(0, len(run.unsafe) - 1))))
        match data.draw(st.sampled_from(["go on", "go on", "snapshot", "crash"])):
            case "snapshot":
                run.write_snapshot()
            case "crash":
                run = Run(run.left, rules, over_time)
    run.take([])
    while run.unsafe:
        found += lines(run.ack(0))
    return found


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.sampled_from((0.1, 0.5, 0.9)), min_size=8, max_size=60), st.data())
def test_a_crash_at_any_time_changes_no_event(levels: list[float], data: st.DataObject) -> None:
    """Mutation that this finds: saving the states of windows whose answers are not safe yet, or not those that are."""
    stream = readings(levels)
    assert set(over_crashes(stream, data)) == set(uninterrupted(stream))


@pytest.mark.slow
@settings(max_examples=60)
@given(st.lists(st.sampled_from((0.1, 0.4, 0.9)), min_size=8, max_size=60), st.booleans(), st.data())
def test_a_crash_at_any_time_changes_no_answer_over_time(levels: list[float], rules: bool, data: st.DataObject) -> None:
    """Mutation that this finds: restoring no posterior, or the one after windows whose answers are not safe yet."""
    stream, own = readings(levels), RULES if rules else ()
    assert set(over_crashes(stream, data, own, FILTER)) == set(uninterrupted(stream, own, FILTER))


def test_a_filter_that_changes_begins_keys_again_and_keeps_their_events() -> None:
    run = Run(None, RULES, FILTER)
    run.take(readings([0.9] * 20))
    run.ack(0)
    run.write_snapshot()
    other = replace(FILTER, weight=1.0)
    after = Run(run.left, RULES, other)
    assert not after.over_time.reset(["k0"])
    after.take(readings([0.1] * 40)[20:])
    assert any(isinstance(one, Event) and one.kind == "end" and one.reason == "off" for one in after.ack(0))


def test_a_file_of_a_bundle_without_a_filter_is_taken_over_by_one_with_it_and_back() -> None:
    run = Run(None)
    run.take(readings([0.9] * 20))
    run.ack(0)
    for spec in (FILTER, None, FILTER):
        run.write_snapshot()
        run = Run(run.left, RULES, spec)
        assert run.progress.snapshot(run.windower)
        run.take(readings([0.9] * 24)[20:])
        assert not any(isinstance(one, Event) for one in run.ack(0)), "the event goes on"


@pytest.mark.parametrize("crash_at", range(3, 40, 4))
def test_iterations_without_a_reading_leave_no_hole(tmp_path: Path, crash_at: int) -> None:
    """The loop wakes for many reasons; a state that became safe in between is written with the next reading."""
    stream = readings([0.9] * 12 + [0.1] * 12 + [0.9] * 16)
    found: list[bytes] = []
    folder = tmp_path
    for part in (stream[:crash_at], stream[crash_at:]):
        events = tracker(*RULES)
        bench = Bench(folder, spec=SPEC, events=AnswerStates(events))
        windows = bench.recovered
        for reading in part:
            windows = [*windows, *bench.turn(reading)]
            found += lines([one for one in answers_after(events, map(answer, windows)) if isinstance(one, Event)])
            bench.settle()
            windows = bench.turn()
        folder = bench.crash(folder / "crashed")
    assert sorted(set(found)) == sorted(uninterrupted(stream))


def test_saved_windows_carry_an_open_event_over_an_orderly_stop(tmp_path: Path) -> None:
    stream = readings([0.9] * 12 + [0.1] * 20)
    found = []
    for part in (stream[:12], stream[12:]):
        events, windower = tracker(*RULES), Windower(SPEC)
        saved = SavedWindows(
            tmp_path / "w.db", 2**22, metrics=Metrics(), clock=SystemClock(), events=AnswerStates(events)
        )
        again, safe = saved.recover(SPEC, WindowConfig(), windower)
        saved.begin()
        windows = windower.push(part)
        done = saved.flush_iteration(windows, windower)
        found += lines(
            [one for one in answers_after(events, [answer(w) for w in [*again, *windows]]) if isinstance(one, Event)]
        )
        safe()
        if done is not None:
            done()
        saved.stop(windower, 1.0)
    assert found == uninterrupted(stream)
    assert any(b'"start"' in line for line in found)


def test_a_start_with_other_rules_ends_the_events_of_the_old_ones() -> None:
    run = Run(None)
    run.take(readings([0.9] * 20))
    assert [(one.event, one.kind) for one in run.ack(0)] == [("a", "start")] * 2
    run.write_snapshot()
    other = EventRule(name="c", label="high", on=0.8)
    after = Run(run.left, [other])
    after.take(readings([0.9] * 24)[20:])
    assert [(one.event, one.kind, one.reason) for one in after.ack(0)] == [
        ("a", "end", "rules"),
        ("a", "end", "rules"),
        ("c", "start", ""),
        ("c", "start", ""),
    ]


def test_rules_that_change_while_it_runs_ask_for_a_snapshot() -> None:
    run = Run(None)
    run.take(readings([0.9] * 20))
    run.ack(0)
    run.events.use(with_rules(EventRule(name="c", label="high", on=0.8), input=SPEC))
    assert run.progress.newly_safe_events() is None
    run.write_snapshot()
    again = Run(run.left, [EventRule(name="c", label="high", on=0.8)])
    again.take(readings([0.9] * 24)[20:])
    assert [(one.event, one.kind) for one in again.ack(0)] == [("c", "start")] * 2
