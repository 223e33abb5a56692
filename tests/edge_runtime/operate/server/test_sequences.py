"""Sequences of a model with states, as a caller over HTTP sees them."""

from __future__ import annotations

import http.client
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import EngineError
from edge_runtime.model.engines.base import Engine
from edge_runtime.model.serving.loading import Model
from edge_runtime.operate.observe.exposition import render_server
from edge_runtime.operate.server.batcher import InSequence, ServedModel
from edge_runtime.operate.server.bundle_model import INPUT, served_model
from edge_runtime.operate.server.sequences import sequence_of
from edge_runtime.operate.server.server import ServeConfig, Server
from edge_runtime.operate.serving.answers import Refused
from tests.integration.running import load_model
from tests.stateful import CHANNELS, expected, stateful_bundle, stream


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    with load_model(stateful_bundle(tmp_path_factory.mktemp("stateful") / "leaky.edge"), "onnx-fp32") as loaded:
        yield loaded


def windows(samples: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(samples.reshape(-1, 4, CHANNELS).transpose(0, 2, 1))


class Caller:
    def __init__(self, url: str, address: str = "127.0.0.1") -> None:
        self._connection = http.client.HTTPConnection(
            url.removeprefix("http://"), timeout=30, source_address=(address, 0)
        )

    def close(self) -> None:
        self._connection.close()

    def get(self, path: str) -> dict[str, Any]:
        self._connection.request("GET", path)
        answer: dict[str, Any] = orjson.loads(self._connection.getresponse().read())
        return answer

    def infer(self, some: np.ndarray, **parameters: Any) -> tuple[int, dict[str, Any]]:
        """Status, and outputs by name or the error."""
        tensor = {"name": INPUT, "datatype": "FP32", "shape": some.shape, "data": some.ravel().tolist()}
        body = orjson.dumps({"inputs": [tensor], "parameters": parameters})
        self._connection.request("POST", "/v2/models/leaky/infer", body)
        response = self._connection.getresponse()
        answer = orjson.loads(response.read())
        if "outputs" not in answer:
            return response.status, answer
        return response.status, {one["name"]: np.array(one["data"]).reshape(one["shape"]) for one in answer["outputs"]}


@pytest.fixture
def caller(model: Model) -> Iterator[Caller]:
    with Server({"leaky": served_model(model, 8)}, ServeConfig(port=0)) as server, closing(Caller(server.url)) as found:
        yield found


def test_steps_of_two_sequences_do_not_touch_each_other(caller: Caller) -> None:
    """One with a number, one with a text; as many steps a request as its caller likes."""
    streams = {7: stream(6), "seven": stream(6, seed=1)}
    found: dict[object, list[np.ndarray]] = {7: [], "seven": []}
    for at, n in ((0, 1), (1, 3), (4, 2)):
        for name, samples in streams.items():
            status, answer = caller.infer(
                windows(samples)[at : at + n], sequence_id=name, sequence_start=at == 0, sequence_end=at == 4
            )
            assert status == 200, answer
            assert answer["answered"].tolist() == [at + k > 0 for k in range(n)]
            assert not answer["probabilities"][~answer["answered"].astype(bool)].any()
            found[name] += list(answer["probabilities"][answer["answered"].astype(bool)])
    for name, samples in streams.items():
        assert np.allclose(found[name], expected(samples), atol=1e-6)
    status, answer = caller.infer(windows(stream(1)), sequence_id=7)
    assert status == 400
    assert "sequence '7' is not under way" in answer["error"]


def test_metadata_names_the_extension_and_the_output_that_says_what_has_an_answer(caller: Caller) -> None:
    assert {"sequence", "sequence(string_id)"} <= set(caller.get("/v2")["extensions"])
    outputs = caller.get("/v2/models/leaky")["outputs"]
    assert {"name": "answered", "datatype": "BOOL", "shape": [-1]} in outputs


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({}, 'send the parameters "sequence_id"'),
        ({"sequence_id": 0, "sequence_start": True}, 'send the parameters "sequence_id"'),
        ({"sequence_id": "", "sequence_start": True}, 'send the parameters "sequence_id"'),
        ({"sequence_id": -1, "sequence_start": True}, "a number of 64 bits, or a text"),
        ({"sequence_id": 1.5, "sequence_start": True}, "a number of 64 bits, or a text"),
        ({"sequence_id": True, "sequence_start": True}, "a number of 64 bits, or a text"),
        ({"sequence_id": "a" * 257, "sequence_start": True}, "at most 256 characters"),
        ({"sequence_id": 3, "sequence_start": 1}, "must be true or false"),
        ({"sequence_id": 3}, '"sequence_start": true'),
    ],
)
def test_a_request_that_names_no_sequence_is_refused_with_what_to_send(
    caller: Caller, parameters: dict[str, Any], message: str
) -> None:
    status, answer = caller.infer(windows(stream(1)), **parameters)
    assert status == 400
    assert message in answer["error"]


