from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edge_runtime.base.oip import Array, OipTensor
from edge_runtime.clock import SystemClock
from edge_runtime.errors import InputError
from edge_runtime.operate.server.batcher import Batcher, Call, ServedModel
from edge_runtime.operate.serving.answers import Refused

ANY = (-1, -1)
PATIENCE_S = 60.0


class Model:
    """Doubles its input; notes the batches, and can be held up."""

    def __init__(self) -> None:
        self.sizes: list[int] = []
        self.threads: set[str] = set()
        self.go = threading.Event()
        self.go.set()
        self.entered = threading.Event()
        self.refuse: Callable[[Array], bool] = lambda _: False
        self.buffer = np.empty((64, 3), np.float32)

    def predict(self, inputs: dict[str, Array]) -> dict[str, Array]:
        x = inputs["x"]
        self.entered.set()
        self.go.wait(PATIENCE_S)
        if self.refuse(x):
            raise ValueError("does not like it")
        self.sizes.append(len(x))
        self.threads.add(threading.current_thread().name)
        if x.shape[1] != 3:
            return {"y": 2 * x}
        np.multiply(x, 2, out=self.buffer[: len(x)])  # an engine that reuses its output
        return {"y": self.buffer[: len(x)]}


def served(predict: Any, **changes: Any) -> ServedModel:
    fields: dict[str, Any] = {"inputs": (OipTensor("x", "FP32", ANY),), "outputs": (OipTensor("y", "FP32", ANY),)}
    return ServedModel(name="m", predict=predict, **{**fields, **changes})


def batcher(model: Model, **changes: Any) -> Batcher:
    return Batcher(served(model.predict, max_batch=8), SystemClock(), **{"max_queue_rows": 100, **changes})


def rows(n: int, value: float, width: int = 3) -> dict[str, Array]:
    return {"x": np.full((n, width), value, np.float32)}


class Callers:
    """Requests in the order given, and what became of each."""

    def __init__(self, it: Batcher) -> None:
        self.it = it
        self.calls: list[Call] = []
        self._finished = threading.Semaphore(0)
        it.start(lambda calls: [call.done() for call in calls])

    def ask(self, inputs: dict[str, Array]) -> Call:
        self.calls.append(self.it.submit(inputs, self._finished.release))
        return self.calls[-1]

    def join(self) -> list[Array | Exception]:
        """Wait for all of them, and end the thread of the model."""
        self.it.flush()
        for _ in self.calls:
            assert self._finished.acquire(timeout=PATIENCE_S)
        self.it.stop(PATIENCE_S)
        results = [call.error if call.outputs is None else call.outputs["y"] for call in self.calls]
        assert None not in [type(result) for result in results]
        return [result for result in results if result is not None]


def held(model: Model, it: Batcher) -> Callers:
    """Callers behind a first one that occupies the model until `model.go` is set."""
    model.go.clear()
    callers = Callers(it)
    callers.ask(rows(1, 0.5))
    it.flush()
    assert model.entered.wait(PATIENCE_S)
    return callers


def run(it: Batcher, inputs: dict[str, Array]) -> Array | Exception:
    callers = Callers(it)
    callers.ask(inputs)
    return callers.join()[0]


def test_a_lone_request_runs_in_the_thread_of_its_model() -> None:
    model = Model()
    it = batcher(model)
    assert np.asarray(run(it, rows(2, 3))).tolist() == [[6] * 3] * 2
    assert model.threads == {"serve[m]"}
    assert (it.batches, it.rows, it.failures) == (1, 2, 0)


def test_requests_that_wait_go_together_and_come_back_to_their_callers() -> None:
    model = Model()
    callers = held(model, batcher(model))
    for n, value in ((2, 1), (1, 2), (3, 3)):
        callers.ask(rows(n, value))
    model.go.set()
    results = callers.join()
    assert model.sizes == [1, 6]
    assert [np.asarray(results[i]).tolist() for i in range(4)] == [[[1] * 3], [[2] * 3] * 2, [[4] * 3], [[6] * 3] * 3]


def test_requests_of_one_moment_go_together_without_any_delay() -> None:
    model = Model()
    callers = Callers(batcher(model))
    for value in range(5):
        callers.ask(rows(1, value))
    callers.join()
    assert model.sizes == [5]


def test_batches_are_bounded_and_in_order() -> None:
    model = Model()
    callers = held(model, batcher(model))
    for n in (5, 4, 1, 8):
        callers.ask(rows(n, n))
    model.go.set()
    callers.join()
    assert model.sizes == [1, 5, 5, 8]


def test_other_shapes_wait_for_a_batch_of_their_own() -> None:
    model = Model()
    callers = held(model, batcher(model))
    for n, width in ((1, 3), (1, 4), (2, 3), (2, 4)):
        callers.ask(rows(n, 1, width))
    model.go.set()
    results = callers.join()
    assert model.sizes == [1, 3, 3]
    assert [np.asarray(results[i]).shape for i in range(1, 5)] == [(1, 3), (1, 4), (2, 3), (2, 4)]


