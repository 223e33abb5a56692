"""Model files are whole in themselves, or refused before any model library sees them."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import flatbuffers
import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as tfl
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper

from edge_runtime.errors import IntegrityError
from edge_runtime.model.bundle import model_files
from tests import models


@pytest.mark.parametrize("model", [models.tiny_onnx_classifier(), models.tiny_onnx_int8()])
def test_plain_onnx_models_pass(model: bytes) -> None:
    model_files.check(model, "onnx")


@pytest.mark.parametrize("int8", [False, True])
def test_plain_tflite_models_pass(int8: bool) -> None:
    model_files.check(models.tiny_tflite(int8=int8), "tflite")


def test_real_models_pass(shared: Path) -> None:
    files = sorted([*(shared / "models").rglob("*.onnx"), *(shared / "models").rglob("*.tflite")])
    assert len(files) > 20
    for file in files:
        model_files.check(file.read_bytes(), file.suffix[1:])


def external(tensor: TensorProto) -> TensorProto:
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    entry = tensor.external_data.add()
    entry.key, entry.value = "location", "../../etc/passwd"
    return tensor


def _tensor(name: str = "w") -> TensorProto:
    return helper.make_tensor(name, TensorProto.FLOAT, [1], np.ones(1, np.float32).tobytes(), raw=True)


def _graph(name: str = "inner") -> onnx.GraphProto:
    value = helper.make_tensor_value_info("y", TensorProto.FLOAT, [1])
    return helper.make_graph([helper.make_node("Identity", ["w"], ["y"])], name, [], [value], [_tensor()])


def _model() -> onnx.ModelProto:
    return onnx.load_from_string(models.tiny_onnx_classifier())


def _initializer(model: onnx.ModelProto) -> None:
    external(model.graph.initializer[0])


def _constant(model: onnx.ModelProto) -> None:
    model.graph.node.append(helper.make_node("Constant", [], ["k"], value=external(_tensor())))


def _tensor_list(model: onnx.ModelProto) -> None:
    attribute = model.graph.node[0].attribute.add()
    attribute.name, attribute.type = "list", onnx.AttributeProto.TENSORS
    attribute.tensors.extend([_tensor(), external(_tensor())])


def _subgraph(model: onnx.ModelProto) -> None:
    inner = _graph()
    external(inner.initializer[0])
    model.graph.node.append(helper.make_node("If", ["c"], ["i"], then_branch=_graph(), else_branch=inner))


def _subgraph_list(model: onnx.ModelProto) -> None:
    inner = _graph()
    external(inner.initializer[0])
    attribute = model.graph.node[0].attribute.add()
    attribute.name, attribute.type = "list", onnx.AttributeProto.GRAPHS
    attribute.graphs.append(inner)


def _sparse(model: onnx.ModelProto) -> None:
    sparse = model.graph.sparse_initializer.add()
    sparse.values.CopyFrom(_tensor())
    sparse.indices.CopyFrom(external(_tensor("i")))


def _sparse_attribute(model: onnx.ModelProto) -> None:
    attribute = model.graph.node[0].attribute.add()
    attribute.name, attribute.type = "sparse", onnx.AttributeProto.SPARSE_TENSOR
    attribute.sparse_tensor.values.CopyFrom(external(_tensor()))


def _function(model: onnx.ModelProto) -> None:
    function = model.functions.add()
    function.name = "f"
    function.node.append(helper.make_node("Constant", [], ["k"], value=external(_tensor())))


def _function_default(model: onnx.ModelProto) -> None:
    function = model.functions.add()
    function.name = "f"
    function.attribute_proto.append(helper.make_attribute("value", external(_tensor())))


def _training(model: onnx.ModelProto) -> None:
    inner = _graph()
    external(inner.initializer[0])
    model.training_info.add().algorithm.CopyFrom(inner)


def _location_alone(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].data_location = TensorProto.EXTERNAL


def _data_alone(model: onnx.ModelProto) -> None:
    model.graph.initializer[0].external_data.add().key = "location"


PLACES = [_initializer, _constant, _tensor_list, _subgraph, _subgraph_list, _sparse, _sparse_attribute, _function,
          _function_default, _training, _location_alone, _data_alone]  # fmt: skip


@pytest.mark.parametrize("place", PLACES, ids=lambda place: place.__name__.strip("_"))
def test_external_data_is_found_wherever_a_tensor_may_stand(place: object) -> None:
    model = _model()
    assert callable(place)
    place(model)
    with pytest.raises(IntegrityError, match="another file"):
        model_files.check(model.SerializeToString(), "onnx")


def test_a_second_graph_that_is_merged_into_the_first_is_seen() -> None:
    second = onnx.ModelProto()
    second.graph.initializer.append(external(_tensor("late")))
    data = models.tiny_onnx_classifier() + second.SerializeToString()
    assert any(t.external_data for t in onnx.load_from_string(data).graph.initializer), "protobuf merges them"
    with pytest.raises(IntegrityError, match="another file"):
        model_files.check(data, "onnx")


def test_graphs_nested_without_end_are_refused_and_deep_recursion_is_not_reached() -> None:
    graph = b""
    for _ in range(400):
        attribute = b"\x32" + _length(graph)
        graph = b"\x0a" + _length(b"\x2a" + _length(attribute))
    model = b"\x08\x09\x42\x00\x3a" + _length(graph)
    assert sys.getrecursionlimit() <= 100_000
    with pytest.raises(IntegrityError, match="nested"):
        model_files.check(model, "onnx")


def _length(data: bytes) -> bytes:
    size, out = len(data), b""
    while size > 0x7F:
        out += bytes([size & 0x7F | 0x80])
        size >>= 7
    return out + bytes([size]) + data


@pytest.mark.parametrize(
    "data",
    [b"", b"\x08", b"\x0b\x0c", b"\xff" * 20, b"ORTM" * 10, b"\x7fELF" + bytes(60), b"PK\x03\x04" + bytes(60),
     b"\x08\x09", b"\x08\x09\x3a\x00", b"\x00\x00", b"\x3a\xff\x7fx"],
)  # fmt: skip
def test_what_is_no_onnx_model_is_refused(data: bytes) -> None:
    with pytest.raises(IntegrityError, match="not an ONNX model"):
        model_files.check(data, "onnx")


def test_the_librarys_own_other_format_is_not_taken_for_onnx() -> None:
    with pytest.raises(IntegrityError):
        model_files.check(b"\x28\x00\x00\x00ORTM" + bytes(400), "onnx")


def test_a_cut_onnx_model_is_refused() -> None:
    model = models.tiny_onnx_classifier()
    for length in range(0, len(model) - 1, 7):
        with pytest.raises(IntegrityError):
            model_files.check(model[:length], "onnx")


@pytest.mark.slow
@given(data=st.binary(max_size=200), start=st.integers(0, 700), stop=st.integers(0, 700))
@settings(derandomize=True, max_examples=300, deadline=None)
def test_mutants_are_refused_or_pass_and_nothing_else_happens(data: bytes, start: int, stop: int) -> None:
    for model, kind in ((models.tiny_onnx_classifier(), "onnx"), (models.tiny_tflite(), "tflite")):
        mutant = model[:start] + data + model[stop:]
        with contextlib.suppress(IntegrityError):
            model_files.check(mutant, kind)


@pytest.mark.parametrize(
    "data", [b"", b"TFL3", bytes(4) + b"TFL2" + bytes(60), b"\xff\xff\xff\xffTFL3" + bytes(60), bytes(100)]
)
def test_what_is_no_tflite_model_is_refused(data: bytes) -> None:
    with pytest.raises(IntegrityError, match="TFLite"):
        model_files.check(data, "tflite")


@pytest.mark.parametrize("field", ["externalBuffers", "externalBufferGroups"])
def test_tflite_weights_in_another_file_are_refused(field: str) -> None:
    model = tfl.ModelT.InitFromPackedBuf(models.tiny_tflite(), 0)
    group = tfl.ExternalBufferGroupT() if field == "externalBufferGroups" else tfl.ExternalBufferT()
    setattr(model, field, [group])
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    with pytest.raises(IntegrityError, match="another file"):
        model_files.check(bytes(builder.Output()), "tflite")