def step(served: ServedModel, some: np.ndarray, *calls: tuple[InSequence, int]) -> np.ndarray:
    assert served.step is not None
    return served.step({INPUT: some}, calls)["probabilities"].copy()


def test_an_idle_sequence_is_forgotten(model: Model) -> None:
    clock = SimulatedClock()
    served = served_model(model, 8, clock=clock, max_sequences=2, idle_s=10.0)
    one = windows(stream(1))
    for name in (1, 2):
        step(served, one, (InSequence(name, True, False), 1))
    clock.advance(9.0)
    step(served, one, (InSequence(1, False, False), 1))
    clock.advance(2.0)
    with pytest.raises(Refused, match="was idle for more than 10 s"):
        step(served, one, (InSequence(2, False, False), 1))
    step(served, one, (InSequence(1, False, True), 1))
    assert model.states is not None
    assert (len(model.states), served.evicted()) == (0, 0)


@settings(max_examples=50, deadline=None)
@given(
    calls=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 40)), min_size=1, max_size=80),
    together=st.integers(1, 4),
)
def test_an_address_that_has_no_more_than_its_share_loses_no_sequence(
    model: Model, calls: list[tuple[int, int]], together: int
) -> None:
    """Addresses 1 to 3 have two sequences each at most, address 0 floods; eight are allowed."""
    served = served_model(model, 8, max_sequences=8)
    one = windows(stream(1))
    begun: set[int] = set()
    for at in range(0, len(calls), together):
        batch: dict[int, InSequence] = {}
        for peer, number in calls[at : at + together]:
            name = 1000 * peer + (number % 2 if peer else number) + 1
            batch[name] = InSequence(name, not peer or name not in begun, False, str(peer))
        step(served, np.concatenate([one] * len(batch)), *((sequence, 1) for sequence in batch.values()))
        begun |= batch.keys()
        assert model.states is not None
        assert len(model.states) <= 8


def test_a_flood_that_never_ends_locks_no_other_caller_out(model: Model) -> None:
    served = served_model(model, 8, max_sequences=100)
    one = windows(stream(1))
    honest = [InSequence(f"honest-{i}", True, False, "10.0.0.7") for i in range(5)]
    for sequence in honest:
        step(served, one, (sequence, 1))
    for name in range(1, 1001):
        step(served, one, (InSequence(name, True, False, "10.0.0.66"), 1))
    for sequence in honest:
        step(served, one, (sequence._replace(start=False), 1))
    step(served, one, (InSequence("late", True, False, "10.0.0.8"), 1))
    assert served.evicted() == 1006 - 100
    with pytest.raises(Refused, match="was ended to make room for a new one, since more than 100") as refused:
        step(served, one, (InSequence(905, False, False, "10.0.0.66"), 1))
    assert refused.value.status == 400
    with pytest.raises(Refused, match="is not under way"):  # as many are remembered as may be open
        step(served, one, (InSequence(1, False, False, "10.0.0.66"), 1))
    assert model.states is not None
    assert len(model.states) == 100


