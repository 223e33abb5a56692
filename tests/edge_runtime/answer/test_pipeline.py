"""Order, routes and acknowledgements, with an engine and sinks that the test controls."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import orjson
import pytest

from edge_runtime.answer.gate.adaptive import AdaptiveGate
from edge_runtime.answer.gate.budget import Budget
from edge_runtime.answer.gate.config import GateConfig
from edge_runtime.answer.gate.selection import Selection
from edge_runtime.answer.pipeline import Pipeline, Stages
from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import EngineError, InputError
from edge_runtime.event_rule import EventRule
from edge_runtime.manifest import Manifest, Surround
from edge_runtime.manifest.surround import SurroundGate
from edge_runtime.metrics import Metrics
from edge_runtime.model.engines.base import Array, TensorSpec
from edge_runtime.model.serving.cache import CachedModel
from edge_runtime.model.serving.explain import Explainer
from edge_runtime.model.serving.loading import LoadedVariant
from edge_runtime.model.tasks.answered import Answered
from edge_runtime.model.tasks.classification import Classification
from edge_runtime.signal.intake.config import IntakeConfig
from edge_runtime.signal.intake.intake import Intake
from edge_runtime.signal.stage import Stage
from edge_runtime.signal.windowing.window import Windower
from edge_runtime.types import Answer, Event, Prediction, Reading, SuspectPrediction
from tests.edge_runtime.answer.escalations import HeldEscalation
from tests.edge_runtime.manifests import manifest


class MeanEngine:
    """P(high) is the mean of channel a over the window, clipped to 0..1: every answer can be told from the input."""

    name = "mean"
    outputs: tuple[TensorSpec, ...] = (TensorSpec("p", np.dtype(np.float32), (-1, 2)),)

    def __init__(self, channel_axis: int = 1) -> None:
        self.inputs: tuple[TensorSpec, ...] = (TensorSpec("x", np.dtype(np.float32), (-1, -1, -1)),)
        self.axis = channel_axis
        self.batches: list[int] = []
        self.fail = False

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        if self.fail:
            raise EngineError("the accelerator went away")
        (x,) = arrays
        if np.abs(x).max() > 1e30:
            raise InputError("not_finite", "a window's values leave no room to compute with")
        self.batches.append(len(x))
        high = np.clip(x.take(0, axis=self.axis).mean(axis=1), 0, 1).astype(np.float32)
        return (np.stack([1 - high, high], axis=1),)

    def close(self) -> None:
        pass


@dataclass
class HeldSink:
    """Keeps `done` callbacks until the test lets go of them."""

    name: str = "held"
    answers: list[Answer] = field(default_factory=list)
    held: list[Callable[[], None]] = field(default_factory=list)

    def open(self, loop: Loop) -> None:
        pass

    def send(self, answers: Sequence[Answer], done: Callable[[], None] | None) -> None:
        self.answers += answers
        if done is not None:
            self.held.append(done)

    def close(self, timeout_s: float) -> None:
        pass

    def let_go(self) -> None:
        held, self.held = self.held, []
        for done in held:
            done()


@dataclass
class Bench:
    pipeline: Pipeline
    engine: MeanEngine
    sink: HeldSink
    escalation: HeldEscalation
    metrics: Metrics
    clock: SimulatedClock


def bench(
    m: Manifest | None = None,
    *,
    config: GateConfig | None = None,
    max_batch: int = 32,
    cloud: bool = True,
    checked: bool = False,
    cache: tuple[int, float] = (0, 0.0),
    explain: float = 0.0,
) -> Bench:
    m = m or manifest()
    config = config or GateConfig()
    clock, metrics, sink, escalation = SimulatedClock(), Metrics(), HeldSink(), HeldEscalation()
    engine = MeanEngine(channel_axis=1 if m.variants[0].layout == "NCW" else 2)
    model = LoadedVariant(m, m.variants[0], engine, max_batch)
    explainer = Explainer(explain, model, clock, metrics) if explain else None
    pipeline = Pipeline(
        model=CachedModel(model, *cache, metrics) if cache[0] else model,
        windower=Windower(m.input, metrics=metrics),
        stages=Stages(
            intake=Intake(IntakeConfig(), 100, metrics, clock) if checked else Stage(),
            task=Classification(m),
        ),
        sinks=[sink],
        escalation=Selection(escalation, Budget(config, clock), config.audit_share, explainer, metrics)
        if cloud
        else None,
        metrics=metrics,
        clock=clock,
    )
    return Bench(pipeline, engine, sink, escalation, metrics, clock)


def reading(key: str, t: float, *levels: float) -> Reading:
    return Reading(key, t, np.array([[level, -1.0] for level in levels], np.float32))


def predictions(b: Bench) -> list[Prediction]:
    return [answer for answer in b.sink.answers if isinstance(answer, Prediction)]


@pytest.mark.parametrize("layout", ["NCW", "NWC"])
def test_a_prediction_says_everything_a_consumer_needs(layout: str) -> None:
    b = bench(manifest(layout))
    b.pipeline.deliver([reading("k", 1000.0, 0.9, 0.9, 0.9, 0.9)], b.clock.monotonic(), None)
    b.clock.advance(0.25)
    b.pipeline.flush_iteration()
    (p,) = predictions(b)
    assert (p.id, p.key, p.start, p.end) == ("k@10000", "k", 1000.0, 1000.4)
    assert (p.label, p.route, p.hard, p.model, p.variant) == ("high", "local", False, "bench/3", "null")
    assert p.scores == pytest.approx([0.1, 0.9], abs=1e-6)
    assert p.confidence == p.scores[1]
    assert p.latency_ms == 250.0
    assert p.to_json().startswith(
        b'{"id":"k@10000","key":"k","start":1000.0,"end":1000.4,"label":"high","confidence":0.9'
    )


def test_a_hard_window_is_answered_at_once_and_offered_with_the_context_that_it_has_and_no_more() -> None:
    """Mutation that this finds: samples invented in front of a stream."""
    b = bench()
    b.pipeline.deliver([reading("k", 0.0, *(0.3 + i / 100 for i in range(1, 13)))], 0.0, None)
    b.pipeline.flush_iteration()
    assert [p.route for p in predictions(b)] == ["provisional"] * 5
    first, second, third, *_, last = b.escalation.cases
    assert first.tensor.tolist() == [pytest.approx([0.31, 0.32, 0.33, 0.34]), [-1.0] * 4]
    assert second.tensor[0].tolist() == pytest.approx([0.31, 0.32, 0.33, 0.34, 0.35, 0.36])
    assert [case.tensor.shape for case in (first, second, third, last)] == [(2, 4), (2, 6), (2, 8), (2, 8)]
    assert not first.audit
    assert first.trust == pytest.approx(0.675)
    assert b.metrics.counts["hard_total"] == 5


def test_a_short_context_is_not_asked_of_a_cloud_that_takes_whole_ones_only() -> None:
    b = bench(config=GateConfig(max_calls_per_day=3))
    b.escalation.short = False
    b.pipeline.deliver([reading("k", 0.0, *(0.3 + i / 100 for i in range(1, 13)))], 0.0, None)
    b.pipeline.flush_iteration()
    assert [(p.route, p.hard) for p in predictions(b)] == [("local", True)] * 2 + [("provisional", True)] * 3
    assert [case.tensor.shape for case in b.escalation.cases] == [(2, 8)] * 3
    assert b.metrics.dropped["context_short"] == 2
    assert b.metrics.dropped["budget_calls"] == 0, "short ones were paid for"


def test_a_hard_case_carries_what_moved_its_answer() -> None:
    b = bench(explain=0.5)
    b.clock.advance(1)
    b.pipeline.deliver([reading("k", 0.0, 0.5, 0.5, 0.9, 0.5)], 0.0, None)
    b.pipeline.flush_iteration()
    (case,) = b.escalation.cases
    assert case.explanation is not None
    assert case.explanation["label"] == "high"
    assert case.explanation["channels"] == {"a": 0.0, "b": 0.0}  # its mean moves the answer: nothing but the mean
    assert case.explanation["cells"]["a"][2] > 0.05
    assert b.metrics.counts["explanations_total"] == 1
    assert len(predictions(b)) == 1


def test_a_key_that_rests_is_answered_without_the_engine_and_under_its_own_ids() -> None:
    b = bench(cache=(10, 0.0))
    for step in range(5):
        b.pipeline.deliver([reading("k", step * 0.4, 0.9, 0.9, 0.9, 0.9)], 0.0, None)
        b.pipeline.flush_iteration()
    assert sum(b.engine.batches) == 1
    assert len({p.id for p in predictions(b)}) == 9
    assert {p.label for p in predictions(b)} == {"high"}


def test_a_model_on_trial_is_asked_about_every_window() -> None:
    b = bench(cache=(10, 0.0))
    m = manifest()
    b.pipeline.replace(LoadedVariant(m, m.variants[0], b.engine), Classification(m), trial=True)
    b.pipeline.deliver([reading("k", 0.0, *(12 * [0.9]))], 0.0, None)
    b.pipeline.flush_iteration()
    assert sum(b.engine.batches) == 5


def test_without_a_cloud_hard_answers_stay_local_and_are_marked() -> None:
    b = bench(cloud=False)
    b.pipeline.deliver([reading("k", 0.0, 0.5, 0.5, 0.5, 0.5)], 0.0, None)
    b.pipeline.flush_iteration()
    assert [(p.route, p.hard) for p in predictions(b)] == [("local", True)]


def test_done_waits_for_every_sink_and_the_commit() -> None:
    b = bench()
    b.escalation.hold = True
    done: list[str] = []
    b.pipeline.deliver([reading("k", 0.0, 0.5, 0.5, 0.5, 0.5)], 0.0, lambda: done.append("a"))
    assert done == []
    b.pipeline.flush_iteration()
    b.sink.let_go()
    assert done == []
    assert not b.pipeline.idle
    b.escalation.commit()
    assert done == []
    assert not b.pipeline.idle
    b.sink.let_go()
    assert done == ["a"]
    assert b.pipeline.idle


HARD, EASY = [0.5] * 4, [0.95] * 4


def turn(b: Bench, *readings: Reading) -> None:
    b.pipeline.deliver(readings, 0.0, None)
    b.pipeline.flush_iteration()


def test_a_provisional_answer_leaves_when_its_case_is_committed_and_not_before() -> None:
    """Mutation that this finds: sending the answers of a turn at once, whatever becomes of its cases."""
    b = bench()
    b.escalation.hold = True
    turn(b, reading("k", 0.0, *HARD))
    assert predictions(b) == []
    b.escalation.commit()
    assert [p.route for p in predictions(b)] == ["provisional"]


def test_a_case_that_was_refused_makes_its_answer_a_local_one() -> None:
    b = bench()
    b.escalation.hold = True
    turn(b, reading("k", 0.0, *HARD))
    b.escalation.commit(refused=["k@0"])
    assert [(p.route, p.hard) for p in predictions(b)] == [("local", True)]


def test_later_answers_of_a_key_wait_behind_its_hard_one_and_those_of_other_keys_do_not() -> None:
    """Mutation that this finds: holding by turn and not by key, or only what is hard itself."""
    b = bench()
    b.escalation.hold = True
    turn(b, reading("a", 0.0, *EASY), reading("b", 0.0, *HARD))
    turn(b, reading("a", 0.4, *EASY), reading("b", 0.4, *EASY))
    turn(b, reading("b", 0.8, *HARD))
    assert {p.key for p in predictions(b)} == {"a"}
    assert len(predictions(b)) == 3
    b.escalation.commit()
    assert [p.start for p in predictions(b) if p.key == "b"] == [0.0]
    b.escalation.commit(len(b.escalation.held))
    starts = [p.start for p in predictions(b) if p.key == "b"]
    assert starts == sorted(starts)
    assert len(starts) == 5
    b.sink.let_go()
    assert b.pipeline.idle
    assert b.pipeline._out._held == {}


@pytest.mark.parametrize("seed", range(20))
def test_whatever_the_order_of_commits_each_key_keeps_its_order_and_every_reading_is_done(seed: int) -> None:
    """Random turns of four keys, hard and easy, commits in between, some of them refused, some at once."""
    rng = np.random.default_rng(seed)
    b = bench()
    done: list[int] = []
    for step in range(40):
        b.escalation.hold = bool(rng.random() < 0.7)
        for key in "abcd":
            levels = [float(rng.choice([0.5, 0.95]))] * 4
            b.pipeline.deliver([reading(key, step * 0.4, *levels)], 0.0, lambda step=step: done.append(step))  # type: ignore[misc]
        b.pipeline.flush_iteration()
        if b.escalation.held and rng.random() < 0.5:
            refused = [case.prediction.id for case in b.escalation.cases if rng.random() < 0.2]
            waiting = {p.id for p in predictions(b)}
            b.escalation.commit(refused=[id_ for id_ in refused if id_ not in waiting])
    b.escalation.commit(len(b.escalation.held))
    for key in "abcd":
        starts = [p.start for p in predictions(b) if p.key == key]
        assert starts == sorted(starts)
        assert len(starts) == 79
    assert not b.pipeline.idle
    b.sink.let_go()
    assert len(done) == 160
    assert b.pipeline.idle


def test_a_reading_that_completes_no_window_is_done_at_once() -> None:
    b = bench()
    done: list[str] = []
    b.pipeline.deliver([reading("k", 0.0, 0.5, 0.5)], 0.0, lambda: done.append("a"))
    assert done == ["a"]


def test_windows_of_all_keys_share_batches_and_keep_their_order_per_key() -> None:
    b = bench(max_batch=8)
    rng = np.random.default_rng(5)
    for step in range(10):
        keys = [f"k{i}" for i in rng.permutation(6)]
        b.pipeline.deliver([reading(key, step * 0.4, *[0.9] * 4) for key in keys], 0.0, None)
    b.pipeline.flush_iteration()
    assert sum(b.engine.batches) == len(predictions(b)) == 6 * 19
    assert set(b.engine.batches[:-1]) == {8}
    for i in range(6):
        starts = [p.start for p in predictions(b) if p.key == f"k{i}"]
        assert starts == sorted(starts)
        assert len(starts) == 19


def test_answers_do_not_depend_on_the_batch_size() -> None:
    results = []
    for max_batch in (1, 3, 32):
        b = bench(max_batch=max_batch)
        levels = np.random.default_rng(1).random(200).tolist()
        b.pipeline.deliver([reading("k", 0.0, *levels)], 0.0, None)
        b.pipeline.flush_iteration()
        results.append([p.to_json() for p in predictions(b)])
    assert results[0] == results[1] == results[2]


def test_a_spent_budget_keeps_hard_answers_local_and_counts_them() -> None:
    b = bench(config=GateConfig(max_calls_per_day=1))
    b.pipeline.deliver([reading("k", 0.0, *[0.5] * 20)], 0.0, None)
    b.pipeline.flush_iteration()
    assert [p.route for p in predictions(b)] == ["provisional"] + ["local"] * 8
    assert all(p.hard for p in predictions(b))
    assert b.metrics.dropped == {"budget_calls": 8}
    assert b.metrics.counts["hard_total"] == len(b.escalation.cases) + 8


def test_what_would_be_refused_is_counted_and_not_paid_for() -> None:
    """Mutation that this finds: paying first. A day of a full disk would spend the next day's calls."""
    b = bench(config=GateConfig(max_calls_per_day=1))
    b.escalation.reason = "outbox_error"
    b.pipeline.deliver([reading("k", 0.0, *[0.5] * 20)], 0.0, None)
    b.pipeline.flush_iteration()
    assert [p.route for p in predictions(b)] == ["local"] * 9
    assert b.metrics.dropped == {"outbox_error": 9}
    b.escalation.reason = ""
    b.pipeline.deliver([reading("k", 2.0, *[0.5] * 4)], 2.0, None)
    b.pipeline.flush_iteration()
    assert [p.route for p in predictions(b)[9:]] == ["provisional", "local"]  # a burst of one call, still there
    assert len(b.escalation.cases) == 1


