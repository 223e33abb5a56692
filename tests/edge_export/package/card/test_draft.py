"""Drafts of cards: what a file tells is there, guesses and gaps are marked, and `pack` reads what comes out."""

from __future__ import annotations

import io
import operator
import zipfile
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx
import pytest
from edge_export.graph.tflite.write.file import Quantization, TfliteFile
from edge_export.package.card.draft import draft
from edge_export.package.card.facts import labels_in, read_facts
from edge_export.package.card.packing import pack_models
from edge_export.package.card.spec import Card, load_card
from hypothesis import given
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from edge_runtime.errors import ConfigError
from edge_runtime.manifest.mel import Mel
from edge_runtime.manifest.micro_frontend import MicroFrontend
from edge_runtime.manifest.outputs import TextOutput
from tests import stateful
from tests.edge_export.graph.tflite.read.variables import Inside, Remembering, explicit
from tests.long_tier import some

pytestmark = pytest.mark.usefixtures("models_in_this_process")

_CARDS = Path(__file__).resolve().parents[3] / "data" / "cards"
_ORIGIN = 'name = "", source = "", licence = ""'


def _filled(text: str) -> str:
    """Fill in what every card lacks."""
    text = text.replace(_ORIGIN, 'name = "made up", source = "this test", licence = "CC0"')
    return text.replace("rate_hz = 0,", "rate_hz = 50,")


def _card(text: str, folder: Path) -> Card:
    path = folder / "drafted.toml"
    path.write_text(_filled(text), "utf-8")
    return load_card(path)


def _onnx(
    folder: Path,
    row: Sequence[int | str],
    last: str,
    answers: Sequence[Sequence[int | str]],
    labels: dict[str, str] | None = None,
    kind: int = TensorProto.FLOAT,
) -> Path:
    """Write a file of these shapes; its nodes need not compute anything sensible, since a draft runs nothing."""
    outputs = [f"y{k}" for k in range(len(answers))]
    nodes = [helper.make_node(last, ["x"], [name]) for name in outputs]
    graph = helper.make_graph(
        nodes,
        "shapes",
        [helper.make_tensor_value_info("x", kind, ["n", *row])],
        [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", *shape])
            for name, shape in zip(outputs, answers, strict=True)
        ],
    )
    model = helper.make_model(graph)
    if labels:
        helper.set_model_props(model, labels)
    path = folder / "net.onnx"
    onnx.save(model, str(path))
    return path


def _tflite(
    folder: Path, shape: tuple[int, ...], dtype: npt.DTypeLike = np.float32, step: Quantization | None = None
) -> Path:
    """Write a softmax over a tensor of this shape."""
    file = TfliteFile()
    x = file.tensor("x", shape, dtype, step)
    y = file.tensor("y", shape, dtype, step)
    file.operator("SOFTMAX", [x], [y], options="SoftmaxOptions", beta=1.0)
    path = folder / "net.tflite"
    path.write_bytes(file.pack({"x": x}, {"y": y}))
    return path


def test_a_state_is_found_and_the_filled_draft_is_packed(tmp_path: Path) -> None:
    path = tmp_path / "leaky.onnx"
    path.write_bytes(stateful.leaky())
    text = draft(path)
    assert '{ input = "h", output = "h_next" }' in text
    assert "#   input x: ? x 6 x 2, float32" in text
    assert "# fill in: rate_hz" in text
    assert "# guessed: it ends in a softmax" in text
    ranges = ", ".join(f'{{ name = "{name}", low = -1, high = 1 }}' for name in "xy")
    card = _card(text.replace("channels = 2", f"channels = [{ranges}]"), tmp_path)
    assert len(card.signal.channels) == stateful.CHANNELS
    packed = pack_models(tmp_path / "leaky.edge", [{"model": path}], card, folder=tmp_path)
    assert packed.manifest.input.window == 6


def test_a_draft_that_nobody_filled_in_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "card.toml"
    (tmp_path / "leaky.onnx").write_bytes(stateful.leaky())
    path.write_text(draft(tmp_path / "leaky.onnx"))
    with pytest.raises(ConfigError):
        load_card(path)


