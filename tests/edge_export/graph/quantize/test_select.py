"""Which nodes are quantised: those that gain, between others that are, and never a model's float ends."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnx
import pytest
from edge_export.graph.onnx_graph.model import from_proto, name_of
from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise
from edge_export.graph.onnx_graph.run import answers
from edge_export.graph.quantize import Scheme, quantize
from edge_export.graph.quantize.mixed import sqnr_db
from edge_export.graph.quantize.ranges import activations, calibrate
from edge_export.graph.quantize.select import BETWEEN, left_in_float, quantised
from edge_export.graph.quantize.write import prepare, write
from edge_export.graph.tflite.convert import convert
from onnx import TensorProto, helper

from tests.edge_export.graphs import GraphBuilder, onnx_answers, tflite_answers, windows

U8 = Scheme(activations="uint8")


def hard_swish(b: GraphBuilder, x: str) -> str:
    return b.node("HardSwish", x)


def swish(b: GraphBuilder, x: str) -> str:
    return b.node("Mul", x, b.node("Sigmoid", x))


def leaky(b: GraphBuilder, x: str) -> str:
    return b.node("LeakyRelu", x, alpha=0.1)


def squeeze_and_excite(b: GraphBuilder, x: str) -> str:
    gate = b.node("Relu", b.conv(b.node("GlobalAveragePool", x), 8, 4, 1))
    return b.node("Mul", x, b.node("HardSigmoid", b.conv(gate, 4, 8, 1)))


FORMS = (hard_swish, swish, leaky, squeeze_and_excite)


def net(form: Callable[[GraphBuilder, str], str]) -> onnx.ModelProto:
    """Scaling, two layers with something between them, temperature, softmax."""
    b = GraphBuilder(3, 40)
    t = b.node("Mul", "window", b.constant(np.linspace(0.5, 2, 3, dtype=np.float32).reshape(1, 3, 1)))
    t = b.conv(form(b, b.conv(t, 3, 8, 5, pads=[2, 2])), 8, 8, 3)
    t = b.dense(b.node("Flatten", b.node("GlobalAveragePool", b.node("Relu", t))), 8, 4)
    return b.model(b.node("Softmax", b.node("Mul", t, b.constant(np.float32(1.7))), axis=1))


def chosen(model: onnx.ModelProto, *exclude: str) -> list[str]:
    """Operators of the nodes of `BETWEEN` that are quantised."""
    names = quantised(from_proto(model).graph, exclude)
    return [node.op_type for node in model.graph.node if node.op_type in BETWEEN and node.name in names]


@pytest.mark.parametrize("form", FORMS)
def test_what_stands_between_layers_computes_in_integers(form: Callable[[GraphBuilder, str], str]) -> None:
    model = prepare(canonicalise(net(form)))
    assert chosen(model)
    written = write(model, calibrate(model, windows(64, 3, 40)), U8)
    kinds = {name: node.op_type for node in written.graph.node for name in node.output}
    between = [
        node
        for node in written.graph.node
        if node.name in quantised(from_proto(model).graph) and node.op_type in BETWEEN
    ]
    assert between
    assert all(kinds[name] == "DequantizeLinear" for node in between for name in node.input)
    x = windows(100, 3, 40, seed=3)
    assert sqnr_db(answers(model, x), onnx_answers(written, x)) > 25


def test_functions_that_onnxruntime_writes_out_get_names_of_their_own() -> None:
    b = GraphBuilder(3, 40)
    t = b.node("HardSwish", b.conv("window", 3, 8, 5))
    for _ in range(3):
        t = b.node("HardSigmoid", b.node("HardSwish", b.conv(t, 8, 8, 3)))
    model = prepare(canonicalise(b.model(b.conv(t, 8, 4, 1))))
    names = [node.name for node in model.graph.node]
    assert len(set(names)) == len(names)


@pytest.mark.parametrize("form", FORMS)
def test_both_formats_answer_alike(form: Callable[[GraphBuilder, str], str]) -> None:
    written = canonicalise(quantize(net(form), windows(64, 3, 40), replace(U8, activations="int8")))
    x = windows(32, 3, 40, seed=4)
    assert np.abs(tflite_answers(convert(written), x) - onnx_answers(written, x)).max() < 0.05


def test_scaling_temperature_and_squares_stay_in_float() -> None:
    b = GraphBuilder(3, 40)
    scaled = b.node("Mul", "window", b.constant(np.float32(2)))
    wave = b.conv(scaled, 3, 8, 3)
    power = b.node("Mul", wave, wave)
    logits = b.dense(b.node("Flatten", b.node("GlobalAveragePool", b.conv(power, 8, 8, 3))), 8, 1)
    model = prepare(b.model(b.node("Sigmoid", b.node("Mul", logits, b.constant(np.float32(2))))))
    assert chosen(model) == []
    assert set(left_in_float(from_proto(model).graph)) == {"Mul", "Sigmoid"}


@pytest.mark.parametrize(("thresholds", "float_front"), [([0.2, 0.21, 0.5], True), ([0.2], False)])
def test_what_comes_before_learnt_thresholds_stays_in_float(thresholds: list[float], float_front: bool) -> None:
    b = GraphBuilder(3, 40)
    levels = b.node("Flatten", b.node("GlobalAveragePool", b.conv("window", 3, 3, 5)))
    above = b.node("Cast", b.node("Greater", levels, b.constant(np.array(thresholds, np.float32))), to=1)
    model = prepare(b.model(b.node("Softmax", b.dense(above, 3, 4), axis=1)))
    graph = from_proto(model).graph
    kinds = {node.op_type for node in graph if name_of(node) in quantised(graph)}
    assert ("Conv" not in kinds) == float_front
    assert "Gemm" in kinds or "MatMul" in kinds, "what follows gains"
    assert ("learnt thresholds" in left_in_float(graph).get("Conv", "")) == float_front


def test_a_neighbour_in_float_takes_what_leans_on_it_along() -> None:
    model = prepare(canonicalise(net(swish)))
    assert sorted(chosen(model)) == ["Mul", "Sigmoid"]
    first, second, *_ = (node.name for node in model.graph.node if node.op_type == "Conv")
    assert chosen(model, first) == []
    assert chosen(model, second) == []


def test_every_tensor_that_is_written_has_a_range() -> None:
    model = prepare(canonicalise(net(squeeze_and_excite)))
    written = write(model, calibrate(model, windows(16, 3, 40)), U8)
    known = set(activations(model))
    quantising = {node.input[0] for node in written.graph.node if node.op_type == "QuantizeLinear"}
    assert quantising <= known


def test_operators_without_integer_kernels_are_named() -> None:
    b = GraphBuilder(3, 40)
    t = b.node("Relu", b.conv("window", 3, 8, 3))
    t = b.node("ConvTranspose", t, b.weights(8, 8, 2), strides=[2])
    t = b.node("Resize", b.node("Relu", b.conv(t, 8, 8, 3)), "", b.constant(np.array([1, 1, 2], np.float32)))
    model = prepare(b.model(b.conv(t, 8, 4, 3)))
    reasons = left_in_float(from_proto(model).graph)
    assert reasons.keys() == {"ConvTranspose", "Resize"}
    assert "no integer kernel" in reasons["ConvTranspose"]


@pytest.mark.parametrize("opset", [9, 11, 12, 13])
@pytest.mark.parametrize("per_channel", [True, False])
def test_models_of_old_operator_sets_are_written_so_that_an_engine_loads_them(opset: int, per_channel: bool) -> None:
    b = GraphBuilder(3, 40)
    t = b.node("Relu", b.conv(b.node("Relu", b.conv("window", 3, 8, 5)), 8, 8, 3))
    t = b.dense(b.node("ReduceMean", t, axes=[2], keepdims=0), 8, 4)
    graph = helper.make_graph(
        b.nodes,
        "model",
        [helper.make_tensor_value_info("window", TensorProto.FLOAT, b.shape)],
        [helper.make_tensor_value_info(t, TensorProto.FLOAT, ["batch", 4])],
        b.constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=4)
    written = quantize(model, windows(32, 3, 40), Scheme(activations="uint8", per_channel=per_channel))
    x = windows(50, 3, 40, seed=2)
    assert sqnr_db(onnx_answers(model, x), onnx_answers(written, x)) > 20
