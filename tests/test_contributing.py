"""CONTRIBUTING.md draws the house as it is."""

from __future__ import annotations

import re
from pathlib import Path

from edge_runtime.base.system import toml

CHECKOUT = Path(__file__).resolve().parents[1]
PAGE = (CHECKOUT / "CONTRIBUTING.md").read_text("utf-8")


def test_every_file_that_the_page_names_exists() -> None:
    named = {name for name in re.findall(r"`([\w./-]+/[\w.-]+\.(?:py|txt|md))`", PAGE) if "NAME" not in name}
    assert len(named) > 20
    assert not [name for name in named if not (CHECKOUT / name).is_file()]


def test_every_function_to_learn_from_is_where_the_page_says() -> None:
    lines = re.findall(r"^- `([\w/]+\.py)`, (.+?):", PAGE, re.MULTILINE)
    assert len(lines) > 5
    for path, names in lines:
        for name in re.findall(r"`(?:\w+\.)?(\w+)`", names):
            assert f"def {name}(" in (CHECKOUT / path).read_text("utf-8"), f"{path}: {name}"


def test_the_picture_has_the_layers_that_import_linter_checks() -> None:
    linter = toml.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]
    runtime, export = (one["layers"] for one in linter["contracts"] if one["type"] == "layers")
    picture = PAGE.split("```")[1].strip().splitlines()[2:]
    drawn = [re.split(r"\s{2,}", line.strip()) for line in picture]
    assert [left for left, *_ in drawn] == runtime
    assert [right for _, *rest in drawn for right in rest] == export


def test_every_room_has_a_line() -> None:
    for folder in ("edge_runtime", "export/edge_export"):
        table = PAGE.split(f"### Rooms of {Path(folder).name}")[1].split("##")[0]
        first = [line.split("|")[1] for line in table.splitlines() if "|" in line]
        described = set(re.findall(r"`(\w+)`", " ".join(first)))
        rooms = {path.stem for path in (CHECKOUT / folder).glob("*.py") if not path.stem.startswith("_")}
        rooms |= {path.parent.name for path in (CHECKOUT / folder).glob("*/__init__.py")}
        assert rooms == described