def test_variables_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(Inside(explicit(), np.zeros((1, 3, 4), np.float32)).bytes())
    assert "1 variables will be taken out as states" in draft(path)


@pytest.mark.parametrize(
    ("row", "signal"),
    [
        ((1, 49, 10), "audio 16000"),
        ((16000,), "audio 16000"),
        ((3, 96, 64), "rgb 96 x 64"),
        ((3,), "rate_hz = 0, channels = 3"),
        ((3, 128), "rate_hz = 0, channels = 3"),
        ((32, 32, 1), "grey 32 x 32"),
        ((64, 96, 1), "audio 16000"),
        ((96, 64, 3), "rgb 96 x 64"),
        ((100, 6), "rate_hz = 0, channels = 6"),
        (("t", 6), "rate_hz = 0, channels = 6"),
        ((100, "t"), "rate_hz = 0, channels = 100"),
        ((144000,), "audio 48000"),
        ((44032,), "audio 44100"),
        ((144160,), "audio 16000"),
        ((3, "h", "w"), "rgb 320 x 320"),
        (("h", "w", 3), "rgb 320 x 320"),
    ],
)
def test_the_signal_is_guessed_by_the_shape(tmp_path: Path, row: tuple[int | str, ...], signal: str) -> None:
    text = draft(_onnx(tmp_path, row, "Softmax", [(4,)]))
    assert signal in text
    _card(text, tmp_path)


@pytest.mark.parametrize(
    ("last", "answers", "task"),
    [
        ("Gemm", [(5,)], 'values = "logits"'),
        ("Relu", [(1,)], 'type = "regression"'),
        ("Relu", [(100, 6)], 'type = "anomaly"'),
        ("Relu", [(256,)], 'type = "embedding"'),
        ("Relu", [(7, 5)], 'type = "vector"'),
        ("Sigmoid", [(1,)], 'type = "multi-label"'),
        ("Sigmoid", [(1, 40, 60)], 'type = "vector"'),
        ("Sigmoid", [(5,)], 'type = "multi-label"'),
        ("Softmax", [(5,)], 'type = "classification"'),
    ],
)
def test_the_task_is_guessed_by_the_last_operator(
    tmp_path: Path, last: str, answers: list[tuple[int, ...]], task: str
) -> None:
    text = draft(_onnx(tmp_path, (100, 6), last, answers))
    assert task in text
    _card(text, tmp_path)


@pytest.mark.parametrize(
    ("name", "row", "keys"),
    [
        ("log_mel", (64, 21), ("bands = 64", "rows = 21, hop = 10")),
        ("mel_window", (80, 40), ("bands = 40", "rows = 80, hop = 40")),
        ("fbank", (64, 64), ("bands = 64", "rows = 64, hop = 32", 'layout = "samples-first"')),
        ("x", (64, 21), ("rate_hz = 0, channels = 21",)),
        ("x", (80, 800), ("window = 128000", "rows = 800, offset = -40, scale = 0.025")),
        ("speech", ("rows", 400), ('definition = "kaldi"', "rows = 5, hop = 1")),
        ("x", (16, 96), ("melspectrogram.onnx", "rows = 76", "rows = 16, hop = 1")),
    ],
)
def test_the_front_end_is_guessed_by_name_and_shape(
    tmp_path: Path, name: str, row: tuple[int | str, ...], keys: tuple[str, ...]
) -> None:
    path = _onnx(tmp_path, row, "Sigmoid", [(1,)])
    model = onnx.load(str(path))
    model.graph.input[0].name = model.graph.node[0].input[0] = name
    onnx.save(model, str(path))
    text = draft(path)
    assert all(key in text for key in keys), text
    _card(text, tmp_path)


