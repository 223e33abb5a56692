"""Both formats put in the form of a bundle: the copy computes what the file does, on windows in physical units."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from ai_edge_litert import schema_py_generated as schema
from ai_edge_litert.interpreter import Interpreter
from edge_export.card.onnx_edges import Fitted, fit_onnx
from edge_export.card.spec import Card, load
from edge_export.card.tflite_edges import fit_tflite
from edge_export.package.pack import VariantSource
from edge_export.quantize import Scheme, quantize
from edge_export.selection.timing import answers
from edge_export.tflite.convert import convert
from onnx import TensorProto, helper, numpy_helper

from edge_runtime.errors import ConfigError
from edge_runtime.model import engines
from edge_runtime.model.engines.base import EngineOptions
from tests.edge_export.card import models
from tests.edge_export.graphs import GraphBuilder, onnx_answers

FORMATS = ("onnx", "tflite")


def fitted(format_: str, model: onnx.ModelProto, card: Card) -> Fitted:
    if format_ == "onnx":
        return fit_onnx(model.SerializeToString(), card, "borrowed.onnx")
    return fit_tflite(models.tflite(model), card, "borrowed.tflite")


def asked(format_: Any, found: Fitted, x: np.ndarray) -> np.ndarray:
    precision: Any = found.precision
    source = VariantSource(name="it", model=found.model, format=format_, precision=precision, layout=found.layout)
    return answers(source, x)


@pytest.mark.parametrize("format_", FORMATS)
def test_scaling_and_softmax_go_into_the_file(format_: str, tmp_path: Path) -> None:
    model, x = models.plain(), models.physical()
    found = fitted(format_, model, models.card(tmp_path))
    assert found.changes == ("scaling of each channel", "softmax")
    assert (found.layout, found.precision) == ("NCW", "fp32")
    wanted = models.softmax(onnx_answers(model, models.seen(x)))
    np.testing.assert_allclose(asked(format_, found, x), wanted, atol=1e-5)


@pytest.mark.parametrize("format_", FORMATS)
def test_other_axes_are_the_files_own_business(format_: str, tmp_path: Path) -> None:
    model, x = models.samples_first(), models.physical()
    found = fitted(format_, model, models.card(tmp_path, output='values = "logits"\ntemperature = 2.5'))
    assert found.layout == "NWC"
    assert found.changes == (
        "scaling of each channel",
        "axes as the file has them (20, 1, 3)",
        "answers as one row per window",
        "temperature 2.5",
        "softmax",
    )
    raw = onnx_answers(model, models.seen(x).transpose(0, 2, 1)[:, :, None])[:, 0]
    np.testing.assert_allclose(asked(format_, found, x), models.softmax(raw / 2.5), atol=1e-5)


UNSCALED = tuple(f'{{ name = "{name}", unit = "1", low = -2, high = 2 }}' for name in "abc")


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("values", ["probability", "logit"])
def test_one_number_becomes_two_labels(format_: str, values: str, tmp_path: Path) -> None:
    b = GraphBuilder(models.CHANNELS, models.SAMPLES)
    flow = models.logits(b, "window", 1)
    model = b.model(b.node("Sigmoid", flow) if values == "probability" else flow)
    card = models.card(tmp_path, channels=UNSCALED, labels='["no", "yes"]', output=f'values = "{values}"')
    x = models.seen(models.physical())
    answer = asked(format_, fitted(format_, model, card), x)
    raw = onnx_answers(model, x)[:, 0]
    yes = raw if values == "probability" else 1 / (1 + np.exp(-raw))
    np.testing.assert_allclose(answer, np.stack([1 - yes, yes], 1), atol=1e-5)


@pytest.mark.parametrize("format_", FORMATS)
def test_a_file_that_fits_already_stays_as_it_is(format_: str, tmp_path: Path) -> None:
    b = GraphBuilder(models.CHANNELS, models.SAMPLES)
    model = b.model(b.node("Softmax", models.logits(b, "window"), axis=1))
    card = models.card(tmp_path, channels=UNSCALED, output="")
    found = fitted(format_, model, card)
    assert found.changes == ()
    if format_ == "tflite":
        assert found.model == models.tflite(model)
    x = models.seen(models.physical())
    np.testing.assert_allclose(asked(format_, found, x), onnx_answers(model, x), atol=1e-6)


@pytest.mark.parametrize("format_", FORMATS)
def test_the_same_file_and_card_give_the_same_bytes(format_: str, tmp_path: Path) -> None:
    card = models.card(tmp_path)
    assert fitted(format_, models.samples_first(), card) == fitted(format_, models.samples_first(), card)


def integers(x: np.ndarray) -> bytes:
    """A TensorFlow Lite file with int8 at both edges."""
    b = GraphBuilder(models.CHANNELS, models.SAMPLES)
    flow = b.node("Relu", b.conv("window", models.CHANNELS, 8, 5, pads=[2, 2]))
    model = b.model(b.dense(b.node("Flatten", b.node("GlobalAveragePool", flow)), 8, 3))
    return convert(quantize(model, x, Scheme(activations="int8", weight_bits=8)), io="int8")


def on_engine(data: bytes, x: np.ndarray) -> np.ndarray:
    engine = engines.load("litert", data, EngineOptions())
    try:
        return np.array(engine.run(x)[0])
    finally:
        engine.close()


def edges(data: bytes) -> list[type]:
    """Element types of input and output."""
    interpreter = Interpreter(model_content=data)
    return [detail["dtype"] for detail in (*interpreter.get_input_details(), *interpreter.get_output_details())]


@pytest.mark.parametrize("scaled", [True, False])
def test_integers_at_the_edges_of_a_file_keep_their_steps(scaled: bool, tmp_path: Path) -> None:
    x = models.physical(64)
    own = models.seen(x)
    data = integers(own)
    found = fit_tflite(data, models.card(tmp_path, **({} if scaled else {"channels": UNSCALED})), "int8.tflite")
    assert found.precision == "int8"
    assert edges(found.model) == [np.float32, np.float32]
    wanted = models.softmax(on_engine(data, own))
    np.testing.assert_allclose(asked("tflite", found, x if scaled else own), wanted, atol=1e-5)


def test_integer_edges_are_computed_by_the_engine_bit_by_bit_as_by_numpy(tmp_path: Path) -> None:
    own = models.seen(models.physical(200)) * np.linspace(0.2, 3, 200, dtype=np.float32)[:, None, None]  # saturates
    data = integers(own[:100])
    assert edges(data) == [np.int8, np.int8]
    found = fit_tflite(data, models.card(tmp_path, channels=UNSCALED, output=""), "int8.tflite")
    assert edges(found.model) == [np.float32, np.float32]
    assert found.changes == ("quantisation of the window to int8", "answers of int8 as floats")
    np.testing.assert_array_equal(asked("tflite", found, own), on_engine(data, own))


def test_a_published_int8_file_answers_bit_by_bit_as_it_came(shared: Path, tmp_path: Path) -> None:
    data = (shared / "models" / "mlperf-tiny" / "kws_ref_model.tflite").read_bytes()
    channels = [f'{{ name = "mfcc{i}", unit = "1", low = -123, high = 26 }}' for i in range(10)]
    labels = str([str(i) for i in range(12)]).replace("'", '"')
    text = models.card_text(channels=channels, labels=labels, input='layout = "samples-first"', output="")
    (tmp_path / "kws.toml").write_text(text.replace(f"window = {models.SAMPLES}", "window = 49"))
    found = fit_tflite(data, load(tmp_path / "kws.toml"), "kws.tflite")
    with np.load(shared / "data" / "speech-commands-mini" / "mfcc.npz", allow_pickle=False) as stored:
        x = stored["mfcc"].reshape(-1, 49, 10, 1).astype(np.float32)
    wanted = on_engine(data, x)
    np.testing.assert_array_equal(on_engine(found.model, np.ascontiguousarray(x[..., 0])), wanted)


@pytest.mark.parametrize(
    ("kind", "dtype"), [(TensorProto.UINT8, np.uint8), (TensorProto.INT8, np.int8), (TensorProto.FLOAT16, np.float16)]
)
def test_an_onnx_input_of_another_type_is_rounded_and_saturated(kind: int, dtype: Any, tmp_path: Path) -> None:
    model = models.of_type(kind)
    card = models.card(tmp_path, channels=UNSCALED)
    x = models.physical() * 4
    found = fit_onnx(model.SerializeToString(), card, "typed.onnx")
    if np.issubdtype(dtype, np.integer):
        own = np.clip(np.round(x), np.iinfo(dtype).min, np.iinfo(dtype).max)
    else:
        own = x.astype(np.float16)
    wanted = models.softmax(onnx_answers(models.plain(), own.astype(np.float32)))
    np.testing.assert_allclose(asked("onnx", found, x), wanted, atol=1e-4)


def test_a_window_left_open_by_the_file_is_the_cards(tmp_path: Path) -> None:
    b = GraphBuilder(models.CHANNELS, models.SAMPLES)
    flow = b.node("Relu", b.conv("window", models.CHANNELS, 8, 5, pads=[2, 2]))
    model = b.model(b.dense(b.node("ReduceMean", flow, b.constant(np.array([2])), keepdims=0), 8, 3))
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "samples"
    del model.graph.value_info[:]
    found = fit_onnx(model.SerializeToString(), models.card(tmp_path), "open.onnx")
    x = models.physical()
    np.testing.assert_allclose(asked("onnx", found, x), models.softmax(onnx_answers(model, models.seen(x))), atol=1e-5)


@pytest.mark.parametrize(("opset", "ir"), [(7, 3), (9, 3), (11, 6), (12, 7)])
def test_old_files_with_weights_among_their_inputs_are_brought_up_to_date(opset: int, ir: int, tmp_path: Path) -> None:
    model, x = models.plain(), models.physical()
    model.opset_import[0].version, model.ir_version = opset, ir
    del model.graph.value_info[:]
    for tensor in model.graph.initializer:
        model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    onnx.checker.check_model(model)
    found = fit_onnx(model.SerializeToString(), models.card(tmp_path), "old.onnx")
    wanted = models.softmax(onnx_answers(models.plain(), models.seen(x)))
    np.testing.assert_allclose(asked("onnx", found, x), wanted, atol=1e-5)


# -- refused -----------------------------------------------------------------------------------------------------------


def two_inputs(model: onnx.ModelProto) -> None:
    model.graph.input.append(helper.make_tensor_value_info("state", TensorProto.FLOAT, [1, 8]))


def two_outputs(model: onnx.ModelProto) -> None:
    model.graph.output.append(
        helper.make_tensor_value_info(model.graph.node[0].output[0], TensorProto.FLOAT, ["batch", 8, 20])
    )


def not_a_number(model: onnx.ModelProto) -> None:
    weights = numpy_helper.to_array(model.graph.initializer[0]).copy()
    weights[0, 0, 0] = np.nan
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weights, model.graph.initializer[0].name))


def too_old(model: onnx.ModelProto) -> None:
    """Its converter cannot look into a choice."""
    model.opset_import[0].version = 9
    result = helper.make_tensor_value_info("choice", TensorProto.FLOAT, None)
    branches = [helper.make_graph([helper.make_node(k, ["t0"], ["choice"])], k, [], [result]) for k in ("Relu", "Tanh")]
    above = [
        helper.make_node("ReduceMax", ["t0"], ["most"], keepdims=0),
        helper.make_node("Cast", ["most"], ["on"], to=9),
    ]
    choice = helper.make_node("If", ["on"], ["chosen"], name="which", then_branch=branches[0], else_branch=branches[1])
    for place, node in enumerate([*above, choice], start=1):
        model.graph.node.insert(place, node)
    model.graph.node[4].input[0] = "chosen"


def for_another_window(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.shape.dim[2].dim_param = "samples"
    weights = model.graph.initializer[2]
    weights.CopyFrom(numpy_helper.from_array(np.zeros((3, 8 * 30), np.float32), weights.name))
    del model.graph.value_info[:]


def without_a_shape(model: onnx.ModelProto) -> None:
    del model.graph.input[0].type.tensor_type.shape.dim[:]


def of_indices(model: onnx.ModelProto) -> None:
    model.graph.input[0].type.tensor_type.elem_type = TensorProto.INT64
    model.graph.node.insert(0, helper.make_node("Cast", ["window"], ["floats"], to=TensorProto.FLOAT))
    model.graph.node[1].input[0] = "floats"


def given_back(model: onnx.ModelProto) -> None:
    del model.graph.node[:], model.graph.output[:], model.graph.value_info[:]
    model.graph.node.append(helper.make_node("Tanh", ["window"], ["again"]))
    shape = ["batch", models.CHANNELS, models.SAMPLES]
    model.graph.output.append(helper.make_tensor_value_info("again", TensorProto.FLOAT, shape))


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (two_inputs, r"has 2 inputs \(window, state\); a bundle's model has one input and one output, and no state"),
        (two_outputs, r"has 2 outputs"),
        (not_a_number, "'c0' .* are not finite; the file is damaged"),
        (too_old, r"borrowed.onnx: the model uses operator set 9, .* \(node 'which' \(If\) holds a graph"),
        (for_another_window, "its shapes do not hold for the card's 3 channels and 20 samples: "),
        (without_a_shape, "input window has no axes"),
        (of_indices, "input window takes INT64; a window holds measured values"),
        (given_back, "as many numbers as a window, 60, as an autoencoder has"),
    ],
)
def test_onnx_files_that_no_card_can_fit_are_refused(
    spoil: Callable[[onnx.ModelProto], None], message: str, tmp_path: Path
) -> None:
    model = models.plain()
    spoil(model)
    labels = [str(i) for i in range(models.CHANNELS * models.SAMPLES)] if spoil is given_back else ["a", "b", "c"]
    card = models.card(tmp_path, labels=str(labels).replace("'", '"'))
    with pytest.raises(ConfigError, match=message):
        fit_onnx(model.SerializeToString(), card, "borrowed.onnx")


@pytest.mark.parametrize("format_", FORMATS)
def test_labels_that_do_not_match_the_answer_are_refused(format_: str, tmp_path: Path) -> None:
    card = models.card(tmp_path, labels='["a", "b", "c", "d"]')
    with pytest.raises(ConfigError, match=r"4 labels as logits call for 4\. If each number is the score"):
        fitted(format_, models.plain(), card)


def edited(data: bytes, edit: Callable[[Any], None]) -> bytes:
    import flatbuffers  # noqa: PLC0415

    model = schema.ModelT.InitFromPackedBuf(data, 0)
    edit(model)
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def with_state(model: Any) -> None:
    code = schema.OperatorCodeT()
    code.builtinCode = schema.BuiltinOperator.VAR_HANDLE
    code.deprecatedBuiltinCode = 127
    model.operatorCodes.append(code)


def with_memory(model: Any) -> None:
    with_state(model)
    model.operatorCodes[-1].builtinCode = model.operatorCodes[-1].deprecatedBuiltinCode = schema.BuiltinOperator.SVDF


def with_a_custom_operator(model: Any) -> None:
    code = schema.OperatorCodeT()
    code.builtinCode = code.deprecatedBuiltinCode = schema.BuiltinOperator.CUSTOM
    code.customCode = "SignalWindow"
    model.operatorCodes.append(code)


def with_nan(model: Any) -> None:
    largest = max(model.buffers, key=lambda buffer: 0 if buffer.data is None else len(buffer.data))
    data = np.array(largest.data, np.uint8)
    data[:4] = np.frombuffer(np.float32(np.nan).tobytes(), np.uint8)
    largest.data = data


def with_two_outputs(model: Any) -> None:
    model.subgraphs[0].outputs = [*model.subgraphs[0].outputs, int(model.subgraphs[0].operators[0].outputs[0])]


def open_window(model: Any) -> None:
    tensor = model.subgraphs[0].tensors[int(model.subgraphs[0].inputs[0])]
    tensor.shapeSignature = [-1, 3, -1]


@pytest.mark.parametrize(
    ("edit", "message"),
    [
        (with_state, r"keeps state between calls \(VAR_HANDLE\)"),
        (with_memory, r"keeps state between calls \(SVDF\)"),
        (with_a_custom_operator, "needs operators that are no part of LiteRT: SignalWindow"),
        (with_nan, "weight .* holds NaN or infinity"),
        (with_two_outputs, "has 2 outputs"),
        (open_window, "convert it again for a window of 20 samples"),
    ],
)
def test_tflite_files_that_no_card_can_fit_are_refused(
    edit: Callable[[Any], None], message: str, tmp_path: Path
) -> None:
    data = edited(models.tflite(models.plain()), edit)
    with pytest.raises(ConfigError, match=message):
        fit_tflite(data, models.card(tmp_path), "borrowed.tflite")


@pytest.mark.parametrize("cut", [0, 4, 40, 0.5])
@pytest.mark.parametrize("format_", FORMATS)
def test_cut_files_are_refused(format_: str, cut: float, tmp_path: Path) -> None:
    card, model = models.card(tmp_path), models.plain()
    data = model.SerializeToString() if format_ == "onnx" else models.tflite(model)
    data = data[: int(cut if cut >= 1 else cut * len(data))]
    fit = fit_onnx if format_ == "onnx" else fit_tflite
    with pytest.raises(ConfigError, match=r"cut\.file: .*not a"):
        fit(data, card, "cut.file")
