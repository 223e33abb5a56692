"""Foreign files: what is read, what is a state, what is refused."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import onnx
import pytest
from edge_export.choose.variants.source import flow_of, load, open_source, run_through
from edge_export.graph.quantize import Scheme, quantize
from onnx import TensorProto, helper

from edge_runtime.errors import ConfigError, EngineError
from tests.edge_export.choose.variants import models
from tests.edge_export.graphs import device_net, windows


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("a.h5", "tf2onnx.convert --keras"),
        ("a.pt", r"edge_export\.from_torch"),
        ("a.txt", r"not an \.onnx or \.tflite file; convert it first"),
    ],
)
def test_other_kinds_of_files_are_refused_with_what_converts_them(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / name).write_bytes(b"x")
    with pytest.raises(ConfigError, match=message):
        open_source(tmp_path / name)


def test_a_saved_model_folder_is_named(tmp_path: Path) -> None:
    (tmp_path / "saved_model.pb").write_bytes(b"")
    with pytest.raises(ConfigError, match="--saved-model FOLDER"):
        open_source(tmp_path)


@pytest.mark.parametrize("name", ["a.onnx", "a.tflite"])
def test_a_damaged_or_missing_file_is_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read"):
        open_source(tmp_path / name)
    (tmp_path / name).write_bytes(b"damaged beyond repair")
    with pytest.raises(ConfigError, match=r"not a (whole onnx|usable ONNX|TensorFlow Lite) (file|model)"):
        open_source(tmp_path / name)


def test_a_model_that_holds_integers_already_is_refused(tmp_path: Path) -> None:
    model = quantize(device_net(), windows(8, 3, 40), Scheme(activations="uint8"))
    onnx.save(model, str(tmp_path / "int8.onnx"))
    with pytest.raises(ConfigError, match="is quantised already"):
        open_source(tmp_path / "int8.onnx")


def test_an_input_without_data_is_the_state_that_an_output_feeds(tmp_path: Path) -> None:
    source = models.counter(tmp_path)
    x = np.random.default_rng(0).standard_normal((5, 1, 8)).astype(np.float32)
    given = {"x": x, "gain": np.full((5,), 0.1, np.float32)}
    flow = flow_of(source, given)
    assert flow.states == {"state": 1}
    assert flow.answers == (0,)
    with contextlib.closing(load(source.format, source.model)) as loaded:
        inputs, (answers,) = run_through(loaded, given, flow)
    assert not inputs["state"][0].any()
    np.testing.assert_array_equal(inputs["state"][1:], answers[:-1])


def test_an_input_with_neither_data_nor_an_output_is_refused(tmp_path: Path) -> None:
    source = models.counter(tmp_path)
    with pytest.raises(ConfigError, match=r"input 'gain' \(\) has no data.*--constant gain=VALUE"):
        flow_of(source, {"x": np.zeros((2, 1, 8), np.float32)})


def test_answers_that_change_their_size_are_refused(tmp_path: Path) -> None:
    nodes = [helper.make_node("NonZero", ["x"], ["places"]), helper.make_node("Cast", ["places"], ["found"], to=1)]
    ends = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [s, "k"]) for n, s in (("x", 1), ("found", 2))]
    source = models.saved(
        helper.make_model(
            helper.make_graph(nodes, "g", ends[:1], ends[1:]), ir_version=8, opset_imports=[helper.make_opsetid("", 17)]
        ),
        tmp_path,
    )
    calls = {"x": np.array([[[0, 1, 0]], [[1, 1, 0]]], np.float32)}
    loaded = load("onnx", source.model)
    with pytest.raises(EngineError, match=r"output 'found' changes its size from call to call, \(2, 1\) and \(2, 2\)"):
        run_through(loaded, calls, flow_of(source, calls))
    loaded.close()
