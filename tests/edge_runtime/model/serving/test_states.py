"""States of keys: a loaded bundle answers interleaved keys as each alone, and begins again after a gap."""

from __future__ import annotations

import itertools
import os
import signal
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.errors import ConfigError, EngineError
from edge_runtime.metrics import Metrics
from edge_runtime.model.engines.base import EngineOptions, TensorSpec
from edge_runtime.model.engines.subprocess_engine import WorkerEngine
from edge_runtime.model.serving.loading import LoadedVariant, Model
from edge_runtime.model.serving.states import StateStore, rounds
from edge_runtime.signal.windowing.window import Window
from tests.integration.running import load_model
from tests.stateful import CHANNELS, expected, stateful_bundle, stream


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    with load_model(stateful_bundle(tmp_path_factory.mktemp("stateful") / "leaky.edge"), "onnx-fp32") as loaded:
        yield loaded


def windows(key: str, samples: np.ndarray, first: int = 0) -> list[Window]:
    cut = samples.reshape(-1, 4, CHANNELS)
    return [Window(key, first + 4 * i, 0.08 * i, one, one, 0.0) for i, one in enumerate(cut)]


@pytest.mark.slow
@given(turns=st.lists(st.integers(0, 2), min_size=1, max_size=40), sizes=st.lists(st.integers(1, 6), min_size=1))
def test_interleaved_keys_get_the_answers_that_each_gets_alone(
    model: Model, turns: list[int], sizes: list[int]
) -> None:
    assert model.states is not None
    for key in "abc":
        model.states.reset(key)
    streams = {key: stream(len(turns), seed) for seed, key in enumerate("abc")}
    left = {key: iter(windows(key, samples)) for key, samples in streams.items()}
    asked = [next(left["abc"[turn]]) for turn in turns]
    answers: dict[str, list[np.ndarray]] = {key: [] for key in "abc"}
    at = 0
    while asked:
        some, asked = asked[: sizes[at % len(sizes)]], asked[sizes[at % len(sizes)] :]
        at += 1
        rows, answered = model.predict(some)
        assert len(rows) == len(answered)
        for row, window in zip(rows, answered, strict=True):
            answers[window.key].append(row.copy())
    for key, samples in streams.items():
        n = turns.count("abc".index(key))
        wanted = expected(samples[: 4 * n])
        assert np.allclose(np.array(answers[key]).reshape(-1, 3), wanted, atol=1e-6)


def test_a_missing_step_lets_the_key_begin_anew_and_is_counted(tmp_path: Path) -> None:
    with load_model(stateful_bundle(tmp_path / "leaky.edge"), "onnx-fp32") as model:
        assert model.states is not None
        samples = stream(12)
        before, after = windows("a", samples)[:5], windows("a", samples)[6:]
        model.predict(before)
        rows, answered = model.predict(after)
        assert np.allclose(rows, expected(samples[24:]), atol=1e-6)
        assert [window.slot for window in answered] == [window.slot for window in after[1:]]
        assert model.states._metrics.counts['state_resets_total{reason="gap"}'] == 1