def test_audits_are_sent_without_changing_the_answer() -> None:
    b = bench(config=GateConfig(audit_share=1.0))
    b.pipeline.deliver([reading("k", 0.0, *[0.95] * 4)], 0.0, None)
    b.pipeline.flush_iteration()
    (p,) = predictions(b)
    assert (p.route, p.hard) == ("local", False)
    assert [case.audit for case in b.escalation.cases] == [True]
    assert b.metrics.counts["audit_total"] == 1
    assert b.metrics.counts["hard_total"] == 0


def test_without_a_cloud_a_failing_engine_is_counted_and_the_stream_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    b = bench(cloud=False)
    done: list[str] = []
    b.engine.fail = True
    for start in (0.0, 0.4):
        b.pipeline.deliver([reading("k", start, *[0.9] * 4)], 0.0, lambda: done.append("a"))
        b.pipeline.flush_iteration()
    assert done == ["a"] * 2
    assert b.metrics.dropped["engine_error"] == b.metrics.counts["unanswered_total"] == 3
    assert caplog.text.count("windows go unanswered: the accelerator went away") == 1, "one line, not one a batch"
    b.engine.fail = False
    b.pipeline.deliver([reading("k", 0.8, *[0.9] * 2)], 0.0, lambda: done.append("b"))
    b.pipeline.flush_iteration()
    b.sink.let_go()
    assert done == ["a", "a", "b"]
    assert len(predictions(b)) == 1
    assert b.metrics.counts["windows_total"] == b.metrics.counts["predictions_total"] + 3


