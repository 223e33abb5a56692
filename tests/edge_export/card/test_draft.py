"""Cards drafted from model files: what is guessed, what is asked, and that `pack` takes them as they are."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np
import onnx
import pytest
from edge_export.card.any_spec import AnyCard, load_card
from edge_export.card.draft import FILL_IN, GUESS, draft
from edge_export.cli import main
from onnx import TensorProto, helper, numpy_helper

from tests import models, stateful


def one_layer(shape: list[int | str], numbers: int, end: str = "") -> onnx.ModelProto:
    """Make a dense layer over all sizes, with `end` (Softmax, Sigmoid) behind."""
    width = int(np.prod([size for size in shape[1:] if isinstance(size, int)]))
    weights = np.random.default_rng(0).standard_normal((width, numbers)).astype("f4")
    nodes = [
        helper.make_node("Flatten", ["x"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["scores" if end else "y"]),
        *([helper.make_node(end, ["scores"], ["y"])] if end else []),
    ]
    graph = helper.make_graph(
        nodes, "layer",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [shape[0], numbers])],
        [numpy_helper.from_array(weights, "w")],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def drafted(tmp_path: Path, model: onnx.ModelProto | bytes, name: str = "net.onnx") -> tuple[str, AnyCard]:
    path = tmp_path / name
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    text = draft(path)
    (tmp_path / "card.toml").write_text(text)
    card = load_card(tmp_path / "card.toml")
    assert isinstance(card, AnyCard)
    return text, card


@pytest.mark.parametrize(
    ("shape", "numbers", "end", "signal", "kind"),
    [
        (["n", 96, 96, 3], 2, "Softmax", '"rgb 96 x 96"', "probabilities"),
        (["n", 3, 64, 48], 4, "Sigmoid", '"rgb 64 x 48"', "multi-label"),
        (["n", 28, 28], 10, "Softmax", '"grey 28 x 28"', "probabilities"),
        (["n", 49, 10, 1], 12, "Softmax", '"audio 16000"', "probabilities"),
        (["n", 3, 40], 1, "Sigmoid", '"audio 16000"', "multi-label"),
        (["n", 16000], 5, "", '"audio 16000"', "probabilities"),
        (["n", 76, 32, 1], 96, "", "{ rate_hz = 50, channels = 32 }", "embedding"),
        (["n", 1], 1, "", "{ rate_hz = 1, channels = 1 }", "regression"),
        (["n", 640], 640, "", '"audio 16000"', "anomaly"),
    ],
)
def test_sizes_and_numbers_say_what_a_model_may_be(
    tmp_path: Path, shape: list[int | str], numbers: int, end: str, signal: str, kind: str
) -> None:
    text, card = drafted(tmp_path, one_layer(shape, numbers, end))
    assert f"signal = {signal}" in text
    assert card.task.output.kind == kind
    assert GUESS in text
    assert FILL_IN in text


def test_states_and_constants_are_told_from_the_signal(tmp_path: Path) -> None:
    model = onnx.load_model_from_string(stateful.leaky())
    model.graph.input.append(helper.make_tensor_value_info("sr", TensorProto.INT64, []))
    model.graph.node.append(helper.make_node("Identity", ["sr"], ["unused"]))
    _, card = drafted(tmp_path, model)
    (stage,) = card.models
    assert [(state.input, state.output) for state in stage.states] == [("h", "h_next")]
    assert [(port.name, port.value) for port in stage.inputs] == [("x", None), ("sr", 16000.0)]


def test_labels_come_from_the_file(tmp_path: Path) -> None:
    model = one_layer(["n", 16000], 3, "Softmax")
    helper.set_model_props(model, {"names": "{0: 'dog', 1: 'cat', 2: 'owl'}", "license": "MIT"})
    _, card = drafted(tmp_path, model)
    assert card.task.output.labels == ("dog", "cat", "owl")
    assert card.origin.licence == "MIT"
    tflite = models.tiny_tflite(int8=False)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w") as opened:
        opened.writestr("labels.txt", "rest\nwalk\nrun\n")
    _, card = drafted(tmp_path, tflite + archive.getvalue(), "net.tflite")
    assert card.task.output.labels == ("rest", "walk", "run")


def test_the_command_writes_a_card_that_pack_takes(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = tmp_path / "net.onnx"
    model.write_bytes(one_layer(["n", 20, 20, 3], 3, "Softmax").SerializeToString())
    card = tmp_path / "net.toml"
    assert main(["card", str(model), "-o", str(card)]) == 0
    assert "things to fill in" in capsys.readouterr().out
    assert main(["pack", str(model), "--card", str(card), "-o", str(tmp_path / "net.edge")]) == 0
    assert main(["card", str(model), "-o", str(card)]) == 2
    assert "is there already" in capsys.readouterr().err
