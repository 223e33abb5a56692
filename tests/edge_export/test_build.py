"""The whole way from recordings to bundles, on recordings small enough for a test."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import orjson
import pytest

torch = pytest.importorskip("torch", reason="the export toolchain's networks need torch (edge-export[train])")
pytest.importorskip("onnxscript", reason="the export to ONNX needs onnxscript (edge-export[train])")
pytest.importorskip("sklearn", reason="the export toolchain's baseline needs scikit-learn (edge-export[train])")

from edge_export.cli import main  # noqa: E402
from edge_export.package.evaluation_file import accuracy_of  # noqa: E402
from edge_export.step_cache import Say, StepCache, code_digest  # noqa: E402

from edge_runtime import __version__  # noqa: E402 - only where torch is
from edge_runtime.clock import Clock  # noqa: E402
from edge_runtime.errors import ConfigError  # noqa: E402
from edge_runtime.model.bundle.bundle import open_bundle  # noqa: E402
from edge_runtime.tools.cli import main as edge_runtime  # noqa: E402
from tests.edge_export.graphs import GraphBuilder  # noqa: E402
from tests.edge_export.waves import RECIPE  # noqa: E402


@pytest.fixture(scope="module")
def built(waves: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out")
    (out / "recipe.toml").write_text(RECIPE)
    assert main(["build", str(out / "recipe.toml"), "--data", f"waves={waves}", "-o", str(out / "built")]) == 0
    return out / "built"


def test_replay_gives_the_accuracy_that_the_report_states(built: Path, tmp_path: Path) -> None:
    report = orjson.loads((built / "report.json").read_bytes())
    bundle = built / "waves-x86_64.edge"
    out = tmp_path / "predictions.jsonl"
    device = report["test"]["device"]
    arguments = ["replay", str(bundle), str(built / "test.npz"), "--out", str(out), "--variant", device]
    assert edge_runtime(arguments) == 0
    accuracy, windows = accuracy_of(out, built / "test-labels.jsonl")
    assert windows == report["windows"]["test"]
    assert accuracy == report["test"]["judged"][device]["accuracy"]
    assert accuracy > 0.8


def test_bundles_hold_what_their_architecture_runs(built: Path) -> None:
    held = {}
    for target in ("x86_64", "aarch64"):
        with open_bundle(built / f"waves-{target}.edge") as bundle:
            held[target] = [variant.name for variant in bundle.manifest.variants]
    # Measured here: the best of each format. Not measured there: the device will choose among all that are right.
    assert sorted(name.split("-")[0] for name in held["x86_64"]) == ["onnx", "tflite"]
    assert {"tflite-int8", "tflite-fp32", "onnx-fp32", "onnx-int8-s8s8"} == set(held["aarch64"])
    with open_bundle(built / "waves-x86_64.edge") as bundle:
        ax, ay = bundle.manifest.references
    assert (ax.channels, ay.channels) == (("ax",), ("ay",))
    assert -1.8 < ax.quantiles[0] < -0.9 < 0.9 < ax.quantiles[-1] < 1.8, "waves of 1 to 1.2, with noise"
    assert ax.still_s is not None
    assert ax.rates_hz == pytest.approx((50, 50), rel=0.01)
    with open_bundle(built / "waves-teacher.edge") as teacher:
        assert teacher.manifest.references == ()
        assert (teacher.manifest.input.window, teacher.manifest.input.fill) == (60, "first")


def test_a_student_s_own_front_end_and_half_precision_weights_are_in_its_files_and_not_in_the_teacher_s(
    built: Path,
) -> None:
    first = {}
    for name in ("aarch64", "teacher"):
        with open_bundle(built / f"waves-{name}.edge") as bundle:
            model = onnx.load_model_from_string(bundle.read_variant("onnx-fp32"))
        stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in model.graph.initializer}
        casts = {node.output[0]: node.input[0] for node in model.graph.node if node.op_type == "Cast"}
        weights = [
            stored[casts.get(node.input[1], node.input[1])]
            for node in model.graph.node
            if node.op_type in {"Conv", "Gemm"}
        ]
        exact = [np.array_equal(one, one.astype(np.float16).astype(np.float32)) for one in weights]
        assert all(exact) == (name == "aarch64")
        first[name] = weights[0].shape
    # Value and difference of two channels, each by a filter of its own.
    assert first["aarch64"] == (4, 1, 1, 2)
    assert first["teacher"][1] == 2


def test_the_report_shows_what_each_step_did(built: Path) -> None:
    report = orjson.loads((built / "report.json").read_bytes())
    pruning = report["pruning"]
    assert pruning["steps"][0]["parameters"] < pruning["before"]["parameters"]
    assert report["student"]["parameters"] in {pruning["before"]["parameters"], pruning["steps"][0]["parameters"]}
    assert {"minmax", "mse", "percentile", "learned"} == set(report["quantisation"]["tried"])
    assert all(layer["bytes"] > 0 for layer in report["sensitivity"])
    assert report["streaming"]["max_abs_diff"] < 1e-4
    with (
        open_bundle(built / "waves-x86_64-streaming.edge") as streaming,
        open_bundle(built / "waves-x86_64.edge") as own,
    ):
        assert streaming.manifest.input == replace(own.manifest.input, hop=8)
        assert streaming.manifest.gate == own.manifest.gate
    assert report["against_teacher"]["onnx-fp32"]["times_faster"] > 1
    assert report["bundles"]["waves-x86_64.edge"]["bytes"] == (built / "waves-x86_64.edge").stat().st_size
    assert report["test"]["unfamiliar"]["noise"] > 0.9
    assert sum(each["count"] for each in report["test"]["calibration"]) == report["windows"]["test"]


def test_the_report_has_what_its_page_shows_of_data_mistakes_learning_and_verdict(built: Path) -> None:
    report = orjson.loads((built / "report.json").read_bytes())
    classes = report["overview"]["classes"]
    for which in ("train", "validation", "test"):
        assert sum(each["windows"][which] for each in classes) == report["windows"][which]
    assert [each["groups"] for each in classes] == [6, 6, 6]
    assert all(len(each["typical"]["values"]) == 2 and len(each["typical"]["values"][0]) == 40 for each in classes)
    device = report["test"]["judged"][report["test"]["device"]]
    groups = report["mistakes"]["groups"]
    assert sum(each["wrong"] for each in groups) == round((1 - device["accuracy"]) * device["windows"])
    assert {each["group"] for each in groups} == {"p4", "p5"}
    names = [curve["name"] for curve in report["learning"]]
    assert [name.split(",")[0] for name in names] == ["teacher", "teacher", "student", "the student"]
    for curve in report["learning"]:
        assert len(curve["points"]) == 16
        assert 0 <= curve["points"][-1]["score"] <= 1
    student = report["learning"][2]["points"]
    assert student[-1]["loss"] < student[0]["loss"]
    assert student[-1]["epoch"] == pytest.approx(150 * 16 / 256, abs=1e-3)
    assert report["verdict"][0]["rule"] == "few"
    assert report["next"][0]["command"] == "edge-runtime replay waves-x86_64.edge test.npz --out answers.jsonl"
    page = (built / "report.html").read_text("utf-8")
    assert page.index("Too few test groups") < page.index("The data</h2>")


def test_everything_is_judged_beside_a_plain_baseline(built: Path) -> None:
    judged = orjson.loads((built / "report.json").read_bytes())["test"]["judged"]
    assert {"teacher", "random-forest", "onnx-fp32", "tflite-int8"} <= judged.keys()
    assert judged["teacher"]["accuracy"] > 0.8


def test_a_second_build_repeats_no_training_and_gives_the_same_bytes(
    built: Path, waves: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "again"
    out.mkdir()
    (out / "cache").symlink_to(built / "cache")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE)
    assert main(["build", str(recipe), "--data", f"waves={waves}", "-o", str(out)]) == 0
    said = capsys.readouterr().out
    assert "student: found in the cache" in said
    assert "done in" not in said
    for name in ("waves-teacher.edge", "waves-x86_64.edge", "waves-aarch64.edge", "test.npz"):
        assert (built / name).read_bytes() == (out / name).read_bytes()


def test_a_given_teacher_that_looks_at_the_whole_batch_is_refused_before_anything_is_trained(
    waves: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    graph = GraphBuilder(2, 60)
    loudest = graph.node("ReduceMax", graph.node("Abs", "window"), keepdims=1)
    scaled = graph.node(
        "GlobalAveragePool", graph.node("Relu", graph.conv(graph.node("Div", "window", loudest), 2, 4, 5))
    )
    model = graph.model(graph.node("Softmax", graph.dense(graph.node("Flatten", scaled), 4, 3), axis=1))
    onnx.save(model, str(tmp_path / "teacher.onnx"))
    begin, end = RECIPE.index("[teacher]"), RECIPE.index("[student]")
    (tmp_path / "recipe.toml").write_text(RECIPE[:begin] + '[teacher]\ngiven = "probabilities"\n' + RECIPE[end:])
    arguments = ["build", str(tmp_path / "recipe.toml"), "--data", f"waves={waves}", "-o", str(tmp_path / "out")]
    assert main([*arguments, "--teacher", str(tmp_path / "teacher.onnx")]) == 2
    said = capsys.readouterr()
    assert "windows together differ by" in said.err
    assert "export it so that each window is computed by itself" in said.err
    assert "student" not in said.out


def test_a_build_names_its_steps_by_our_own_version_and_code(
    waves: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Mapping[str, str]] = []

    def steps(folder: Path, versions: Mapping[str, str], say: Say, clock: Clock) -> StepCache:
        seen.append(versions)
        raise ConfigError("far enough")

    monkeypatch.setattr("edge_export.build.StepCache", steps)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    assert main(["build", str(tmp_path / "recipe.toml"), "--data", f"waves={waves}", "-o", str(tmp_path / "out")]) == 2
    assert seen[0]["edge-runtime"] == __version__
    assert seen[0]["code"] == code_digest()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("samples = 40", "sample = 40"), r"recipe\.toml:\d+: window.*unknown key 'sample'; did you mean 'samples'"),
        (('type = "resnet-1d"', 'type = "resnet"'), "must be one of"),
        (("max_forwarded = 0.2", ""), "name max_local_error or max_forwarded"),
        (('test = ["p4", "p5"]', 'test = ["p4", "p5", "p0"]'), "group 'p0' is in two sets"),
        (('key = "waves"', 'key = "other"'), r"--data waves=\.\.\.: the recipe's keys are other"),
        (('"flat"]', '"flat", "round"]'), "has no 'round'"),
        (('train = ["p0"', 'refit = true\ntrain = ["p0"'), "split.refit or folds and .prune. exclude each other"),
        (("depth = 2, kernel = 5", "depth = 9, kernel = 9"), "needs more than the 39 frames of 4 rows"),
    ],
)
def test_a_recipe_that_cannot_be_followed_ends_at_once_with_one_line(
    waves: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], message: str
) -> None:
    recipe = tmp_path / "recipe.toml"
    assert change[0] in RECIPE
    recipe.write_text(RECIPE.replace(*change))
    assert main(["build", str(recipe), "--data", f"waves={waves}", "-o", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(message, error), error


def test_a_given_teacher_is_asked_instead_of_trained(
    built: Path, waves: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_bundle(built / "waves-teacher.edge") as bundle:
        model = bundle.read_variant(bundle.manifest.variants[0].name)
    (tmp_path / "teacher.onnx").write_bytes(model)
    recipe = tmp_path / "recipe.toml"
    begin, end = RECIPE.index("[teacher]"), RECIPE.index("[student]")
    recipe.write_text(RECIPE[:begin] + '[teacher]\ngiven = "probabilities"\n' + RECIPE[end:])
    arguments = ["build", str(recipe), "--data", f"waves={waves}", "-o", str(tmp_path / "out")]
    assert main(arguments) == 2
    assert "--teacher MODEL.onnx" in capsys.readouterr().err
    assert main([*arguments, "--teacher", str(tmp_path / "teacher.onnx")]) == 0
    report = orjson.loads((tmp_path / "out" / "report.json").read_bytes())
    whole = orjson.loads((built / "report.json").read_bytes())
    assert report["teacher"]["tried"] == []
    assert report["test"]["judged"]["teacher"]["accuracy"] == whole["test"]["judged"]["teacher"]["accuracy"]
    assert (tmp_path / "out" / "report.html").is_file()
    with open_bundle(tmp_path / "out" / "waves-teacher.edge") as teacher:
        assert teacher.manifest.input.fill == "", "of a given model nobody knows how it was trained"
