"""The README's first label: its very lines, typed into a shell, with a real mosquitto."""

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

README = (ROOT / "README.md").read_text("utf-8")
EXAMPLES = ("first-label", "exercise-watch")


def block_behind(heading: str, first_word: str) -> list[str]:
    """Lines of the shell block of a section whose first line starts with a word."""
    section = README.split(f"\n## {heading}\n", 1)[1].split("\n## ", 1)[0]
    blocks = [block.splitlines() for block in re.findall(r"^```sh\n(.*?)^```", section, re.MULTILINE | re.DOTALL)]
    return next(lines for lines in blocks if lines[0].startswith(first_word))


def checkout_for(port: int, folder: Path) -> dict[str, str]:
    """A copy of the examples, and an environment, in which everything that says 1883 reaches the test's broker."""
    for name in EXAMPLES:
        shutil.copytree(ROOT / "examples" / name, folder / "examples" / name)
    app = folder / "examples/first-label/app.toml"
    text = app.read_text("utf-8")
    assert text.count("localhost:1883") == 1
    app.write_text(text.replace("localhost:1883", f"127.0.0.1:{port}"), "utf-8")
    for tool in ("mosquitto_pub", "mosquitto_sub"):  # both read their defaults from a file of their name
        (folder / tool).write_text(f"-p {port}\n-h 127.0.0.1\n")
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    return {**os.environ, "PATH": path, "XDG_CONFIG_HOME": str(folder), "HOME": str(folder)}


@needs_mosquitto
@pytest.mark.skipif(shutil.which("mosquitto_pub") is None, reason="needs Debian's mosquitto-clients")
@pytest.mark.slow
def test_the_first_label_of_the_readme_arrives(tmp_path: Path) -> None:
    """Mutations that this finds: the example's topic, codec or sink changed without the README's lines."""
    run, subscribe, publish, end = block_behind("Your first label", "edge-runtime run")
    log, answers = tmp_path / "run.log", tmp_path / "answers"
    with Mosquitto() as broker:
        shell = subprocess.Popen(
            ["bash"], cwd=tmp_path, env=checkout_for(broker.port, tmp_path), stdin=subprocess.PIPE, text=True
        )
        assert shell.stdin is not None

        def enter(line: str) -> None:
            assert shell.stdin is not None
            print(line, file=shell.stdin, flush=True)

        try:
            enter(f"exec 2>{log} >{answers}")
            enter(run)
            until(lambda: log.exists() and "connected" in log.read_text(), "the application does not connect")
            until(lambda: broker.log().count("Sending SUBACK") == 1, "the application does not subscribe")
            enter(subscribe)
            until(lambda: broker.log().count("Sending SUBACK") == 2, "mosquitto_sub does not subscribe")
            enter(publish)
            until(lambda: answers.read_text().count("\n") >= 2, log.read_text())
            enter(end)
        finally:
            shell.stdin.close()
            shell.wait(PATIENCE_S)
    lines = answers.read_text().splitlines()
    for line in lines:
        topic, payload = line.split(" ", 1)
        answer = orjson.loads(payload)
        assert topic == "edge/me/prediction"
        assert (answer["key"], answer["label"], answer["route"]) == ("me", "PEN", "local")
    assert "PEN" in README
