"""What is particular to gRPC; the rest is in the contract of test_cloud.py."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_runtime.cloud import grpc as cloud_grpc
from edge_runtime.cloud.client import CloudClient
from edge_runtime.cloud.config import CloudConfig
from edge_runtime.cloud.connect import connect
from edge_runtime.errors import CloudRejected, CloudUnavailable, ConfigError
from tests.oip_servers import (
    CLASSES,
    Certificates,
    GrpcServer,
    Moody,
    echo_model,
    linear_model,
    make_certificates,
    scores,
    windows,
)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)  # makes the import fail
    with pytest.raises(ConfigError, match=r"edge-runtime\[grpc\]"):
        connect(CloudConfig(url="grpc://localhost:1", model="m"))


grpc = pytest.importorskip("grpc", reason='needs grpcio: pip install "edge-runtime[grpc]"')


@pytest.fixture
def moody() -> Moody:
    return Moody()


@pytest.fixture
def server(moody: Moody) -> Iterator[GrpcServer]:
    models = (linear_model(), moody.model(), *(echo_model(name) for name in ("INT8", "FP16", "INT64")))
    with GrpcServer({model.name: model for model in models}) as server:
        yield server


def client(url: str, model: str = "linear", **changes: Any) -> CloudClient:
    return connect(CloudConfig(url=url, model=model, **changes))


def ask(it: CloudClient, **changes: Any) -> Any:
    return it.infer({"window": windows(1)}, request_id="one", **changes)


def test_the_messages_are_those_of_the_protocol() -> None:
    made = cloud_grpc.messages()
    request = made.ModelInferRequest(model_name="m", model_version="2", id="7", raw_input_contents=[b"\1\2"])
    request.parameters["priority"].int64_param = 3
    request.inputs.add(name="x", datatype="FP32", shape=[1, -1])
    # Written out by hand from the .proto: tag = field << 3 | wire type.
    assert request.SerializeToString() == (
        b"\x0a\x01m" + b"\x12\x012" + b"\x1a\x017"
        b"\x22\x0e" + b"\x0a\x08priority" + b"\x12\x02\x10\x03"
        b"\x2a\x16" + b"\x0a\x01x" + b"\x12\x04FP32" + b"\x1a\x0b\x01" + b"\xff" * 9 + b"\x01"
        b"\x3a\x02\x01\x02"
    )  # fmt: skip
    answer = made.ModelInferResponse.FromString(b"\x1a\x017\x2a\x0e\x0a\x01y\x12\x04FP32\x1a\x01\x012\x00\x32\x04abcd")
    assert answer.id == "7"
    assert (answer.outputs[0].name, list(answer.outputs[0].shape)) == ("y", [1])
    assert list(answer.raw_output_contents) == [b"abcd"]


def test_typed_lists_are_read_like_raw_bytes(server: GrpcServer) -> None:
    server.raw = False
    with client(server.url) as it:
        outputs = ask(it)
    np.testing.assert_allclose(outputs["scores"], scores(windows(1)), rtol=1e-6)
    assert outputs["label"].dtype == np.int64
    values = np.array([[-128, 127]], np.int8)
    with client(server.url, "echo_INT8") as it:
        assert it.infer({"x": values}, request_id="1")["y"].tolist() == values.tolist()


def infer_answer(**fields: Any) -> bytes:
    data: bytes = cloud_grpc.messages().ModelInferResponse(id="one", **fields).SerializeToString()
    return data


def output(**changes: Any) -> Any:
    return cloud_grpc.messages().InferTensor(**{"name": "y", "datatype": "FP32", "shape": [1, 1], **changes})


def contents(**lists: Any) -> Any:
    return cloud_grpc.messages().InferTensorContents(**lists)


def test_unreadable_answers_are_rejected(server: GrpcServer) -> None:
    for garbage in (
        b"\xff" * 20,
        b"",
        infer_answer(outputs=[output()], raw_output_contents=[b"123"]),
        infer_answer(outputs=[output()], raw_output_contents=[b"1234", b"1234"]),
        infer_answer(outputs=[output(), output()], raw_output_contents=[b"1234", b"1234"]),
        infer_answer(outputs=[output(datatype="BF16")], raw_output_contents=[b"12"]),
        infer_answer(outputs=[output(shape=[-1])], raw_output_contents=[b"1234"]),
        infer_answer(outputs=[output(shape=[2**62, 4])], raw_output_contents=[b"1234"]),
        infer_answer(outputs=[output(contents=contents(fp32_contents=[1.0, 2.0]))]),
        infer_answer(outputs=[output(datatype="FP16", contents=contents(fp32_contents=[1.0]))]),
        infer_answer(outputs=[output(datatype="INT8", contents=contents(int_contents=[200]))]),
        infer_answer(outputs=[output(shape=[2, 1], contents=contents(fp32_contents=[1.0, 2.0]))]),
        infer_answer(outputs=[output(contents=contents(fp32_contents=[float("nan")]))]),
    ):
        server.garbage = garbage
        with client(server.url) as it, pytest.raises(CloudRejected) as caught:
            ask(it)
        assert "\n" not in str(caught.value)


def test_a_pushback_is_a_retry_after(server: GrpcServer, moody: Moody) -> None:
    def fail(_: Any) -> Any:
        raise RuntimeError("busy")

    moody.behave = fail
    for text, seconds in (("2500", 2.5), ("-1", None), ("soon", None)):
        server.pushback_ms = text
        with client(server.url, "moody") as it, pytest.raises(CloudUnavailable) as caught:
            ask(it)
        assert caught.value.retry_after_s == seconds


def test_an_answer_too_long_for_us_is_rejected_and_one_over_four_mebibytes_is_not(server: GrpcServer) -> None:
    large = np.zeros((1000, 1000), np.int64)
    with client(server.url, "echo_INT64") as it:
        assert it.infer({"x": large}, request_id="1")["y"].shape == (1000, 1000)
    with (
        client(server.url, "echo_INT64", max_response_bytes=1_000_000) as it,
        pytest.raises(CloudRejected, match="larger than max"),
    ):
        it.infer({"x": large}, request_id="1")


def test_parameters_keep_their_type(server: GrpcServer) -> None:
    with client(server.url) as it:
        ask(it, parameters={"priority": 1, "exact": True, "tag": "a", "weight": 0.5})
        with pytest.raises(CloudRejected, match="cannot be sent"):
            ask(it, parameters={"priority": 2**70})


def test_a_new_token_replaces_the_one_that_was_refused(server: GrpcServer, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("stale")
    server.token = "fresh"
    with client(server.url, token_file=token) as it:
        with pytest.raises(CloudUnavailable, match="check token_file") as caught:
            ask(it)
        assert "stale" not in str(caught.value)
        calls = server.calls
        token.write_text("fresh")
        assert ask(it)["scores"].shape == (1, CLASSES)
        assert server.calls == calls + 1
        stamp = token.stat()
        token.write_text("newer")
        server.token = "newer"
        os.utime(token, ns=(stamp.st_atime_ns, stamp.st_mtime_ns))
        assert ask(it)["scores"].shape == (1, CLASSES)


def test_grpcs_verifies_and_shows_its_certificate(tmp_path: Path) -> None:
    certificates: Certificates = make_certificates(tmp_path)
    credentials = grpc.ssl_server_credentials(
        [(certificates.server_key.read_bytes(), certificates.server.read_bytes())],
        root_certificates=certificates.ca.read_bytes(),
        require_client_auth=True,
    )
    mine: dict[str, Any] = {"client_cert_file": certificates.client, "client_key_file": certificates.client_key}
    with GrpcServer({"linear": linear_model()}, credentials=credentials) as server:
        with client(server.url, ca_file=certificates.ca, **mine) as it:
            assert ask(it)["scores"].shape == (1, CLASSES)
        with client(server.url, ca_file=certificates.ca, deadline_s=2) as it, pytest.raises(CloudUnavailable):
            ask(it)
        with client(server.url, deadline_s=2, **mine) as it, pytest.raises(CloudUnavailable):
            ask(it)


def test_a_server_that_comes_back_is_found_again(server: GrpcServer) -> None:
    with client(server.url, deadline_s=2) as it:
        assert ask(it)
        server.__exit__(None, None, None)
        with pytest.raises(CloudUnavailable):
            ask(it)
        again = GrpcServer({"linear": linear_model()}, port=server.port)
        with again:
            for _ in range(50):
                if it.ready():
                    break
                time.sleep(0.1)
            assert ask(it)["scores"].shape == (1, CLASSES)


def test_a_closed_client_says_so(server: GrpcServer) -> None:
    it = client(server.url)
    ask(it)
    it.close()
    it.close()
    with pytest.raises(CloudUnavailable, match="closed"):
        ask(it)
    assert not it.ready()


def test_a_certificate_that_is_refused_says_why(tmp_path: Path) -> None:
    """gRPC puts the reason at the end of a long line, behind where errors are cut."""
    certificates = make_certificates(tmp_path / "ours")
    credentials = grpc.ssl_server_credentials(
        [(certificates.server_key.read_bytes(), certificates.server.read_bytes())]
    )
    other = make_certificates(tmp_path / "other").ca
    with GrpcServer({}, credentials=credentials) as server:
        with client(server.url, ca_file=other) as it, pytest.raises(CloudUnavailable) as caught:
            ask(it)
        assert "its certificate is refused (unable to get local issuer certificate)" in str(caught.value)
        named = server.url.replace("localhost", "127.0.0.1")
        with client(named, ca_file=certificates.ca) as it, pytest.raises(CloudUnavailable) as caught:
            ask(it)
        assert "its certificate is refused (Hostname Verification Check failed)" in str(caught.value)
