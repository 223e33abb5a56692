"""Two models beside each other, the rules that judge them, and the swap itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

from edge_runtime.answer.pipeline import Pipeline, Stages
from edge_runtime.clock import SimulatedClock, SystemClock
from edge_runtime.errors import EngineError, InputError
from edge_runtime.metrics import Metrics
from edge_runtime.model.serving import loading
from edge_runtime.model.serving.loading import LoadedVariant
from edge_runtime.model.tasks.classification import Classification
from edge_runtime.operate.update.acceptance import Elapsed, Rules, fault, passed
from edge_runtime.operate.update.shadow import Pair, ShadowTally, Steady
from edge_runtime.signal.windowing.window import Window, Windower
from edge_runtime.types import Float32, Reading
from tests.edge_runtime import manifests
from tests.edge_runtime.operate.update.devices import HOP, Answers, Factory
from tests.integration.running import load_model
from tests.stateful import stateful_bundle, stream

AGREE = Classification(manifests.manifest()).agree


class Fake:
    """A predictor that gives the same label to everything, and takes its time."""

    def __init__(self, clock: SimulatedClock, label: int = 0, takes_s: float = 0.001) -> None:
        self.max_batch = 8
        self.states = None
        self.manifest: Any = f"manifest of {label}"
        self.variant: Any = f"variant of {label}"
        self.fails: Exception | None = None
        self.value = 1.0
        self.calls: list[int] = []
        self._clock, self._label, self._takes_s = clock, label, takes_s

    def predict(self, windows: Sequence[Window]) -> loading.Answers:
        self.calls.append(len(windows))
        self._clock.advance(self._takes_s)
        if self.fails is not None:
            raise self.fails
        probabilities = np.zeros((len(windows), 3), np.float32)
        probabilities[:, self._label] = self.value
        return loading.Answers(probabilities, windows)


def windows(n: int) -> list[Window]:
    empty = np.zeros((16, 3), np.float32)
    return [Window("k", i, 0.0, empty, empty, 0.0) for i in range(n)]


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


def pair(clock: SimulatedClock, old: Fake, new: Fake, *, new_leads: bool, share: float = 1.0) -> Pair:
    return Pair(old, new, agree=AGREE, new_leads=new_leads, clock=clock, share=share)


@pytest.mark.parametrize("new_leads", [False, True])
def test_both_answer_the_same_windows_and_are_timed_on_them(clock: SimulatedClock, new_leads: bool) -> None:
    old, new = Fake(clock, 0, 0.001), Fake(clock, 0, 0.003)
    both = pair(clock, old, new, new_leads=new_leads)
    both.predict(windows(5))
    assert both.compare() is None
    assert (old.calls, new.calls) == ([5] * 7, [5] * 7)  # one answer each, and two calls each for three times
    assert (both.tally.compared, both.tally.agreement) == (5, 1.0)
    assert both.tally.slowdown == pytest.approx(3.0)
    assert both.manifest == (new if new_leads else old).manifest
    assert both.compare() is None  # nothing to do
    assert both.tally.compared == 5


class Cold(Fake):
    """A model whose first call after a wait, or after the other model, takes three times as long."""

    warm: ClassVar[list[object]] = []

    def predict(self, windows: Sequence[Window]) -> loading.Answers:
        self._clock.advance(0.0 if self.warm[-1:] == [self] else 2 * self._takes_s)
        self.warm[:] = [self]
        return super().predict(windows)


@pytest.mark.parametrize("new_leads", [False, True])
@pytest.mark.parametrize(("times_slower", "passes"), [(1.0, True), (2.9, True), (3.1, False), (5.0, False)])
def test_the_check_of_time_passes_an_equal_model_and_no_slow_one_however_cold_the_live_call_is(
    clock: SimulatedClock, new_leads: bool, times_slower: float, passes: bool
) -> None:
    """Mutation: the live call of the model that leads counts: an equal model is 3 times as slow in a trial, and one
    that is 5 times slower passes the shadow run.
    """
    old, new = Cold(clock, 0, 0.001), Cold(clock, 0, 0.001 * times_slower)
    both = pair(clock, old, new, new_leads=new_leads, share=0.5)
    rules = replace(RULES, max_slowdown=3.0)
    for _ in range(20):
        clock.advance(1.0)  # a wait for the next message
        Cold.warm.clear()
        both.predict(windows(1))
        both.compare()
    assert both.tally.slowdown == pytest.approx(times_slower)
    assert (fault(rules, both.tally, NOW) is None) is passes
    assert passed(rules, both.tally, NOW)  # `fault` is asked first


def test_nothing_is_said_of_times_before_there_are_some() -> None:
    once = tally(20, 20, ratio=9.0)
    once.timings = 4
    assert fault(RULES, once, NOW) is None
    assert not passed(RULES, once, NOW)


def test_disagreement_is_counted(clock: SimulatedClock) -> None:
    both = pair(clock, Fake(clock, 0), Fake(clock, 1), new_leads=False)
    both.predict(windows(4))
    both.compare()
    assert both.tally.agreement == 0.0


def test_comparing_keeps_to_its_share(clock: SimulatedClock) -> None:
    """Mutation: `compare` without its pause."""
    old, new = Fake(clock, 0, 0.0), Fake(clock, 0, 0.001)
    both = pair(clock, old, new, new_leads=False, share=0.1)
    for _ in range(20_000):  # a window each millisecond
        clock.advance(0.001)
        both.predict(windows(1))
        both.compare()
    assert 0.08 <= len(new.calls) * 0.001 / clock.monotonic() <= 0.1
    assert both.tally.skipped + both.tally.compared in {19_999, 20_000}


@pytest.mark.parametrize("fails", [EngineError("gone"), InputError("not_finite", "no"), None])
def test_where_the_new_one_fails_the_old_one_answers(clock: SimulatedClock, fails: Exception | None) -> None:
    old, new = Fake(clock, 0), Fake(clock, 1)
    new.fails, new.value = fails, np.nan
    both = pair(clock, old, new, new_leads=True)
    assert both.predict(windows(3)).rows.argmax(axis=1).tolist() == [0, 0, 0]
    assert both.manifest == old.manifest
    assert both.variant == old.variant
    assert (both.tally.errors, both.tally.answered) == (3, 0)
    new.fails, new.value = None, 1.0
    assert both.predict(windows(3)).rows.argmax(axis=1).tolist() == [1, 1, 1]
    assert both.manifest == new.manifest


def test_windows_that_neither_takes_are_nobodys_fault(clock: SimulatedClock) -> None:
    old, new = Fake(clock), Fake(clock)
    old.fails = new.fails = InputError("not_finite", "no")
    with pytest.raises(InputError):
        pair(clock, old, new, new_leads=True).predict(windows(1))


@pytest.mark.parametrize("fails", [EngineError("gone"), None])
def test_a_failure_in_the_shadow_is_counted_and_not_seen(clock: SimulatedClock, fails: Exception | None) -> None:
    old, new = Fake(clock, 0), Fake(clock, 1)
    new.fails, new.value = fails, np.inf
    both = pair(clock, old, new, new_leads=False)
    assert both.predict(windows(2)).rows.argmax(axis=1).tolist() == [0, 0]
    both.compare()
    assert (both.tally.errors, both.tally.compared) == (2, 0)


def test_a_call_that_hangs_can_be_seen_from_another_thread(clock: SimulatedClock) -> None:
    """`App` asks `began` from its watchdog."""
    seen: list[float] = []

    class Watched(Fake):
        def predict(self, windows: Sequence[Window]) -> loading.Answers:
            seen.append(both.began)
            return super().predict(windows)

    for new_leads in (True, False):
        clock.advance(1.0)
        both = pair(clock, Fake(clock), Watched(clock), new_leads=new_leads)
        both.predict(windows(1))
        both.compare()
        assert both.began == 0.0
    assert len(seen) == 22
    assert all(seen)


class Falling(Fake):
    """A fallback chain whose first backend fails at the second call."""

    current = 0
    backends = (type("Rung", (), {"name": "npu"}), type("Rung", (), {"name": "cpu"}))

    def predict(self, windows: Sequence[Window]) -> loading.Answers:
        self.current = int(len(self.calls) >= 1)
        return super().predict(windows)


def test_a_rung_that_stands_in_is_a_failure_of_the_candidate(clock: SimulatedClock) -> None:
    """Mutation: `Steady.predict` without its comparison: a bundle that the accelerator refuses passes."""
    fallback_chain: Any = Falling(clock, 1)
    both = Pair(Fake(clock, 0), Steady(fallback_chain), agree=AGREE, new_leads=True, clock=clock, share=1.0)
    assert both.predict(windows(2)).rows.argmax(axis=1).tolist() == [1, 1]
    assert both.predict(windows(2)).rows.argmax(axis=1).tolist() == [0, 0]
    assert both.tally.error == "npu failed, and another variant or engine stands in"


# -- rules -------------------------------------------------------------------------------------------------------------

RULES = Rules(seconds=10.0, windows=20, comparable=True, min_agreement=0.9, max_slowdown=2.0, max_errors=1, stall_s=5.0)
NOW = Elapsed(seconds=11.0, silent_s=0.0)


def tally(compared: int, agreed: int, *, errors: int = 0, ratio: float = 1.0) -> ShadowTally:
    made = ShadowTally(compared=compared, agreed=agreed, answered=compared, errors=errors, error="it broke")
    for _ in range(5):
        made.timed(ratio)
    return made


@pytest.mark.parametrize(
    ("seen", "elapsed", "why"),
    [
        (tally(20, 18), NOW, None),
        (tally(20, 17), NOW, "agrees with the old one on 85.0% of 20 windows, the limit is 90.0%"),
        (tally(19, 0), NOW, None),  # too early to tell
        (tally(20, 20, ratio=2.0), NOW, None),
        (tally(20, 20, ratio=2.1), NOW, "takes 2.1 times as long"),
        (tally(20, 20, errors=1), NOW, None),
        (tally(20, 20, errors=2), NOW, "failed on 2 of 22 windows: it broke"),
        (tally(0, 0), Elapsed(seconds=1.0, silent_s=5.1), "readings came for 5 s and it gave no answer"),
        (tally(0, 0), Elapsed(seconds=1e6, silent_s=0.0), None),  # no readings, no verdict
    ],
)
def test_what_counts_as_a_fault(seen: ShadowTally, elapsed: Elapsed, why: str | None) -> None:
    found = fault(RULES, seen, elapsed)
    assert found is None if why is None else found is not None and why in found


def test_a_run_has_passed_when_time_and_windows_are_full() -> None:
    assert passed(RULES, tally(20, 20), NOW)
    assert not passed(RULES, tally(19, 19), NOW)
    assert not passed(RULES, tally(20, 20), Elapsed(seconds=9.9, silent_s=0.0))


def test_a_hopeless_run_ends_before_its_time() -> None:
    long = Rules(
        seconds=1e6, windows=10**6, comparable=True, min_agreement=0.9, max_slowdown=2.0, max_errors=0, stall_s=5.0
    )
    assert fault(long, tally(50, 40), NOW) is not None
    assert fault(long, tally(49, 0), NOW) is None


# -- the swap ----------------------------------------------------------------------------------------------------------


def answering(model: LoadedVariant, answers: Answers, metrics: Metrics) -> Pipeline:
    clock, manifest = SimulatedClock(), model.manifest
    return Pipeline(
        model=model, windower=Windower(manifest.input), stages=Stages(task=Classification(manifest)), sinks=[answers],
        metrics=metrics, clock=clock,
    )  # fmt: skip


def test_windows_that_are_ready_at_the_swap_are_answered_by_the_old_one(factory: Factory) -> None:
    """Mutation: `Pipeline.replace` without its `flush_iteration`: the new one answers; or, `_ready` emptied: none."""
    models = [load_model(factory.bundle(version), "onnx-fp32") for version in (1, 2)]
    manifest, answers = models[0].manifest, Answers()
    pipeline = answering(models[0], answers, Metrics())

    def reading(i: int) -> Reading:
        return Reading("k", 1e9 + i * HOP / 50.0, np.ones((HOP, 3), np.float32))

    for i in range(6):
        pipeline.deliver([reading(i)], 0.0, None)
    pipeline.replace(models[1], Classification(manifest))
    for i in range(6, 10):
        pipeline.deliver([reading(i)], 0.0, None)
    pipeline.flush_iteration()
    told = [(answer.model, int(answer.id.rpartition("@")[2])) for answer in answers.all]
    assert [model for model, _ in told] == ["watch/1"] * 5 + ["watch/2"] * 4
    assert np.diff([slot for _, slot in told]).tolist() == [HOP] * 8
    for model in models:
        model.close()


def test_another_windower_begins_anew_and_says_so(factory: Factory) -> None:
    models = [load_model(factory.bundle(1), "onnx-fp32"), load_model(factory.bundle(2, window=24), "onnx-fp32")]
    answers, metrics, other = Answers(), Metrics(), models[1].manifest
    pipeline = answering(models[0], answers, metrics)
    for i in range(9):
        values = np.ones((HOP, 3), np.float32)
        pipeline.deliver([Reading(f"k{i % 3}", 1e9 + i // 3 * HOP / 50.0, values)], 0.0, None)
    pipeline.replace(models[1], Classification(other), Windower(other.input))
    assert metrics.counts["window_restarts_total"] == 3
    assert {answer.model for answer in answers.all} == {"watch/1"}
    for model in models:
        model.close()


def test_a_loaded_variant_is_a_predictor_for_both(factory: Factory, tmp_path: Path) -> None:
    model = load_model(factory.bundle(1), "onnx-fp32")
    assert isinstance(model, LoadedVariant)
    both = Pair(model, model, agree=AGREE, new_leads=True, clock=SimulatedClock(), share=1.0)
    assert both.max_batch == model.max_batch
    assert both.manifest.model == "watch/1"
    model.close()


class Counting(Fake):
    """A model with states, by what the comparison sees: which windows it was asked about, and two that begin."""

    def __init__(self, clock: SimulatedClock, label: int = 0, warm_up: int = 0) -> None:
        super().__init__(clock, label)
        self.states: Any = SimpleNamespace(full=True)  # no room for the key under which it would be timed
        self.asked: list[int] = []
        self._warm_up = warm_up

    def predict(self, windows: Sequence[Window]) -> loading.Answers:
        answers = super().predict(windows)
        begin = max(0, self._warm_up - len(self.asked))
        self.asked += [window.slot for window in windows]
        return loading.Answers(answers.rows[begin:], windows[begin:])


@pytest.mark.parametrize("new_leads", [True, False])
def test_models_with_states_see_every_window_in_order(
    clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch, *, new_leads: bool
) -> None:
    """Mutation: a pause between two comparisons: the other model misses steps."""
    monkeypatch.setattr("edge_runtime.operate.update.shadow._MOST_WAITING", 10)
    old, new = Counting(clock, warm_up=1), Counting(clock, warm_up=3)
    both = Pair(old, new, agree=AGREE, new_leads=new_leads, clock=clock, share=0.01)
    steps = windows(40)
    for at in range(0, 40, 4):
        both.predict(steps[at : at + 4])
        if at in (8, 12, 36):
            assert both.compare() is None
    assert old.asked == new.asked == list(range(40))
    assert (both.tally.skipped, both.tally.compared, both.tally.agreed) == (0, 37, 37)


def test_models_with_states_are_timed_under_a_key_that_leaves_nothing_behind(tmp_path: Path) -> None:
    """Mutation: the windows of a stream are asked about again: its next window is a gap, and its states begin again."""
    stateful_bundle(tmp_path / "s.edge")
    models = [load_model(tmp_path / "s.edge", "onnx-fp32") for _ in range(2)]
    alone = load_model(tmp_path / "s.edge", "onnx-fp32")
    contract = alone.manifest.input
    both = Pair(*models, agree=alone.task().agree, new_leads=False, clock=SystemClock(), share=1.0)
    cutter = Windower(contract)
    stepped = 0
    for i in range(20):
        values = stream(1, seed=i)
        for window in cutter.push([Reading("k", 1e9 + i * contract.window / contract.rate_hz, values)]):
            stepped += 1
            assert both.predict([window]).rows.tolist() == alone.predict([window]).rows.tolist()
            both.compare()
    assert stepped > 5
    assert both.tally.timings > 5
    assert both.tally.agreement == 1.0
    assert [set(model.states.keys()) for model in models if model.states is not None] == [{"k"}, {"k"}]
    for model in (*models, alone):
        model.close()


@pytest.mark.parametrize("new_leads", [True, False])
@pytest.mark.parametrize(("kind", "late"), [(Fake, 0), (Counting, 3)])
def test_each_window_that_both_answered_differently_is_told_with_the_old_answer_first(
    clock: SimulatedClock, kind: type[Fake], late: int, *, new_leads: bool
) -> None:
    """Mutation: `Pair._ask` that hands over the leader's answers first: labels for the new model count against it."""
    told: list[tuple[int, int, int]] = []

    def differ(window: Window, old: Float32, new: Float32) -> None:
        told.append((window.slot, int(old.argmax()), int(new.argmax())))

    new = Counting(clock, 2, warm_up=late) if kind is Counting else Fake(clock, 2)
    both = Pair(kind(clock, 1), new, agree=AGREE, new_leads=new_leads, clock=clock, share=1.0, differ=differ)
    both.predict(windows(8))
    both.compare()
    assert told == [(slot, 1, 2) for slot in range(late, 8)]


def test_windows_on_which_both_agree_are_told_to_nobody(clock: SimulatedClock) -> None:
    told: list[Window] = []
    both = Pair(
        Fake(clock, 1), Fake(clock, 1), agree=AGREE, new_leads=False, clock=clock, share=1.0,
        differ=lambda window, *_: told.append(window),
    )  # fmt: skip
    both.predict(windows(8))
    both.compare()
    assert (told, both.tally.compared) == ([], 8)


def test_the_old_model_is_at_the_same_step_when_it_stands_in(clock: SimulatedClock) -> None:
    old, new = Counting(clock), Counting(clock)
    both = Pair(old, new, agree=AGREE, new_leads=True, clock=clock, share=0.01)
    steps = windows(12)
    both.predict(steps[:4])
    new.fails = EngineError("it is broken")
    both.predict(steps[4:8])
    new.fails = None
    both.predict(steps[8:])
    both.compare()
    assert old.asked == list(range(12))
    assert both.tally.errors == 4