def test_a_flood_behind_a_proxy_ends_no_sequence_that_goes_on(model: Model) -> None:
    served = served_model(model, 8, max_sequences=20)
    one = windows(stream(1))
    honest = InSequence("honest", True, False, "10.0.0.7")
    step(served, one, (honest, 1))
    for name in range(1, 101):
        if name % 50 == 2:
            step(served, one, (honest._replace(start=False), 1))
        step(served, one, (InSequence(name, True, False, "10.0.0.7"), 1))
    step(served, one, (honest._replace(start=False), 1))
    assert served.evicted() == 81


def test_over_http_a_flood_of_one_address_is_counted_and_ends_its_own(model: Model) -> None:
    server = Server({"leaky": served_model(model, 8, max_sequences=20)}, ServeConfig(port=0))
    one = windows(stream(1))
    with server, closing(Caller(server.url)) as honest, closing(Caller(server.url, "127.0.0.2")) as flood:
        assert honest.infer(one, sequence_id="mine", sequence_start=True)[0] == 200
        assert {flood.infer(one, sequence_id=n, sequence_start=True)[0] for n in range(1, 101)} == {200}
        assert honest.infer(one, sequence_id="mine")[0] == 200
        assert honest.infer(one, sequence_id="another", sequence_start=True)[0] == 200
        status, answer = flood.infer(one, sequence_id=82)
        assert (status, "was ended to make room" in answer["error"]) == (400, True)
        assert b"edge_serve_sequences_evicted_total 82\n" in render_server(server.stats(), openmetrics=False)


class Failing:
    """An engine that answers a call and fails at the next ones."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.name, self.inputs, self.outputs = engine.name, engine.inputs, engine.outputs
        self.calls = 0

    def run(self, *arrays: np.ndarray) -> tuple[np.ndarray, ...]:
        self.calls += 1
        if self.calls > 1:
            raise EngineError("it went away")
        return self.engine.run(*arrays)

    def close(self) -> None:
        self.engine.close()


@settings(max_examples=50)
@given(
    requests=st.lists(
        st.tuples(st.integers(0, 2), st.integers(1, 3), st.booleans(), st.booleans()), min_size=1, max_size=25
    ),
    together=st.integers(1, 5),
    fails=st.sets(st.integers(0, 24)),
)
def test_requests_that_share_a_call_are_answered_as_those_of_one_caller_each(
    model: Model, requests: list[tuple[int, int, bool, bool]], together: int, fails: set[int]
) -> None:
    """A sequence may end, and begin again, within a call. A call that fails moves no sequence."""
    served = served_model(model, 8)
    samples = windows(stream(100))
    at = 0
    history: dict[int, list[np.ndarray]] = {}
    batch: list[tuple[InSequence, int]] = []
    wanted: list[np.ndarray] = []
    some: list[np.ndarray] = []
    for number, (name, steps, start, end) in enumerate(requests):
        begins = start or name not in history
        new = samples[at : at + steps]
        at += steps
        past = [] if begins else history[name]
        whole = np.concatenate([*past, new]).transpose(0, 2, 1).reshape(-1, CHANNELS)
        rows = np.concatenate((np.zeros((1, 3), "f4"), expected(whole)))
        wanted.append(rows[-steps:])
        history[name] = [*past, new]
        if end:
            del history[name]
        batch.append((InSequence(name + 1, begins, end), steps))
        some.append(new)
        if len(batch) == together or number == len(requests) - 1:
            if number in fails and max(steps for _, steps in batch) > 1:
                engine, model.engine = model.engine, Failing(model.engine)
                with pytest.raises(EngineError):
                    step(served, np.concatenate(some), *batch)
                model.engine = engine
            found = step(served, np.concatenate(some), *batch)
            assert np.allclose(found, np.concatenate(wanted), atol=1e-6)
            batch, some, wanted = [], [], []


def test_the_largest_number_is_one_of_64_bits() -> None:
    assert sequence_of({"sequence_id": 2**64 - 1, "sequence_end": True}, "m") == InSequence(2**64 - 1, False, True)
    with pytest.raises(Refused):
        sequence_of({"sequence_id": 2**64}, "m")
