"""From answers to events: against a slow reference, in any batches, over any restart; what it leaves out by example."""

from __future__ import annotations

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.answer.events.rules import EVIDENCE
from edge_runtime.answer.events.tracker import EventTracker
from edge_runtime.errors import ConfigError
from edge_runtime.event_rule import EventRule
from edge_runtime.metrics import Metrics
from edge_runtime.types import Event, Prediction, SuspectPrediction
from tests.edge_runtime.answer.events import reference
from tests.edge_runtime.answer.events.streams import (
    EPOCH,
    JUMP_MS,
    LENGTH_MS,
    levels,
    prediction,
    rules,
    windows,
    with_rules,
)
from tests.edge_runtime.batches import answers_after


def tracker(*of: EventRule, max_keys: int = 100, metrics: Metrics | None = None) -> EventTracker:
    made = EventTracker(None, max_keys=max_keys, max_jump_s=JUMP_MS / 1000, metrics=metrics)
    made.use(with_rules(*of))
    return made


def events(of: EventTracker, answers: list[Prediction]) -> list[Event]:
    return [answer for answer in answers_after(of, answers) if isinstance(answer, Event)]


def play(rule: EventRule, *highs: float, step: int = 200) -> list[Event]:
    return events(tracker(rule), [prediction(i * step, high) for i, high in enumerate(highs)])


def rule(name: str = "e", **fields: object) -> EventRule:
    return EventRule(name=name, label="high", **fields)  # type: ignore[arg-type]


def ms(seconds: float) -> int:
    return round((seconds - EPOCH) * 1000)


def test_a_later_epoch_ends_an_event_however_short_the_step_back() -> None:
    one = tracker(rule())
    answers = [prediction(number * 200, 0.9) for number in range(10)]
    later = [prediction(number * 200, 0.9) for number in range(5, 10)]
    for answer in later:
        answer.id += "~1"
    assert [(found.kind, found.reason) for found in events(one, answers + later)] == [
        ("start", ""), ("end", "clock"), ("start", ""),
    ]  # fmt: skip
    assert not events(one, answers), "these were answered before"


@given(rules(), levels())
def test_events_are_those_of_the_slow_reference(of: list[EventRule], steps: list[tuple[int, float]]) -> None:
    wins = windows(of, steps)
    expected = reference.messages(of, wins, LENGTH_MS, JUMP_MS)
    answers = [prediction(win.ms, high) for win, (_, high) in zip(wins, steps, strict=True)]
    found = [
        reference.Message(
            one.event,
            one.kind,
            ms(one.start),
            None if one.end is None else ms(one.end),
            one.peak,
            one.reason,
            int(one.id.removeprefix("k@").partition("/")[0]),
        )
        for one in events(tracker(*of), answers)
    ]
    assert [one._replace(peak=0) for one in found] == [one._replace(peak=0) for one in expected]
    assert [one.peak for one in found] == pytest.approx([one.peak for one in expected], abs=1e-6)


TWO_KEYS = st.tuples(st.sampled_from("ab"), st.sampled_from((200, 200, 801)), st.sampled_from((0.0, 0.5, 1.0)))


@pytest.mark.slow
@given(rules(), st.lists(TWO_KEYS, max_size=40), st.data())
def test_batches_and_restarts_change_nothing(
    of: list[EventRule], steps: list[tuple[str, int, float]], data: st.DataObject
) -> None:
    at = {"a": 0, "b": 7}
    answers = []
    for key, step, high in steps:
        at[key] += step
        answers.append(prediction(at[key], high, key))
    expected = [one.to_json() for one in answers_after(tracker(*of), answers)]
    one, found = tracker(*of), []
    saved: dict[str, object] = {}
    while answers:
        n = data.draw(st.integers(1, len(answers)))
        batch, answers = answers[:n], answers[n:]
        found += [answer.to_json() for answer in answers_after(one, batch)]
        if data.draw(st.booleans()):
            saved |= one.changed()
            plain = orjson.loads(orjson.dumps({"rules": one.rules, "keys": saved}))
            one = tracker(*of)
            one.restore(plain["rules"], plain["keys"])
    assert found == expected


