"""Bundles by name: one list, the same answer wherever a bundle is named."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from edge_runtime.app.config import parse
from edge_runtime.app.python_api import single_variant
from edge_runtime.errors import ConfigError
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.bundle.shipped import SHIPPED, bundle_file, written
from edge_runtime.tools.cli import main

MODEL = '[model]\nbundle = "{}"\nunsigned = "allow"\n'


@pytest.mark.parametrize("name", SHIPPED)
def test_a_name_is_that_of_the_bundle_s_own_manifest(name: str) -> None:
    with open_bundle(SHIPPED[name]) as bundle:
        assert bundle.manifest.name == name


def test_a_file_of_that_name_goes_first_and_a_folder_does_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "exercise-watch").mkdir()
    assert bundle_file("exercise-watch") == SHIPPED["exercise-watch"]
    (tmp_path / "exercise-watch-teacher").touch()
    assert bundle_file("exercise-watch-teacher") == Path("exercise-watch-teacher")
    assert bundle_file("exercise-watch-teacher", tmp_path / "other") == SHIPPED["exercise-watch-teacher"]


@pytest.mark.parametrize(
    "path", ["models/exercise-watch", "./exercise-watch", "exercise-watch.edge", "/exercise-watch"]
)
def test_a_path_is_never_taken_for_a_name(path: str, tmp_path: Path) -> None:
    """Mutation that this finds: the last part of a path is looked up, and a mistyped folder runs another model."""
    assert bundle_file(path, tmp_path) == tmp_path / path


@pytest.mark.parametrize("command", ["inspect", "verify", "tune", "bench", "serve"])
def test_an_unknown_name_is_wrong_use_and_the_known_ones_are_listed(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([command, "exercise-wach"])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert "exercise-wach: no such file" in said
    assert "exercise-watch, exercise-watch-teacher" in said


def test_inspect_takes_a_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "exercise-watch", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["path"] == str(SHIPPED["exercise-watch"])


def test_a_configuration_takes_a_name_and_says_the_line_of_an_unknown_one(tmp_path: Path) -> None:
    app = tmp_path / "app.toml"
    assert parse(MODEL.format("exercise-watch"), app).model.bundle == SHIPPED["exercise-watch"]
    shutil.copy(SHIPPED["exercise-watch-teacher"], tmp_path / "exercise-watch")
    assert parse(MODEL.format("exercise-watch"), app).model.bundle == tmp_path / "exercise-watch"
    with pytest.raises(ConfigError, match=r"app\.toml:2: model\.bundle: watch: no such file.*exercise-watch, "):
        parse(MODEL.format("watch"), app)
    assert parse(MODEL.format("watch.edge"), app).model.bundle == tmp_path / "watch.edge"
    with pytest.raises(ConfigError, match=r"model\.bundle: expected a path, got a number"):
        parse("[model]\nbundle = 3\n", app)


def test_python_takes_a_name() -> None:
    assert single_variant("exercise-watch").bundle == SHIPPED["exercise-watch"]
    with pytest.raises(ConfigError, match="no bundle of this name"):
        single_variant("watch")


def test_what_is_written_of_a_bundle_leads_back_to_it(tmp_path: Path) -> None:
    for bundle in (*SHIPPED.values(), tmp_path / "models" / "mine.edge"):
        assert bundle_file(written(bundle, tmp_path), tmp_path).resolve() == bundle
    assert written(SHIPPED["exercise-watch"], tmp_path) == "exercise-watch"
