"""Files with which other servers serve a bundle: what they say, whose file they hold, and what is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest

from edge_runtime.errors import ConfigError, IncompatibleError
from edge_runtime.model.bundle.bundle import Bundle, open_bundle
from edge_runtime.operate.server.deployment import kserve_service, onnx_variant, triton_config, write_triton_repository
from edge_runtime.tools.cli import main
from tests.models import tiny_bundle, tiny_onnx_classifier
from tests.stateful import leaky, stateful_bundle

CONFIG = """\
name: "tiny"
backend: "onnxruntime"
default_model_filename: "model.onnx"
max_batch_size: 8
input [
  { name: "NAME_IN" data_type: TYPE_FP32 dims: [ 3, 16 ] }
]
output [
  { name: "NAME_OUT" data_type: TYPE_FP32 dims: [ 3 ] }
]
dynamic_batching { }
"""
SERVICE = """\
apiVersion: serving.kserve.io/v1beta1
kind: InferenceService
metadata:
  name: "tiny"
spec:
  predictor:
    model:
      modelFormat:
        name: triton
      runtime: kserve-tritonserver
      protocolVersion: v2
      storageUri: "s3://bucket/models"
"""


def bundle(folder: Path, *variants: str, **more: object) -> Bundle:
    return open_bundle(tiny_bundle(folder / "tiny.edge", variants=variants, **more))  # type: ignore[arg-type]


def test_a_repository_holds_the_file_of_the_bundle_and_its_tensors(tmp_path: Path) -> None:
    with bundle(tmp_path, "tflite-int8", "onnx-fp32") as opened:
        variant = onnx_variant(opened)
        made = write_triton_repository(tmp_path / "models", opened, variant, 8)
        windows, golden = opened.golden(variant.name)
    session = onnxruntime.InferenceSession(made / "1" / "model.onnx")
    (given,), (answered,) = session.get_inputs(), session.get_outputs()
    wanted = CONFIG.replace("NAME_IN", given.name).replace("NAME_OUT", answered.name)
    assert (made / "config.pbtxt").read_text() == wanted
    (answers,) = session.run(None, {given.name: windows})
    assert np.abs(np.asarray(answers) - golden).max() < 1e-4


def test_a_file_with_a_fixed_batch_is_not_batched_by_the_server() -> None:
    text = triton_config("fixed", leaky(1), 32)
    assert "max_batch_size: 0\n" in text
    assert "dims: [ 1, " in text
    assert "dynamic_batching" not in text


def test_floats_go_before_integers_unless_one_is_asked_for(tmp_path: Path) -> None:
    with bundle(tmp_path, "onnx-int8", "onnx-fp32") as opened:
        assert onnx_variant(opened).name == "onnx-fp32"
        assert onnx_variant(opened, "onnx-int8").name == "onnx-int8"
        with pytest.raises(IncompatibleError, match="has no variant 'other'"):
            onnx_variant(opened, "other")


def test_what_other_servers_cannot_serve_is_refused_with_what_can(tmp_path: Path) -> None:
    with (
        bundle(tmp_path, "tflite-int8") as opened,
        pytest.raises(ConfigError, match="no ONNX file for other servers: serve it with: edge-runtime serve"),
    ):
        onnx_variant(opened)
    chain = stateful_bundle(tmp_path / "chain.edge")
    with open_bundle(chain) as opened, pytest.raises(ConfigError, match="a chain with front ends or states"):
        onnx_variant(opened)


def test_a_model_that_is_there_is_not_overwritten(tmp_path: Path) -> None:
    with bundle(tmp_path, "onnx-fp32") as opened:
        write_triton_repository(tmp_path, opened, onnx_variant(opened), 8)
        with pytest.raises(ConfigError, match="is there already"):
            write_triton_repository(tmp_path, opened, onnx_variant(opened), 8)


def test_names_of_tensors_are_quoted() -> None:
    model = onnx.load_model_from_string(tiny_onnx_classifier())
    old = model.graph.input[0].name
    for node in model.graph.node:
        for at, name in enumerate(node.input):
            if name == old:
                node.input[at] = 'odd "name"\\'
    model.graph.input[0].name = 'odd "name"\\'
    assert '  { name: "odd \\"name\\"\\\\" data_type' in triton_config("odd", model.SerializeToString(), 8)


def test_a_service_is_named_as_kubernetes_wants_it() -> None:
    assert kserve_service("tiny", "s3://bucket/models") == SERVICE
    assert '  name: "my-model-2"\n' in kserve_service("My_Model.2", "pvc://claim")
    assert f'  name: "{63 * "a"}"\n' in kserve_service(80 * "a", "pvc://claim")


@pytest.mark.parametrize("uri", ["models", "s3://", 's3://a"b', "s3://a b", "S3://a"])
def test_what_is_no_address_is_refused(uri: str) -> None:
    with pytest.raises(ConfigError, match="is no address"):
        kserve_service("tiny", uri)


def test_the_commands_write_and_print_and_ask_for_trust(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = str(tiny_bundle(tmp_path / "tiny.edge"))
    assert main(["serve", path, "--allow-unsigned", "--print-kserve", "s3://bucket/models"]) == 0
    assert capsys.readouterr().out == SERVICE
    models = tmp_path / "models"
    assert main(["serve", path, "--allow-unsigned", "--triton-repository", str(models)]) == 0
    assert capsys.readouterr().out == f"{models / 'tiny'}: variant onnx-fp32\n"
    assert (models / "tiny" / "1" / "model.onnx").is_file()
    assert main(["serve", path, "--print-kserve", "s3://bucket/models"]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert "tiny.edge: it is not signed; sign it" in err
