"""Any model as a bundle: card against file, golden steps, variants, batches; with a tiny model that has a state."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from ai_edge_litert.interpreter import Interpreter
from edge_export.cli import main
from edge_export.graph.quantize import Scheme, quantize
from edge_export.graph.tflite.convert import convert
from edge_export.package.card.draft import draft
from edge_export.package.card.kinds import kind_of
from onnx import TensorProto, helper

from edge_runtime.app.python_api import open_model, replay
from edge_runtime.errors import ConfigError
from edge_runtime.manifest.stages import ModelStage
from edge_runtime.model import engines
from edge_runtime.model.bundle.bundle import Bundle, open_bundle
from edge_runtime.model.engines.base import EngineOptions
from edge_runtime.tools.cli import main as edge_runtime
from tests import stateful
from tests.edge_export.graphs import GraphBuilder, onnx_answers
from tests.edge_export.package.card import models
from tests.edge_runtime.base.media.sounds import resampled
from tests.edge_runtime.io.recordings import wav_files

pytestmark = pytest.mark.usefixtures("models_in_this_process")

CARD = """
name = "leaky"
origin = { name = "made up", source = "this test", licence = "CC0" }
signal = { rate_hz = 50, channels = [{ name = "c0", low = -3, high = 3 }, { name = "c1", low = -3, high = 3 }] }

[[stages]]
INPUTS
states = [{ input = "h" }]

[task]
type = "classification"
labels = ["low", "high", "other"]
"""
INPUTS = 'inputs = [{ name = "x", rows = 6, hop = 4 }]'


class Pack:
    """Runs ``edge-export pack`` in a folder."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capsys = capsys

    def __call__(self, card: str, model: onnx.ModelProto | bytes | None = None, *more: str) -> tuple[int, str]:
        """Return the exit code and what was said."""
        (self.folder / "card.toml").write_text(card)
        data = stateful.leaky() if model is None else model
        (self.folder / "net.onnx").write_bytes(data if isinstance(data, bytes) else data.SerializeToString())
        options = ["--card", str(self.folder / "card.toml"), "-o", str(self.folder / "net.edge")]
        code = main(["pack", str(self.folder / "net.onnx"), *more, *options])
        said = self._capsys.readouterr()
        return code, said.err if code else said.out

    def bundle(self) -> Bundle:
        return open_bundle(self.folder / "net.edge")


