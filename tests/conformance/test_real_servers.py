"""Our client against real servers of the Open Inference Protocol: one suite, four servers, two transports.

Runs with ``python -m pytest tests/conformance``; servers whose environment is missing are skipped with the command that
makes it.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from edge_runtime.base.oip import Array, OipTensor
from edge_runtime.base.system.retry import BreakerState, CircuitBreaker, Retry
from edge_runtime.clock import SimulatedClock
from edge_runtime.cloud.client import CloudClient
from edge_runtime.cloud.config import CloudConfig
from edge_runtime.cloud.connect import connect
from edge_runtime.cloud.http import HttpClient
from edge_runtime.errors import CloudError, CloudRejected, CloudUnavailable, ConfigError
from tests.conformance.conftest import RealServer
from tests.conformance.servers import known_models as known

pytestmark = pytest.mark.slow

WINDOW = OipTensor("window", "FP32", (-1, known.CHANNELS, known.SAMPLES))
SPEAKS_BINARY = {"edge-runtime": "binary", "triton": "binary", "kserve": "binary", "mlserver": "json"}

Connect = Callable[..., CloudClient]


@pytest.fixture(params=["http", "http-json"])
def client(request: pytest.FixtureRequest, real_server: RealServer) -> Iterator[Connect]:
    """Makes clients of one transport."""
    with ExitStack() as stack:

        def make(model: str = known.LINEAR, **changes: Any) -> CloudClient:
            fields: dict[str, Any] = {"binary": "never" if request.param == "http-json" else "auto", **changes}
            return stack.enter_context(connect(CloudConfig(url=real_server.http, model=model, **fields)))

        yield make


def windows(n: int, seed: int = 0) -> Array:
    shape = (n, known.CHANNELS, known.SAMPLES)
    return np.random.default_rng(seed).normal(size=shape).astype(np.float32)


def check_scores(got: Array, batch: Array) -> None:
    assert got.dtype == np.float32
    np.testing.assert_allclose(got, known.linear(batch), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("n", [1, 4, 32])
def test_a_batch_is_answered_as_one(client: Connect, n: int) -> None:
    check_scores(client().infer({"window": windows(n)}, request_id="case-1")["scores"], windows(n))


def test_outputs_can_be_named(client: Connect) -> None:
    outputs = client().infer({"window": windows(3)}, request_id="case-2", outputs=["scores"])
    check_scores(outputs["scores"], windows(3))


def test_ready_and_metadata(client: Connect) -> None:
    it = client()
    assert it.ready()
    metadata = it.metadata()
    assert metadata.name == known.LINEAR
    assert metadata.inputs == (WINDOW,)
    assert metadata.outputs == (OipTensor("scores", "FP32", (-1, known.CLASSES)),)
    assert metadata.batched
    check_scores(it.infer({"window": windows(2)}, request_id="1")["scores"], windows(2))  # now held against it


def test_the_window_is_checked_before_the_first_case(client: Connect) -> None:
    client().check([WINDOW], ["scores"])
    for wrong in ((-1, known.CHANNELS, known.SAMPLES + 1), (-1, known.SAMPLES)):
        with pytest.raises(ConfigError):
            client().check([OipTensor("window", "FP32", wrong)])
    with pytest.raises(ConfigError):
        client().check([OipTensor("window", "INT8", WINDOW.shape)])


def test_every_type_comes_back(client: Connect) -> None:
    rng = np.random.default_rng(3)
    inputs: dict[str, Array] = {}
    for name, dtype in known.TYPED.items():
        values = rng.normal(size=(2, 3)) if name == "FP64" else rng.integers(0, 2 if name == "BOOL" else 100, (2, 3))
        inputs[f"in_{name}"] = values.astype(dtype)
    inputs["in_INT64"][0, 0] = -(2**62) - 1  # more than a double can hold
    outputs = client(known.TYPES).infer(inputs, request_id="case-3")
    for name in known.TYPED:
        assert outputs[f"out_{name}"].dtype == inputs[f"in_{name}"].dtype, name
        assert np.array_equal(outputs[f"out_{name}"], inputs[f"in_{name}"]), name


def test_an_unknown_model_is_rejected_and_not_ready(client: Connect) -> None:
    it = client("nobody")
    assert not it.ready()
    with pytest.raises(CloudRejected):
        it.metadata()
    with pytest.raises(CloudRejected):
        it.infer({"window": windows(1)}, request_id="1")


def test_a_model_that_fails_is_a_cloud_error_of_one_line_and_goes_on(client: Connect) -> None:
    it = client()
    bad = windows(1)
    bad[0, 0, 0] = known.BAD_SAMPLE
    with pytest.raises(CloudError) as caught:
        it.infer({"window": bad}, request_id="1")
    assert "\n" not in str(caught.value)
    check_scores(it.infer({"window": windows(1)}, request_id="2")["scores"], windows(1))


def test_wrong_inputs_are_cloud_errors(client: Connect) -> None:
    for inputs in (
        {"window": windows(1)[:, :, :-1]},
        {"window": windows(1)[:, 0]},
        {"window": np.zeros((0, known.CHANNELS, known.SAMPLES), np.float32)},
    ):
        with pytest.raises(CloudError):
            client().infer(inputs, request_id="1")


def test_a_large_batch_of_requests_from_threads(client: Connect) -> None:
    it = client()
    failures: list[Any] = []

    def ask(seed: int) -> None:
        for i in range(10):
            try:
                check_scores(
                    it.infer({"window": windows(8, seed)}, request_id=f"{seed}-{i}")["scores"], windows(8, seed)
                )
            except (AssertionError, CloudError) as error:
                failures.append(error)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_the_format_is_found_out_once(real_server: RealServer) -> None:
    with connect(CloudConfig(url=real_server.http, model=known.LINEAR)) as it:
        assert isinstance(it, HttpClient)
        for _ in range(3):
            check_scores(it.infer({"window": windows(2)}, request_id="1")["scores"], windows(2))
            assert it.format == SPEAKS_BINARY[real_server.name]
        assert len(it._connections._idle) == 1  # one connection did it all


def test_compressed_requests(real_server: RealServer) -> None:
    binary = "never" if real_server.name == "mlserver" else "auto"
    config = CloudConfig(url=real_server.http, model=known.LINEAR, gzip=True, binary=binary)  # type: ignore[arg-type]
    with connect(config) as it:
        if real_server.name == "kserve":  # has no request compression; what matters is that the refusal is readable
            with pytest.raises(CloudError):
                it.infer({"window": windows(2)}, request_id="1")
        else:
            check_scores(it.infer({"window": windows(2)}, request_id="1")["scores"], windows(2))


def test_the_breaker_closes_on_the_servers_own_word(client: Connect) -> None:
    it, clock = client(), SimulatedClock()
    breaker = CircuitBreaker(threshold=1, retry=Retry(), clock=clock, probe=it.ready, rng=random.Random(1))
    assert breaker.allow()
    with pytest.raises(CloudUnavailable):
        it.infer({"window": windows(1)}, request_id="1", deadline_s=1e-6)
    breaker.failure()
    assert not breaker.allow()
    clock.advance(breaker.wait_s())
    assert breaker.allow()
    check_scores(it.infer({"window": windows(1)}, request_id="1")["scores"], windows(1))
    breaker.success()
    assert breaker.state is BreakerState.CLOSED
