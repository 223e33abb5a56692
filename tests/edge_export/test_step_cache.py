"""A step is done once; what its result depends on is part of its name."""

from __future__ import annotations

from pathlib import Path

import pytest
from edge_export.data.split import SplitRecipe
from edge_export.step_cache import StepCache, code_digest, digest, file_digest

from edge_runtime.clock import SimulatedClock


class Maker:
    """Counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, folder: Path) -> None:
        self.calls += 1
        (folder / "result.txt").write_text(str(self.calls))


def steps(folder: Path, said: list[str] | None = None, **versions: str) -> StepCache:
    return StepCache(folder, versions, (said if said is not None else []).append, SimulatedClock())


def test_a_finished_step_is_not_done_again(tmp_path: Path) -> None:
    make, said = Maker(), list[str]()
    first = steps(tmp_path, said).run("train", {"width": 8}, make)
    again = steps(tmp_path, said).run("train", {"width": 8}, make)
    assert make.calls == 1
    assert first == again
    assert (again / "result.txt").read_text() == "1"
    assert said == ["train: done in 0.0 s", "train: as before"]


def test_other_inputs_or_versions_make_another_result(tmp_path: Path) -> None:
    make = Maker()
    folders = {
        steps(tmp_path).run("train", {"width": 8}, make),
        steps(tmp_path).run("train", {"width": 9}, make),
        steps(tmp_path, torch="2").run("train", {"width": 8}, make),
        steps(tmp_path).run("quantise", {"width": 8}, make),
    }
    assert make.calls == len(folders) == 4


def test_an_upgrade_or_an_edit_of_our_own_code_finds_none_of_the_old_results(tmp_path: Path) -> None:
    package = tmp_path / "ours"
    (package / "part").mkdir(parents=True)
    (package / "part" / "train.py").write_text("rate = 0.1\n")
    make, seen = Maker(), list[Path]()
    for change in (None, "rate = 0.2\n", None):
        if change:
            (package / "part" / "train.py").write_text(change)
        # What Python and people leave beside the code is no code.
        (package / "__pycache__").mkdir(exist_ok=True)
        (package / "__pycache__" / "train.pyc").write_bytes(bytes([len(seen)]))
        seen.append(steps(tmp_path / "cache", code=code_digest([package])).run("student", {"width": 8}, make))
    assert seen[0] != seen[1] == seen[2]
    assert make.calls == 2


def test_half_a_result_is_never_found(tmp_path: Path) -> None:
    def fail(folder: Path) -> None:
        (folder / "half.txt").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        steps(tmp_path).run("train", {}, fail)
    assert list(tmp_path.iterdir()) == []
    make = Maker()
    assert (steps(tmp_path).run("train", {}, make) / "result.txt").exists()


def test_digests_follow_content_not_place(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.txt").write_text("same")
    assert file_digest(tmp_path / "a") == file_digest(tmp_path / "b")
    (tmp_path / "b" / "x.txt").rename(tmp_path / "b" / "y.txt")
    assert file_digest(tmp_path / "a") != file_digest(tmp_path / "b")


def test_dataclasses_have_digests_and_strangers_do_not() -> None:
    assert digest(SplitRecipe(train=("a",))) != digest(SplitRecipe(train=("b",)))
    assert digest({"recipe": SplitRecipe()}) == digest({"recipe": SplitRecipe()})
    with pytest.raises(TypeError):
        digest({"x": object()})