@pytest.fixture
def pack(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Pack:
    return Pack(tmp_path, capsys)


def leaky_card(inputs: str = INPUTS, card: str = CARD) -> str:
    return card.replace("INPUTS", inputs)


def test_a_model_with_a_state_answers_a_stream_as_its_own_code_does(pack: Pack, tmp_path: Path) -> None:
    code, said = pack(leaky_card())
    assert code == 0, said
    assert "state h goes on as h_next" in said
    assert "a step of 4 samples (0.08 s)" in said
    samples = stateful.stream(12)
    rows = [f"{i / 50},{x},{y}" for i, (x, y) in enumerate(samples.tolist())]
    (tmp_path / "day.csv").write_text("t,c0,c1\n" + "\n".join(rows) + "\n")
    with open_model(tmp_path / "net.edge") as model:
        answers = list(replay(model, tmp_path / "day.csv"))
    wanted = stateful.expected(samples)
    assert len(answers) == len(wanted)
    np.testing.assert_allclose([answer.scores for answer in answers], wanted, atol=1e-6)


WALKS = """
name = "walks"
origin = { name = "made up", source = "this test", licence = "CC0" }
signal = { rate_hz = 50, channels = [CHANNELS] }
window = 20
hop = 10

[[stages]]
inputs = [{ rows = 20 }]

[task]
type = "classification"
labels = ["rest", "walk", "run"]
"""
JOINED = (
    '{ name = "ax", unit = "m/s2", low = -2, high = 2, resample = "mean" }, '
    '{ name = "p", unit = "kPa", low = -2, high = 2, max_age_s = 60, missing = "last" }, '
    '{ name = "p there", unit = "1", low = 0, high = 1, mask_of = "p" }'
)


def walking() -> onnx.ModelProto:
    """Write a classifier of windows (n, channels, samples) with a Conv1d."""
    b = GraphBuilder(models.CHANNELS, models.SAMPLES)
    return b.model(b.node("Softmax", models.logits(b, "window"), axis=1))


def test_a_classifier_of_windows_as_they_are_needs_no_stages_and_its_conv1d_is_faster(
    pack: Pack, tmp_path: Path
) -> None:
    (tmp_path / "net.tflite").write_bytes(models.tflite(walking()))
    plain = ", ".join(f'{{ name = "{name}", low = -2, high = 2 }}' for name in "abc")
    code, said = pack(WALKS.replace("CHANNELS", plain), walking(), str(tmp_path / "net.tflite"))
    assert code == 0, said
    assert "net.onnx: Conv1d as Conv2d" in said
    with pack.bundle() as bundle:
        manifest = bundle.manifest
        assert (manifest.stages, manifest.schema_version) == ((), 1), "every release and every server reads it"
        assert (manifest.input.window, manifest.input.hop) == (20, 10)
        weights = [
            len(one.dims) for one in onnx.load_model_from_string(bundle.read_variant("onnx-fp32")).graph.initializer
        ]
        assert max(weights) == 4
        for variant in manifest.variants:
            inputs, answers = bundle.golden(variant.name)
            np.testing.assert_allclose(answers, onnx_answers(walking(), inputs), atol=1e-5)


def test_integer_edges_are_computed_by_the_engine_bit_by_bit_as_by_numpy(tmp_path: Path) -> None:
    x = np.random.default_rng(3).normal(0, 1, (200, models.CHANNELS, models.SAMPLES)).astype(np.float32)  # saturates
    data = convert(quantize(models.plain(), x[:9], Scheme(activations="int8", weight_bits=8)), io="int8")
    (tmp_path / "net.tflite").write_bytes(data)
    (tmp_path / "card.toml").write_text(WALKS.replace("CHANNELS", JOINED) + 'values = "logits"\n')
    arguments = ["pack", str(tmp_path / "net.tflite"), "--card", str(tmp_path / "card.toml")]
    assert main([*arguments, "-o", str(tmp_path / "net.edge")]) == 0
    with zipfile.ZipFile(tmp_path / "net.edge") as bundle:
        packed = bundle.read("variants/tflite-int8.tflite")
    ends = Interpreter(model_content=packed)
    assert [one["dtype"] for one in (*ends.get_input_details(), *ends.get_output_details())] == [np.float32] * 2
    answers = []
    for model in (packed, data):
        engine = engines.load("litert", model, EngineOptions())
        answers.append(np.array(engine.run(x)[0]))
        engine.close()
    np.testing.assert_array_equal(answers[0], answers[1])


def test_an_onnx_file_can_bring_a_tflite_one(pack: Pack, tmp_path: Path) -> None:
    card = WALKS.replace("CHANNELS", JOINED)
    code, said = pack(card, walking(), "--tflite")
    assert code == 0, said
    with pack.bundle() as bundle:
        assert [variant.name for variant in bundle.manifest.variants] == ["onnx-fp32", "tflite-fp32"]
    (tmp_path / "net.tflite").write_bytes(models.tflite(walking()))
    code, said = pack(card, walking(), str(tmp_path / "net.tflite"), "--tflite")
    assert (code, "give an ONNX file, and no other" in said) == (2, True)


@pytest.mark.parametrize(
    ("written", "reason"),
    [
        (lambda _: models.tflite(models.plain(4)), "was not found"),
        (lambda _: models.tflite(walking())[:400], "net.tflite"),
        (convert, "MaxPool"),
    ],
    ids=["another model", "a cut file", "an operator without a form"],
)
def test_a_written_tflite_file_that_fails_leaves_the_onnx_file_in_the_bundle(
    pack: Pack, monkeypatch: pytest.MonkeyPatch, written: Any, reason: str
) -> None:
    model = walking()
    dilated = {"kernel_shape": [2], "dilations": [2], "pads": [1, 1]}
    model.graph.node.insert(0, helper.make_node("MaxPool", ["window"], ["odd"], name="odd_one", **dilated))
    model.graph.node[1].input[0] = "odd"
    monkeypatch.setattr("edge_export.graph.tflite.convert.convert", written)
    code, said = pack(WALKS.replace("CHANNELS", JOINED), model, "--tflite")
    assert code == 0, said
    assert "not written as TensorFlow Lite: " in said
    assert reason in said
    with pack.bundle() as bundle:
        assert [variant.name for variant in bundle.manifest.variants] == ["onnx-fp32"]


@pytest.mark.parametrize(
    ("kind", "seen"),
    [
        (TensorProto.UINT8, lambda x: np.clip(np.round(x), 0, 255)),
        (TensorProto.INT8, lambda x: np.clip(np.round(x), -128, 127)),
        (TensorProto.FLOAT16, lambda x: x.astype(np.float16)),
    ],
    ids=["uint8", "int8", "float16"],
)
def test_an_onnx_input_of_another_type_is_rounded_and_saturated(pack: Pack, kind: int, seen: Any) -> None:
    model = walking()
    model.graph.input[0].name = "raw"
    model.graph.input[0].type.tensor_type.elem_type = kind
    model.graph.node.insert(0, helper.make_node("Cast", ["raw"], ["window"], to=TensorProto.FLOAT))
    card = WALKS.replace("CHANNELS", JOINED).replace("low = -2, high = 2", "low = -200, high = 300")
    code, said = pack(card, model)
    assert code == 0, said
    with pack.bundle() as bundle:
        inputs, answers = bundle.golden("onnx-fp32")
    np.testing.assert_allclose(answers, onnx_answers(walking(), seen(inputs).astype(np.float32)), atol=1e-4)


def test_how_channels_are_joined_reaches_the_bundle_and_the_person_who_inspects_it(
    pack: Pack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pack(WALKS.replace("CHANNELS", JOINED), walking())[0] == 0
    with pack.bundle() as bundle:
        ax, p, mask = bundle.manifest.input.channels
    assert (ax.resample, p.max_age_s, p.missing, mask.mask_of) == ("mean", 60, "last", "p")
    assert edge_runtime(["inspect", str(tmp_path / "net.edge")]) == 0
    shown = capsys.readouterr().out
    for line in ("schema_version: 2", "resample: mean", "max_age_s: 60.0", "missing: last", "mask_of: p"):
        assert line in shown


FLOWERS = """
name = "flowers"
origin = { name = "made up", source = "this test", licence = "CC0" }
signal = { rate_hz = 1, channels = [{ name = "width", low = -3, high = 3 }, { name = "length", low = -3, high = 3 }] }

[[stages]]
inputs = [{ rows = 1 }]
outputs = [{ name = "probabilities" }]

[task]
type = "classification"
labels = ["iris", "rose"]
"""


def flowers() -> onnx.ModelProto:
    """Write a classifier as scikit-learn's converter does: a label, and a map of probabilities."""
    nodes = [
        helper.make_node(
            "LinearClassifier", ["x"], ["label", "p"], domain="ai.onnx.ml", coefficients=[1.0, 0.5, -1.0, 0.25],
            intercepts=[0.1, -0.1], classlabels_ints=[0, 1], post_transform="SOFTMAX",
        ),
        helper.make_node("ZipMap", ["p"], ["probabilities"], domain="ai.onnx.ml", classlabels_int64s=[0, 1]),
    ]  # fmt: skip
    maps = helper.make_sequence_type_proto(
        helper.make_map_type_proto(TensorProto.INT64, helper.make_tensor_type_proto(TensorProto.FLOAT, []))
    )
    graph = helper.make_graph(
        nodes, "flowers", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2])],
        [helper.make_tensor_value_info("label", TensorProto.INT64, ["n"]),
         helper.make_value_info("probabilities", maps)],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("ai.onnx.ml", 1)], ir_version=8)


