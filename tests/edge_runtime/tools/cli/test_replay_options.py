"""Settings of a replay, as its options make them: the same for one process and for many."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_runtime.errors import ConfigError
from edge_runtime.tools.batch.job import Job
from edge_runtime.tools.cli import replay
from tests.parsing import parsed


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name in ("watch.edge", "truth.csv", "one/day.csv", "two/day.csv"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text("t,label\n")
    return tmp_path


def job(*options: str) -> Job:
    return replay.job_of(parsed(replay.ReplayOptions, "watch.edge", "one/day.csv", "two/day.csv", *options))


@pytest.mark.usefixtures("folder")
def test_options_become_settings_whoever_answers() -> None:
    options = ("--variant", "onnx-int8", "--lateness", "2.5", "--partial", "--labels", "truth.csv")
    made = job(*options)
    assert made == job(*options, "--jobs", "3", "--out", "a.jsonl") == job(*options, "--ray", "local")
    assert (made.model.bundle, made.model.variant, made.model.unsigned) == (Path("watch.edge"), "onnx-int8", "allow")
    assert (made.window.lateness_s, made.window.parts, made.layout.partial) == (2.5, True, True)
    assert made.layout.files == (Path("one/day.csv"), Path("two/day.csv"))


@pytest.mark.usefixtures("folder")
def test_labels_are_a_table_where_there_is_such_a_file_and_else_a_column() -> None:
    table, column, none = job("--labels", "truth.csv"), job("--labels", "activity"), job()
    assert (table.labels, table.layout.label, table.scored) == (Path("truth.csv"), "", True)
    assert [table.played.key_of(name) for name in ("one/day.csv", "two/day.csv")] == ["one/day", "two/day"]
    assert (column.labels, column.layout.label, column.scored) == (None, "activity", True)
    assert (none.labels, none.layout.label, none.scored) == (None, "", False)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("--separator", ";;"), "delimiter must be one character"),
        (("--labels", "truht.csv"), "--labels truht.csv: no such file"),
        (("--source", "truth.csv"), r"truth\.csv: 0 \[\[source\]\] tables"),
    ],
)
@pytest.mark.usefixtures("folder")
def test_what_cannot_be_meant_is_refused(options: tuple[str, ...], told: str) -> None:
    Path("truth.csv").write_text("")
    with pytest.raises(ConfigError, match=told):
        job(*options)
