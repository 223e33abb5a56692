"""Normalising changes the form of a model and never what it answers."""

from __future__ import annotations

import functools

import numpy as np
import onnx
import onnxruntime
import pytest
from edge_export.graph.onnx_graph.normalise import normalise, opset_of
from edge_export.graph.onnx_graph.passes.raise_opset import OLDEST_OPSET
from onnx import TensorProto, helper, numpy_helper

from edge_runtime.errors import ConfigError
from tests.edge_export.backend_suite import BackendCase, alike, cases

_PARTS = 6


def session(model: onnx.ModelProto) -> onnxruntime.InferenceSession | None:
    """None where onnxruntime does not take the model."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level, options.intra_op_num_threads = 4, 1
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    try:
        return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except Exception:
        return None


def answers(model: onnx.ModelProto, case: BackendCase) -> list[np.ndarray] | None:
    running = session(model)
    if running is None or not case.tensors:
        return None
    try:
        return list(running.run(None, case.inputs))
    except Exception:
        return None


def compare(case: BackendCase) -> str:
    """How a case came out: ``same``, ``refused``, ``no engine``, or what is wrong."""
    try:
        form = normalise(case.model)
    except ConfigError:
        return "refused"
    if form != normalise(form):
        return "normalising it again changes it"
    before, after = answers(case.model, case), answers(form, case)
    if before is None and after is None and not case.kind.startswith("pytorch"):
        return "no engine"
    if after is None:
        return "no longer runs"
    # onnxruntime has dropped operators of very old sets; the suite's own answers stand in for it.
    reference = case.outputs if before is None else before
    limits = {"rtol": case.rtol, "atol": 1e-5} if before is None else {}
    right = len(reference) == len(after) and all(
        alike(answer, wanted, **limits) for answer, wanted in zip(after, reference, strict=True)
    )
    return "same" if right else "answers otherwise"


def tally(part: range, of: int) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for case in cases():
        if any(case.within(each, of) for each in part):
            found.setdefault(compare(case), []).append(f"{case.kind} {case.name}")
    return found


def check(found: dict[str, list[str]], same: int) -> None:
    wrong = {why: names for why, names in found.items() if why not in ("same", "refused", "no engine")}
    assert not wrong
    assert len(found["same"]) >= same, "the suite, or the engine, has shrunk; the test would say less than it claims"
    # Nodes inside a loop cannot be raised; nothing else is refused.
    assert all("_if" in name or "loop" in name or "scan" in name for name in found.get("refused", []))


@pytest.mark.slow
def test_a_sixth_of_the_backend_suite_answers_the_same() -> None:
    check(tally(range(1), _PARTS), 200)


@pytest.mark.slow
@pytest.mark.long
def test_the_rest_of_the_backend_suite_answers_the_same() -> None:
    check(tally(range(1, _PARTS), _PARTS), 1100)


def old(*nodes: onnx.NodeProto, opset: int = 9, ir: int = 3, **weights: np.ndarray) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    listed = [helper.make_tensor_value_info(t.name, t.data_type, list(t.dims)) for t in tensors]
    graph = helper.make_graph(
        list(nodes),
        "old",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, 8]), *listed],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        tensors,
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir)


def test_weights_that_are_listed_as_inputs_are_weights() -> None:
    weights = np.ones((4, 3, 3), np.float32)
    form = normalise(old(helper.make_node("Conv", ["x", "w"], ["y"]), w=weights))
    assert [info.name for info in form.graph.input] == ["x"]
    assert form.ir_version >= 8
    assert opset_of(form) == OLDEST_OPSET
    onnx.checker.check_model(form, full_check=True)


def test_an_open_batch_stays_open() -> None:
    form = normalise(old(helper.make_node("Softmax", ["x"], ["y"], axis=1)))
    assert form.graph.input[0].type.tensor_type.shape.dim[0].dim_param == "batch"


def test_an_operator_set_that_serves_is_left_alone() -> None:
    for opset in (13, 17, 20, 24):
        assert opset_of(normalise(old(helper.make_node("Relu", ["x"], ["y"]), opset=opset, ir=8))) == opset


def branch(*nodes: onnx.NodeProto, result: str, **weights: np.ndarray) -> onnx.GraphProto:
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    return helper.make_graph(
        list(nodes), "branch", [], [helper.make_tensor_value_info(result, TensorProto.FLOAT, None)], tensors
    )


@pytest.mark.parametrize("wanted", [3, 4])
def test_a_choice_by_a_size_that_is_known_is_made(wanted: int) -> None:
    """As torch writes a Squeeze: one branch if the axis is 1, the other if not. Names inside may be those outside."""
    inner = helper.make_node(
        "If",
        ["is_three"],
        ["t"],
        then_branch=branch(helper.make_node("Mul", ["x", "c"], ["h"]), result="h", c=np.full(1, 2, np.float32)),
        else_branch=branch(helper.make_node("Neg", ["x"], ["h"]), result="h"),
    )
    nodes = [
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "one"], ["channels"]),
        helper.make_node("Equal", ["channels", "wanted"], ["is_three"]),
        helper.make_node(
            "If",
            ["is_three"],
            ["h"],
            then_branch=branch(inner, helper.make_node("Abs", ["t"], ["u"]), result="u"),
            else_branch=branch(helper.make_node("Identity", ["x"], ["u"]), result="u"),
        ),
        helper.make_node("Add", ["h", "x"], ["y"]),
    ]
    model = old(*nodes, opset=13, ir=8, one=np.array(1), wanted=np.array(wanted))
    form = normalise(model)
    assert not {node.op_type for node in form.graph.node} & {"If", "Shape", "Gather", "Equal"}
    x = np.random.default_rng(0).standard_normal((2, 3, 8)).astype(np.float32)
    before, after = session(model), session(form)
    assert before is not None
    assert after is not None
    np.testing.assert_array_equal(before.run(None, {"x": x})[0], after.run(None, {"x": x})[0])


def test_what_only_the_other_branch_reads_goes() -> None:
    nodes = [
        helper.make_node("Exp", ["x"], ["e"]),
        helper.make_node(
            "If",
            ["yes"],
            ["y"],
            then_branch=branch(helper.make_node("Mul", ["x", "two"], ["h"]), result="h"),
            else_branch=branch(helper.make_node("Mul", ["e", "three"], ["h"]), result="h"),
        ),
    ]
    numbers = {"yes": np.array(True), "two": np.full(1, 2, np.float32), "three": np.full(1, 3, np.float32)}
    form = normalise(old(*nodes, opset=13, ir=8, **numbers))
    assert [node.op_type for node in form.graph.node] == ["Mul", "Identity"]
    assert [tensor.name for tensor in form.graph.initializer] == ["two"]


def test_a_choice_that_the_window_makes_stays() -> None:
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["peak"], keepdims=0),
        helper.make_node("Cast", ["peak"], ["is_loud"], to=TensorProto.BOOL),
        helper.make_node(
            "If",
            ["is_loud"],
            ["y"],
            then_branch=branch(helper.make_node("Neg", ["x"], ["u"]), result="u"),
            else_branch=branch(helper.make_node("Abs", ["x"], ["u"]), result="u"),
        ),
    ]
    assert "If" in {node.op_type for node in normalise(old(*nodes, opset=13, ir=8)).graph.node}


def test_an_old_model_with_a_choice_inside_is_refused_with_what_to_do() -> None:
    choice = helper.make_node(
        "If",
        ["is_loud"],
        ["y"],
        name="louder",
        then_branch=branch(helper.make_node("Neg", ["x"], ["u"]), result="u"),
        else_branch=branch(helper.make_node("Abs", ["x"], ["u"]), result="u"),
    )
    model = old(helper.make_node("Cast", ["peak"], ["is_loud"], to=TensorProto.BOOL), choice)
    model.graph.input.append(helper.make_tensor_value_info("peak", TensorProto.FLOAT, [1]))
    with pytest.raises(ConfigError, match=r"operator set 9.*'louder' \(If\).*export it again with 13"):
        normalise(model)


def test_draws_are_no_constants() -> None:
    nodes = [helper.make_node("RandomUniform", [], ["r"], shape=[8]), helper.make_node("Add", ["x", "r"], ["y"])]
    training = helper.make_node("Dropout", ["c", "", "on"], ["d"])
    model = old(
        *nodes[:1],
        training,
        helper.make_node("Sum", ["x", "r", "d"], ["y"]),
        opset=13,
        ir=8,
        c=np.ones(8, np.float32),
        on=np.array(True),
    )
    assert [node.op_type for node in normalise(model).graph.node] == ["RandomUniform", "Dropout", "Sum"]


def test_integers_stay_integers_and_large_tables_stay_computed() -> None:
    step: dict[str, np.ndarray] = {
        "s": np.array(0.5, np.float32),
        "z": np.array(0, np.int8),
        "w": np.ones((8, 4), np.int8),
    }
    step["many"] = np.array([2000, 2000])
    nodes = [
        helper.make_node("DequantizeLinear", ["w", "s", "z"], ["v"]),
        helper.make_node("ConstantOfShape", ["many"], ["zeros"]),
        helper.make_node("ReduceSum", ["zeros"], ["none"], keepdims=0),
        helper.make_node("MatMul", ["x", "v"], ["h"]),
        helper.make_node("Add", ["h", "none"], ["y"]),
    ]
    form = normalise(old(*nodes, opset=13, ir=8, **step))
    kinds = [node.op_type for node in form.graph.node]
    assert "DequantizeLinear" in kinds
    assert "ConstantOfShape" in kinds
    assert form.ByteSize() < 10_000


def test_a_model_is_not_changed_in_place() -> None:
    model = old(helper.make_node("Conv", ["x", "w"], ["y"]), w=np.ones((4, 3, 3), np.float32))
    before = model.SerializeToString(deterministic=True)
    normalise(model)
    assert model.SerializeToString(deterministic=True) == before


@functools.cache
def squeezed() -> onnx.ModelProto:
    nodes = [helper.make_node("ReduceSum", ["x"], ["t"], axes=[2]), helper.make_node("Squeeze", ["t"], ["y"], axes=[2])]
    return old(*nodes, opset=11, ir=6)


def test_axes_that_were_attributes_become_inputs() -> None:
    form = normalise(squeezed())
    assert [(node.op_type, len(node.input)) for node in form.graph.node] == [("ReduceSum", 2), ("Squeeze", 2)]
    assert all(node.input[1] in {tensor.name for tensor in form.graph.initializer} for node in form.graph.node)
