"""States of keys: a loaded bundle answers interleaved keys as each alone, and begins anew after a gap."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.model.loading import Model
from edge_runtime.windowing.window import Window
from tests.integration.running import load_model
from tests.stateful import CHANNELS, expected, stateful_bundle, stream


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    with load_model(stateful_bundle(tmp_path_factory.mktemp("stateful") / "leaky.edge"), "onnx-fp32") as loaded:
        yield loaded


def windows(key: str, samples: np.ndarray, first: int = 0) -> list[Window]:
    cut = samples.reshape(-1, 4, CHANNELS)
    return [Window(key, first + 4 * i, 0.08 * i, one, one, 0.0) for i, one in enumerate(cut)]


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
        assert model.states._metrics.counts["state_resets_total"] == 1


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