def test_a_map_of_scikit_learn_is_taken_off_and_the_probabilities_stay(pack: Pack, tmp_path: Path) -> None:
    code, said = pack(FLOWERS, flowers())
    assert code == 0, said
    assert "ZipMap taken off probabilities" in said
    (tmp_path / "day.csv").write_text("t,width,length\n0,0.5,-1\n1,-2,2\n")
    with open_model(tmp_path / "net.edge") as model:
        answers = [answer.scores for answer in replay(model, tmp_path / "day.csv")]
    scores = np.array([[0.5, -1], [-2, 2]]) @ np.array([[1.0, 0.5], [-1.0, 0.25]]).T + [0.1, -0.1]
    wanted = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(answers, wanted, atol=1e-6)
    text = draft(tmp_path / "net.onnx")
    assert 'labels = ["0", "1"]' in text
    assert 'outputs = [{ name = "probabilities" }]' in text


READER = """
name = "reader"
origin = { name = "made up", source = "this test", licence = "CC0" }
signal = { height = 2, width = 4, colours = "grey" }

[task]
type = "text"
characters = "ab"
"""


@pytest.mark.parametrize("order", [[0, 2, 1], [2, 0, 1]], ids=["windows first", "places first"])
def test_rows_of_character_scores_are_text_whichever_axis_is_first(pack: Pack, order: list[int]) -> None:
    nodes = [
        helper.make_node("Concat", ["x", "ones"], ["taller"], axis=1),
        helper.make_node("Softmax", ["taller"], ["p"], axis=1),
        helper.make_node("Transpose", ["p"], ["y"], perm=order),
    ]
    shape = [[1, 2, 4], [1, 3, 4]]
    graph = helper.make_graph(
        nodes, "reader", [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape[0])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [shape[1][axis] for axis in order])],
        [helper.make_tensor("ones", TensorProto.FLOAT, [1, 1, 4], [1.0] * 4)],
    )  # fmt: skip
    code, said = pack(READER, helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8))
    assert code == 0, said
    with pack.bundle() as bundle:
        assert bundle.manifest.output.shape == (4, 3)
    code, said = pack(READER.replace('"ab"', '"abcd"'), pack.folder.joinpath("net.onnx").read_bytes())
    assert code == 2
    assert "names 4 characters beside the blank" in said


