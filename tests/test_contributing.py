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
    del layers["edge_export.graph.tflite"]
    for package, picture in (("edge_runtime", PAGE.split("```")[1]), ("edge_export", PAGE.split("```")[3])):
        *wings, ground = picture.strip().splitlines()
        drawn = {name: rooms for name, _, rooms in (line.strip().partition(" ") for line in wings)}
        whole = layers.pop(package)
        assert [name for layer in whole[:-1] for name in layer.split(" | ")] == list(drawn)
        assert ground.strip() == whole[-1]
        for name, rooms in drawn.items():
            assert not rooms or rooms.strip().split(" > ") == layers.pop(f"{package}.{name}")
    assert not layers


def rooms(folder: Path) -> set[str]:
    files = {path.stem for path in folder.glob("*.py") if not path.stem.startswith("_")}
    return files | {path.parent.name for path in folder.glob("*/__init__.py")}


def test_every_room_has_a_line() -> None:
    flat = {"manifest", "cloud", "data", "recipe", "package", "report", "cli"}  # one line for all files of such a wing
    for title, folder in (("edge_runtime", "edge_runtime"), ("edge_export", "export/edge_export")):
        package = CHECKOUT / folder
        wings = [path.parent for path in package.glob("*/__init__.py") if path.parent.name not in flat]
        expected = rooms(package).union(*map(rooms, wings))
        table = PAGE.split(f"### Rooms of {title}")[1].split("##")[0]
        first = [line.split("|")[1] for line in table.splitlines() if "|" in line]
        assert set(re.findall(r"`(\w+)`", " ".join(first))) == expected