def test_what_no_engine_answers_goes_to_the_cloud_and_says_that_it_is_no_answer() -> None:
    """Within the budget, and acknowledged no sooner than any other hard case.

    Mutation that this finds: counting such windows as dropped although there is a cloud.
    """
    b = bench(config=GateConfig(max_calls_per_day=1))
    done: list[str] = []
    b.engine.fail = True
    b.escalation.hold = True
    b.pipeline.deliver([reading("k", 0.0, *[0.9] * 4)], b.clock.monotonic(), lambda: done.append("a"))
    b.clock.advance(0.25)
    b.pipeline.flush_iteration()
    assert not predictions(b)
    assert not done
    b.escalation.commit()
    (p,) = predictions(b)
    assert (p.id, p.route, p.hard, p.model, p.variant) == ("k@0", "provisional", True, "bench/3", "none")
    assert (p.start, p.end, p.latency_ms) == (0.0, 0.4, 250.0)
    assert (p.label, p.confidence, p.scores) == ("", 0.0, [])
    (case,) = b.escalation.cases
    assert case.prediction is p
    assert (case.trust, case.audit) == (0.0, False)
    assert case.tensor.shape == (2, 4), "nothing is invented in front of it"
    assert done == []
    b.sink.let_go()
    assert done == ["a"]
    b.pipeline.deliver([reading("k", 0.4, *[0.9] * 4)], 0.0, None)
    b.pipeline.flush_iteration()
    assert [p.route for p in predictions(b)[1:]] == ["local"] * 2, "the budget holds for these too"
    assert b.metrics.dropped == {"budget_calls": 2}
    counts = b.metrics.counts
    assert counts["windows_total"] == counts["predictions_total"] == counts["hard_total"] == 3
    assert counts["unanswered_total"] == 3


