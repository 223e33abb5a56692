"""Builds with other families of models than networks that gradients train."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import orjson
import pytest

pytest.importorskip("torch", reason="the export toolchain's networks need torch (edge-export[train])")
pytest.importorskip("onnxscript", reason="the export to ONNX needs onnxscript (edge-export[train])")
pytest.importorskip("sklearn", reason="the export toolchain's baseline needs scikit-learn (edge-export[train])")

from edge_export.cli import main
from edge_export.package.evaluation_file import accuracy_of
from edge_export.recipe.recipe import load

from edge_runtime.errors import ConfigError
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.tools.cli import main as edge_runtime
from tests.edge_export.graphs import GraphBuilder
from tests.edge_export.waves import RECIPE


@pytest.mark.slow
def test_a_rocket_is_a_teacher_without_gradient_training_and_is_refitted_as_the_others(
    waves: Path, tmp_path: Path
) -> None:
    begin, end = RECIPE.index("[teacher]"), RECIPE.index("[student]")
    rocket = '[teacher]\ncandidates = [{ type = "rocket", width = 0.1, windows = 300 }]\n'
    recipe = RECIPE[:begin] + rocket + RECIPE[end : RECIPE.index("[prune]")] + RECIPE[RECIPE.index("[gate]") :]
    (tmp_path / "recipe.toml").write_text(recipe.replace('validation = ["p3"]', 'validation = ["p3"]\nrefit = true'))
    arguments = ["build", str(tmp_path / "recipe.toml"), "--data", f"waves={waves}", "-o", str(tmp_path / "out")]
    assert main(arguments) == 0
    report = orjson.loads((tmp_path / "out" / "report.json").read_bytes())
    assert len(report["teacher"]["tried"]) == 1
    assert report["test"]["judged"]["teacher"]["accuracy"] > 0.9
    with open_bundle(tmp_path / "out" / "waves-teacher.edge") as bundle:
        model = onnx.load_model_from_string(bundle.read_variant(bundle.manifest.variants[0].name))
    assert {"Conv", "Greater", "Softmax"} <= {node.op_type for node in model.graph.node}


CLOSED = """[teacher]
candidates = [{ type = "rocket", width = 0.1, windows = 300 }]

[student]
network = { type = "forest", trees = 8, depth = 3 }
front_end = [{ type = "difference", keep = true }, { type = "statistics" }]
pool = 256

[quantise]
calibration_windows = 64

"""


NARROW = """network = { type = "rocket", width = 0.02 }
"""


@pytest.mark.slow
@pytest.mark.parametrize("family", ["Forest", "Rocket"])
def test_a_closed_form_is_a_student_in_every_format_and_answers_from_its_bundle(
    family: str, waves: Path, tmp_path: Path
) -> None:
    recipe = RECIPE[: RECIPE.index("[teacher]")] + CLOSED + RECIPE[RECIPE.index("[gate]") :]
    if family == "Rocket":
        recipe = re.sub(r'network = \{ type = "forest".*\n.*\n', lambda _: NARROW, recipe)
    recipe = recipe.replace("stream_hop = 8\n", "").replace('validation = ["p3"]', 'validation = ["p3"]\nrefit = true')
    (tmp_path / "recipe.toml").write_text(recipe)
    out = tmp_path / "out"
    assert main(["build", str(tmp_path / "recipe.toml"), "--data", f"waves={waves}", "-o", str(out)]) == 0
    report = orjson.loads((out / "report.json").read_bytes())
    assert report["student"]["family"] == family
    assert not report["left_out"]
    judged = {name: each["accuracy"] for name, each in report["test"]["judged"].items()}
    assert judged["onnx-fp32"] > 0.9
    # Integers hold what the leaves say; which leaf a window reaches is decided in float, and is the same.
    assert abs(judged["onnx-int8-u8s8"] - judged["onnx-fp32"]) <= 0.02
    assert abs(judged["tflite-int8"] - judged["onnx-fp32"]) <= 0.02
    assert "learnt thresholds" in report["quantisation"]["operators_in_float"]["Conv"]
    answers, device = tmp_path / "answers.jsonl", report["test"]["device"]
    replay = ["replay", str(out / "waves-x86_64.edge"), str(out / "test.npz"), "--out", str(answers)]
    assert edge_runtime([*replay, "--variant", device]) == 0
    assert accuracy_of(answers, out / "test-labels.jsonl")[0] == judged[device]


@pytest.mark.parametrize("part", ["[prune]", "[quantise]\ntraining = { steps = 40 }"])
def test_what_only_gradients_can_do_is_refused_for_a_forest(tmp_path: Path, part: str) -> None:
    recipe = RECIPE[: RECIPE.index("[teacher]")] + CLOSED.partition("[quantise]")[0]
    begin = RECIPE.index("[prune]")
    recipe += RECIPE[begin : RECIPE.index("[quantise]")] if part == "[prune]" else part
    (tmp_path / "recipe.toml").write_text(recipe + "\n" + RECIPE[RECIPE.index("[gate]") :])
    with pytest.raises(ConfigError, match="is not trained by gradient"):
        load(tmp_path / "recipe.toml")


@pytest.mark.slow
def test_an_embedding_beside_the_recipe_is_a_teacher_in_every_fold(
    waves: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    begin, end = RECIPE.index("[teacher]"), RECIPE.index("[student]")
    teacher = """[teacher]
members = 3
within = 0.5
candidates = [
    { type = "embedding", file = "waves.onnx", windows = 300 },
    { type = "rocket", width = 0.05, windows = 200 },
]
"""
    recipe = RECIPE[:begin] + teacher + RECIPE[end : RECIPE.index("[prune]")] + RECIPE[RECIPE.index("[gate]") :]
    (tmp_path / "recipe.toml").write_text(recipe.replace('validation = ["p3"]', 'validation = ["p3"]\nfolds = 2'))
    arguments = ["build", str(tmp_path / "recipe.toml"), "--data", f"waves={waves}", "-o", str(tmp_path / "out")]
    assert main(arguments) == 2
    assert "cannot read" in capsys.readouterr().err
    b = GraphBuilder(2, 60)
    rectified = b.node("Relu", b.conv("window", 2, 16, 9, strides=[3]))
    onnx.save(b.model(b.node("Transpose", rectified, perm=[0, 2, 1])), tmp_path / "waves.onnx")
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "teacher candidate 1 (Embedding waves.onnx)" in said
    assert "2 of candidate" not in said, "its ensembles would answer alike"
    report = orjson.loads((tmp_path / "out" / "report.json").read_bytes())
    assert report["teacher"]["families"] == ["Embedding"]
    assert report["test"]["judged"]["teacher"]["accuracy"] > 0.7
    assert "a given embedding" in (tmp_path / "out" / "report.html").read_text("utf-8")
    with open_bundle(tmp_path / "out" / "waves-teacher.edge") as bundle:
        model = onnx.load_model_from_string(bundle.read_variant(bundle.manifest.variants[0].name))
    assert {"GlobalMaxPool", "Gemm", "Softmax"} <= {node.op_type for node in model.graph.node}
