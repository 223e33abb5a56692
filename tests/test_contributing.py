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
    layers = {one["containers"][0]: one["layers"] for one in linter["contracts"] if one["type"] == "layers"}
    *wings, ground = PAGE.split("```")[1].strip().splitlines()
    drawn = {name: rooms for name, _, rooms in (line.strip().partition(" ") for line in wings)}
    runtime = layers.pop("edge_runtime")
    assert [name for layer in runtime[:-1] for name in layer.split(" | ")] == list(drawn)
    assert ground.strip() == runtime[-1]
    assert [line.strip() for line in PAGE.split("```")[3].strip().splitlines()] == layers.pop("edge_export")
    assert {f"edge_runtime.{name}": rooms.strip().split(" > ") for name, rooms in drawn.items() if rooms} == layers


def rooms(folder: Path) -> set[str]:
    files = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    return files | {path.parent.name for path in folder.glob("*/__init__.py")}


def test_every_room_has_a_line() -> None:
    runtime = CHECKOUT / "edge_runtime"
    wings = [path.parent for path in runtime.glob("*/__init__.py") if path.parent.name not in ("manifest", "cloud")]
    for title, expected in (
        ("edge_runtime", rooms(runtime).union(*map(rooms, wings))),
        ("edge_export", rooms(CHECKOUT / "export/edge_export")),
    ):
        table = PAGE.split(f"### Rooms of {title}")[1].split("##")[0]
        first = [line.split("|")[1] for line in table.splitlines() if "|" in line]
        assert set(re.findall(r"`(\w+)`", " ".join(first))) == expected