def test_an_input_of_many_numbers_that_nothing_feeds_is_asked_for(tmp_path: Path) -> None:
    path = _onnx(tmp_path, (7500,), "Sigmoid", [(1,)])
    model = onnx.load(str(path))
    model.graph.input.append(helper.make_tensor_value_info("scalogram", TensorProto.FLOAT, ["n", 15, 7500]))
    model.graph.input.append(helper.make_tensor_value_info("gain", TensorProto.FLOAT, [1]))
    model.ir_version, model.opset_import[0].version = 9, 17
    onnx.save(model, str(path))
    text = draft(path)
    assert '{ name = "gain", value = 0 },' in text
    assert "# fill in: a value" in text
    ranged = text.replace("channels = 1 ", 'channels = [{ name = "x", low = -1, high = 1 }] ')
    with pytest.raises(ConfigError, match="takes the track 'scalogram', which no stage before it makes"):
        pack_models(tmp_path / "net.edge", [{"model": path}], _card(ranged, tmp_path), folder=tmp_path)


def test_five_rows_of_128_bands_and_as_many_answers_are_an_anomaly_of_sound(tmp_path: Path) -> None:
    text = draft(_onnx(tmp_path, (5, 128, 1), "Relu", [(5, 128, 1)]))
    assert "frame = 1024" in text
    assert "false_alarm_rate" in text


def _trees(folder: Path, objective: str, answers: int) -> Path:
    """Write a row of three features through weights into scores, with LightGBM's words in the metadata."""
    weights = numpy_helper.from_array(np.arange(3 * answers, dtype=np.float32).reshape(3, answers) / 10, "w")
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "trees",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", answers])],
        [weights],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    helper.set_model_props(model, {"objective": objective, "feature_names": '["p0", "rank of it", "log_hours"]'})
    path = folder / "trees.onnx"
    onnx.save(model, str(path))
    return path


@pytest.mark.parametrize(
    ("objective", "answers", "values"), [("binary sigmoid:1", 1, "logit"), ("multiclass num_class:3", 3, "logits")]
)
def test_names_and_objective_in_the_metadata_make_a_card_of_rows_of_features(
    tmp_path: Path, objective: str, answers: int, values: str
) -> None:
    path = _trees(tmp_path, objective, answers)
    text = draft(path)
    assert 'channels = ["p0", "rank of it", "log_hours"]' in text
    assert f'values = "{values}"' in text
    ranges = ", ".join(f'{{ name = "{name}", low = 0, high = 1 }}' for name in ("p0", "rank of it", "log_hours"))
    text = text.replace('"p0", "rank of it", "log_hours"', ranges).replace("rate_hz = 0", "rate_hz = 1")
    packed = pack_models(tmp_path / "trees.edge", [{"model": path}], _card(text, tmp_path), folder=tmp_path)
    assert packed.manifest.input.window == 1


def test_trees_take_one_row_however_many_features_it_has(tmp_path: Path) -> None:
    path = _onnx(tmp_path, (261,), "Relu", [(1,)])
    assert "channels = 1 " in draft(path)
    model = onnx.load(str(path))
    model.graph.node[0].domain = "ai.onnx.ml"
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    onnx.save(model, str(path))
    assert "channels = 261" in draft(path)


def test_the_answer_that_ends_in_probabilities_goes_before_its_logits(tmp_path: Path) -> None:
    path = _onnx(tmp_path, (100, 6), "Gemm", [(4,), (4,)])
    model = onnx.load(str(path))
    model.graph.node[1].op_type = "Softmax"
    onnx.save(model, str(path))
    text = draft(path)
    assert 'outputs = [{ name = "y1" }]' in text
    assert "it ends in a softmax" in text


def test_labels_in_a_text_beside_the_file_are_taken_where_they_are_as_many(tmp_path: Path) -> None:
    path = _onnx(tmp_path, (100, 6), "Softmax", [(3,)])
    (tmp_path / "about.txt").write_text("one\ntwo\nthree\n", "utf-8")
    (tmp_path / "net_labels.txt").write_text("crane\nheron\nstork\n", "utf-8")
    (tmp_path / "labels_of_others.txt").write_text("crane\nheron\n", "utf-8")
    text = draft(path)
    assert 'labels = ["crane", "heron", "stork"] # net_labels.txt beside the file' in text
    (tmp_path / "net_labels.txt").write_text("crane\nheron\n\n", "utf-8")
    (tmp_path / "about.txt").unlink()
    assert "labels = 3" in draft(path)