def test_a_window_that_the_engine_refuses_is_dropped_without_its_neighbours() -> None:
    b = bench(max_batch=8)
    b.pipeline.deliver([reading("good", 0.0, *[0.9] * 8), reading("bad", 0.0, *[3e38] * 4)], 0.0, None)
    b.pipeline.flush_iteration()
    assert [p.key for p in predictions(b)] == ["good"] * 3
    assert b.metrics.dropped == {"not_finite": 1}
    b.sink.let_go()
    assert b.pipeline.idle


def test_every_window_is_accounted_for() -> None:
    b = bench(max_batch=4)
    for i in range(50):
        b.pipeline.deliver([reading("k", i * 0.3, 0.2, 0.9, 0.9)], 0.0, None)
        b.pipeline.flush_iteration()
        b.sink.let_go()
    counts = b.metrics.counts
    assert counts["windows_total"] == counts["predictions_total"] == len(predictions(b)) == 74
    assert counts["hard_total"] == len(b.escalation.cases)
    assert b.metrics.stages["total"].count == 74


def test_another_model_takes_over_between_windows() -> None:
    b = bench()
    newer = dataclasses.replace(manifest(threshold=0.95), version=4)
    engine = MeanEngine()
    b.pipeline.deliver([reading("k", 1000.0, 0.9, 0.9, 0.9, 0.9)], b.clock.monotonic(), None)
    b.pipeline.replace(LoadedVariant(newer, newer.variants[0], engine), Classification(newer))
    b.pipeline.deliver([reading("k", 1000.4, 0.9, 0.9)], b.clock.monotonic(), None)
    b.pipeline.flush_iteration()
    before, after = predictions(b)
    assert (before.model, before.hard) == ("bench/3", False)
    assert (after.model, after.hard) == ("bench/4", True)
    assert b.engine.batches == engine.batches == [1]
    assert after.id == "k@10002", "the window begun before goes on"


