"""Builds whose networks are trained again: on validation groups, too, and without each group in turn."""

from __future__ import annotations

import re
from pathlib import Path

import orjson
import pytest

pytest.importorskip("torch", reason="the export toolchain's networks need torch (edge-export[train])")
pytest.importorskip("onnxscript", reason="the export to ONNX needs onnxscript (edge-export[train])")
pytest.importorskip("sklearn", reason="the export toolchain's baseline needs scikit-learn (edge-export[train])")

from edge_export.cli import main
from edge_export.recipe.splits import REFITTED

from edge_runtime.model.bundle.bundle import open_bundle
from tests.edge_export.waves import RECIPE


@pytest.fixture(scope="module")
def refitted(waves: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A build by the recipe, unpruned, for every architecture, whose networks are trained again on p3 too."""
    out = tmp_path_factory.mktemp("refit")
    begin, end = RECIPE.index("[prune]"), RECIPE.index("[quantise]")
    recipe = RECIPE[:begin] + RECIPE[end:].replace("training = { steps = 40,", "# training = { steps = 40,")
    recipe = recipe.replace('validation = ["p3"]', 'validation = ["p3"]\nrefit = true')
    (out / "recipe.toml").write_text(recipe.replace('targets = ["cpu", "raspberry-pi-4"]', 'targets = ["any"]'))
    assert main(["build", str(out / "recipe.toml"), "--data", f"waves={waves}", "-o", str(out / "built")]) == 0
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
def test_a_refit_changes_the_files_and_neither_temperature_nor_gate(
    refitted: Path, waves: Path, tmp_path: Path
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text((refitted.parent / "recipe.toml").read_text().replace("refit = true", "refit = false"))
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "cache").symlink_to(refitted / "cache")
    before = len(list((refitted / "cache").iterdir()))
    assert main(["build", str(recipe), "--data", f"waves={waves}", "-o", str(tmp_path / "out")]) == 0
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
    refitted: Path, waves: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recipe = tmp_path / "recipe.toml"
    recipe.write_text(
        (refitted.parent / "recipe.toml").read_text().replace("refit = true", "refit = true\nfolds = 2")
        + "\n[surround]\n"
    )
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "cache").symlink_to(refitted / "cache")
    assert main(["build", str(recipe), "--data", f"waves={waves}", "-o", str(tmp_path / "out")]) == 0
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
