"""The guide to edge-export says what is so: its TOML is read, its commands and options exist."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from edge_export.cli import COMMANDS, main
from edge_export.data.readers.spec import Sensor
from edge_export.package.card.spec import CardChannel
from edge_export.recipe.feature_spec import FilterBankSpec
from edge_export.recipe.network_spec import Embedding, Forest, Rocket
from edge_export.recipe.recipe import parse

from edge_runtime import schema
from edge_runtime.base.system import toml

ROOT = Path(__file__).resolve().parents[3]
GUIDE = (ROOT / "docs" / "export.md").read_text("utf-8")
LINES = [line.split("#")[0].strip() for line in GUIDE.splitlines() if line.startswith("edge-export ")]


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", GUIDE, re.MULTILINE | re.DOTALL)


def test_the_recipe_and_the_card_of_the_guide_are_read() -> None:
    recipe, stages, forest, rocket, embedding, draft, channels, sensors = blocks("toml")
    assert toml.loads(draft)["name"] == "hey_jarvis"
    assert parse(recipe, Path("recipe.toml")).name == "waves"
    (stage,) = parse(recipe + stages, Path("recipe.toml")).student.front_end
    assert isinstance(stage, FilterBankSpec)
    own = re.sub(r"^\[student\]\n.*?(?=^\[)", lambda _: forest + "\n", recipe, flags=re.MULTILINE | re.DOTALL)
    assert parse(own, Path("recipe.toml")).student.network == Forest()
    begin, end = recipe.index("[teacher]"), recipe.index("[student]")
    for teacher, family in ((rocket, Rocket()), (embedding, Embedding(file=Path("out/speech.onnx")))):
        whole = recipe[:begin] + teacher + recipe[end:]
        assert parse(whole, Path("out/recipe.toml")).teacher.candidates == (family,)
    joined = [schema.load(CardChannel, one) for one in toml.loads(channels)["channels"]]
    assert [channel.missing for channel in joined] == ["refuse", "last", "refuse"]
    phone, watch = (schema.load(Sensor, one) for one in toml.loads(sensors)["sensors"])
    assert (phone.values, watch.time) == ("phone_x", "watch_t_ms")


@pytest.mark.parametrize("line", LINES)
def test_commands_of_the_guide_exist_with_their_options(line: str, capsys: pytest.CaptureFixture[str]) -> None:
    _, command, *arguments = shlex.split(line)
    words = [command, *arguments[:1]] if command == "keys" else [command]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--help"])
    assert ended.value.code == 0
    shown = capsys.readouterr().out
    for option in (argument for argument in arguments if argument.startswith("-")):
        assert option in shown, option


def test_every_command_is_in_the_guide() -> None:
    for command in COMMANDS:
        assert re.search(rf"^edge-export {command} |`edge-export {command}[ `]", GUIDE, re.MULTILINE), command


def test_files_that_the_guide_points_to_are_there() -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", GUIDE):
        assert (ROOT / "docs" / target).exists(), target
