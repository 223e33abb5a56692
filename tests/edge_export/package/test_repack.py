"""A bundle written again with another rule of filling: the same models, and refused where that would be a lie."""

from __future__ import annotations

import hashlib
import shutil
from pathlib import Path

import numpy as np
import onnx
import pytest
from edge_export.onnx_graph.canonicalise import clean
from edge_export.package.pack import VariantSource
from edge_export.package.repack import main, repack, repack_conv2d
from edge_export.package.sign import SigningKey, new_key, sign_bundle

from edge_runtime.bundle.bundle import MANIFEST, open_bundle
from edge_runtime.bundle.golden import verify_golden
from edge_runtime.bundle.load import load_engine
from edge_runtime.engines.base import EngineOptions
from edge_runtime.errors import BundleError
from tests.edge_export.graphs import device_net, onnx_answers
from tests.models import tiny_bundle

TEACHER = Path(__file__).resolve().parents[3] / "examples" / "exercise-watch" / "teacher.edge"


def test_only_the_rule_changes_and_the_same_bytes_come_out_again(tmp_path: Path) -> None:
    path = tiny_bundle(tmp_path / "t.edge", name="t", variants=("onnx-fp32",))
    original = path.read_bytes()
    with open_bundle(path) as bundle:
        before = bundle.digests
    assert repack(path, "first")
    once = path.read_bytes()
    assert not repack(path, "first")
    assert path.read_bytes() == once
    with open_bundle(path) as bundle:
        after = bundle.digests
        assert bundle.manifest.input.fill == "first"
    assert {name for name in before if before[name] != after[name]} == {MANIFEST}
    assert repack(path, "")
    assert path.read_bytes() == original


def test_float_convolutions_get_four_axes_and_golden_answers_of_their_own(tmp_path: Path) -> None:
    """Mutation that this finds: a digest, or the device's word on its teacher, left as it was."""
    net = clean(device_net(3, 16, 3))
    one_d = VariantSource(name="onnx-fp32", model=net.SerializeToString(), format="onnx", precision="fp32")
    digest = hashlib.sha256(one_d.model).hexdigest()
    device, teacher = (
        tiny_bundle(
            tmp_path / f"{name}.edge", name=name, variants=variants, provenance={"teacher_sha256": digest, "by": "us"}
        )
        for name, variants in (("device", ("onnx-int8",)), ("teacher", (one_d, "tflite-int8")))
    )
    assert main([str(device), str(teacher), "--conv2d"]) == 0
    once = [path.read_bytes() for path in (device, teacher)]
    assert repack_conv2d([device, teacher]) == [False, False]
    assert [path.read_bytes() for path in (device, teacher)] == once
    with open_bundle(teacher) as bundle:
        model = onnx.load_model_from_string(bundle.read_variant("onnx-fp32"))
        weights = {node.input[1] for node in model.graph.node if node.op_type == "Conv"}
        assert {len(tensor.dims) for tensor in model.graph.initializer if tensor.name in weights} == {4}
        new = bundle.variant("onnx-fp32").sha256
        inputs, expected = bundle.golden("onnx-fp32")
        assert verify_golden(load_engine(bundle, "onnx-fp32", EngineOptions()), bundle, "onnx-fp32") < 1e-6
    assert new != digest
    np.testing.assert_allclose(expected, onnx_answers(net, inputs), rtol=0, atol=1e-6)
    for path in (device, teacher):
        with open_bundle(path) as bundle:
            assert bundle.manifest.provenance == {"teacher_sha256": new, "by": "us"}


def test_a_command_without_a_change_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SystemExit):
        main([str(tmp_path / "t.edge")])


def test_a_damaged_bundle_is_left_as_it_is(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "t.edge"
    path.write_bytes(b"not a bundle")
    assert main([str(path), "--fill", "first"]) == 2
    assert "not a bundle" in capsys.readouterr().err
    assert path.read_bytes() == b"not a bundle"


def test_the_shipped_teacher_says_how_it_is_filled(tmp_path: Path) -> None:
    shutil.copy(TEACHER, tmp_path / "t.edge")
    assert not repack(tmp_path / "t.edge", "first")
    assert repack_conv2d([tmp_path / "t.edge"]) == [False]


def test_a_signed_bundle_is_not_touched(tmp_path: Path) -> None:
    """Mutation that this finds: writing it without its signature, or with one that does not hold any more."""
    path = tiny_bundle(tmp_path / "t.edge", name="t", variants=("onnx-fp32",))
    new_key(tmp_path / "key.pem")
    sign_bundle(path, SigningKey(tmp_path / "key.pem"))
    signed = path.read_bytes()
    with pytest.raises(BundleError, match="is signed"):
        repack(path, "first")
    assert path.read_bytes() == signed
