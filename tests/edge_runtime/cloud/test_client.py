from __future__ import annotations

import functools
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_runtime import schema
from edge_runtime.base.oip import WIRE_DTYPES, Array, InferResponse, OipTensor
from edge_runtime.clock import SimulatedClock
from edge_runtime.cloud.client import CloudClient, ModelMetadata
from edge_runtime.cloud.config import CloudConfig
from edge_runtime.cloud.connect import connect
from edge_runtime.errors import CloudRejected, CloudUnavailable, ConfigError, InputError
from edge_runtime.operate.server.server import ServeConfig, Server
from tests.oip_servers import CLASSES, WINDOW, Moody, echo_model, linear_model, scores, windows

TRANSPORTS = ["http-binary", "http-json", "http-gzip"]


@dataclass
class Endpoint:
    """A server with the models "linear", "moody" and one "echo_..." per datatype, and clients of one transport."""

    transport: str
    url: str
    moody: Moody
    stack: ExitStack = field(default_factory=ExitStack)

    def client(self, model: str = "linear", **changes: Any) -> CloudClient:
        form = {"http-binary": "always", "http-json": "never", "http-gzip": "auto"}[self.transport]
        fields = {
            "url": self.url,
            "model": model,
            "binary": form,
            "gzip": self.transport == "http-gzip",
            "timeout_s": 5.0,
            **changes,
        }
        return self.stack.enter_context(connect(CloudConfig(**fields)))


@pytest.fixture(scope="module", params=TRANSPORTS)
def server(request: pytest.FixtureRequest) -> Iterator[Endpoint]:
    moody = Moody()
    models = {
        model.name: model for model in (linear_model(), moody.model(), *(echo_model(name) for name in WIRE_DTYPES))
    }
    with ExitStack() as stack:
        url = stack.enter_context(Server(models, ServeConfig(port=0, drain_s=0.2))).url
        yield Endpoint(request.param, url, moody)


@pytest.fixture
def endpoint(server: Endpoint) -> Iterator[Endpoint]:
    server.moody.behave = scores
    with server.stack:
        yield server
    server.stack = ExitStack()


# -- the same for every transport --------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 5, 32])
def test_a_batch_goes_as_one_request_and_comes_back_in_order(endpoint: Endpoint, n: int) -> None:
    batch = windows(n)
    outputs = endpoint.client().infer({"window": batch}, request_id="case-7")
    assert sorted(outputs) == ["label", "scores"]
    np.testing.assert_allclose(outputs["scores"], scores(batch), rtol=1e-6)
    assert outputs["scores"].dtype == np.float32
    assert outputs["label"].tolist() == scores(batch).argmax(1).tolist()
    assert outputs["scores"].flags.writeable


def test_only_the_outputs_asked_for_come_back(endpoint: Endpoint) -> None:
    outputs = endpoint.client().infer({"window": windows(2)}, request_id="1", outputs=["label"])
    assert list(outputs) == ["label"]


@pytest.mark.parametrize("datatype", sorted(WIRE_DTYPES))
def test_every_datatype_survives_the_way_there_and_back(endpoint: Endpoint, datatype: str) -> None:
    wire = WIRE_DTYPES[datatype]
    rng = np.random.default_rng(7)
    array: Array
    if datatype == "BYTES":
        array = np.array([[b"a", b""], ["ä".encode(), b"long" * 100]], dtype=object)
    elif wire.kind == "f":
        array = rng.normal(size=(3, 4)).astype(wire)
    elif wire.kind == "b":
        array = rng.random((3, 4)) > 0.5
    else:
        limits = np.iinfo(wire)
        array = np.array([[limits.min, limits.max, 0, 1]], dtype=wire)
    got = endpoint.client(f"echo_{datatype}").infer({"x": array}, request_id="1")["y"]
    assert got.tolist() == array.tolist()
    assert got.dtype == array.dtype


def test_a_large_batch_passes(endpoint: Endpoint) -> None:
    array = np.random.default_rng(1).normal(size=(1000, 300)).astype(np.float32)
    got = endpoint.client("echo_FP32").infer({"x": array}, request_id="1")["y"]
    assert np.array_equal(got, array)


