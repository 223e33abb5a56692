"""``edge-runtime events tune``: from recordings to a rule in the application."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import orjson
import pytest
from edge_export.package.rewrite import rewrite

from edge_runtime.app.config import load_config
from edge_runtime.app.python_api import open_model, replay
from edge_runtime.event_rule import EventRule
from edge_runtime.tools.cli import main
from tests.integration.running import streams, write_recording
from tests.models import tiny_bundle

APP = """# a lamp
[model]
bundle = "tiny.edge"
unsigned = "allow"
[[source]]
type = "stdin"
[[sink]]
type = "stdout"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle, four recordings, and labels where the model itself is surest."""
    folder = tmp_path_factory.mktemp("tune")
    bundle = tiny_bundle(folder / "tiny.edge", hop=8)
    (folder / "app.toml").write_text(APP)
    rows = ["file,start,end,label"]
    with open_model(bundle) as model:
        for i, stream in enumerate(streams(4, 3000, seed=3)):
            path = write_recording(folder / f"r{i}.jsonl", [stream])
            found = list(replay(model, path))
            limit = np.quantile([one.scores[1] for one in found], 0.9)
            rows += [f"r{i}.jsonl,{one.start},{one.end},walk" for one in found if one.scores[1] >= limit]
    (folder / "labels.csv").write_text("\n".join(rows) + "\n")
    return folder


def tune(folder: Path, *more: str | Path, files: str = "r*.jsonl") -> int:
    labels = ["--labels", str(folder / "labels.csv")]
    return main(
        ["events", "tune", str(folder / "tiny.edge"), str(folder / files), *labels, "--event", "step", *map(str, more)]
    )


@pytest.mark.slow
def test_a_rule_is_chosen_and_reported_on_recordings_it_was_not_chosen_on(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tune(folder, "--label", "walk", "--rate", "60", "--json") == 0
    found = orjson.loads(capsys.readouterr().out)
    assert found["chosen_on"]["false"] <= 60 * found["chosen_on"]["hours"]
    assert found["not_chosen_on"]["happened"] == found["chosen_on"]["happened"]  # each recording in turn
    assert found["upper_per_hour"] > found["not_chosen_on"]["false"] / found["not_chosen_on"]["hours"]
    assert tune(folder, "--label", "walk", "--rate", "60", "--report", folder / "r3.jsonl", files="r[012].jsonl") == 0
    text = capsys.readouterr().out
    assert "chosen on      " in text
    assert f"[{folder / 'r3.jsonl'}]" in text
    assert "too few for a rate: with 95 % confidence it is at most" in text  # a minute is no hour
    assert '[[events]]\nname = "step"\nlabel = "walk"\n' in text


@pytest.mark.slow
def test_the_rule_is_shown_and_written_into_the_application(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    app = folder / "app.toml"
    assert tune(folder, "--label", "walk", "--rate", "600", "--app", app, files="r0.jsonl") == 0
    assert '+[[events]]\n+name = "step"\n' in capsys.readouterr().out
    assert app.read_text() == APP
    assert (
        tune(
            folder,
            "--label",
            "walk",
            "--rate",
            "600",
            "--app",
            app,
            "--write",
            "--plot",
            folder / "c.svg",
            files="r0.jsonl",
        )
        == 0
    )
    assert app.read_text().startswith(APP)
    (rule,) = load_config(app).events or ()
    assert (rule.name, rule.label) == ("step", "walk")
    assert set(rule.expected) == {"false_per_hour", "missed"}
    assert (folder / "c.svg").read_text().startswith("<svg ")
    assert tune(folder, "--rate", "600", "--app", app, files="r0.jsonl") == 0  # the label is the rule's now
    app.write_text(APP)


@pytest.mark.slow
def test_recordings_too_short_for_the_rate_are_said_and_not_written(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    app = folder / "short.toml"
    app.write_text(APP)
    asked: list[str | Path] = ["--label", "walk", "--rate", "1", "--app", app]
    assert tune(folder, *asked, files="r0.jsonl") == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("too short for 1 false alarms per hour: 0.0")
    own = folder / "own.csv"  # it happens in the first recording, and once in the second: all others are false
    rows = (folder / "labels.csv").read_text().splitlines()
    once = next(row for row in rows if row.startswith("r1"))
    own.write_text("\n".join([*(row for row in rows if row.startswith(("file", "r0"))), once]))
    asked += ["--labels", own, "--report", *(folder / f"r{i}.jsonl" for i in (1, 2, 3))]
    assert tune(folder, *asked, "--write", "--json", files="r0.jsonl") == 1
    said = capsys.readouterr()
    found = orjson.loads(said.out)
    assert found["rule"]["expected"]["false_per_hour"] > 1
    assert said.err.splitlines()[-1].endswith(f"; record 1 h and more; {app} is not written")
    assert app.read_text() == APP
    assert tune(folder, "--label", "walk", "--rate", "600", "--app", app, files="r0.jsonl") == 0
    assert "too short" not in capsys.readouterr().out


def test_rules_of_the_bundle_are_not_turned_off_by_the_first_of_the_application(folder: Path) -> None:
    other = EventRule(name="other", label="run")
    bundle = tiny_bundle(folder / "with.edge", hop=8)
    rewrite(bundle, lambda before: replace(before, events=(other,), schema_version=2))
    (folder / "with.toml").write_text(APP.replace("tiny.edge", "with.edge"))
    labels = ["--labels", str(folder / "labels.csv"), "--event", "step", "--label", "walk", "--rate", "600"]
    files = ["events", "tune", str(bundle), str(folder / "r0.jsonl"), *labels]
    assert main([*files, "--app", str(folder / "with.toml"), "--write"]) == 0
    rules = load_config(folder / "with.toml").events or ()
    assert [rule.name for rule in rules] == ["other", "step"]
    assert rules[0] == other


@pytest.mark.parametrize(
    ("more", "line"),
    [
        (["--label", "jump"], "the model has no label 'jump'; it has rest, walk, run; name one by --label"),
        ([], "the model has no label 'step'"),
        (["--label", "run"], "'run' happens in none of the recordings; check label, key or file"),
        (["--label", "walk", "--write"], "--write needs --app APP"),
        (["--label", "walk", "--report", "r0.jsonl"], "a recording is named twice"),
    ],
)
def test_wrong_use_ends_with_one_line(
    folder: Path, more: list[str], line: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    arguments = ["events", "tune", "tiny.edge", "r0.jsonl", "--labels", "labels.csv", "--event", "step", "--rate", "1"]
    assert main([*arguments, *more]) == 2
    (said,) = capsys.readouterr().err.strip().splitlines()
    assert line in said