@pytest.mark.parametrize("audit_share", [0.0, 1.0])
def test_answers_of_suspect_readings_are_hard_and_say_why_and_no_cloud_is_asked(audit_share: float) -> None:
    """Key b sends half the samples that the model takes; its answers are sure, and so are those of key a."""
    b = bench(config=GateConfig(audit_share=audit_share, max_share=1.0), checked=True)
    for i in range(400):
        b.pipeline.deliver([reading("a", 1000 + i / 10, 1.0), reading("b", 1000 + i / 5, 1.0)], 0.0, None)
        b.pipeline.flush_iteration()
    suspect = [p for p in predictions(b) if isinstance(p, SuspectPrediction)]
    assert suspect
    assert {(p.key, p.suspect, p.hard, p.route, p.confidence) for p in suspect} == {("b", "rate", True, "local", 1.0)}
    assert orjson.loads(suspect[0].to_json())["suspect"] == "rate"
    others = [p for p in predictions(b) if not isinstance(p, SuspectPrediction)]
    assert {p.hard for p in others} == {False}
    assert all("suspect" not in orjson.loads(p.to_json()) for p in others)
    assert b.metrics.counts["hard_total"] == len(suspect) == b.metrics.counts['suspect_windows_total{reason="rate"}']
    assert b.metrics.dropped["suspect"] == len(suspect)
    asked = {case.prediction.id for case in b.escalation.cases}
    assert asked == ({p.id for p in others} if audit_share else set())


