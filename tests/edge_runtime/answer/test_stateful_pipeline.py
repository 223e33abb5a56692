"""A model with states in the pipeline: every window moves the state, whatever is answered."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from edge_runtime.answer.pipeline import Pipeline, Stages
from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import EngineError, InputError
from edge_runtime.io.sinks.memory import MemorySink
from edge_runtime.metrics import Metrics
from edge_runtime.model.engines.base import Array
from edge_runtime.model.serving.loading import LoadedVariant, Model
from edge_runtime.model.tasks.build import build_task
from edge_runtime.operate.update.shadow import Pair
from edge_runtime.signal.windowing.window import Windower
from edge_runtime.types import Prediction, Reading
from tests.integration.running import load_model
from tests.stateful import expected, stateful_bundle, stream

RATE = 50.0


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    with load_model(stateful_bundle(tmp_path_factory.mktemp("stateful") / "leaky.edge"), "onnx-fp32") as loaded:
        yield loaded


class Bench:
    """A pipeline that is fed by hand."""

    def __init__(self, model: Model) -> None:
        clock = SimulatedClock()
        self.metrics = Metrics()
        assert model.states is not None
        model.states.bound(1000, self.metrics)
        self.sink = MemorySink()
        self.pipeline = Pipeline(
            model=model,
            windower=Windower(model.manifest.input, metrics=self.metrics),
            stages=Stages(task=build_task(model.manifest)),
            sinks=[self.sink],
            metrics=self.metrics,
            clock=clock,
        )

    def push(self, key: str, samples: np.ndarray, first: int) -> None:
        t = (first + np.arange(len(samples))) / RATE
        self.pipeline.deliver([Reading(key, t, samples)], 0.0, None)

    def answers(self) -> dict[str, list[Prediction]]:
        """By key; the pipeline is flushed first."""
        self.pipeline.flush_iteration()
        found: dict[str, list[Prediction]] = {}
        for answer in self.sink.answers:
            assert isinstance(answer, Prediction)
            found.setdefault(answer.key, []).append(answer)
        return found


def scores(answers: Sequence[Prediction]) -> np.ndarray:
    return np.array([answer.scores for answer in answers])


def calls(model: Model, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Batches that the engine is given from now on."""
    sizes: list[int] = []
    run = model.engine.run

    def counted(*arrays: Array) -> tuple[Array, ...]:
        sizes.append(len(arrays[0]))
        return run(*arrays)

    monkeypatch.setattr(model.engine, "run", counted)
    return sizes


def test_steps_of_many_keys_that_came_together_share_calls(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    """Mutation: windows cut in their order: 20 steps of a key are 20 calls of one window, for each key."""
    bench = Bench(model)
    sizes = calls(model, monkeypatch)
    for key in range(20):
        bench.push(f"k{key}", stream(20, seed=key), 0)
    found = bench.answers()
    assert sizes == [20] * 20
    for key in range(20):
        answers = found[f"k{key}"]
        assert [answer.id for answer in answers] == [f"k{key}@{4 * step}" for step in range(1, 20)]
        assert np.allclose(scores(answers), expected(stream(20, seed=key)), atol=1e-5)
    assert bench.metrics.counts["warmup_total"] == 20


def test_a_reduced_rate_leaves_out_answers_and_no_step(model: Model) -> None:
    """Mutation: `deliver` thins the windows of a model with states: each answer is that of a key that begins."""
    bench = Bench(model)
    bench.pipeline.answer_every(4)
    bench.push("a", stream(24), 0)
    bench.push("b", stream(24, seed=1), 0)
    found = bench.answers()
    for seed, key in enumerate("ab"):
        steps = [int(answer.id.split("@")[1]) // 4 for answer in found[key]]
        assert len(steps) in {5, 6}
        assert np.allclose(scores(found[key]), expected(stream(24, seed=seed))[np.array(steps) - 1], atol=1e-5)
    answered = sum(map(len, found.values()))
    assert bench.metrics.dropped == {"rate_reduced": 46 - answered}
    assert 'state_resets_total{reason="gap"}' not in bench.metrics.counts


@pytest.mark.parametrize("error", [EngineError("it went away"), InputError("not_finite", "too large")])
def test_a_key_that_loses_a_step_begins_again_and_is_counted(
    model: Model, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    bench = Bench(model)
    samples = stream(16)
    bench.push("a", samples[:20], 0)
    bench.push("b", samples[:20], 0)
    bench.answers()

    def fail(*_arrays: Array) -> tuple[Array, ...]:
        raise error

    with monkeypatch.context() as broken:
        broken.setattr(model.engine, "run", fail)
        bench.push("a", samples[20:24], 20)
        bench.answers()
    bench.push("a", samples[24:], 24)
    bench.push("b", samples[20:], 20)
    found = bench.answers()
    after = [answer for answer in found["a"] if int(answer.id.split("@")[1]) >= 24]
    assert np.allclose(scores(after), expected(samples[24:]), atol=1e-5)
    assert np.allclose(scores(found["b"]), expected(samples), atol=1e-5)
    assert bench.metrics.counts['state_resets_total{reason="lost"}'] == 1
    assert 'state_resets_total{reason="gap"}' not in bench.metrics.counts


def test_a_silence_lets_a_key_begin_again(model: Model) -> None:
    bench = Bench(model)
    bench.push("a", stream(6), 0)
    bench.push("a", stream(6, seed=1), 400)
    answers = scores(bench.answers()["a"])
    assert np.allclose(answers, np.concatenate((expected(stream(6)), expected(stream(6, seed=1)))), atol=1e-5)
    assert bench.metrics.counts['state_resets_total{reason="gap"}'] == 1


def test_an_update_that_was_compared_before_is_warm_and_one_that_was_not_begins_again(model: Model) -> None:
    bench = Bench(model)
    new, direct = (LoadedVariant(model.manifest, model.variant, model.engine) for _ in range(2))
    for one in (new, direct):
        assert one.states is not None
        one.states.bound(10, bench.metrics)
    task = build_task(model.manifest)
    clock = SimulatedClock()
    samples = stream(30)

    def feed(begin: int, end: int) -> None:
        bench.push("a", samples[4 * begin : 4 * end], 4 * begin)
        bench.pipeline.flush_iteration()

    feed(0, 5)
    for leads, begin in ((False, 5), (True, 10)):
        pair = Pair(model, new, agree=task.agree, new_leads=leads, clock=clock, share=0.01)
        bench.pipeline.replace(pair, task)
        feed(begin, begin + 5)
        pair.compare()
        assert pair.tally.skipped == 0
    bench.pipeline.replace(new, task)
    feed(15, 20)
    bench.pipeline.replace(direct, task)
    feed(20, 30)
    found = {int(answer.id.split("@")[1]) // 4: answer.scores for answer in bench.answers()["a"]}
    assert np.allclose([found[step] for step in range(1, 10)], expected(samples[:40]), atol=1e-5)
    assert np.allclose([found[step] for step in range(10, 20)], expected(samples[20:80])[4:], atol=1e-5)
    assert np.allclose([found[step] for step in range(21, 30)], expected(samples[80:]), atol=1e-5)
    resets = {name: n for name, n in bench.metrics.counts.items() if name.startswith("state_resets")}
    assert resets == {'state_resets_total{reason="replaced"}': 1}
