"""Rows that touch each other are found, whatever form it takes; rows that do not may share a call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from edge_runtime.errors import EngineError, InputError
from edge_runtime.model import engines
from edge_runtime.model.engines.base import Array, EngineOptions, TensorSpec
from edge_runtime.model.engines.batch_trial import Carried, largest_batch

Run = Callable[..., Sequence[Array]]
FLOAT = np.dtype(np.float32)
ROW = TensorSpec("row", FLOAT, (-1, 3))
STATE = TensorSpec("state", FLOAT, (-1, 3))
ANSWER = TensorSpec("answer", FLOAT, (-1, 3))


class FakeEngine:
    """Answers with a function of its inputs."""

    name = "fake"

    def __init__(
        self, run: Run, inputs: Sequence[TensorSpec] = (ROW,), outputs: Sequence[TensorSpec] = (ANSWER,)
    ) -> None:
        self.inputs, self.outputs = tuple(inputs), tuple(outputs)
        self._run = run

    def run(self, *arrays: Array) -> tuple[Array, ...]:
        return tuple(self._run(*arrays))

    def close(self) -> None:
        """Nothing to free."""


def alone_above(rows: int) -> Run:
    """Another kernel, with other rounding, from so many rows on."""
    return lambda x: [x * np.float32(1 + 1e-7 * (len(x) > rows))]


def refuses(x: Array) -> Sequence[Array]:
    if len(x) > 1:
        raise EngineError("one row only")
    return [x]


def overwrites(memory: Array) -> Run:
    """Answers lie in the same memory at each call."""

    def run(x: Array) -> Sequence[Array]:
        np.multiply(x, 2, out=memory[: len(x)])
        return [memory[: len(x)]]

    return run


@pytest.mark.parametrize(
    ("run", "rows"),
    [
        (lambda x: [np.tanh(x)], 0),
        (lambda x: [np.where(x > 0, np.nan, x)], 0),
        (lambda x: [np.maximum(x, x.max() - 0.5)], 1),
        (lambda x: [x - x.mean(axis=0)], 1),
        (lambda x: [np.where(x == 0, np.float32(-0.0) if len(x) > 1 else 0, x).astype(np.float32)], 1),
        (lambda x: [x.astype(np.float64) if len(x) > 1 else x], 1),
        (lambda x: [x.reshape(1, -1, 3)], 1),
        (lambda x: [x[::-1]], 1),
        (lambda x: [x[:1]], 1),
        (lambda x: [np.float32(1)], 1),
        (refuses, 1),
        (alone_above(1), 1),
        (alone_above(7), 2),
        (alone_above(8), 8),
        (alone_above(40), 0),
        (overwrites(np.empty((32, 3), np.float32)), 0),
    ],
    ids=[
        "each row alone", "NaN", "cut below the loudest", "less the mean", "sign of zero", "other type",
        "batch in another axis", "rows backwards", "one answer for all", "no rows", "refused", "other kernel at 2",
        "other kernel at 8", "other kernel at 9", "other kernel beyond all", "one memory for all answers",
    ],
)  # fmt: skip
def test_rows_that_touch_each_other_are_found(run: Run, rows: int) -> None:
    assert largest_batch(FakeEngine(run)) == rows


@pytest.mark.parametrize(("run", "rows"), [(alone_above(1), 0), (lambda x: [x - 1e-4 * x.max()], 1)])
def test_other_rounding_may_count_as_equal(run: Run, rows: int) -> None:
    assert largest_batch(FakeEngine(run), rounding=1e-5) == rows


def test_a_fixed_batch_is_a_row_alone() -> None:
    assert largest_batch(FakeEngine(lambda x: [x], [TensorSpec("row", FLOAT, (1, 3))])) == 1
    assert largest_batch(FakeEngine(lambda x: [x], [TensorSpec("row", FLOAT, ())])) == 1


def mixing_state(row: Array, state: Array) -> Sequence[Array]:
    """The answer is each row's own; the next state is not."""
    return [row + state, np.broadcast_to(row.sum(axis=0), row.shape).astype(np.float32)]


def own_state(row: Array, state: Array) -> Sequence[Array]:
    return [row + state, row * np.float32(0.5) + state]


@pytest.mark.parametrize(("run", "rows"), [(mixing_state, 1), (own_state, 0)])
def test_states_are_carried_from_step_to_step(run: Run, rows: int) -> None:
    alike = FakeEngine(run, [ROW, STATE], [ANSWER, STATE])
    assert largest_batch(alike) == rows
    renamed = FakeEngine(run, [ROW, STATE], [ANSWER, TensorSpec("next", FLOAT, (-1, 3))])
    assert largest_batch(renamed, states={"state": Carried("next", np.ones((1, 3), np.float32))}) == rows


def test_rows_of_a_recording_are_used_where_given() -> None:
    seen: list[Array] = []

    def run(x: Array) -> Sequence[Array]:
        seen.append(x.copy())
        return [x]

    recording = np.arange(15, dtype=np.float32).reshape(5, 3)
    assert largest_batch(FakeEngine(run), [recording], sizes=()) == 0
    np.testing.assert_array_equal(seen[8], recording[:4] * np.array([[1], [0.001], [0], [0.3]], np.float32))


def test_integers_are_small_enough_to_be_an_index() -> None:
    def run(x: Array) -> Sequence[Array]:
        return [np.eye(2, dtype=np.float32)[x]]

    index = TensorSpec("index", np.dtype(np.int64), (-1, 4))
    assert largest_batch(FakeEngine(run, [index])) == 0


def test_a_failure_with_a_row_alone_is_told() -> None:
    def run(x: Array) -> Sequence[Array]:
        raise InputError("shape", "not so")

    with pytest.raises(InputError, match="not so"):
        largest_batch(FakeEngine(run))


FILES = [
    ("mlperf-tiny/kws_ref_model.tflite", 0),
    ("openwakeword-frontend/embedding_model.onnx", 0),
    ("openwakeword-frontend/melspectrogram.onnx", 1),
]


@pytest.mark.parametrize(("file", "rows"), FILES)
def test_real_files(file: str, rows: int, shared: Path) -> None:
    path = shared / "models" / file
    name = engines.available(path.suffix[1:])[0].name
    engine = engines.load(name, path.read_bytes(), EngineOptions())
    (spec,) = engine.inputs
    # The file that mixes rows takes any number of samples, as 16-bit numbers.
    sizes = [1760 if size < 0 else size for size in spec.shape[1:]]
    rows_given = np.random.default_rng(0).normal(0, 8000, (8, *sizes)).astype(np.float32)
    assert largest_batch(engine, [rows_given], sizes=(2,)) == rows
    engine.close()
