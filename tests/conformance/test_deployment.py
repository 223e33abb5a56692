"""Our deployment files, read by the programs that they are for: Triton's server and its own schema, KServe's models.

Triton comes without its ONNX backend in every Python package, so a model is read, checked and refused for that library
alone; the library itself (onnxruntime) answers in tests/edge_runtime/operate/server/test_deployment.py.
"""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.operate.server.deployment import kserve_service, onnx_variant, write_triton_repository
from tests.conformance.conftest import free_ports, need
from tests.models import tiny_bundle

pytestmark = pytest.mark.slow

PARSE = """
import sys
from google.protobuf import text_format
from google.protobuf.json_format import MessageToJson
from tritonclient.grpc import model_config_pb2
print(MessageToJson(text_format.Parse(open(sys.argv[1]).read(), model_config_pb2.ModelConfig())))
"""
KSERVE = """
import json, sys, yaml, kserve

def unknown(document, name, where):
    model = getattr(kserve, name, None)
    if name == "str":
        return [] if isinstance(document, str) else [where]
    if model is None:  # of Kubernetes
        return []
    fields = {public: model.openapi_types[own] for own, public in model.attribute_map.items()}
    return [
        one
        for key, value in document.items()
        for one in (unknown(value, fields[key], f"{where}.{key}") if key in fields else [f"{where}.{key}"])
    ]

document = yaml.safe_load(open(sys.argv[1]))
print(json.dumps([document, unknown(document, "V1beta1InferenceService", "")]))
"""


def ask(python: Path, program: str, path: Path) -> Any:
    done = subprocess.run([python, "-c", program, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    with open_bundle(tiny_bundle(tmp_path / "tiny.edge")) as bundle:
        write_triton_repository(tmp_path / "models", bundle, onnx_variant(bundle), 8)
    return tmp_path / "models"


def test_the_configuration_is_what_tritons_schema_says(repository: Path) -> None:
    found = ask(need("triton"), PARSE, repository / "tiny" / "config.pbtxt")
    assert (found["name"], found["backend"], found["maxBatchSize"]) == ("tiny", "onnxruntime", 8)
    (window,), (answer,) = found["input"], found["output"]
    assert (window["dataType"], window["dims"]) == ("TYPE_FP32", ["3", "16"])
    assert (answer["dataType"], answer["dims"]) == ("TYPE_FP32", ["3"])


def started(repository: Path) -> str:
    """What a real Triton says that loads a repository."""
    python = need("triton")
    (triton,) = python.parent.parent.glob("lib/python3*/site-packages/pytriton/tritonserver")
    http, _ = free_ports()
    done = subprocess.run(
        [
            triton / "bin" / "tritonserver",
            "--model-repository", repository, "--backend-directory", triton / "backends",
            "--http-address", "127.0.0.1", "--http-port", str(http), "--allow-grpc", "0", "--allow-metrics", "0",
        ],
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_a_real_triton_reads_the_repository_and_lacks_the_backend_alone(repository: Path) -> None:
    log = started(repository)
    (status,) = [line for line in log.splitlines() if line.startswith("| tiny ")]
    assert "unable to find backend library for backend 'onnxruntime'" in status
    config = repository / "tiny" / "config.pbtxt"
    config.write_text(config.read_text().replace("TYPE_FP32", "TYPE_NONE"))
    assert "unable to find backend library" not in started(repository)  # it did look at the rest


def test_the_service_is_what_kserves_own_models_know(tmp_path: Path) -> None:
    path = tmp_path / "service.yaml"
    path.write_text(kserve_service("tiny", "s3://bucket/models"))
    document, unknown = ask(need("kserve"), KSERVE, path)
    assert unknown == []
    assert document["spec"]["predictor"]["model"]["protocolVersion"] == "v2"
    path.write_text(path.read_text().replace("protocolVersion", "protocol"))
    assert ask(need("kserve"), KSERVE, path)[1] == [".spec.predictor.model.protocol"]