def test_metadata_tells_names_types_and_shapes(endpoint: Endpoint) -> None:
    metadata = endpoint.client().metadata()
    assert metadata.name == "linear"
    assert metadata.versions == ("1",)
    assert metadata.inputs == (WINDOW,)
    assert OipTensor("label", "INT64", (-1,)) in metadata.outputs
    assert metadata.batched


def test_check_passes_what_fits_and_says_what_does_not_in_one_line(endpoint: Endpoint) -> None:
    client = endpoint.client()
    client.check([WINDOW], ["scores"])
    for inputs, outputs, complaint in (
        ([OipTensor("window", "FP32", (-1, 3, 9))], [], r"takes 'window' FP32 \[-1, 3, 8\], but .*\[-1, 3, 9\]"),
        ([OipTensor("window", "FP64", (-1, 3, 8))], [], "FP64"),
        ([OipTensor("windows", "FP32", (-1, 3, 8))], [], "no input 'windows'; it takes 'window'"),
        ([], [], "also needs input 'window'"),
        ([WINDOW], ["logits"], "no output 'logits'; it gives label, scores"),
    ):
        with pytest.raises(ConfigError, match=complaint) as caught:
            client.check(inputs, outputs)
        assert "\n" not in str(caught.value)


def test_ready_is_the_models_own_word(endpoint: Endpoint) -> None:
    assert endpoint.client().ready()
    assert endpoint.client().warm_up()
    assert not endpoint.client("nobody").ready()


def test_an_unknown_model_or_version_is_rejected(endpoint: Endpoint) -> None:
    for client in (endpoint.client("nobody"), endpoint.client(version="9")):
        with pytest.raises(CloudRejected) as caught:
            client.infer({"window": windows(1)}, request_id="1")
        assert caught.value.status in (404, 5)
        with pytest.raises(CloudRejected):
            client.metadata()


def test_a_model_that_fails_is_unavailable_and_works_again(endpoint: Endpoint) -> None:
    def fail(_: Array) -> Array:
        raise RuntimeError("out of memory\non the accelerator")

    client = endpoint.client("moody")
    endpoint.moody.behave = fail
    with pytest.raises(CloudUnavailable, match="out of memory on the accelerator") as caught:
        client.infer({"window": windows(1)}, request_id="1")
    assert "\n" not in str(caught.value)
    endpoint.moody.behave = scores
    assert client.infer({"window": windows(1)}, request_id="1")["scores"].shape == (1, CLASSES)


def test_an_input_the_model_refuses_is_rejected(endpoint: Endpoint) -> None:
    def refuse(_: Array) -> Array:
        raise InputError("range", "beyond the sensor's range")

    endpoint.moody.behave = refuse
    with pytest.raises(CloudRejected, match="beyond the sensor's range") as caught:
        endpoint.client("moody").infer({"window": windows(1)}, request_id="1")
    assert caught.value.status in (400, 3)


def test_a_slow_model_is_unavailable_at_the_deadline(endpoint: Endpoint) -> None:
    released = threading.Event()

    def dawdle(x: Array) -> Array:
        released.wait(30)
        return scores(x)

    endpoint.moody.behave = dawdle
    client = endpoint.client("moody")
    begin = time.monotonic()
    with pytest.raises(CloudUnavailable):
        client.infer({"window": windows(1)}, request_id="1", deadline_s=0.2)
    assert time.monotonic() - begin < 20
    released.set()
    with pytest.raises(CloudUnavailable):
        client.infer({"window": windows(1)}, request_id="1", deadline_s=-1.0)
    assert client.infer({"window": windows(1)}, request_id="2")["scores"].shape == (1, CLASSES)


def filled(value: float, batch: Array) -> Array:
    return np.full((len(batch), 2), value, np.float32)


def test_answers_that_nobody_can_act_on_are_never_returned(endpoint: Endpoint) -> None:
    client = endpoint.client("moody")
    for value in (np.nan, np.inf):
        endpoint.moody.behave = functools.partial(filled, value)
        with pytest.raises((CloudRejected, CloudUnavailable), match="NaN"):  # JSON cannot even carry it: status 500
            client.infer({"window": windows(1)}, request_id="1")