def test_the_trial_says_how_many_keys_may_share_a_call(pack: Pack) -> None:
    card = leaky_card().replace('["low", "high", "other"]', "2")
    alone = onnx.load_model_from_string(stateful.leaky())
    alone.graph.node[0].op_type = "ReduceMax"  # sums and products of matrices are rounded otherwise for many rows
    del alone.graph.node[3]
    alone.graph.node[3].input[0] = "h_next"
    alone.graph.output[0].CopyFrom(helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 2]))
    assert pack(card, alone)[0] == 0
    with pack.bundle() as bundle:
        assert bundle.manifest.variants[0].batch == 0
    mixing = onnx.ModelProto()
    mixing.CopyFrom(alone)
    mixing.graph.node.insert(0, helper.make_node("ReduceMax", ["x"], ["loudest"], axes=[0], keepdims=1))
    mixing.graph.node.insert(1, helper.make_node("Sub", ["x", "loudest"], ["relative"]))
    mixing.graph.node[2].input[0] = "relative"
    assert pack(card, mixing)[0] == 0
    with pack.bundle() as bundle:
        assert bundle.manifest.variants[0].batch == 1, "it looks at the loudest value of all keys"


def test_a_second_file_of_the_same_model_may_have_other_names(pack: Pack, tmp_path: Path) -> None:
    other = onnx.load_model_from_string(stateful.leaky())
    for node in other.graph.node:
        node.input[:] = [f"my_{name}" if name in ("x", "h") else name for name in node.input]
        node.output[:] = ["answer" if name == "y" else name for name in node.output]
    for value in other.graph.input:
        value.name = f"my_{value.name}"
    other.graph.output[0].name = "answer"
    (tmp_path / "other.onnx").write_bytes(other.SerializeToString())
    code, said = pack(leaky_card(), None, str(tmp_path / "other.onnx"))
    assert code == 0, said
    with pack.bundle() as bundle:
        first, second = bundle.manifest.variants
    assert (first.tensors, second.name) == ({}, "onnx-fp32-other")
    assert second.tensors == {"x": "my_x", "h": "my_h", "y": "answer"}
    assert "onnx-fp32-other on onnxruntime" in said


