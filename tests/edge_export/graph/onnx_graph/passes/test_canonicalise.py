"""Cleaned models say nothing of their maker, and compute the same."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise
from onnx import TensorProto, helper

from edge_runtime.errors import ConfigError
from tests.edge_export.graphs import GraphBuilder, device_net, onnx_answers, windows

SECRET = "/home/somebody/project/train.py, line 12"


def talkative(model: onnx.ModelProto) -> onnx.ModelProto:
    """The same model with a trace wherever ONNX has room for one."""
    model.doc_string = model.graph.doc_string = model.producer_name = model.producer_version = model.domain = SECRET
    model.graph.name = SECRET
    model.metadata_props.add(key="source", value=SECRET)
    model.graph.metadata_props.add(key="source", value=SECRET)
    for index, node in enumerate(model.graph.node):
        node.doc_string = SECRET
        node.name = f"{SECRET}/{index}"
        node.metadata_props.add(key="pkg.torch.onnx.stack_trace", value=SECRET)
        for attribute in node.attribute:
            attribute.doc_string = SECRET
    for tensor in model.graph.initializer:
        tensor.doc_string = SECRET
        tensor.metadata_props.add(key="source", value=SECRET)
    for info in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        info.doc_string = SECRET
        info.metadata_props.add(key="source", value=SECRET)
    return model


def test_no_trace_of_the_maker_is_left() -> None:
    model = talkative(device_net())
    assert SECRET.encode() in model.SerializeToString()
    assert SECRET.encode() not in canonicalise(model).SerializeToString()


def test_the_answers_stay_and_the_argument_too() -> None:
    model, x = talkative(device_net()), windows(8, 3, 40)
    before = model.SerializeToString()
    np.testing.assert_allclose(onnx_answers(canonicalise(model), x), onnx_answers(model, x), atol=1e-6)
    assert model.SerializeToString() == before


def test_names_do_not_depend_on_the_exporter_and_cleaning_twice_changes_nothing() -> None:
    renamed = device_net()
    for node in renamed.graph.node:
        for names in (node.input, node.output):
            names[:] = [n if n in ("window", renamed.graph.output[0].name) else f"long_{n}" for n in names]
    for tensor in renamed.graph.initializer:
        tensor.name = f"long_{tensor.name}"
    del renamed.graph.value_info[:]
    once = canonicalise(device_net())
    assert canonicalise(renamed).SerializeToString() == once.SerializeToString()
    assert canonicalise(once).SerializeToString() == once.SerializeToString()


@pytest.mark.parametrize(("sizes", "axes"), [((20,), [-1]), ((20,), [2]), ((6, 5), [2, 3]), ((6, 5), [-1, -2])])
@pytest.mark.parametrize("keepdims", [0, 1])
def test_means_over_time_and_space_become_global_pools(sizes: tuple[int, ...], axes: list[int], keepdims: int) -> None:
    b = GraphBuilder(3, *sizes)
    model = b.model(b.node("ReduceMean", "window", b.constant(np.array(axes)), keepdims=keepdims))
    cleaned, x = canonicalise(model), windows(4, 3, *sizes)
    assert cleaned.graph.node[0].op_type == "GlobalAveragePool"
    np.testing.assert_allclose(onnx_answers(cleaned, x), onnx_answers(model, x), atol=1e-6)


def test_other_means_stay_as_they_are() -> None:
    b = GraphBuilder(3, 6, 5)
    model = b.model(b.node("ReduceMean", "window", b.constant(np.array([3]))))
    assert [node.op_type for node in canonicalise(model).graph.node] == ["ReduceMean"]


def test_what_nothing_reads_is_dropped() -> None:
    b = GraphBuilder(3, 6)
    b.node("Exp", "window")
    b.weights(100, 100)
    cleaned = canonicalise(b.model(b.node("Relu", "window")))
    assert [node.op_type for node in cleaned.graph.node] == ["Relu"]
    assert not cleaned.graph.initializer


def test_operator_sets_that_no_node_uses_are_dropped() -> None:
    model = device_net()
    model.opset_import.append(helper.make_opsetid("com.example.unused", 1))
    assert [(entry.domain, entry.version) for entry in canonicalise(model).opset_import] == [("", 20)]


def test_what_a_branch_reads_from_outside_is_kept() -> None:
    b = GraphBuilder(1, 1)
    doubled = b.node("Add", "window", "window")
    flag = b.node("Squeeze", b.node("Cast", "window", to=TensorProto.BOOL))
    out = [helper.make_empty_tensor_value_info("inner")]
    then = helper.make_graph([helper.make_node("Identity", [doubled], ["inner"])], "then", [], out)
    other = helper.make_graph([helper.make_node("Neg", ["window"], ["inner"])], "else", [], out)
    b.shape[0] = 1
    model = b.model(b.node("If", flag, then_branch=then, else_branch=other))
    x = np.full((1, 1, 1), 3, np.float32)
    np.testing.assert_array_equal(onnx_answers(canonicalise(model), x), x * 2)


def test_a_broken_graph_is_refused() -> None:
    model = device_net()
    model.graph.node[0].input[0] = "nothing"
    with pytest.raises(ConfigError, match="not a valid ONNX model"):
        canonicalise(model)


def _repeat_node(model: onnx.ModelProto) -> None:
    model.graph.node.add().CopyFrom(model.graph.node[1])


def _read_nothing(model: onnx.ModelProto) -> None:
    model.graph.node[1].input[0] = "nowhere"


def _compute_no_answer(model: onnx.ModelProto) -> None:
    model.graph.output[0].name = "never"


def _name_no_opset(model: onnx.ModelProto) -> None:
    del model.opset_import[:]


def _repeat_weights(model: onnx.ModelProto) -> None:
    model.graph.initializer.add().CopyFrom(model.graph.initializer[0])


def _leave_type_out(model: onnx.ModelProto) -> None:
    model.graph.node[1].attribute[0].ClearField("type")


def _hold_nothing(model: onnx.ModelProto) -> None:
    model.ClearField("graph")


@pytest.mark.parametrize(
    "damage",
    [_repeat_node, _read_nothing, _compute_no_answer, _name_no_opset, _repeat_weights, _leave_type_out, _hold_nothing],
)
def test_a_damaged_model_is_an_error_of_the_user(damage: Callable[[onnx.ModelProto], None]) -> None:
    model = device_net()
    damage(model)
    with pytest.raises(ConfigError, match=r"not a valid ONNX model|cannot be read: .*redeclared"):
        canonicalise(model)
