"""The track `stream`: a chain that is fed with what a hop brings answers as one that is fed with windows."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.errors import InputError
from edge_runtime.manifest.stages import ModelStage, Output, Port, State
from edge_runtime.model import engines
from edge_runtime.model.bundle.golden import play
from edge_runtime.model.chain.load import ModelPart, join
from edge_runtime.model.chain.schedule import Cut, Node, make
from edge_runtime.model.engines.base import Engine, EngineOptions
from tests.stateful import CHANNELS, KEEP, WEIGHTS, leaky, stream


def stage(*, warmup: int = 0, lead: int = 0) -> ModelStage:
    return ModelStage(
        inputs=(Port(name="x", of="stream", rows=6, lead=lead),),
        states=(State(input="h", output="h_next", shape=(CHANNELS,)),),
        outputs=(Output(name="y"),),
        warmup_steps=warmup,
    )


def chain(one: ModelStage, window: int) -> Engine:
    model = leaky()
    part = ModelPart(stage=one.name, format="onnx", tensors={}, together=0, size=len(model))
    return engines.load("onnxruntime", join((one,), (), (window, CHANNELS), [(part, model)], 6), EngineOptions())


def answer(samples: np.ndarray) -> np.ndarray:
    """What the model answers at the end of samples, six at a time, from a reset."""
    h = np.zeros(CHANNELS, "f4")
    for part in samples.reshape(-1, 6, CHANNELS):
        h = np.float32(KEEP) * h + part.mean(axis=0)
    p = np.exp(h @ WEIGHTS - (h @ WEIGHTS).max())
    return np.asarray(p / p.sum())


def overlapping(samples: np.ndarray, window: int) -> np.ndarray:
    return np.stack([samples[at : at + window] for at in range(0, len(samples) - window + 1, 6)])


def test_the_first_step_takes_the_whole_window_and_the_next_ones_what_is_new() -> None:
    samples = stream(30)
    windows = overlapping(samples, 24)
    answers = play(chain(stage(warmup=3), 24), windows)[0]
    for step, found in enumerate(answers):
        assert np.allclose(found, answer(samples[: 24 + 6 * step]), atol=1e-6)


def test_zeros_stand_in_for_the_hop_that_a_window_does_not_fill() -> None:
    samples = stream(30)
    answers = play(chain(stage(warmup=3, lead=4), 20), overlapping(samples, 20))[0]
    padded = np.concatenate([np.zeros((4, CHANNELS), "f4"), samples])
    for step, found in enumerate(answers):
        assert np.allclose(found, answer(padded[: 24 + 6 * step]), atol=1e-6)


def test_a_key_that_was_reset_answers_at_once_beside_keys_that_go_on() -> None:
    samples = stream(30)
    windows = overlapping(samples, 24)
    engine = chain(stage(warmup=3), 24)
    alone = play(engine, windows)[0]
    for answers in play(engine, windows, keys=3):
        assert np.allclose(answers, alone, atol=1e-6)


@given(warm=st.integers(0, 40), window=st.integers(1, 12), rows=st.integers(1, 12))
@settings(deadline=None)
def test_rows_of_the_first_calls_are_not_used(warm: int, window: int, rows: int) -> None:
    schedule = make([Node((Cut("window", rows, rows),), {"y": 1}, warm)], window)
    level, calls, used = 0, 0, 0
    for _ in range(120):
        (turn,) = schedule.levels[level]
        calls += turn.calls
        used += schedule.rows[level]["y"]
        assert used == max(0, calls - warm)
        level = level + 1 if level + 1 < len(schedule.levels) else schedule.again


def test_a_chain_whose_windows_do_not_overlap_has_no_level_more() -> None:
    assert len(make([Node((Cut("stream", 4, 4),), {"y": 1})], 4).levels) == 1
    assert len(make([Node((Cut("window", 4, 4),), {"y": 1})], 4, 2).levels) == 1
    assert len(make([Node((Cut("stream", 2, 2),), {"y": 1})], 4, 2).levels) == 2


def test_rows_before_the_first_step_take_no_room() -> None:
    schedule = make([Node((Cut("stream", 6, 6, 4),), {"y": 1}, 3)], 20, 6)
    assert schedule.most_kept(0, 0) == 0


@pytest.mark.parametrize("warmup", [-1, -5])
def test_a_negative_warm_up_is_refused(warmup: int) -> None:
    with pytest.raises(ValueError, match="warmup_steps must be 0 or more"):
        stage(warmup=warmup)


def test_a_key_that_goes_on_needs_no_more_than_what_is_new() -> None:
    engine = chain(stage(warmup=3), 24)
    windows = overlapping(stream(30), 24)
    whole = play(engine, windows)[0]
    states = [np.zeros((1, *spec.shape[1:]), spec.dtype) for spec in engine.inputs[1:]]
    for step, window in enumerate(windows):
        given = window[None] if step == 0 else np.ascontiguousarray(window[None, -6:])
        answer, answered, *states = (np.array(one) for one in engine.run(given, *states))
        assert answered.all()
        assert np.allclose(answer[0], whole[step], atol=1e-6)


@pytest.mark.parametrize(("rows", "step"), [(6, 0), (12, 1), (23, 0)], ids=["begins", "half", "short"])
def test_a_window_of_another_length_is_refused(rows: int, step: int) -> None:
    engine = chain(stage(warmup=3), 24)
    states = [np.full((1, *spec.shape[1:]), 2 * step, spec.dtype) for spec in engine.inputs[1:]]
    with pytest.raises(InputError, match="not 24, or of 6"):
        engine.run(np.zeros((1, rows, CHANNELS), np.float32), *states)