def test_answers_are_held_against_the_metadata(endpoint: Endpoint) -> None:
    known = ModelMetadata(name="moody", outputs=(OipTensor("scores", "FP32", (-1, CLASSES)),))
    client = endpoint.client("moody")
    client._known = known
    endpoint.moody.behave = lambda x: np.zeros((len(x), CLASSES + 1), np.float32)
    with pytest.raises(CloudRejected, match=r"\(1, 5\)"):
        client.infer({"window": windows(1)}, request_id="1")


def test_an_output_that_is_not_there_is_rejected(endpoint: Endpoint) -> None:
    with pytest.raises(CloudRejected, match="logits"):
        endpoint.client().infer({"window": windows(1)}, request_id="1", outputs=["logits"])


def test_an_answer_over_the_limit_is_rejected(endpoint: Endpoint) -> None:
    client = endpoint.client("echo_FP32", max_response_bytes=2000)
    with pytest.raises(CloudRejected):
        client.infer({"x": np.random.default_rng(1).random((10, 1000)).astype("f4")}, request_id="1")


def test_inputs_without_a_datatype_are_rejected_before_they_are_sent(endpoint: Endpoint) -> None:
    with pytest.raises(CloudRejected, match="complex64"):
        endpoint.client().infer({"window": np.zeros(1, np.complex64)}, request_id="1")