@pytest.mark.parametrize(
    ("answers", "keys"),
    [
        ([(6, 1000)], ('rows = "joined"', 'layout = "channels-first"')),
        ([(50, 4), (50, 3)], ('of = ["boxes", "scores"]', "labels = 3")),
        ([(50, 2), (50, 4)], ("background = true", "labels = 1")),
        ([(8, 8, 18), (4, 4, 18)], ("strides = [8, 16]", "labels = 1")),
    ],
)
def test_boxes_are_told_from_scores(tmp_path: Path, answers: list[tuple[int, ...]], keys: tuple[str, ...]) -> None:
    text = draft(_onnx(tmp_path, (64, 64, 3), "Relu", answers))
    assert all(key in text for key in ('type = "detection"', *keys)), text
    _card(text, tmp_path)


@pytest.mark.parametrize(
    ("row", "answers", "keys"),
    [
        ((3, 256, 256), [(896, 16), (896, 1)], ('decode = "offsets"', "strides = [16, 32]", "box_numbers = 16")),
        ((3, 192, 192), [(2016, 18), (2016, 1)], ('decode = "offsets"', "strides = [8, 16]", 'fit = "pad"')),
        ((3, 224, 224), [(2254, 12), (2254, 1)], ("strides = [8, 16, 32]", "box_numbers = 12")),
        ((192, 192, 3), [(2304, 16), (2304, 1)], ("strides = [4]", "anchors = [[1]]")),
        ((3, 416, 416), [(3549, 85)], ('priors_at = "corner"', "objectness = true", "labels = 80", 'at = "top-left"')),
        ((3, 416, 416), [(3 * 3549, 85)], ('decode = "centre"', "objectness = true", "labels = 80")),
        ((3, 640, 640), [(84, 8400)], ('decode = "centre"', "labels = 80", "padding = 114")),
        ((3, 640, 640), [(300, 6)], ('rows = "chosen"', 'decode = "corners"')),
    ],
)
def test_families_of_detectors_are_told_by_their_shapes(
    tmp_path: Path, row: tuple[int, ...], answers: list[tuple[int, ...]], keys: tuple[str, ...]
) -> None:
    text = draft(_onnx(tmp_path, row, "Relu", answers))
    assert all(key in text for key in ('type = "detection"', *keys)), text
    _card(text, tmp_path)


@pytest.mark.parametrize(
    ("row", "signal"),
    [
        ((3, 48, "w"), "{ height = 48, width = 384, fit = "),
        ((1, 64, "w"), '{ colours = "grey", height = 64, width = 512, fit = '),
    ],
)
def test_a_line_of_text_of_any_width_is_a_picture_and_its_rows_are_text(
    tmp_path: Path, row: tuple[int | str, ...], signal: str
) -> None:
    text = draft(_onnx(tmp_path, row, "Softmax", [("t", 40)]))
    assert f"signal = {signal}" in text
    assert 'type = "text"' in text
    assert "characters in their order" in text


def test_characters_in_the_metadata_are_taken_one_a_line_and_a_space_is_the_last(tmp_path: Path) -> None:
    text = draft(_onnx(tmp_path, (3, 48, "w"), "Softmax", [("t", 6)], {"character": 'a\n,\n"\n\u3000'}))
    output = _card(text, tmp_path).task.output
    assert isinstance(output, TextOutput)
    assert output.characters == ("a", ",", '"', "\u3000", " ")


def test_several_rows_of_numbers_of_a_picture_are_landmarks(tmp_path: Path) -> None:
    text = draft(_onnx(tmp_path, (224, 224, 3), "Gemm", [(63,), (1,)]))
    assert 'of = ["y0", "y1"]' in text
    assert 'type = "vector"' in text
    _card(text, tmp_path)