def test_a_delay_waits_for_others_but_not_once_the_batch_is_full() -> None:
    model = Model()
    begin = time.monotonic()
    run(batcher(model, max_queue_delay_s=0.15), rows(1, 1))
    assert time.monotonic() - begin >= 0.15
    callers = Callers(batcher(model, max_queue_delay_s=3600.0))
    for n in (3, 3, 2):
        callers.ask(rows(n, n))
        callers.it.flush()
    callers.join()
    assert model.sizes == [1, 8]


def test_one_bad_request_does_not_fail_the_others() -> None:
    model = Model()
    model.refuse = lambda x: bool((x == 13).any())
    it = batcher(model)
    callers = held(model, it)
    for value in (1, 13, 2):
        callers.ask(rows(1, value))
    model.go.set()
    results = callers.join()
    assert np.asarray(results[1]).tolist() == [[2] * 3]
    assert np.asarray(results[3]).tolist() == [[4] * 3]
    error = results[2]
    assert isinstance(error, Refused)
    assert error.status == 500
    assert "does not like it" in str(error)
    assert it.failures == 1


def test_a_full_queue_refuses_and_invites_to_come_back() -> None:
    model = Model()
    it = batcher(model, max_queue_rows=4)
    callers = held(model, it)
    callers.ask(rows(3, 1))
    with pytest.raises(Refused, match="3 windows wait") as caught:
        callers.ask(rows(2, 1))
    assert (caught.value.status, caught.value.retry) == (503, True)
    model.go.set()
    callers.join()
    assert np.asarray(run(it, rows(8, 1))).shape == (8, 3)  # larger than the queue, but nobody waits


def test_a_call_that_is_withdrawn_leaves_the_queue() -> None:
    model = Model()
    it = batcher(model)
    callers = held(model, it)
    call = it.submit(rows(2, 1), lambda: pytest.fail("nobody waits for it"))
    it.withdraw(call)
    it.withdraw(call)
    assert it._queued_rows == 0
    model.go.set()
    callers.join()
    assert model.sizes == [1]


def test_a_model_that_hangs_does_not_hold_up_the_end_and_serves_again_once_it_is_back() -> None:
    model = Model()
    it = batcher(model)
    held(model, it)
    it.stop(0.05)
    model.go.set()
    assert np.asarray(run(it, rows(1, 2))).tolist() == [[4] * 3]
    for thread in threading.enumerate():
        if thread.name == "serve[m]":
            thread.join(PATIENCE_S)
    assert "serve[m]" not in [thread.name for thread in threading.enumerate()]


@pytest.mark.parametrize(
    "answer", [{}, {"y": np.zeros((1, 3), np.float32)}, {"y": np.zeros((2, 3))}, {"y": np.zeros((2,), np.float32)}]
)
def test_a_model_that_breaks_its_word_is_a_server_error(answer: dict[str, Array]) -> None:
    error = run(Batcher(served(lambda _: answer), SystemClock()), rows(2, 1))
    assert isinstance(error, Refused)
    assert error.status == 500
    assert "of output 'y'" in str(error)


def test_a_model_may_refuse_its_input() -> None:
    def refuse(_: dict[str, Array]) -> dict[str, Array]:
        raise InputError("range", "too loud")

    error = run(Batcher(served(refuse), SystemClock()), rows(1, 1))
    assert isinstance(error, InputError)
    assert str(error) == "too loud"


@pytest.mark.parametrize("delay", [0.0, 0.002])
def test_under_load_everybody_gets_their_own_answer(delay: float) -> None:
    model = Model()
    it = batcher(model, max_queue_delay_s=delay, max_queue_rows=10_000)
    rng = np.random.default_rng(0)
    inputs = [rng.normal(size=(rng.integers(1, 9), rng.integers(3, 5))).astype(np.float32) for _ in range(500)]
    callers = Callers(it)
    for x in inputs:
        callers.ask({"x": x})
        it.flush()
    results = callers.join()
    assert all(np.array_equal(2 * x, np.asarray(result)) for x, result in zip(inputs, results, strict=True))
    assert it.rows == sum(model.sizes)
    assert max(model.sizes) <= 8
    assert not it._queue
    assert it._queued_rows == 0


def test_models_without_a_batch_axis_are_refused() -> None:
    for changes in (
        {"inputs": (OipTensor("x", "FP32", (1, 3)),)},
        {"outputs": (OipTensor("y", "FP32", ()),)},
        {"inputs": ()},
        {"max_batch": 0},
        {"version": ""},
    ):
        with pytest.raises(ValueError, match="model 'm'"):
            served(Model().predict, **changes)