def test_threads_share_a_client(endpoint: Endpoint) -> None:
    client = endpoint.client()
    wrong: list[int] = []

    def ask(seed: int) -> None:
        batch = windows(3, seed)
        for i in range(10):
            got = client.infer({"window": batch}, request_id=f"{seed}-{i}")["scores"]
            if not np.allclose(got, scores(batch), rtol=1e-5):
                wrong.append(seed)

    threads = [threading.Thread(target=ask, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []


@pytest.fixture
def dead_port() -> Iterator[int]:
    """A port that is taken, so that nobody else can listen on it, and refuses connections."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        yield sock.getsockname()[1]


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_nobody_there_is_unavailable(scheme: str, dead_port: int) -> None:
    config = CloudConfig(url=f"{scheme}://127.0.0.1:{dead_port}", model="m", deadline_s=3)
    with connect(config) as client:
        assert not client.ready()
        assert not client.warm_up()
        for ask in (client.metadata, lambda: client.infer({"x": windows(1)}, request_id="1")):
            with pytest.raises(CloudUnavailable):
                ask()
        client.close()


# -- what they share ---------------------------------------------------------------------------------------------------


class FakeClient(CloudClient):
    """Answers without a network."""

    def __init__(self, answer: Callable[[], InferResponse], clock: SimulatedClock, **config: Any) -> None:
        super().__init__(CloudConfig(url="http://localhost", model="m", **config), clock)
        self._answer = answer
        self.asked = 0

    def ready(self) -> bool:
        self.asked += 1
        return self.asked > 20

    def close(self) -> None:
        pass

    def _fetch_metadata(self, deadline: float) -> ModelMetadata:
        return ModelMetadata(name="m")

    def _infer(self, *args: Any) -> InferResponse:
        return self._answer()


def test_warm_up_waits_as_long_as_told() -> None:
    clock = SimulatedClock()
    impatient = FakeClient(lambda: InferResponse(outputs={}), clock, warm_up_s=5.5)
    assert not impatient.warm_up()
    assert clock.monotonic() == 5.5
    assert FakeClient(lambda: InferResponse(outputs={}), SimulatedClock(), warm_up_s=60).warm_up()


@pytest.mark.parametrize(
    ("response", "complaint"),
    [
        (InferResponse(outputs={}), "without any output"),
        (InferResponse(outputs={"y": np.zeros((2, 3))}, id="other"), "id 'other'"),
        (InferResponse(outputs={"y": np.zeros((3, 3))}), r"shape \(3, 3\) to 2 windows"),
        (InferResponse(outputs={"y": np.zeros(())}), r"shape \(\) to 2 windows"),
        (InferResponse(outputs={"y": np.array([[1.0], [np.nan]])}), "NaN"),
    ],
)
def test_unusable_answers_are_rejected_whatever_the_transport(response: InferResponse, complaint: str) -> None:
    with pytest.raises(CloudRejected, match=complaint):
        FakeClient(lambda: response, SimulatedClock()).infer({"x": windows(2)}, request_id="1")


def test_a_server_that_states_no_inputs_passes_the_check() -> None:
    FakeClient(lambda: InferResponse(outputs={}), SimulatedClock()).check([WINDOW], ["scores"])


# -- configuration -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"url": "ftp://host"}, "schemes are http, https"),
        ({"url": "https://user:hunter2@cloud.example"}, "token_file"),
        ({"url": "http://host/?a=b"}, "query"),
        ({"url": "http://" + "a" * 70}, "host name"),
        ({"url": "grpc://host:8001"}, "gRPC is no longer spoken; write the same server's http"),
        ({"model": ""}, "model"),
        ({"version": ""}, "version"),
        ({"timeout_s": 0}, "timeout_s"),
        ({"deadline_s": -1}, "deadline_s"),
        ({"warm_up_s": -1}, "warm_up_s"),
        ({"max_response_bytes": 0}, "max_response_bytes"),
        ({"client_key_file": Path("key")}, "client_cert_file"),
        ({"ca_file": Path("ca")}, "not encrypted"),
        ({"headers": {"Authorization": "Bearer x"}}, "token_file"),
        ({"headers": {"content-length": "3"}}, "set by the client"),
        ({"header_files": {"X:": Path("x")}}, "not a header name"),
        ({"token_file": Path("token")}, "clear text"),
        ({"header_files": {"X-Key": Path("key")}}, "clear text"),
    ],
)
def test_configuration_that_makes_no_sense_is_refused(changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint) as caught:
        CloudConfig(**{"url": "http://cloud.example", "model": "m", **changes})
    assert "hunter2" not in str(caught.value)


def test_secrets_may_travel_encrypted_or_stay_on_the_machine() -> None:
    for url in ("https://cloud.example", "http://127.0.0.1:1", "http://[::1]:1"):
        CloudConfig(url=url, model="m", token_file=Path("token"))
    CloudConfig(url="http://gateway.lan", model="m", token_file=Path("token"), clear_text_credentials=True)


def test_urls_become_hosts_ports_and_paths() -> None:
    config = CloudConfig(url="https://cloud.example/base/", model="a b/c", version="2")
    assert (config.endpoint.host, config.endpoint.port, config.endpoint.encrypted) == ("cloud.example", 443, True)
    assert config.model_path == "/base/v2/models/a%20b%2Fc/versions/2"
    config = CloudConfig(url="http://[::1]", model="m")
    assert (config.endpoint.host, config.endpoint.port, config.endpoint.encrypted) == ("::1", 80, False)
    assert CloudConfig(url="http://h:8080", model="m").model_path == "/v2/models/m"


def test_the_configuration_loads_from_a_table() -> None:
    table = {"url": "https://h", "model": "m", "token_file": "t", "headers": {"X-Tenant": "7"}, "binary": "never"}
    config = schema.load(CloudConfig, table, base=Path("etc"))
    assert config.token_file == Path("etc/t")
    with pytest.raises(schema.SchemaError, match="clear text"):
        schema.load(CloudConfig, {**table, "url": "http://h"})


def test_missing_secret_files_are_found_before_anything_is_sent(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="token_file: cannot read"):
        connect(CloudConfig(url="https://h", model="m", token_file=tmp_path / "none"))
    with pytest.raises(ConfigError, match=r"header_files\.X-Key: cannot read"):
        connect(CloudConfig(url="https://h", model="m", header_files={"X-Key": tmp_path / "none"}))
    with pytest.raises(ConfigError, match="TLS: cannot use"):
        connect(CloudConfig(url="https://h", model="m", ca_file=Path()))
