"""docs/first-sensor.md: its very lines, typed into a shell, with a real mosquitto."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import orjson
import pytest

from tests.integration.running import PATIENCE_S, ROOT, until
from tests.mosquitto import Mosquitto, needs_mosquitto

PAGE = (ROOT / "docs/first-sensor.md").read_text("utf-8")

pytestmark = [
    needs_mosquitto,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="needs Debian's mosquitto-clients"),
    pytest.mark.skipif(shutil.which("awk") is None, reason="needs awk"),
]


def lines() -> list[str]:
    return [
        line
        for block in re.findall(r"^```sh\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
    ]


def environment(port: int, folder: Path) -> dict[str, str]:
    """A copy of the model, and an environment in which everything that says localhost reaches the test's broker."""
    shutil.copytree(ROOT / "examples/exercise-watch", folder / "examples/exercise-watch")
    (folder / "mosquitto_pub").write_text(f"-p {port}\n-h 127.0.0.1\n")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    code = os.pathsep.join((str(ROOT), str(ROOT / "export"), str(ROOT / "devices")))
    return {**os.environ, "PATH": path, "PYTHONPATH": code, "XDG_CONFIG_HOME": str(folder), "HOME": str(folder)}


def test_the_lines_of_the_page_lead_to_a_label_and_to_a_recipe(tmp_path: Path) -> None:
    """Mutations that this finds: an option renamed, a table that run refuses, a recording that auto does not take."""
    sensor, *rest = lines()
    run = rest.index("edge-runtime run app.toml")
    log, answers = tmp_path / "log", tmp_path / "answers"
    log.touch()
    with Mosquitto() as broker:
        shell = subprocess.Popen(
            ["bash"], cwd=tmp_path, env=environment(broker.port, tmp_path), stdin=subprocess.PIPE, text=True,
            start_new_session=True,
        )  # fmt: skip
        assert shell.stdin is not None

        def enter(line: str) -> None:
            """Type a line; recordings last seconds, not a minute."""
            assert shell.stdin is not None
            here = line.replace("localhost", f"127.0.0.1:{broker.port}").replace("--seconds 60", "--seconds 8")
            if " record " in here:
                here += " < /dev/null"  # on a pipe, as this shell has, each line would be a label
            print(here, file=shell.stdin, flush=True)

        def done(name: str) -> None:
            """Wait for the line before this one, and see that it succeeded."""
            enter(f"echo $? > {name}")
            until(lambda: (tmp_path / name).exists() and (tmp_path / name).read_text().strip(), log.read_text)
            assert (tmp_path / name).read_text().strip() == "0", log.read_text()

        try:
            enter(f"exec 2>{log} >>{log}")
            enter(sensor)
            for i, line in enumerate(rest[:run]):
                enter(line)
                done(f"before-{i}")
            enter(f"{rest[run]} > {answers} &")
            until(lambda: answers.exists() and answers.read_text().count("\n") >= 2, log.read_text)
            enter("kill %2")
            for i, line in enumerate(rest[run + 1 :]):
                enter(line)
                done(f"behind-{i}")
        finally:
            enter("kill %1")
            shell.stdin.close()
            shell.wait(PATIENCE_S)
    for line in answers.read_text().splitlines():
        answer = orjson.loads(line)
        assert answer["key"] == "phone/me"
        assert answer["label"]
    assert 'type = "table"' in (tmp_path / "out/recipe.toml").read_text("utf-8")
    assert "rad/s" in (tmp_path / "out/recipe.toml").read_text("utf-8")