def test_a_picture_that_is_larger_than_a_window_is_drafted_smaller(tmp_path: Path) -> None:
    props = {"imgsz": "[1280, 1280]", "names": "{0: 'cat', 1: 'dog'}"}
    text = draft(_onnx(tmp_path, (3, "h", "w"), "Relu", [(300, 6)], props))
    assert "1280 x 1280, for which the file was made, are more than a window holds" in text
    assert _card(text, tmp_path).signal.frame is not None


def test_size_and_labels_of_a_detector_of_open_size_come_from_its_metadata(tmp_path: Path) -> None:
    props = {"imgsz": "[64, 96]", "names": "{0: 'cat', 1: 'dog'}"}
    text = draft(_onnx(tmp_path, (3, "h", "w"), "Relu", [(6, "cells")], props))
    assert 'signal = { height = 64, width = 96, fit = "pad", padding = 114, antialias = false }' in text
    assert "rows = 126" in text, "cells of 8, 16 and 32 pixels"
    assert _card(text, tmp_path).task.output.labels == ("cat", "dog")


def test_numbers_are_the_answer_rather_than_the_index_of_a_label(tmp_path: Path) -> None:
    path = _onnx(tmp_path, (6,), "Softmax", [(1,), (3,)])
    model = onnx.load(str(path))
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    onnx.save(model, str(path))
    text = draft(path)
    assert 'outputs = [{ name = "y1" }]' in text
    assert "labels = 3" in text


def test_a_map_of_a_picture_is_no_list_of_boxes(tmp_path: Path) -> None:
    for last, answer in (("Sigmoid", (256, 256, 1)), ("Softmax", (40, 6000))):
        assert 'type = "vector"' in draft(_onnx(tmp_path, (256, 256, 3), last, [answer]))


@pytest.mark.parametrize(
    "props",
    [
        {"names": "{0: 'cat', 1: 'dog'}"},
        {"labels": '["cat", "dog"]'},
        {"classes": "cat, dog"},
        {"character": "cat\ndog"},
    ],
)
def test_labels_in_the_metadata_of_an_onnx_file_are_taken(tmp_path: Path, props: dict[str, str]) -> None:
    card = _card(draft(_onnx(tmp_path, (100, 6), "Softmax", [(2,)], props)), tmp_path)
    assert card.task.output.labels == ("cat", "dog")


def test_labels_that_are_too_few_are_not_taken(tmp_path: Path) -> None:
    text = draft(_onnx(tmp_path, (100, 6), "Softmax", [(3,)], {"names": "['cat', 'dog']"}))
    assert "labels = 3" in text
    assert "are not as many" in text


def test_labels_behind_a_tflite_file_are_taken_and_equal_ones_are_numbered(tmp_path: Path) -> None:
    path = _tflite(tmp_path, (1, 3))
    packed = io.BytesIO(path.read_bytes())
    with zipfile.ZipFile(packed, "a") as archive:
        archive.writestr("labels.txt", "crane\nheron\ncrane\n")
    path.write_bytes(packed.getvalue())
    assert read_facts(path).labels == ("crane", "heron", "crane")
    model = _onnx(tmp_path, (100, 6), "Softmax", [(3,)], {"names": '["crane", "heron", "crane"]'})
    assert '"crane (2)"' in draft(model)


@pytest.mark.parametrize("text", ["", "[1, 2]", "{'a': ", "{1: [}", "[[", "[" * 5000, "__import__('os')()[0]{"])
def test_what_is_no_list_of_labels_does_no_harm(text: str) -> None:
    assert all(isinstance(label, str) for label in labels_in(text))


@given(st.text(max_size=80))
def test_any_text_is_read_as_labels_or_not_at_all(text: str) -> None:
    assert all(isinstance(label, str) for label in labels_in(text))


def test_a_picture_of_bytes_goes_in_as_it_is(tmp_path: Path) -> None:
    text = draft(_tflite(tmp_path, (1, 32, 32, 3), np.int8, Quantization.of(1 / 128, 0)))
    assert "inputs = [{ offset = 128, scale = 0.0078125 }]" in text
    _card(text, tmp_path)