def test_another_model_is_no_variant(pack: Pack, tmp_path: Path) -> None:
    other = onnx.load_model_from_string(stateful.leaky())
    other.graph.initializer[1].CopyFrom(onnx.numpy_helper.from_array(-stateful.WEIGHTS, "weights"))
    (tmp_path / "other.onnx").write_bytes(other.SerializeToString())
    code, said = pack(leaky_card(), None, str(tmp_path / "other.onnx"))
    assert code == 2
    assert "not the same model" in said


def test_the_licence_reaches_the_manifest_and_who_inspects_it(
    pack: Pack, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pack(leaky_card())[0] == 0
    with pack.bundle() as bundle:
        assert bundle.manifest.provenance["origin"]["licence"] == "CC0"
    assert edge_runtime(["inspect", str(tmp_path / "net.edge")]) == 0
    assert "licence: CC0" in capsys.readouterr().out


def test_the_same_arguments_give_the_same_bytes(pack: Pack, tmp_path: Path) -> None:
    assert pack(leaky_card())[0] == 0
    first = (tmp_path / "net.edge").read_bytes()
    assert pack(leaky_card())[0] == 0
    assert (tmp_path / "net.edge").read_bytes() == first


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ((INPUTS, 'inputs = [{ name = "z", rows = 6 }]'), "has no input 'z'; it has x"),
        ((INPUTS, "inputs = [{ rows = 5 }]"), "5 rows of 2 numbers do not fit the file's (any, 6, 2)"),
        (('states = [{ input = "h" }]', ""), "which input takes the rows?|nothing feeds h"),
        (('input = "h"', 'input = "hidden"'), "has no input 'hidden'"),
        (('input = "h"', 'input = "h", output = "y"'), "goes in as"),
        (('input = "h"', 'input = "h", batch = 1'), "is no batch"),
        (('input = "h"', 'input = "h", shape = [3]'), "h"),
        (('"low", "high", "other"', '"low", "high"'), "the answer has 3 numbers, and [task] calls for 2"),
        (('[task]\ntype = "classification"', '[task]\nof = "nothing"\ntype = "classification"'), "known here: window"),
        (('"classification"', '"multi-label"\nsmooth = { steps = 1 }'), "steps must be 2 or more"),
        (('type = "classification"\nlabels = ["low", "high", "other"]', 'type = "anomaly"\nthreshold = 1'),
         "an anomaly score is one; if the model imitates its input"),
        (('type = "classification"\nlabels = ["low", "high", "other"]',
          'type = "regression"\nquantities = [{ name = "a" }]'), "names 1 quantities; name each"),
        (("low = -3, high = 3 }, {", "low = -3 }, {"), "give --recording FILE, or low and high of channel 'c0'"),
    ],
)  # fmt: skip
def test_a_card_that_does_not_fit_its_file_is_refused_in_one_line(
    pack: Pack, changed: tuple[str, str], message: str
) -> None:
    card = leaky_card()
    assert changed[0] in card
    code, said = pack(card.replace(*changed))
    assert code == 2, said
    (line,) = [line for line in said.splitlines() if line.startswith("edge-export:")]
    assert any(part in line for part in message.split("|")), line


def scores(row: int, values: str, model: onnx.ModelProto | None = None) -> str:
    del model
    return (
        leaky_card()
        .replace('labels = ["low", "high", "other"]', f"labels = {row}\n{values}")
        .replace('states = [{ input = "h" }]', 'states = [{ input = "h" }]\noutputs = [{ name = "logits" }]')
    )


def ends_in(name: str, size: int) -> onnx.ModelProto:
    """Make `stateful.leaky` answer with its scores before the softmax, too."""
    model = onnx.load_model_from_string(stateful.leaky())
    model.graph.output.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]))
    return model


