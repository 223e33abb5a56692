"""A chain answers as the model alone does, whatever is in its batch, and keeps nothing between calls."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from edge_runtime.errors import EngineError
from edge_runtime.manifest.stages import Combine, Difference, ModelStage, Output, Port, Smooth, Stage, State, When
from edge_runtime.model import engines
from edge_runtime.model.bundle.golden import play
from edge_runtime.model.chain.load import ModelPart, join
from edge_runtime.model.engines.base import Engine, EngineOptions
from tests.stateful import CHANNELS, KEEP, STAGE, WEIGHTS, expected, leaky, stream


def chain(*stages: Stage, window: int = 4, together: int = 0, answer: tuple[str, ...] = ()) -> Engine:
    model = leaky()
    models = [
        (ModelPart(stage=stage.name, format="onnx", tensors={}, together=together, size=len(model)), model)
        for stage in stages
        if isinstance(stage, ModelStage)
    ]
    return engines.load("onnxruntime", join(stages, answer, (window, CHANNELS), models), EngineOptions())


@pytest.mark.parametrize("together", [0, 1, 2])
@pytest.mark.parametrize("window", [4, 8, 12])
def test_a_stream_gets_the_answers_of_the_model_run_by_hand(window: int, together: int) -> None:
    samples = stream(12)
    engine = chain(STAGE, window=window, together=together)
    calls = window // 4
    answers = play(engine, samples.reshape(-1, window, CHANNELS))[0].reshape(-1, calls, 3)
    wanted = expected(samples)
    # The first step lacks the rows for its last call, so it has no answer; what it computed has moved the state.
    assert np.allclose(answers[1:].reshape(-1, 3), wanted[calls - 1 :], atol=1e-6)
    assert not answers[0].any()


def test_keys_of_one_batch_do_not_touch_each_other() -> None:
    engine = chain(STAGE)
    windows = stream(9).reshape(-1, 4, CHANNELS)
    alone = play(engine, windows)[0]
    for answers in play(engine, windows, keys=4):
        assert (answers == alone).all()


def test_a_call_writes_to_none_of_its_inputs() -> None:
    engine = chain(STAGE, Smooth(rows=3))
    window = stream(1).reshape(1, 4, CHANNELS)
    states = [np.zeros((1, *spec.shape[1:]), spec.dtype) for spec in engine.inputs[1:]]
    for _ in range(5):
        before = [array.copy() for array in states]
        _, _, *after = engine.run(window, *states)
        assert all((one == other).all() for one, other in zip(states, before, strict=True))
        states = [np.array(array) for array in after]


def test_step_0_begins_anew_whatever_the_other_states_hold() -> None:
    engine = chain(STAGE)
    window = stream(1).reshape(1, 4, CHANNELS)
    clean = [np.zeros((1, *spec.shape[1:]), spec.dtype) for spec in engine.inputs[1:]]
    dirty = [clean[0], *(np.full_like(array, 7) for array in clean[1:])]
    for one, other in zip(engine.run(window, *clean), engine.run(window, *dirty), strict=True):
        assert (one == other).all()


def test_smoothing_is_the_mean_of_the_newest_answers() -> None:
    samples = stream(10)
    answers = play(chain(STAGE, Smooth(rows=3)), samples.reshape(-1, 4, CHANNELS))[0]
    wanted = expected(samples)
    assert not answers[:3].any()
    for step in range(3, 10):
        assert np.allclose(answers[step], wanted[step - 3 : step].mean(axis=0), atol=1e-6)


def test_a_difference_is_that_of_two_tracks() -> None:
    engine = chain(STAGE, Smooth(name="twice", of="model", rows=2), Difference(of="twice", to="model", how="max"))
    samples = stream(8)
    answers = play(engine, samples.reshape(-1, 4, CHANNELS))[0]
    wanted = expected(samples)
    smooth = (wanted[1:] + wanted[:-1]) / 2
    assert np.allclose(answers[2:, 0], np.abs(smooth - wanted[1:]).max(axis=1), atol=1e-6)


def test_an_ensemble_is_the_mean_the_maximum_or_the_vote_of_its_models() -> None:
    samples = stream(8)
    wanted = expected(samples)
    before, after = wanted[:-1], wanted[1:]
    windows = samples.reshape(-1, 4, CHANNELS)
    for how, weights, made in (
        ("mean", (), ((before + after) / 2 + after) / 2),
        ("mean", (3.0, 1.0), 0.75 * (before + after) / 2 + 0.25 * after),
        ("max", (), np.maximum((before + after) / 2, after)),
        ("vote", (), (np.eye(3)[((before + after) / 2).argmax(axis=1)] + np.eye(3)[after.argmax(axis=1)]) / 2),
    ):
        together = Combine(tracks_in=("twice", "model"), how=how, weights=weights)  # type: ignore[arg-type]
        answers = play(chain(STAGE, Smooth(name="twice", rows=2), together), windows)[0]
        assert np.allclose(answers[2:], made, atol=1e-6)


@pytest.mark.parametrize("otherwise", ["", "first"])
def test_a_model_runs_only_where_the_one_before_it_says_so(otherwise: str) -> None:
    """Each stretch in which it runs begins with its initial state; keys do not touch each other."""
    samples = stream(30, seed=3)
    first = replace(STAGE, name="first")
    when = When(track="first", column=0, above=0.4, otherwise=otherwise, rest=(0.0, 0.0, 1.0))
    heavy = ModelStage(
        inputs=(replace(STAGE.inputs[0], of="window"),), states=STAGE.states, outputs=STAGE.outputs, when=when
    )
    engine = chain(first, heavy)
    gate = expected(samples)
    runs = gate[:, 0] > 0.4
    assert runs.any()
    assert not runs.all()
    state, wanted = np.zeros(CHANNELS, "f4"), []
    for call, (at, on) in enumerate(zip(range(0, len(samples) - 5, 4), runs, strict=True)):
        if not on:
            state = np.zeros(CHANNELS, "f4")
            wanted.append(gate[call] if otherwise else np.array([0, 0, 1], "f4"))
            continue
        state = np.float32(KEEP) * state + samples[at : at + 6].mean(axis=0)
        p = np.exp(state @ WEIGHTS - (state @ WEIGHTS).max())
        wanted.append(p / p.sum())
    for answers in play(engine, samples.reshape(-1, 4, CHANNELS), keys=3):
        assert np.allclose(answers[1:], np.array(wanted), atol=1e-6)


@pytest.mark.parametrize(
    ("stage", "reason"),
    [
        (
            ModelStage(inputs=(Port(name="x", rows=6, hop=4),), outputs=(Output(name="y"),)),
            "nothing feeds the input 'h'",
        ),
        (ModelStage(inputs=(Port(name="z", rows=6, hop=4),), outputs=(Output(name="y"),)), "no input 'z'; it has x, h"),
        (
            ModelStage(
                inputs=(Port(name="x", rows=5, hop=4),),
                states=(State(input="h", output="h_next", shape=(2,)),),
                outputs=(Output(name="y"),),
            ),
            "refuses|do not make the shape|has shape",
        ),
        (
            ModelStage(
                inputs=(Port(name="x", rows=6, hop=4),),
                states=(State(input="h", output="y", shape=(2,)),),
                outputs=(Output(name="y"),),
            ),
            "comes out as",
        ),
    ],
)
def test_a_stage_that_does_not_fit_its_file_is_refused(stage: ModelStage, reason: str) -> None:
    with pytest.raises(Exception, match=reason) as refused:
        chain(stage)
    assert isinstance(refused.value, EngineError) or "shape" in str(refused.value)
