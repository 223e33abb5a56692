"""A build proves its bundles as a device would."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
from edge_export.package.bundles import prove
from edge_export.package.pack import VariantSource
from onnx import helper

from edge_runtime.errors import BundleError
from tests.models import tiny_bundle, tiny_onnx_classifier


def test_a_bundle_of_every_format_proves_itself(tmp_path: Path) -> None:
    path = tiny_bundle(tmp_path, variants=("onnx-fp32", "tflite-int8"))
    prove(path)
    assert path.is_file()


def test_a_model_that_looks_at_the_whole_batch_is_named_as_such_and_leaves_no_bundle(tmp_path: Path) -> None:
    model = onnx.load_model_from_string(tiny_onnx_classifier())
    nodes = [
        helper.make_node("Abs", ["x"], ["size"]),
        helper.make_node("ReduceMax", ["size"], ["loudest"], keepdims=1),
        helper.make_node("Div", ["x", "loudest"], ["scaled"]),
    ]
    model.graph.node[0].input[0] = "scaled"
    for place, node in enumerate(nodes):
        model.graph.node.insert(place, node)
    source = VariantSource(name="onnx-fp32", model=model.SerializeToString(), format="onnx", precision="fp32")
    path = tiny_bundle(tmp_path, variants=(source,))
    with pytest.raises(BundleError, match=r"tiny\.edge does not run .* 1 at a time.* over the batch\): let its graph"):
        prove(path)
    assert not path.exists()
