"""The page in a real browser: headless Chromium looks, clicks and types, and axe-core judges.

`make test-page` installs what it needs (Debian's chromium, playwright-core and axe-core below .venvs/page), and runs
this file; without them it is skipped. ``--page-pictures docs`` writes the pictures of docs/page.md.
"""

from __future__ import annotations

import json
import os
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from tests.browser.browser import CHROMIUM, HERE, MODULES, NEEDS_A_BROWSER, NODE
from tests.browser.exercising import KEYS, PLAIN, Exercising, exercising
from tests.integration.running import PATIENCE_S
from tests.named_pictures import with_names

Actions = Mapping[str, Callable[[], object]]
"""What a scenario may ask for, by the words it asks with."""

pytestmark = NEEDS_A_BROWSER


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Exercising]:
    pictures: Path | None = request.config.getoption("--page-pictures", default=None)
    with exercising(tmp_path_factory.mktemp("exercising"), plain=pictures is not None) as app:
        yield app
        app.says_no_defect()
    if pictures is not None:
        for path in pictures.glob("page-*.png"):
            path.write_bytes(with_names(path.read_bytes(), [PLAIN.get(key, key) for key in KEYS]))


def looked(
    script: str, scenario: str, app: Exercising, *, folder: Path | None = None, actions: Actions | None = None
) -> list[str]:
    """Run a scenario, doing what it asks for; what it found wrong."""
    command = [NODE or "", script, scenario, f"{app.url}?token={app.token}", *([str(folder)] if folder else [])]
    environment = os.environ | {"PAGE_MODULES": str(MODULES), "CHROMIUM": CHROMIUM or ""}
    process = subprocess.Popen(
        command, cwd=HERE, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        return _conversation(process, actions or {})
    finally:
        process.kill()
        process.communicate()


def _conversation(process: subprocess.Popen[str], actions: Actions) -> list[str]:
    assert process.stdin is not None
    assert process.stdout is not None
    for line in process.stdout:
        said = json.loads(line)
        if "found" in said:
            process.wait(PATIENCE_S)
            found: list[str] = said["found"]
            return found
        actions[said["please"]]()
        process.stdin.write("done\n")
        process.stdin.flush()
    raise AssertionError(f"the scenario ended with {process.wait(PATIENCE_S)}")


def test_at_every_size_and_colour_axe_finds_nothing_and_nothing_scrolls_to_the_side(
    running: Exercising, pictures_folder: Path | None
) -> None:
    assert looked("look.mjs", "every_look", running, folder=pictures_folder) == []


def test_a_person_clicks_types_and_pauses(running: Exercising, pictures_folder: Path | None) -> None:
    if pictures_folder is not None:
        pytest.skip("pictures are of plain names, and this is about hostile ones")
    actions = {"send what is broken": running.players.send_what_is_broken}
    assert looked("look.mjs", "clicking_and_typing", running, actions=actions) == []


def test_everything_can_be_done_with_the_keyboard(running: Exercising) -> None:
    assert looked("look.mjs", "keyboard_only", running) == []


def test_a_person_labels_kept_windows_blind_and_exports_them(
    running: Exercising, tmp_path: Path, pictures_folder: Path | None
) -> None:
    folder = pictures_folder or tmp_path
    try:
        assert looked("look.mjs", "reviewing", running, folder=folder) == []
        rows = (folder / "reviewed.csv").read_text().splitlines()
    finally:
        (folder / "reviewed.csv").unlink(missing_ok=True)
    assert rows[0] == "time,key,person,label,ax (g),ay (g),az (g),wx (rad/s),wy (rad/s),wz (rad/s)"
    # Keys 2 and 3, and the button ROW: what was put aside is left out; each case is a window of 2 s at 50 Hz.
    assert Counter(row.split(",")[-7] for row in rows[1:]) == {"ABD": 100, "FEL": 100, "ROW": 100}


def test_a_person_sees_which_channels_drift_and_how_updates_ended(
    running: Exercising, tmp_path: Path, pictures_folder: Path | None
) -> None:
    actions = {
        "swap the axes of mat 3": lambda: running.players.swap_axes("mat 3"),
        "drop a good bundle": lambda: running.drop_bundle(2, "release"),
        "drop a stranger's bundle": lambda: running.drop_bundle(3, "stranger"),
        "go back": running.go_back,
    }
    folder = pictures_folder or tmp_path
    assert looked("look.mjs", "drifting_and_updating", running, folder=folder, actions=actions) == []


def test_the_token_opens_the_page_and_another_one_closes_it(running: Exercising) -> None:
    actions = {"change the token": lambda: running.change_token("second; token")}
    try:
        assert looked("look.mjs", "tokens", running, actions=actions) == []
    finally:
        running.change_token("first-token")


def test_the_page_says_that_the_application_is_gone_and_goes_on_when_it_is_back(running: Exercising) -> None:
    actions = {"kill": running.kill, "start": running.start}
    assert looked("look.mjs", "reconnecting", running, actions=actions) == []
