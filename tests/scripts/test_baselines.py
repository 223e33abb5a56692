"""Baselines may only shrink, and each check finds what it is for."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from scripts import baselines, commit_subjects, complexity, duplicates, habits, lines, reachability, unused


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(baselines, "CHECKOUT", tmp_path)
    monkeypatch.setattr(baselines, "FOLDER", tmp_path)
    return tmp_path


def check(found: dict[str, int], *arguments: str) -> int:
    return baselines.check("some", found, advice="mend it", arguments=list(arguments))


def test_a_fault_that_is_not_listed_or_has_grown_fails(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "some.txt").write_text("# head\na::f 20  # why\nb\n")
    assert check({"a::f": 20, "b": 1}) == 0
    assert check({"a::f": 20, "b": 1, "c": 1}) == 1
    assert check({"a::f": 21, "b": 1}) == 1
    assert "some: c: mend it" in (said := capsys.readouterr().err)
    assert "some: a::f: 21, listed with 20: mend it" in said


def test_an_entry_that_is_no_longer_needed_fails(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "some.txt").write_text("a::f 20\nb\n")
    assert check({"a::f": 19, "b": 1}) == 1
    assert check({"a::f": 20}) == 1
    assert "b: no longer needed in some.txt" in capsys.readouterr().err


def test_writing_shrinks_a_baseline_and_keeps_its_comments(folder: Path) -> None:
    path = folder / "some.txt"
    path.write_text("# head\na::f 20  # why\nb\n")
    assert check({"a::f": 18}, "--write") == 0
    assert path.read_text() == "# head\na::f 18  # why\n"


def test_writing_refuses_a_longer_or_worse_baseline(folder: Path) -> None:
    path = folder / "some.txt"
    path.write_text("a::f 20\nb\n")
    for found in ({"a::f": 20, "b": 1, "c": 1}, {"a::f": 22, "b": 1}):
        assert check(found, "--write") == 1
    assert path.read_text() == "a::f 20\nb\n"


def test_a_line_that_is_no_entry_names_the_file(folder: Path) -> None:
    (folder / "some.txt").write_text("a::f twenty\n")
    with pytest.raises(SystemExit, match=r"some\.txt: 'a::f twenty' is not an entry"):
        check({})


def test_reachability_follows_imports_strings_and_prefixes(tmp_path: Path) -> None:
    files = {
        "edge_runtime": "def f():\n    import edge_runtime.inner\n",
        "edge_runtime.inner": 'START = f"edge_runtime.room.{NAME}"\nNAMES = ("some-command",)\n',
        "edge_runtime.room": "",
        "edge_runtime.room.some_command": 'X = "edge_runtime.named:Thing"\nY = "worker.py"\n',
        "edge_runtime.named": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import edge_runtime.typed\n",
        "edge_runtime.room.worker": "",
        "edge_runtime.typed": "",
        "edge_runtime.told": "",
        "edge_runtime.alone": '"""edge_runtime.told"""\nimport edge_runtime.told\n',
    }
    paths = {}
    for name, text in files.items():
        paths[name] = tmp_path / f"{name}.py"
        paths[name].write_text(text)
    found = reachability.reachable(paths, {"edge_runtime"})
    assert paths.keys() - found == {"edge_runtime.typed", "edge_runtime.told", "edge_runtime.alone"}


def test_the_tree_has_its_modules_and_entry_points() -> None:
    paths = reachability.modules()
    assert {"edge_runtime", "edge_runtime.tools.cli.run", "edge_devices.npu", "edge_export.build"} <= paths.keys()
    assert (
        {"edge_runtime.tools.cli", "edge_export.cli", "edge_devices.jetson"}
        <= reachability.entry_points()
        <= paths.keys()
    )


def test_unused_code_is_found_by_name_and_fields_are_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "some.py"
    path.write_text("class Used:\n    field: int = 0\n    def gone(self): ...\n    def __call__(self): ...\nUsed()\n")
    assert unused.unused([path], tmp_path) == {"some.py::gone"}


def test_what_a_template_beside_the_code_reads_is_used(tmp_path: Path) -> None:
    path, template = tmp_path / "some.py", tmp_path / "templates" / "page.html"
    path.write_text("def drawn() -> None: ...\ndef gone() -> None: ...\n", "utf-8")
    template.parent.mkdir()
    template.write_text("<p>some.gone</p>{{ some.drawn() }}", "utf-8")
    assert unused.unused([path], tmp_path) == {"some.py::gone"}


def test_a_function_above_the_limit_is_found_with_its_complexity(tmp_path: Path) -> None:
    path = tmp_path / "some.py"
    nested = "".join(f"{'    ' * depth}if x[{depth}]:\n" for depth in range(1, 8))
    path.write_text(f"def plain(x):\n    return x\ndef deep(x):\n{nested}{'    ' * 8}return x\n")
    assert complexity.complex_functions([path], tmp_path) == {"some.py::deep": 28}


def test_files_that_ruff_excuses_are_read_and_folders_are_not() -> None:
    settings = {"a.py": ["C901", "N803"], "tests/**": ["C901"], "b.py": ["PLR0913"]}
    assert complexity.excused(settings) == {("a.py", "C901"), ("b.py", "PLR0913")}


def test_ruff_finds_what_the_list_of_excused_files_says() -> None:
    listed = complexity.excused(complexity.per_file_ignores())
    assert listed
    assert listed == {one for one in complexity.beyond_limits() if one[0].startswith(baselines.PRODUCT)}


def test_six_lines_that_stand_twice_are_found_but_not_imports_or_five_lines(tmp_path: Path) -> None:
    same = "".join(f"    some_line({i})\n\n" for i in range(6))
    imports = "from some.module import (\n" + "".join(f"    name_{i},\n" for i in range(8)) + ")\n"
    for name, text in {"a": same, "b": f"        # why\n{same}".replace("    ", "        "), "c": same[:-20]}.items():
        (tmp_path / f"{name}.py").write_text(f"{imports}def {name}():\n{text}")
    files = [tmp_path / "a.py", tmp_path / "b.py", tmp_path / "c.py"]
    assert duplicates.duplicates(files, tmp_path) == {"a.py=b.py": 1}


def test_lines_are_counted_by_room(tmp_path: Path) -> None:
    path = tmp_path / "export/edge_export/data/readers/some.py"
    path.parent.mkdir(parents=True)
    path.write_text("# comment\n\nx = 1\n")
    assert lines.count(path) == (3, 1)
    assert lines.room_of(path, tmp_path) == "export/edge_export/data/readers"
    assert lines.room_of(tmp_path / "edge_runtime/app/application.py", tmp_path) == "edge_runtime/app"
    assert lines.room_of(tmp_path / "edge_runtime/io/mqtt/client.py", tmp_path) == "edge_runtime/io/mqtt"
    assert lines.room_of(tmp_path / "edge_runtime/types.py", tmp_path) == "edge_runtime"


@pytest.mark.parametrize(
    "subject",
    [
        "Merge branch 'main' into b",
        "update",
        "mqtt: Read the rest",
        "mqtt: read",
        "mqtt: read the rest away.",
        "mqtt: read " + "x" * 70,
    ],
)
def test_a_subject_without_area_verb_or_object_is_refused(subject: str) -> None:
    assert commit_subjects.wrong(subject)


@pytest.mark.parametrize(
    "subject",
    ["mqtt: read the rest", "edge_runtime/base/http, cloud: share one client", "merge: ONNX passes on one graph"],
)
def test_a_subject_of_area_verb_and_object_passes(subject: str) -> None:
    assert not commit_subjects.wrong(subject)


def test_subjects_are_those_after_the_base_and_none_without_git(tmp_path: Path) -> None:
    assert commit_subjects.subjects(tmp_path) == []
    git = ["git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run([*git, "init", "-q"], check=True)
    for text in ("a: begin it", "b: end it"):
        subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", text], check=True)
    found = commit_subjects.subjects(tmp_path, "HEAD~1")
    assert [subject for _, subject in found] == ["b: end it"]
    assert commit_subjects.subjects(tmp_path, "0" * 40) == []
    for count, message in ((30, "c: write few"), (31, "d: write many"), (32, "e: write more\n\nSince it pays.")):
        (tmp_path / message[0]).write_text("line\n" * count)
        subprocess.run([*git, "add", "."], check=True)
        subprocess.run([*git, "commit", "-q", "-m", message], check=True)
    told = subprocess.run([*git, "log", "--format=%h %s"], check=True, capture_output=True, text=True).stdout
    assert [
        line.partition(" ")[2]
        for line in told.splitlines()
        if line.split()[0] in commit_subjects.bare(tmp_path, "HEAD~4")
    ] == ["d: write many"]


def test_lines_above_the_ceiling_fail_and_so_do_many_below_it() -> None:
    """Mutation: `ceiling` that lets what has no number pass: a part of the product grows without one."""
    listed = {"edge_runtime": 1000, "words": 500}
    assert lines.ceiling({"edge_runtime": 1000, "words": 500 - lines.SLACK}, listed) == []
    assert [one.split(":")[1] for one in lines.ceiling({"edge_runtime": 1001, "words": 500}, listed)] == [
        " edge_runtime"
    ]
    assert "make baselines" in lines.ceiling({"edge_runtime": 1000, "words": 500 - lines.SLACK - 1}, listed)[0]
    assert lines.ceiling({"other": 1}, listed)
    assert set(lines.sizes()) == set(baselines.read(lines.CEILING))


def test_each_habit_is_found_once(tmp_path: Path) -> None:
    """Mutation: a rule that finds nothing, or finds what is right."""
    (tmp_path / "a.py").write_text(
        '''
class Twice:
    """Does it.

    Args:
        flow: of the model.
        rate: samples a second; of the model.
    """

    def __init__(self, a, b, c, d, e, f, g, h, i):
        self.table.popitem(last=False)

    def take(self): ...


class Eight:
    def __init__(self, a, b, c, d, e, f, g, h): ...
'''
    )
    (tmp_path / "b.py").write_text("class Twice: ...\nclass _Own: ...\n")
    (tmp_path / "c.py").write_text("class _Own: ...\ndef take(): ...\n")
    assert habits.faults(sorted(tmp_path.glob("*.py")), tmp_path) == {
        "noun:a.py": 1,
        "arguments:a.py::Twice": 1,
        "popitem:a.py": 1,
        "verb:a.py": 1,
        "class:Twice": 2,
    }


def test_rules_are_numbered_in_the_code_of_the_function() -> None:
    text = "def a():\n    x = 1  # rule 3\n\n\ndef b():\n    return 1\n"
    assert habits.numbered(text, "a")
    assert not habits.numbered(text, "b")
