"""The guides by task: their very lines, typed into a shell, give what the pages show."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from tests.integration.running import PATIENCE_S, ROOT
from tests.mosquitto import free_port

GUIDES = ("my-sensor", "my-recordings", "my-model", "my-board", "my-cloud")
ENTRY_POINTS = {"edge-runtime": "edge_runtime.tools.cli", "edge-export": "edge_export.cli"}


def text(guide: str) -> str:
    return (ROOT / "docs" / f"{guide}.md").read_text("utf-8")


def blocks(guide: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", text(guide), re.MULTILINE | re.DOTALL)


def typed(guide: str, folder: Path) -> str:
    """Run a guide's lines in a folder with the examples; return all that was printed. A line that fails ends it."""
    port = free_port()
    lines = "".join(blocks(guide, "sh")).replace("8000", str(port))
    wait = f" &\nuntil (exec 3<>/dev/tcp/127.0.0.1/{port}) 2>/dev/null; do sleep 0.1; done\n"
    lines = lines.replace(" &\n", wait)
    shutil.copytree(ROOT / "examples/exercise-watch", folder / "examples/exercise-watch")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    code = os.pathsep.join((str(ROOT), str(ROOT / "export"), str(ROOT / "devices")))
    done = subprocess.run(
        ["bash", "-e", "-c", f"trap 'kill $(jobs -p) 2>/dev/null || true' EXIT\n{lines}"],
        cwd=folder, text=True, check=False,
        env={**os.environ, "PATH": path, "PYTHONPATH": code}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, timeout=3 * PATIENCE_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    return done.stdout


def answers(folder: Path) -> list[dict[str, object]]:
    return list(map(orjson.loads, (folder / "answers.jsonl").read_bytes().splitlines()))


def same_score(guide: str, said: str) -> bool:
    """Whether the score that was printed is that of the page; processors differ in the last bits of a network."""
    pattern = r"score: (\d+) windows, accuracy ([\d.]+)"
    (shown,) = re.findall(pattern, "".join(blocks(guide, "text")))
    (printed,) = re.findall(pattern, said)
    return shown[0] == printed[0] and abs(float(shown[1]) - float(printed[1])) < 0.01


@pytest.mark.slow
def test_my_sensor_leads_from_messages_to_labels(tmp_path: Path) -> None:
    """Mutation that this finds: listen writes a table that replay does not take."""
    assert "wrote app.toml" in typed("my-sensor", tmp_path)
    assert len(answers(tmp_path)) == 9
    assert {line["key"] for line in answers(tmp_path)} == {"phone/me"}


@pytest.mark.slow
def test_my_recordings_lead_to_a_recipe_and_to_the_score_of_the_page(tmp_path: Path) -> None:
    said = typed("my-recordings", tmp_path)
    for line in "".join(blocks("my-recordings", "text")).splitlines():
        assert line in said or line.startswith(("edge-export auto", "score"))
    assert same_score("my-recordings", said)
    assert (tmp_path / "out/recipe.toml").exists()


@pytest.mark.slow
def test_my_model_leads_from_a_file_to_the_score_of_the_page(tmp_path: Path) -> None:
    """Mutation that this finds: a field of the card is renamed, and the page has the old one."""
    assert same_score("my-model", typed("my-model", tmp_path))
    assert (tmp_path / "draft.toml").read_text("utf-8").count("# fill in") == 3


@pytest.mark.slow
def test_my_board_is_described_timed_and_gets_a_service(tmp_path: Path) -> None:
    said = typed("my-board", tmp_path)
    assert "ways to run a model" in said
    assert "the fastest here" in said
    assert "answers agree with the loop's" in said
    assert "ProtectSystem=strict" in said


@pytest.mark.slow
def test_my_cloud_corrects_hard_cases_under_their_ids(tmp_path: Path) -> None:
    said = typed("my-cloud", tmp_path)
    routes = [(line["id"], line["route"]) for line in answers(tmp_path)]
    corrected = {name for name, route in routes if route == "cloud"}
    ((accepted, delivered),) = re.findall(r"accepted (\d+) = delivered (\d+)", said)
    assert int(accepted) == 134
    assert len(corrected) == int(delivered) >= 1
    assert corrected <= {name for name, route in routes if route == "provisional"}


@pytest.mark.slow
def test_the_python_of_the_front_page_prints_answers(tmp_path: Path) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", (ROOT / "README.md").read_text("utf-8"), re.MULTILINE | re.DOTALL)
    shutil.copytree(ROOT / "examples/exercise-watch", tmp_path / "here")
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path / "here", capture_output=True, text=True, check=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(ROOT), str(ROOT / "devices")))}, timeout=PATIENCE_S,
    )  # fmt: skip
    assert len(done.stdout.splitlines()) == 987
    assert done.stdout.startswith("recordings-0 0.0 PEN 0.")


def test_every_guide_is_short_and_ends_with_ways_on() -> None:
    for guide in GUIDES:
        assert len(text(guide).splitlines()) <= 90
        assert text(guide).rstrip().endswith("|")
        assert blocks(guide, "sh")


def test_the_guides_need_what_exists() -> None:
    assert all(shutil.which(name, path=str(Path(sys.executable).parent)) for name in ENTRY_POINTS)
