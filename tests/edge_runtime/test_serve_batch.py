from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from edge_runtime.clock import SystemClock
from edge_runtime.errors import InputError
from edge_runtime.oip import Array, TensorSpec
from edge_runtime.serve_batch import Batcher, Refused, ServedModel

ANY = (-1, -1)


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
        self.go.wait(5)
        if self.refuse(x):
            raise ValueError("does not like it")
        self.sizes.append(len(x))
        self.threads.add(threading.current_thread().name)
        if x.shape[1] != 3:
            return {"y": 2 * x}
        np.multiply(x, 2, out=self.buffer[: len(x)])  # an engine that reuses its output
        return {"y": self.buffer[: len(x)]}


def served(predict: Any, **changes: Any) -> ServedModel:
    fields: dict[str, Any] = {"inputs": (TensorSpec("x", "FP32", ANY),), "outputs": (TensorSpec("y", "FP32", ANY),)}
    return ServedModel(name="m", predict=predict, **{**fields, **changes})


def batcher(model: Model, **changes: Any) -> Batcher:
    fields: dict[str, Any] = {"max_queue_delay_s": 0.0, "max_queue_rows": 100, "queue_timeout_s": 5.0}
    return Batcher(served(model.predict, max_batch=8), SystemClock(), **{**fields, **changes})


def rows(n: int, value: float, width: int = 3) -> dict[str, Array]:
    return {"x": np.full((n, width), value, np.float32)}


class Callers:
    """Requests from threads of their own, in the order given."""

    def __init__(self, it: Batcher) -> None:
        self._it = it
        self._threads: list[threading.Thread] = []
        self.results: dict[int, Array | Exception] = {}

    def ask(self, inputs: dict[str, Array]) -> None:
        number = len(self._threads)

        def run() -> None:
            try:
                self.results[number] = self._it.run(inputs)["y"]
            except Exception as error:
                self.results[number] = error

        self._threads.append(threading.Thread(target=run, name=f"caller {number}"))
        before = len(self._it._queue)
        self._threads[-1].start()
        for _ in range(500):  # until it waits, so that the order is certain; the first one runs at once
            if len(self._it._queue) > before or number in self.results or number == 0:
                return
            time.sleep(0.002)
        raise AssertionError("the request did not queue")

    def join(self) -> dict[int, Array | Exception]:
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()
        return self.results


def held(model: Model, it: Batcher) -> Callers:
    """Callers behind a first one that occupies the model until `model.go` is set."""
    model.go.clear()
    callers = Callers(it)
    callers.ask(rows(1, 0.5))
    assert model.entered.wait(5)
    return callers


def test_a_lone_request_runs_in_its_own_thread_at_once() -> None:
    model = Model()
    it = batcher(model)
    assert it.run(rows(2, 3))["y"].tolist() == [[6] * 3] * 2
    assert model.threads == {threading.current_thread().name}
    assert (it.batches, it.rows, it.failures) == (1, 2, 0)


def test_requests_that_wait_go_together_and_come_back_to_their_callers() -> None:
    model = Model()
    it = batcher(model)
    callers = held(model, it)
    for n, value in ((2, 1), (1, 2), (3, 3)):
        callers.ask(rows(n, value))
    model.go.set()
    results = callers.join()
    assert model.sizes == [1, 6]
    assert [np.asarray(results[i]).tolist() for i in range(4)] == [[[1] * 3], [[2] * 3] * 2, [[4] * 3], [[6] * 3] * 3]


def test_results_do_not_change_when_the_model_reuses_its_buffer() -> None:
    model = Model()
    it = batcher(model)
    first = it.run(rows(1, 1))["y"]
    it.run(rows(1, 5))
    assert first.tolist() == [[2] * 3]


def test_batches_are_bounded_and_in_order() -> None:
    model = Model()
    it = batcher(model)
    callers = held(model, it)
    for n in (5, 4, 1, 8):
        callers.ask(rows(n, n))
    model.go.set()
    callers.join()
    assert model.sizes == [1, 5, 5, 8]