def test_an_embedding_packed_as_a_classifier_is_refused(pack: Pack) -> None:
    code, said = pack(scores(3, ""), ends_in("logits", 3))
    assert code == 2
    assert 'write values = "logits" under [task]; an embedding' in said


def test_scores_before_the_softmax_become_probabilities(pack: Pack) -> None:
    code, said = pack(scores(3, 'values = "logits"'), ends_in("logits", 3))
    assert code == 0, said
    assert "outputs that nothing takes: model.y" in said
    with pack.bundle() as bundle:
        _, answers = bundle.golden("onnx-fp32")
    answered = answers[answers.sum(axis=1) > 0]
    np.testing.assert_allclose(answered.sum(axis=1), 1, atol=1e-6)


@pytest.mark.parametrize(("rate", "notes"), [(400, 0), (800, 1)])
def test_sound_of_another_rate_than_the_cards_is_named(pack: Pack, tmp_path: Path, rate: int, notes: int) -> None:
    sound = np.asarray(np.sin(np.arange(2000)) / 2, np.float32)
    said_wav = wav_files.write(tmp_path / "said.wav", sound, rate)
    nodes = [helper.make_node("Softmax", ["x"], ["y"], axis=-1)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 12]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    card = PICTURES.replace("rgb 8 x 12", "audio 400").replace("labels = 3", "labels = 12")
    code, said = pack(card, model, "--recording", str(said_wav))
    assert code == 0, said
    assert said.count("has 800 samples a second, resampled to the card's 400") == notes


def hearing() -> onnx.ModelProto:
    """Make a model of sound: 512 samples as a row of probabilities."""
    nodes = [helper.make_node("Softmax", ["x"], ["y"], axis=-1)]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 512]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


@pytest.mark.parametrize(("low", "top_hz", "notes"), [(8000, 4000, 0), (4000, 2000, 1)])
def test_recordings_say_how_far_up_sound_reaches(
    pack: Pack, tmp_path: Path, low: int, top_hz: float, notes: int
) -> None:
    noise = np.random.default_rng(0).normal(0, 0.1, (11 * low, 1)).astype(np.float32)
    sound = noise if low == 8000 else resampled(noise, low, 8000)
    wav = wav_files.write(tmp_path / "day.wav", sound, 8000)
    card = PICTURES.replace("rgb 8 x 12", "audio 8000").replace("labels = 3", "labels = 512")
    code, said = pack(card, hearing(), "--recording", str(wav))
    assert code == 0, said
    assert said.count("and the card's rate has room for 4000: if they were recorded at") == notes
    with pack.bundle() as bundle:
        (reference,) = bundle.manifest.references
    assert reference.top_hz == pytest.approx(top_hz, rel=0.05)
    assert (reference.channels, reference.still_s, reference.rates_hz) == (("sound",), None, None)


def seeing(*sizes: str | int) -> onnx.ModelProto:
    """Make a model of pictures: the mean of each colour as probabilities."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[2, 3], keepdims=0),
        helper.make_node("Softmax", ["mean"], ["y"], axis=-1),
    ]
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3, *sizes])]
    graph = helper.make_graph(nodes, "g", inputs, [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 3])])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


PICTURES = """
name = "seeing"
origin = { name = "made up", source = "this test", licence = "CC0" }
signal = "rgb 8 x 12"