def held(share: float = 0.1) -> Manifest:
    surround = Surround(gate=SurroundGate(threshold=0.8, share=share))
    return dataclasses.replace(manifest(), schema_version=2, surround=surround)


def play_levels(b: Bench, n: int, *, keys: Sequence[str] = ("k",), step_s: float = 0.1) -> None:
    """Answers between .5 and 1, so that a threshold of .8 would call three of five hard."""
    rng = np.random.default_rng(1)
    for i, level in enumerate(rng.uniform(0.5, 1.0, n)):
        b.pipeline.deliver([reading(key, 1000 + i * step_s, level) for key in keys], 0.0, None)
        b.pipeline.flush_iteration()


def test_a_bundle_that_asks_for_a_share_has_it_of_every_key_and_the_budget_stays_a_bound() -> None:
    b = bench(held(), config=GateConfig(max_share=0.05))
    play_levels(b, 3000, keys=("a", "b"))
    for key in ("a", "b"):
        hard = [p.hard for p in predictions(b) if p.key == key]
        assert np.mean(hard) == pytest.approx(0.1, rel=0.1)
    assert b.metrics.counts["hard_total"] == sum(p.hard for p in predictions(b))
    assert len(b.escalation.cases) <= 0.05 * len(predictions(b)) + 3
    assert b.metrics.dropped["budget_share"] == b.metrics.counts["hard_total"] - len(b.escalation.cases)
    assert {p.id for p in predictions(b) if p.hard} >= {case.prediction.id for case in b.escalation.cases}


def test_the_share_is_of_the_windows_that_a_reduced_rate_leaves() -> None:
    b = bench(held())
    b.pipeline.answer_every(3)
    play_levels(b, 6000)
    assert len(predictions(b)) == b.metrics.counts["predictions_total"] < 1100
    assert np.mean([p.hard for p in predictions(b)]) == pytest.approx(0.1, rel=0.15)


def test_suspect_windows_are_hard_and_move_no_threshold() -> None:
    b = bench(held(), checked=True)
    gate = b.pipeline._stages.gate
    assert isinstance(gate, AdaptiveGate)
    play_levels(b, 600, step_s=0.2)  # half the samples that the model takes
    assert {p.hard for p in predictions(b)[-50:]} == {True}
    before = gate.save()
    for i in range(200):
        b.pipeline.deliver([reading("k", 1120 + i * 0.2, 1.0)], 0.0, None)
        b.pipeline.flush_iteration()
    assert gate.save() == before