def test_a_rate_among_the_inputs_is_a_constant(tmp_path: Path) -> None:
    path = _onnx(tmp_path, (512,), "Sigmoid", [(1,)])
    model = onnx.load(str(path))
    model.graph.input.append(helper.make_tensor_value_info("sr", TensorProto.INT64, []))
    model.graph.input.append(helper.make_tensor_value_info("state", TensorProto.FLOAT, [2, "n", 128]))
    model.graph.output.append(helper.make_tensor_value_info("stateN", TensorProto.FLOAT, [2, "n", 128]))
    onnx.save(model, str(path))
    text = draft(path)
    assert '{ name = "sr", value = 16000 }, # guessed' in text
    assert '{ input = "state", output = "stateN" }' in text
    _card(text, tmp_path)


_PAIRS = (
    ("alexa", "micro-wake-word/alexa.tflite"),
    ("cifar10", "mlperf-tiny/pretrainedResnet_quant.tflite"),
    ("digit", "tflm-examples/trained_lstm.tflite"),
    ("face-front", "mediapipe-face/face_detection_front.tflite"),
    ("faces", "ultra-light-face/version-slim-320_simplified.onnx"),
    ("few-words", "openwakeword-frontend/embedding_model.onnx"),
    ("keyword", "mlperf-tiny/kws_ref_model.tflite"),
    ("micro-speech", "tflm-examples/micro_speech_quantized.tflite"),
    ("mobilenet", "coral/mobilenet_v1_0.25_128_quant.tflite"),
    ("person", "mlperf-tiny/vww_96_int8.tflite"),
    ("person-boxes", "mcunet/detection.tflite"),
    ("silero-vad", "silero-vad/silero_vad.onnx"),
    ("sine", "tflm-examples/hello_world_int8.tflite"),
    ("toycar", "mlperf-tiny/ad01_int8.tflite"),
    ("yamnet-esc10", "st-aed-esc10/yamnet_256_64x96_tl_int8.tflite"),
)


@pytest.mark.slow
@pytest.mark.parametrize("pair", some(_PAIRS, ("silero-vad", "person"), operator.itemgetter(0)))
def test_the_draft_of_a_published_file_says_what_its_proven_card_says(
    shared: Path, tmp_path: Path, pair: tuple[str, str]
) -> None:
    name, file = pair
    drafted, proven = _card(draft(shared / "models" / file), tmp_path), load_card(_CARDS / f"{name}.toml")
    assert type(drafted.task.output) is type(proven.task.output)
    assert drafted.signal.frame == proven.signal.frame or name == "face-front"  # which pads its pictures
    assert len(drafted.signal.channels) == len(proven.signal.channels)
    if name == "few-words":
        return  # its mel rows are made by another file
    assert [type(stage) for stage in drafted.stages] == [type(stage) for stage in proven.stages]
    for own, other in zip(drafted.stages, proven.stages, strict=True):
        if isinstance(own, Mel | MicroFrontend):
            assert own == other
    ours, theirs = drafted.models[-1], proven.models[-1]
    assert [one.input for one in ours.states] == [one.input for one in theirs.states]
    assert [(one.name, one.value) for one in ours.inputs if one.value] == [
        (one.name, one.value) for one in theirs.inputs if one.value
    ]
    assert ours.inputs[0].rows in (0, theirs.inputs[0].rows) or not theirs.inputs[0].rows
    assert ours.inputs[0].lead == theirs.inputs[0].lead
    assert ours.inside == theirs.inside


@pytest.mark.slow
@pytest.mark.long
def test_every_published_file_has_a_draft_that_is_a_card(shared: Path, tmp_path: Path) -> None:
    files = sorted(path for path in (shared / "models").glob("*/*") if path.suffix in (".onnx", ".tflite"))
    assert files
    for path in files:
        if path.name.startswith("audio_preprocessor"):
            with pytest.raises(ConfigError, match="SignalPCAN"):
                draft(path)
        else:
            _card(draft(path), tmp_path)