def test_other_shapes_wait_for_a_batch_of_their_own() -> None:
    model = Model()
    it = batcher(model)
    callers = held(model, it)
    for n, width in ((1, 3), (1, 4), (2, 3), (2, 4)):
        callers.ask(rows(n, 1, width))
    model.go.set()
    results = callers.join()
    assert model.sizes == [1, 3, 3]
    assert [np.shape(results[i]) for i in range(1, 5)] == [(1, 3), (1, 4), (2, 3), (2, 4)]  # type: ignore[arg-type]


def test_a_leader_waits_for_company_but_not_once_the_batch_is_full() -> None:
    model = Model()
    it = batcher(model, max_queue_delay_s=0.15)
    begin = time.monotonic()
    it.run(rows(1, 1))
    assert 0.15 <= time.monotonic() - begin < 1
    it = batcher(model, max_queue_delay_s=30.0)
    callers = Callers(it)
    begin = time.monotonic()
    for n in (3, 3, 2):
        callers.ask(rows(n, n))
    callers.join()
    assert time.monotonic() - begin < 10
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
        it.run(rows(2, 1))
    assert (caught.value.status, caught.value.retry) == (503, True)
    model.go.set()
    callers.join()
    assert it.run(rows(8, 1))["y"].shape == (8, 3)  # larger than the queue, but nobody waits


def test_a_wait_that_is_too_long_is_given_up_and_leaves_the_queue() -> None:
    model = Model()
    it = batcher(model, queue_timeout_s=0.1)
    callers = held(model, it)
    with pytest.raises(Refused, match="did not answer") as caught:
        it.run(rows(2, 1))
    assert (caught.value.status, caught.value.retry) == (503, True)
    assert it._queued_rows == 0
    model.go.set()
    callers.join()
    assert it.run(rows(1, 1))["y"].tolist() == [[2] * 3]


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"y": np.zeros((1, 3), np.float32)},
        {"y": np.zeros((2, 3))},
        {"y": np.zeros((2,), np.float32)},
    ],
)
def test_a_model_that_breaks_its_word_is_a_server_error(answer: dict[str, Array]) -> None:
    it = Batcher(served(lambda _: answer), SystemClock(), max_queue_delay_s=0, max_queue_rows=9, queue_timeout_s=1)
    with pytest.raises(Refused, match="of output 'y'") as caught:
        it.run(rows(2, 1))
    assert caught.value.status == 500


def test_a_model_may_refuse_its_input() -> None:
    def refuse(_: dict[str, Array]) -> dict[str, Array]:
        raise InputError("range", "too loud")

    it = Batcher(served(refuse), SystemClock(), max_queue_delay_s=0, max_queue_rows=9, queue_timeout_s=1)
    with pytest.raises(InputError, match="too loud"):
        it.run(rows(1, 1))


@pytest.mark.parametrize("delay", [0.0, 0.002])
def test_under_load_everybody_gets_their_own_answer(delay: float) -> None:
    model = Model()
    it = batcher(model, max_queue_delay_s=delay)
    wrong: list[Any] = []

    def caller(seed: int) -> None:
        rng = np.random.default_rng(seed)
        for _ in range(60):
            x = rng.normal(size=(int(rng.integers(1, 9)), int(rng.integers(3, 5)))).astype(np.float32)
            if not np.array_equal(it.run({"x": x})["y"], 2 * x):
                wrong.append(x)

    threads = [threading.Thread(target=caller, args=(seed,)) for seed in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    assert wrong == []
    assert it.rows == sum(model.sizes)
    assert max(model.sizes) <= 8
    assert not it._queue
    assert it._queued_rows == 0
    assert it._leader is None


def test_models_without_a_batch_axis_are_refused() -> None:
    for changes in (
        {"inputs": (TensorSpec("x", "FP32", (1, 3)),)},
        {"outputs": (TensorSpec("y", "FP32", ()),)},
        {"inputs": ()},
        {"max_batch": 0},
        {"version": ""},
    ):
        with pytest.raises(ValueError, match="model 'm'"):
            served(Model().predict, **changes)
