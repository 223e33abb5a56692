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
from edge_export.recipe.recipe import load  # noqa: E402
from edge_export.splits import REFITTED  # noqa: E402
from edge_export.step_cache import Say, StepCache, code_digest  # noqa: E402

from edge_runtime import __version__  # noqa: E402 - only where torch is
from edge_runtime.bundle.bundle import open_bundle  # noqa: E402
from edge_runtime.cli import main as edge_runtime  # noqa: E402
from edge_runtime.clock import Clock  # noqa: E402
from edge_runtime.errors import ConfigError  # noqa: E402
from tests.edge_export.graphs import GraphBuilder  # noqa: E402

RECIPE = """
name = "waves"
version = 3
created = "2026-01-02"
classes = ["slow", "fast", "flat"]
targets = ["cpu", "raspberry-pi-4"]
stream_hop = 8

[[data]]
type = "npz"
key = "waves"
time = "t"
label = "y"
origin = { name = "made up", source = "this test", licence = "CC0" }

[window]
rate_hz = 50
samples = 40
hop = 20
context = 60
label = "majority"
channels = [{ name = "ax", unit = "g" }, { name = "ay", unit = "g" }]

[split]
test = ["p4", "p5"]
validation = ["p3"]
train = ["p0", "p1", "p2"]

[teacher]
training = { steps = 120, batch = 16 }
candidates = [{ type = "resnet-1d", width = 0.125, depth = 2 }, { type = "resnet-1d", width = 0.25, depth = 2 }]

[student]
network = { type = "separable-cnn-1d", width = 0.5, depth = 2, kernel = 5 }
training = { steps = 150, batch = 16, learning_rate = 0.01 }
pool = 256
weights = "float16"
front_end = [{ type = "difference", keep = true }]

[prune]
ratio = 0.3
steps = 1
round_to = 4
max_drop = 0.2
training = { steps = 60, batch = 16 }

[quantise]
calibration_windows = 64
training = { steps = 40, batch = 16, learning_rate = 0.0005 }

[gate]
max_forwarded = 0.2

[references]
"""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six people who wave slowly, fast or not at all, sample by sample, on jittering clocks."""
    folder = tmp_path_factory.mktemp("waves")
    for person in range(6):
        random = np.random.default_rng(person)
        y = np.repeat(random.permutation([0, 1, 2, 0, 1, 2]), 300)
        t = np.arange(len(y)) / 50 + random.uniform(-0.002, 0.002, len(y))
        frequency = np.array([0.7, 3.0, 0.0])[y]
        phase = np.cumsum(2 * np.pi * frequency / 50)
        x = np.stack([np.sin(phase), np.cos(phase)], 1) * (1 + 0.1 * person) + 0.2 * random.standard_normal((len(y), 2))
        np.savez(folder / f"p{person}.npz", x=x.astype(np.float32), y=y, t=t)
    return folder


@pytest.fixture(scope="module")
def built(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("out")
    (out / "recipe.toml").write_text(RECIPE)
    assert main(["build", str(out / "recipe.toml"), "--data", f"waves={data}", "-o", str(out / "built")]) == 0
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
    built: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "again"
    out.mkdir()
    (out / "cache").symlink_to(built / "cache")
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(RECIPE)
    assert main(["build", str(recipe), "--data", f"waves={data}", "-o", str(out)]) == 0
    said = capsys.readouterr().out
    assert "student: found in the cache" in said
    assert "done in" not in said
    for name in ("waves-teacher.edge", "waves-x86_64.edge", "waves-aarch64.edge", "test.npz"):
        assert (built / name).read_bytes() == (out / name).read_bytes()


def test_a_given_teacher_that_looks_at_the_whole_batch_is_refused_before_anything_is_trained(
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
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
    arguments = ["build", str(tmp_path / "recipe.toml"), "--data", f"waves={data}", "-o", str(tmp_path / "out")]
    assert main([*arguments, "--teacher", str(tmp_path / "teacher.onnx")]) == 2
    said = capsys.readouterr()
    assert "windows together differ by" in said.err
    assert "export it so that each window is computed by itself" in said.err
    assert "student" not in said.out


def test_a_build_names_its_steps_by_our_own_version_and_code(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[Mapping[str, str]] = []

    def steps(folder: Path, versions: Mapping[str, str], say: Say, clock: Clock) -> StepCache:
        seen.append(versions)
        raise ConfigError("far enough")

    monkeypatch.setattr("edge_export.build.StepCache", steps)
    (tmp_path / "recipe.toml").write_text(RECIPE)
    assert main(["build", str(tmp_path / "recipe.toml"), "--data", f"waves={data}", "-o", str(tmp_path / "out")]) == 2
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
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], change: tuple[str, str], message: str
) -> None:
    recipe = tmp_path / "recipe.toml"
    assert change[0] in RECIPE
    recipe.write_text(RECIPE.replace(*change))
    assert main(["build", str(recipe), "--data", f"waves={data}", "-o", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert re.search(message, error), error


def test_a_given_teacher_is_asked_instead_of_trained(
    built: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_bundle(built / "waves-teacher.edge") as bundle:
        model = bundle.read_variant(bundle.manifest.variants[0].name)
    (tmp_path / "teacher.onnx").write_bytes(model)
    recipe = tmp_path / "recipe.toml"
    begin, end = RECIPE.index("[teacher]"), RECIPE.index("[student]")
    recipe.write_text(RECIPE[:begin] + '[teacher]\ngiven = "probabilities"\n' + RECIPE[end:])
    arguments = ["build", str(recipe), "--data", f"waves={data}", "-o", str(tmp_path / "out")]
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


@pytest.fixture(scope="module")
def refitted(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build by the recipe, unpruned, for every architecture, whose networks are trained again on p3 too."""
    out = tmp_path_factory.mktemp("refit")
    begin, end = RECIPE.index("[prune]"), RECIPE.index("[quantise]")
    recipe = RECIPE[:begin] + RECIPE[end:].replace("training = { steps = 40,", "# training = { steps = 40,")
    recipe = recipe.replace('validation = ["p3"]', 'validation = ["p3"]\nrefit = true')
    (out / "recipe.toml").write_text(recipe.replace('targets = ["cpu", "raspberry-pi-4"]', 'targets = ["any"]'))
    assert main(["build", str(out / "recipe.toml"), "--data", f"waves={data}", "-o", str(out / "built")]) == 0
    return out / "built"