@pytest.mark.parametrize(("rows", "inside"), [(1, "kept"), (7, "cleared")])
def test_a_layer_that_takes_one_row_is_guessed_to_run_on(tmp_path: Path, rows: int, inside: str) -> None:
    path = tmp_path / "net.tflite"
    path.write_bytes(Remembering("LSTM", rows).bytes())
    text = draft(path)
    assert "#   keeps something inside: 2 variable tensors of UNIDIRECTIONAL_SEQUENCE_LSTM" in text
    assert _card(text, tmp_path).models[-1].inside == inside


@pytest.mark.slow
def test_the_states_of_dtln_are_found_though_their_names_do_not_match(shared: Path, tmp_path: Path) -> None:
    card = _card(draft(shared / "models" / "dtln" / "model_1.onnx"), tmp_path)
    assert [one.input for one in card.models[0].states] == ["input_3"]
    assert [stage.name for stage in card.stages] == ["spectrum", "magnitude", "model"]


def _beside_states(folder: Path, states: dict[str, tuple[int | str, ...]], *, rate: bool, name: str = "input") -> Path:
    """Save a model that takes (any, any) and a few states, as releases of Silero do; its numbers say nothing."""
    ends = {key: (key, f"{key}N" if key == "state" else f"{key}n") for key in states}
    nodes = [helper.make_node("Identity", list(pair[:1]), list(pair[1:])) for pair in ends.values()]
    nodes.append(helper.make_node("Sigmoid", [name], ["output"]))
    floats = TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info(name, floats, ["n", "samples"])]
    inputs += [helper.make_tensor_value_info(key, floats, sizes) for key, sizes in states.items()]
    inputs += [helper.make_tensor_value_info("sr", TensorProto.INT64, [])] if rate else []
    outputs = [helper.make_tensor_value_info("output", floats, ["n", 1])]
    outputs += [helper.make_tensor_value_info(ends[key][1], floats, sizes) for key, sizes in states.items()]
    model = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    path = folder / "vad.onnx"
    onnx.save(model, str(path))
    return path


@pytest.mark.parametrize(
    ("states", "rate", "name", "signal"),
    [
        ({"h": (2, "n", 64), "c": (2, "n", 64)}, True, "input", 'signal = "audio 16000"'),
        ({"state": (2, "n", 64)}, True, "input", 'signal = "audio 16000"'),
        ({"hidden": (2, "n", 128)}, False, "audio", 'signal = "audio 16000"'),
        ({"hidden": (1, "n", 32)}, False, "x", "rate_hz = 0"),
    ],
)
def test_the_samples_of_a_frame_are_asked_for_where_the_file_leaves_them_open(
    states: dict[str, tuple[int | str, ...]], rate: bool, name: str, signal: str, tmp_path: Path
) -> None:
    text = draft(_beside_states(tmp_path, states, rate=rate, name=name))
    assert signal in text
    assert "rows =" not in text
    assert "# fill in: r" in text
    assert "lead" not in text.split("[[stages]]")[1]


def test_the_context_of_silero_is_guessed_by_its_names_and_sizes_alone(tmp_path: Path) -> None:
    text = draft(_beside_states(tmp_path, {"state": (2, "n", 128)}, rate=True))
    assert "rows = 576, hop = 512, lead = 64" in text


@pytest.mark.parametrize(
    ("layer", "port"),
    [
        ("Conv", 'rows = 60, layout = "channels-first"'),
        ("MatMul", 'rows = 50, layout = "samples-first"'),
        ("Transposed MatMul", 'rows = 60, layout = "channels-first"'),
    ],
)
def test_the_order_of_axes_is_that_of_the_first_layer(layer: str, port: str, tmp_path: Path) -> None:
    weights = np.zeros((5, 50, 3) if layer == "Conv" else (60 if layer == "MatMul" else 50, 5), np.float32)
    source = "t" if "Transposed" in layer else "x"
    nodes = [helper.make_node("Transpose", ["x"], ["t"], perm=[0, 2, 1])] if source == "t" else []
    nodes += [helper.make_node(layer.rsplit(maxsplit=1)[-1], [source, "w"], ["y"])]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 50, 60])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", "a", "b"])],
        [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    path = tmp_path / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    text = draft(path)
    assert port in text
    assert "sums over the channels" in text