def test_hysteresis_keeps_an_event_open_between_off_and_on() -> None:
    begin, end = play(rule(on=0.8, off=0.4), 0.2, 0.8, 0.5, 1.0, 0.4, 0.2)
    assert (begin.kind, begin.end, begin.reason, begin.id) == ("start", None, "", "k@200/e")
    assert (end.kind, ms(end.end or 0), end.reason, end.id) == ("end", 800 + LENGTH_MS, "off", "k@200/e")
    assert (ms(begin.start), begin.peak, begin.windows) == (200, 0.8, 1)
    assert (ms(end.start), end.peak, end.windows) == (200, 1.0, 4)
    assert (begin.evidence, end.evidence) == (["k@200"], ["k@200", "k@600"])


def test_n_of_m_windows_begin_it_at_the_first_of_them() -> None:
    assert not play(rule(of=(3, 4)), 1, 0, 0, 1, 0, 1, 0, 0, 1)
    begin, _ = play(rule(of=(3, 4)), 1, 0, 0, 1, 0, 1, 1, 0)
    assert (ms(begin.start), begin.id, begin.windows) == (600, "k@1200/e", 4)
    assert begin.evidence == ["k@600", "k@1000", "k@1200"]


def test_a_window_that_nothing_answered_is_no_step() -> None:
    unanswered = prediction(200, 0.0, scores=[], label="", variant="none")
    found = events(tracker(rule(of=(2, 2))), [prediction(0, 1.0), unanswered, prediction(400, 1.0)])
    assert [one.kind for one in found] == ["start"]


def test_evidence_is_bounded_and_holds_the_peak() -> None:
    begin, end = play(rule(of=(40, 40)), 0.8, *[0.6] * 39, 1.0, 0.6, 0.0)
    assert len(begin.evidence) == EVIDENCE - 1
    assert (begin.evidence[0], begin.evidence[1], begin.evidence[-1]) == ("k@0", "k@5200", "k@7800")
    assert end.evidence == [*begin.evidence, "k@8000"]


def test_an_evicted_key_ends_its_events() -> None:
    metrics = Metrics()
    one = tracker(rule(), max_keys=1, metrics=metrics)
    found = events(one, [prediction(0, 1.0, "a"), prediction(0, 1.0, "b")])
    assert [(event.key, event.kind, event.reason) for event in found] == [
        ("a", "start", ""),
        ("a", "end", "evicted"),
        ("b", "start", ""),
    ]
    assert metrics.counts["event_keys_evicted_total"] == 1
    assert one.changed()["a"] is None


def test_another_bundle_goes_on_with_the_rules_it_shares() -> None:
    one = tracker(rule("stays"), rule("goes"))
    events(one, [prediction(0, 1.0)])
    one.use(with_rules(rule("new"), rule("stays", expected={"missed": 0.1}), version=4))
    found = events(one, [prediction(200, 1.0), prediction(400, 0.0)])
    assert [(event.event, event.kind, event.reason) for event in found] == [
        ("goes", "end", "rules"),
        ("new", "start", ""),
        ("new", "end", "off"),
        ("stays", "end", "off"),
    ]


def test_answers_of_suspect_readings_are_no_steps() -> None:
    """Where they last for longer than a window, the event before them ends as at any gap."""
    answers = [prediction(i * 200, 1.0) for i in range(8)]
    answers[2:6] = [SuspectPrediction(**vars(answer), suspect="unit") for answer in answers[2:6]]
    found = events(tracker(rule()), answers)
    assert [(one.kind, one.reason, one.windows) for one in found] == [
        ("start", "", 1),
        ("end", "gap", 2),
        ("start", "", 1),
    ]


def test_the_end_of_a_stream_ends_its_events() -> None:
    one = tracker(rule())
    events(one, [prediction(0, 1.0)])
    (end,) = one.finish()
    assert (end.kind, end.reason, ms(end.end or 0)) == ("end", "stopped", LENGTH_MS)
    assert not one.finish()


def test_the_application_s_rules_take_the_place_of_the_bundle_s() -> None:
    for own, names in ((None, ["bundle"]), ((rule("own"),), ["own"]), ((), [])):
        one = EventTracker(own)
        one.use(with_rules(rule("bundle")))
        assert [some.name for some in one.rules] == names


def test_a_rule_for_a_label_that_the_bundle_lacks_is_refused() -> None:
    with pytest.raises(ConfigError, match="events: event 'e': the model has no label 'door'; it has low, high"):
        EventTracker([EventRule(name="e", label="door")]).use(with_rules())