@pytest.mark.slow
def test_a_refit_ships_networks_trained_on_validation_groups_too_at_the_first_fit_s_temperature_and_threshold(
    refitted: Path,
) -> None:
    report = orjson.loads((refitted / "report.json").read_bytes())
    assert report["groups"] == {"train": ["p0", "p1", "p2", "p3"], "validation": ["p3"], "test": ["p4", "p5"]}
    assert REFITTED in report["data_notes"]
    with open_bundle(refitted / "waves-any.edge") as bundle:
        assert bundle.manifest.provenance["groups"] == report["groups"]
        assert bundle.manifest.gate.threshold == report["gate"]["threshold"]
    # Every network was trained twice, on other groups; what was chosen (one teacher of three) once.
    trained = sorted(path.name.split("-")[0] for path in (refitted / "cache").iterdir())
    assert trained == ["measure", "student", "student", "teacher", "teacher", "teacher"]


@pytest.mark.slow
def test_a_bundle_for_any_architecture_holds_the_files_of_all(refitted: Path) -> None:
    with open_bundle(refitted / "waves-any.edge") as bundle:
        targets = {variant.name: variant.targets for variant in bundle.manifest.variants}
    assert {"onnx-int8-u8s8", "onnx-int8-s8s8", "onnx-fp32"} <= targets.keys()
    assert targets["onnx-int8-u8s8"] == ("x86_64",)
    assert any(name.startswith("tflite") and not made_for for name, made_for in targets.items())