[task]
type = "classification"
labels = 3
"""


def test_open_sizes_of_a_picture_are_those_of_the_signal(pack: Pack) -> None:
    code, said = pack(PICTURES, seeing("h", "w"))
    assert code == 0, said
    with pack.bundle() as bundle:
        (stage,) = bundle.manifest.stages
        assert isinstance(stage, ModelStage)
        assert (stage.inputs[0].layout, stage.inputs[0].shape) == ("NCW", (3, 8, 12))


def test_height_and_width_the_other_way_round_are_refused(pack: Pack) -> None:
    code, said = pack(PICTURES, seeing(12, 8))
    assert code == 2
    assert "takes (any, 3, 12, 8), and the signal is 8 x 12 (height x width) of 3 colours; correct signal" in said


def test_rows_side_by_side_fill_the_last_axis_of_a_file_whose_steps_are_open(pack: Pack) -> None:
    nodes = [helper.make_node("Softmax", ["x"], ["y"], axis=-1)]
    shape = ["n", "t", 12]
    ends = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in "xy")
    graph = helper.make_graph(nodes, "steps", [next(ends)], [next(ends)])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    card = leaky_card('inputs = [{ rows = 6, layout = "samples-first" }]').replace('states = [{ input = "h" }]', "")
    code, said = pack(card.replace('["low", "high", "other"]', "12"), model)
    assert code == 0, said
    with pack.bundle() as bundle:
        (stage,) = bundle.manifest.stages
        assert isinstance(stage, ModelStage)
        assert (stage.inputs[0].layout, stage.inputs[0].shape) == ("NWC", (1, 12))


def test_axes_that_may_be_swapped_are_asked_for(pack: Pack) -> None:
    nodes = [helper.make_node("Softmax", ["x"], ["y"], axis=-1)]
    flat = helper.make_graph(
        nodes, "flat",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 12])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 12])],
    )  # fmt: skip
    model = helper.make_model(flat, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    card = leaky_card("inputs = [{ rows = 6 }]").replace('states = [{ input = "h" }]', "")
    card = card.replace('["low", "high", "other"]', "12")
    code, said = pack(card, model)
    assert code == 2
    assert 'write layout = "samples-first" or "channels-first"' in said
    code, said = pack(card.replace("rows = 6", 'layout = "channels-first"'), model)
    assert code == 0, said
    with pack.bundle() as bundle:
        inputs, answers = bundle.golden("onnx-fp32")
        assert bundle.manifest.input.window == 6
    shown = np.exp(inputs.reshape(len(inputs), 12))
    np.testing.assert_allclose(answers, shown / shown.sum(axis=1, keepdims=True), rtol=1e-5)


@pytest.mark.parametrize(
    ("name", "command"),
    [
        ("net.h5", "tf.lite.TFLiteConverter.from_keras_model"),
        ("net.jit", "torch.onnx.export(torch.jit.load('net.jit')"),
        ("net.keras", "from_keras_model"),
        ("net.pt", "edge_export.from_torch(model, example"),
        ("net.txt", "neither .onnx nor .tflite"),
        ("saved", "from_saved_model('saved')"),
    ],
)
def test_other_kinds_of_files_are_refused_with_what_converts_them(tmp_path: Path, name: str, command: str) -> None:
    path = tmp_path / name
    if "." in name:
        path.write_bytes(b"x")
    else:
        path.mkdir()
        (path / "saved_model.pb").write_bytes(b"x")
    with pytest.raises(ConfigError) as refused:
        kind_of(path)
    assert command in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_card_of_two_models_takes_a_file_for_each(pack: Pack, tmp_path: Path) -> None:
    card: Any = leaky_card().replace("[[stages]]\n", '[[stages]]\nname = "first"\n')
    card = card.replace("[task]", '[[stages]]\nname = "second"\ninputs = [{ rows = 1 }]\n\n[task]')
    nodes = [helper.make_node("Softmax", ["score"], ["out"], axis=-1)]
    head = helper.make_graph(
        nodes, "head",
        [helper.make_tensor_value_info("score", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info("out", TensorProto.FLOAT, ["n", 3])],
    )  # fmt: skip
    model = helper.make_model(head, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (tmp_path / "head.onnx").write_bytes(model.SerializeToString())
    code, said = pack(card)
    assert code == 2
    assert "1 files for the stages first, second" in said
    code, said = pack(card, None, str(tmp_path / "head.onnx"))
    assert code == 0, said
    code, said = pack(card, None, "--stage", f"second={tmp_path / 'head.onnx'}")
    assert code == 0, said
    with pack.bundle() as bundle:
        (variant,) = bundle.manifest.variants
        assert [other.stage for other in variant.others] == ["first"]
    code, said = pack(card, None, "--stage", f"third={tmp_path / 'head.onnx'}")
    assert "has no such model; it has first, second" in said