def test_a_failed_call_changes_no_state(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    assert model.states is not None
    model.states.reset("f")
    samples = stream(6)
    steps = windows("f", samples)
    model.predict(steps[:3])
    with monkeypatch.context() as broken:
        broken.setattr(model.engine, "run", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.predict(steps[3:4])
    rows, _ = model.predict(steps[3:])
    assert np.allclose(rows, expected(samples)[2:], atol=1e-6)


def test_a_call_of_several_steps_changes_all_states_or_none(model: Model, monkeypatch: pytest.MonkeyPatch) -> None:
    assert model.states is not None
    model.states.bound(100, Metrics())
    steps = windows("a", stream(6)) + windows("b", stream(6, seed=1))
    before, _ = model.predict([steps[0], steps[6], steps[1], steps[7]])
    before = before.copy()
    runs = itertools.count()
    with monkeypatch.context() as broken:
        run = model.engine.run
        broken.setattr(model.engine, "run", lambda *arrays: run(*arrays) if next(runs) < 2 else 1 / 0)
        with pytest.raises(ZeroDivisionError):
            model.predict(steps[2:6] + steps[8:])
    rows, answered = model.predict(steps[2:6] + steps[8:])
    assert [window.key for window in answered] == ["a"] * 4 + ["b"] * 4
    for key, seed in (("a", 0), ("b", 1)):
        got = [row for row, window in zip(rows, answered, strict=True) if window.key == key]
        assert np.allclose(got, expected(stream(6, seed=seed))[1:], atol=1e-6)


@given(keys=st.lists(st.sampled_from("abcdef"), max_size=60), most=st.integers(1, 8))
def test_rounds_hold_a_key_once_in_its_order_and_are_as_few_as_can_be(keys: list[str], most: int) -> None:
    nothing = np.zeros((4, 2), "f4")
    asked = [Window(key, slot, 0.0, nothing, nothing, 0.0) for slot, key in enumerate(keys)]
    found = list(rounds(asked, most))
    assert sorted(position for one in found for position in one) == list(range(len(asked)))
    for one in found:
        assert len(one) <= most
        assert len({keys[position] for position in one}) == len(one)
    for key in set(keys):
        in_order = [position for one in found for position in one if keys[position] == key]
        assert in_order == sorted(in_order)
    turns = [sum(keys.count(key) > turn for key in set(keys)) for turn in range(len(keys))]
    assert len(found) == sum(-(-n // most) for n in turns)


def test_keys_beyond_the_bound_are_forgotten_and_counted(model: Model) -> None:
    assert model.states is not None
    metrics = Metrics()
    model.states.bound(2, metrics)
    samples = stream(4)
    for key in "abc":
        model.predict(windows(key, samples)[:2])
    assert len(model.states) == 2
    assert metrics.counts == {'state_resets_total{reason="evicted"}': 1}
    # All keys of one call have a row of their own, whatever the bound.
    rows, _ = model.predict([windows(key, samples[:8], first=800)[0] for key in "defgh"])
    assert not len(rows)
    assert len(model.states) == 5


def test_states_that_need_more_memory_than_allowed_are_refused_with_what_fits(model: Model) -> None:
    states = model.states
    assert states is not None
    assert states.bytes_per_key == 4 + 4 * CHANNELS * 4 + CHANNELS * 4  # step, four rows, the model's own
    states.bound(1000, Metrics(), 1000 * states.bytes_per_key)
    with pytest.raises(
        ConfigError, match=r"max_keys = 1001 .*lower max_keys under \[window\] to 1000, or raise max_state_mb"
    ):
        states.bound(1001, Metrics(), 1000 * states.bytes_per_key)


@pytest.mark.parametrize("same", [True, False])
def test_another_file_goes_on_where_its_states_are_the_same(model: Model, *, same: bool) -> None:
    """Backends of a fallback chain share the store."""
    metrics = Metrics()
    store = StateStore(model.engine.inputs[1:], model.manifest.input.hop, 10, metrics)
    samples = stream(8)
    steps = windows("a", samples)

    class Other:
        name = "other"
        inputs = model.engine.inputs if same else (*model.engine.inputs[:2], *model.engine.inputs[:1:-1])
        outputs = model.engine.outputs

        def run(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
            if not same:
                window, step, *states = arrays
                answer, answered, step, *states = model.engine.run(window, step, *reversed(states))
                return answer, answered, step, *reversed(states)
            return model.engine.run(*arrays)

        def close(self) -> None:
            raise NotImplementedError

    first = LoadedVariant(model.manifest, model.variant, model.engine, states=store)
    second = LoadedVariant(model.manifest, model.variant, Other(), states=store)
    first.predict(steps[:4])
    rows, answered = second.predict(steps[4:])
    if same:
        assert np.allclose(rows, expected(samples)[3:], atol=1e-6)
        assert not metrics.counts
    else:
        assert np.allclose(rows, expected(samples[16:]), atol=1e-6)
        assert len(answered) == 3
        assert metrics.counts == {'state_resets_total{reason="replaced"}': 1}


def test_a_key_is_reset_on_demand(model: Model) -> None:
    assert model.states is not None
    metrics = Metrics()
    model.states.bound(10, metrics)
    steps = windows("a", stream(8))
    model.predict(steps[:4])
    assert model.states.reset("a")
    assert not model.states.reset("a")
    assert not model.states.reset("b")
    rows, _ = model.predict(steps[4:])
    assert np.allclose(rows, expected(stream(8)[16:]), atol=1e-6)
    assert metrics.counts == {'state_resets_total{reason="asked"}': 1}


def test_states_that_are_not_kept_are_kept_all_the_same_for_windows_that_are_held() -> None:
    specs = [TensorSpec("step", np.dtype(np.int32), (-1,)), TensorSpec("h", np.dtype(np.float32), (-1, 3))]
    store = StateStore(specs, 4)
    samples = np.zeros((4, CHANNELS), np.float32)

    def step(keys: str, slot: int) -> list[np.ndarray]:
        here = [Window(key, slot, 0.0, samples, samples, 0.0) for key in keys]
        before = store.gather(here, keep=False)
        seen = [array.copy() for array in before.states]
        store.scatter(before, here, [before.states[0] + 1, before.states[1] + 1])
        return seen

    step("ab", 0)
    store.hold([Window("a", 4, 0.0, samples, samples, 0.0)])
    step("ab", 4)
    step("cd", 0)
    saved = store.save(whole=True)
    again = StateStore(specs, 4)
    assert again.restore(saved) is None
    found = again.gather([Window("a", 4, 0.0, samples, samples, 0.0), Window("b", 8, 0.0, samples, samples, 0.0)])
    assert found.states[0].tolist() == [1, 2]
    assert found.states[1][:, 0].tolist() == [1, 2]


@pytest.mark.slow
def test_a_process_that_dies_in_a_call_loses_no_state(model: Model) -> None:
    """The states lie here; a process that takes its place goes on."""
    metrics = Metrics()
    store = StateStore(model.engine.inputs[1:], model.manifest.input.hop, 10, metrics)
    samples = stream(12)
    steps = windows("a", samples)
    data = model.bundle.read_variant("onnx-fp32")
    answered: list[np.ndarray] = []
    for part in (steps[:5], steps[5:]):
        worker = WorkerEngine("onnxruntime", data, EngineOptions(), deadline_s=30.0, load_timeout_s=60.0)
        with closing(worker):
            apart = LoadedVariant(model.manifest, model.variant, worker, states=store)
            rows, _ = apart.predict(part[:4])
            answered += list(rows.copy())
            os.kill(worker.pid, signal.SIGKILL)
            with pytest.raises(EngineError):
                apart.predict(part[4:])
        here = LoadedVariant(model.manifest, model.variant, model.engine, states=store)
        rows, _ = here.predict(part[4:])
        answered += list(rows.copy())
    assert np.allclose(answered, expected(samples), atol=1e-6)
    assert not metrics.counts