@pytest.mark.slow
def test_a_refit_changes_the_files_and_neither_temperature_nor_gate(refitted: Path, data: Path, tmp_path: Path) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text((refitted.parent / "recipe.toml").read_text().replace("refit = true", "refit = false"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "cache").symlink_to(refitted / "cache")
    before = len(list((refitted / "cache").iterdir()))
    assert main(["build", str(recipe), "--data", f"waves={data}", "-o", str(tmp_path / "out")]) == 0
    assert len(list((refitted / "cache").iterdir())) == before, "the first fit is the same with a refit and without"
    first, second = (orjson.loads((folder / "report.json").read_bytes()) for folder in (tmp_path / "out", refitted))
    for chosen in ("temperature", "gate", "validation", "choice"):
        assert first[chosen] == second[chosen]
    assert first["teacher"]["temperature"] == second["teacher"]["temperature"]
    for name in ("waves-any.edge", "waves-teacher.edge"):
        with open_bundle(tmp_path / "out" / name) as one, open_bundle(refitted / name) as other:
            for variant in one.manifest.variants:
                assert one.read_variant(variant.name) != other.read_variant(variant.name)


@pytest.mark.slow
def test_with_folds_the_gate_is_fitted_to_every_group_by_networks_that_have_not_seen_it(
    refitted: Path, data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        (refitted.parent / "recipe.toml").read_text().replace("refit = true", "refit = true\nfolds = 2")
        + "\n[surround]\n"
    )
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "cache").symlink_to(refitted / "cache")
    assert main(["build", str(recipe), "--data", f"waves={data}", "-o", str(tmp_path / "out")]) == 0
    said = capsys.readouterr().out
    held = [set(found.split(", ")) for found in re.findall(r"fold \d of 2: without (.*)", said)]
    assert sorted(set.union(*held)) == ["p0", "p1", "p2", "p3"]
    assert not set.intersection(*held)
    report = orjson.loads((tmp_path / "out" / "report.json").read_bytes())
    assert sorted(report["gate"]["promise"]["forwarded_by_group"]) == ["p0", "p1", "p2", "p3"]
    assert report["groups"]["test"] == ["p4", "p5"]
    assert report["ways"].keys() >= {"device", "with cloud"}
    assert report["surround"]["over_time"]["filter"]["groups"] == 4
    assert report["surround"]["asking"]["why"]
    with open_bundle(tmp_path / "out" / "waves-any.edge") as bundle:
        assert (bundle.manifest.surround is not None) == bool({"over time", "all"} & report["ways"].keys())
    plain = orjson.loads((refitted / "report.json").read_bytes())
    assert {each["groups"] for each in report["validation"].values()} == {4}, "files are chosen by all folds"
    assert {each["groups"] for each in plain["validation"].values()} == {1}
    assert not plain["surround"]
    assert plain["gate"]["promise"]["forwarded_by_group"].keys() == {"p3"}
    assert plain["test"]["judged"]["onnx-fp32"]["windows"] == report["test"]["judged"]["onnx-fp32"]["windows"]


@pytest.mark.slow
def test_a_rocket_is_a_teacher_without_gradient_training_and_is_refitted_as_the_others(
    data: Path, tmp_path: Path
) -> None:
    begin, end = RECIPE.index("[teacher]"), RECIPE.index("[student]")
    rocket = '[teacher]\ncandidates = [{ type = "rocket", width = 0.1, windows = 300 }]\n'
    recipe = RECIPE[:begin] + rocket + RECIPE[end : RECIPE.index("[prune]")] + RECIPE[RECIPE.index("[gate]") :]
    (tmp_path / "recipe.toml").write_text(recipe.replace('validation = ["p3"]', 'validation = ["p3"]\nrefit = true'))
    arguments = ["build", str(tmp_path / "recipe.toml"), "--data", f"waves={data}", "-o", str(tmp_path / "out")]
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
    family: str, data: Path, tmp_path: Path
) -> None:
    recipe = RECIPE[: RECIPE.index("[teacher]")] + CLOSED + RECIPE[RECIPE.index("[gate]") :]
    if family == "Rocket":
        recipe = re.sub(r'network = \{ type = "forest".*\n.*\n', lambda _: NARROW, recipe)
    recipe = recipe.replace("stream_hop = 8\n", "").replace('validation = ["p3"]', 'validation = ["p3"]\nrefit = true')
    (tmp_path / "recipe.toml").write_text(recipe)
    out = tmp_path / "out"
    assert main(["build", str(tmp_path / "recipe.toml"), "--data", f"waves={data}", "-o", str(out)]) == 0
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
    data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
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
    arguments = ["build", str(tmp_path / "recipe.toml"), "--data", f"waves={data}", "-o", str(tmp_path / "out")]
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
