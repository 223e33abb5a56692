"""The one graph type: what is read is what is written, and passes say what they do not take."""

from __future__ import annotations

import numpy as np
import onnx
import onnx_ir as ir
import pytest
from edge_export.graph.onnx_graph.model import (
    UnsuitableModelError,
    add_constant,
    from_proto,
    rename,
    to_proto,
    transform,
)
from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise
from edge_export.graph.onnx_graph.passes.shield import ShieldFloatLayers
from edge_export.graph.onnx_graph.passes.temperature import AppendSoftmax, LogitMap, MapLogits
from onnx import TensorProto, helper, numpy_helper

from edge_runtime.errors import ConfigError
from tests.edge_export.graphs import device_net, onnx_answers, windows
from tests.edge_export.package.card.models import plain


def sparse_net(indices: np.ndarray) -> onnx.ModelProto:
    """(batch, 4) times a sparse table of shape (4, 3) with 2 in row 1, column 2 and 5 in row 3, column 0."""
    table = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([2, 5], np.float32), "table"),
        numpy_helper.from_array(indices.astype(np.int64), "places"),
        [4, 3],
    )
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["window", "table"], ["answer"])],
        "sparse",
        [helper.make_tensor_value_info("window", TensorProto.FLOAT, ["batch", 4])],
        [helper.make_tensor_value_info("answer", TensorProto.FLOAT, ["batch", 3])],
        sparse_initializer=[table],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize("model", [canonicalise(device_net()), canonicalise(plain())], ids=["device net", "logits"])
def test_a_canonical_model_is_written_as_it_was_read(model: onnx.ModelProto) -> None:
    assert to_proto(from_proto(model)).SerializeToString() == model.SerializeToString()


@pytest.mark.parametrize("indices", [np.array([5, 9]), np.array([[1, 2], [3, 0]])], ids=["flat", "coordinates"])
def test_sparse_weights_are_read_as_dense_ones(indices: np.ndarray) -> None:
    given = sparse_net(indices)
    written = to_proto(from_proto(given))
    assert not written.graph.sparse_initializer
    expected = np.zeros((4, 3), np.float32)
    expected[1, 2], expected[3, 0] = 2, 5
    np.testing.assert_array_equal(numpy_helper.to_array(written.graph.initializer[0]), expected)
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(onnx_answers(written, x), x @ expected)
    assert given.graph.sparse_initializer


def test_a_graph_shares_nothing_with_the_model_that_it_was_read_from() -> None:
    model = device_net()
    before = model.SerializeToString()
    graph = from_proto(model).graph
    rename(graph, {value: f"other_{name}" for name, value in graph.initializers.items()})
    assert model.SerializeToString() == before


def test_names_are_swapped_at_once_and_constants_keep_their_order() -> None:
    model = from_proto(device_net())
    first, second = list(model.graph.initializers.values())[:2]
    names = [first.name, second.name]
    rename(model.graph, {first: str(names[1]), second: str(names[0])})
    assert [value.name for value in model.graph.initializers.values()][:2] == names[::-1]
    assert [tensor.name for tensor in to_proto(model).graph.initializer][:2] == names[::-1]


def test_a_constant_gets_a_number_where_its_name_is_taken() -> None:
    graph = from_proto(device_net()).graph
    taken = graph[0].outputs[0].name
    assert add_constant(graph, str(taken), np.zeros(2, np.float32)).name == f"{taken}_1"


def test_a_model_that_no_pass_changes_is_the_given_one() -> None:
    model = canonicalise(device_net())
    assert transform(model, ShieldFloatLayers(), MapLogits(LogitMap())) is model


def test_passes_run_one_after_the_other() -> None:
    x = windows(3, *(dim.dim_value for dim in plain().graph.input[0].type.tensor_type.shape.dim[1:]))
    logits = onnx_answers(plain(), x)
    softened = np.exp(logits / 2 - (logits / 2).max(axis=1, keepdims=True))
    found = onnx_answers(transform(plain(), AppendSoftmax(), MapLogits(LogitMap.at(2.0))), x)
    np.testing.assert_allclose(found, softened / softened.sum(axis=1, keepdims=True), atol=1e-6)


def test_what_a_pass_does_not_take_is_an_error_of_the_user() -> None:
    with pytest.raises(UnsuitableModelError, match="comes from Gemm, not from a Softmax") as refused:
        transform(plain(), MapLogits(LogitMap.at(2.0)))
    assert isinstance(refused.value, ConfigError)
    assert isinstance(refused.value, ir.passes.PreconditionError)


def test_a_sparse_constant_node_is_read_as_a_dense_one() -> None:
    model = sparse_net(np.array([5, 9]))
    sparse = model.graph.sparse_initializer[0]
    model.graph.node.insert(0, helper.make_node("Constant", [], ["table"], sparse_value=sparse))
    del model.graph.sparse_initializer[:]
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(onnx_answers(to_proto(from_proto(model)), x), onnx_answers(model, x))


def test_a_damaged_attribute_is_an_error_of_the_user() -> None:
    model = device_net()
    model.graph.node[0].attribute.append(onnx.AttributeProto(name="odd", type=onnx.AttributeProto.SPARSE_TENSORS))
    with pytest.raises(ConfigError, match="cannot be read: Sparse tensors are not supported"):
        from_proto(model)
