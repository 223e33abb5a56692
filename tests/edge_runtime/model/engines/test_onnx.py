"""What is particular to ONNX Runtime: the telemetry it must not send, and models of every batch and type."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

from edge_runtime.errors import EngineError, InputError
from edge_runtime.model import engines
from edge_runtime.model.engines import onnx as onnx_engine
from edge_runtime.model.engines.base import EngineOptions

pytest.importorskip("onnxruntime")


@pytest.mark.parametrize(("before", "after"), [(None, "1"), ("0", "0")])
def test_telemetry_is_off_when_the_library_is_imported_unless_the_operator_asked_for_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, before: str | None, after: str
) -> None:
    (tmp_path / "onnxruntime.py").write_text("import os\nseen = os.environ['ORT_DISABLE_TELEMETRY']\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in [name for name in sys.modules if name.partition(".")[0] == "onnxruntime"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.delenv("ORT_DISABLE_TELEMETRY", raising=False)
    if before is not None:
        monkeypatch.setenv("ORT_DISABLE_TELEMETRY", before)
    stand_in = onnx_engine._library()
    monkeypatch.delitem(sys.modules, "onnxruntime")
    assert stand_in.seen == after


def _model(nodes: list[Any], inputs: list[Any], outputs: list[Any]) -> bytes:
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return bytes(model.SerializeToString())


def _through(kind: int, shape: list[Any], op: str = "Identity") -> bytes:
    value = (helper.make_tensor_value_info(name, kind, shape) for name in "xy")
    return _model([helper.make_node(op, ["x"], ["y"])], [next(value)], [next(value)])


@pytest.mark.parametrize("kind", [TensorProto.FLOAT16, TensorProto.DOUBLE])
@pytest.mark.parametrize("batch", ["n", 1])
def test_floats_of_another_width_are_float32_outside(kind: int, batch: Any) -> None:
    engine = engines.load("onnxruntime", _through(kind, [batch, 3]), EngineOptions())
    assert engine.inputs[0].dtype == engine.outputs[0].dtype == np.float32
    x = np.array([[0.5, -2, 1024]] * 2, np.float32)
    for rows in (x, x[:1]):
        (y,) = engine.run(rows)
        assert y.dtype == np.float32
        np.testing.assert_array_equal(y, rows)


def test_half_precision_saturates() -> None:
    engine = engines.load("onnxruntime", _through(TensorProto.FLOAT16, ["n", 2]), EngineOptions())
    (y,) = engine.run(np.array([[1e9, -1e9]], np.float32))
    np.testing.assert_array_equal(y, [[65504, -65504]])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.int32, np.int64, np.bool_])
def test_integers_stay_what_they_are(dtype: type[Any]) -> None:
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    engine = engines.load("onnxruntime", _through(kind, ["n", 2]), EngineOptions())
    x = np.array([[0, 1], [1, 0]], dtype)
    (y,) = engine.run(x)
    assert y.dtype == dtype
    np.testing.assert_array_equal(y, x)


def test_text_is_refused_at_load() -> None:
    with pytest.raises(EngineError, match=r"tensor\(string\), which is not supported"):
        engines.load("onnxruntime", _through(TensorProto.STRING, ["n", 2]), EngineOptions())


def test_inputs_of_different_batches_are_refused() -> None:
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in "aby"]
    model = _model([helper.make_node("Add", ["a", "b"], ["y"])], values[:2], values[2:])
    engine = engines.load("onnxruntime", model, EngineOptions())
    a = np.ones((3, 2), np.float32)
    np.testing.assert_array_equal(engine.run(a, a)[0], a + a)
    with pytest.raises(InputError, match="different batch sizes"):
        engine.run(a, a[:1])


def test_an_output_without_a_batch_axis_is_refused_for_more_than_the_engine_runs_at_once() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2])
    model = _model([helper.make_node("ReduceMean", ["x"], ["y"], axes=[0], keepdims=1)], [x], [y])
    engine = engines.load("onnxruntime", model, EngineOptions(max_batch=2))
    with pytest.raises(EngineError, match="no batch axis"):
        engine.run(np.ones((5, 2), np.float32))


def test_a_failure_while_running_is_an_engine_error() -> None:
    x = helper.make_tensor_value_info("x", TensorProto.INT64, ["n"])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n"])
    table = helper.make_tensor("table", TensorProto.FLOAT, [2], [1, 2])
    nodes = [helper.make_node("Constant", [], ["t"], value=table), helper.make_node("Gather", ["t", "x"], ["y"])]
    engine = engines.load("onnxruntime", _model(nodes, [x], [y]), EngineOptions())
    np.testing.assert_array_equal(engine.run(np.array([1, 0]))[0], [2, 1])
    with pytest.raises(EngineError, match="failed to run the model") as caught:
        engine.run(np.array([7, 7]))
    assert "\n" not in str(caught.value)


def test_a_sequence_of_axes_free_in_more_than_the_batch_is_run() -> None:
    engine = engines.load("onnxruntime", _through(TensorProto.FLOAT, ["n", "samples"], "Relu"), EngineOptions())
    assert engine.inputs[0].shape == (-1, -1)
    for shape in ((1, 5), (3, 9), (40, 2)):
        assert engine.run(np.ones(shape, np.float32))[0].shape == shape
    with pytest.raises(InputError):
        engine.run(np.ones((1, 0), np.float32))