def test_another_model_is_what_the_intake_follows() -> None:
    b = bench(checked=True)
    m = dataclasses.replace(manifest(), input=dataclasses.replace(manifest().input, rate_hz=5.0))
    b.pipeline.replace(LoadedVariant(m, m.variants[0], b.engine, 8), Classification(m), Windower(m.input))
    for i in range(400):
        b.pipeline.deliver([reading("a", 1000 + i / 5, 1.0)], 0.0, None)
    b.pipeline.flush_iteration()
    assert not any(isinstance(p, SuspectPrediction) for p in predictions(b))


RULE = EventRule(name="up", label="high", on=0.6)


def test_an_event_leaves_behind_the_prediction_that_began_it() -> None:
    """Also where that waits for the commit of its case, and the reading is done when the event is safe as well."""
    b = bench(dataclasses.replace(manifest(threshold=0.9), schema_version=2, events=(RULE,)))
    b.escalation.hold = True
    done: list[str] = []
    b.pipeline.deliver([reading("w", 10.0, 0.7, 0.7, 0.7, 0.7)], 0.0, lambda: done.append("w"))
    b.pipeline.flush_iteration()
    assert b.sink.answers == []
    b.escalation.commit()
    prediction, event = b.sink.answers
    assert isinstance(event, Event)
    assert (prediction.id, event.id, event.kind) == ("w@100", "w@100/up", "start")
    assert not done
    b.sink.let_go()
    assert done == ["w"]


def test_another_bundle_ends_the_events_of_rules_that_it_lacks_and_a_stop_those_that_are_left() -> None:
    b = bench(dataclasses.replace(manifest(), schema_version=2, events=(RULE,)), cloud=False)
    b.pipeline.deliver([reading("w", 10.0, *[0.9] * 4)], 0.0, None)
    b.pipeline.flush_iteration()
    other = dataclasses.replace(manifest(), schema_version=2, events=(dataclasses.replace(RULE, name="other"),))
    b.pipeline.replace(LoadedVariant(other, other.variants[0], b.engine, 32), Classification(other))
    b.pipeline.deliver([reading("w", 10.4, *[0.9] * 2)], 0.0, None)
    b.pipeline.flush()
    events = [answer for answer in b.sink.answers if isinstance(answer, Event)]
    assert [(one.event, one.kind, one.reason) for one in events] == [
        ("up", "start", ""),
        ("up", "end", "rules"),
        ("other", "start", ""),
        ("other", "end", "stopped"),
    ]


def test_who_looks_on_sees_each_window_with_its_answer_and_times_before_the_hand_over() -> None:
    b = bench(max_batch=1)
    seen: list[tuple[str, str, float, float, tuple[float, float]]] = []
    handed_over: list[int] = []

    def tap(answered: Answered) -> None:
        handed_over.append(len(predictions(b)))
        for window, prediction in zip(answered.windows, answered.predictions, strict=True):
            cut = answered.cuts[window.received]
            seen.append((window.id, prediction.id, answered.began, answered.ended, cut))

    b.pipeline.deliver([reading("k", 0.0, *[0.9] * 4)], 0.0, None)
    b.pipeline.flush_iteration()
    assert not b.pipeline._cuts, "nothing is kept while nobody looks on"
    b.pipeline.tap(tap)
    b.pipeline.tap(lambda answered: seen.extend([]))
    b.clock.advance(1.0)
    b.pipeline.deliver([reading("k", 0.4, *[0.9] * 4), reading("l", 0.4, *[0.9] * 4)], 0.5, None)
    b.clock.advance(0.25)
    b.pipeline.flush_iteration()
    assert [one[:2] for one in seen] == [("k@2", "k@2"), ("k@4", "k@4"), ("l@4", "l@4")]
    assert {one[2:] for one in seen} == {(1.25, 1.25, (1.0, 1.0))}
    assert handed_over == [1, 1, 1]
    assert not b.pipeline._cuts
    b.engine.fail = True
    b.pipeline.deliver([reading("k", 0.8, *[0.9] * 4)], 1.25, None)
    b.pipeline.flush_iteration()
    assert seen[-1][:2] == ("k@8", "k@8"), "also what nothing could answer"
