"""The folder that an interrupted job goes on from, and the file that is made of it."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from edge_runtime.errors import ConfigError
from edge_runtime.io.recordings.tally import Tally
from edge_runtime.metrics import Metrics
from edge_runtime.tools.batch.job import Group, GroupFigures
from edge_runtime.tools.batch.parts import Parts
from edge_runtime.tools.batch.table import write_all

DONE = GroupFigures.of(["w"], Metrics(), Tally(), None, {})


@pytest.fixture
def group(tmp_path: Path) -> Group:
    (tmp_path / "a.csv").write_text("t,x\n")
    return Group(0, ((tmp_path / "a.csv", "a"),))


def test_a_group_is_done_once_both_files_are_there(tmp_path: Path, group: Group) -> None:
    with Parts(tmp_path / "out.jsonl", "job") as parts:
        assert parts.done(group) is None
        parts.keep(group, DONE)
        assert parts.done(group) is None
        parts.lines_of(group).write_bytes(b"{}\n")
        assert parts.done(group) == DONE
        assert parts.paths([group]) == [parts.lines_of(group)]
        parts.lines_of(group).with_suffix(".json").write_bytes(b'{"keys"')
        assert parts.done(group) is None
        parts.remove()
        assert not parts.folder.exists()


def test_a_group_with_a_broken_recording_is_tried_again(tmp_path: Path, group: Group) -> None:
    with Parts(tmp_path / "out.jsonl", "job") as parts:
        parts.lines_of(group).write_bytes(b"{}\n")
        parts.keep(group, DONE._replace(broken={"a.csv": "why"}))
        assert parts.done(group) is None


def test_two_processes_do_not_write_one_file(tmp_path: Path) -> None:
    with Parts(tmp_path / "out.jsonl", "job"):
        with pytest.raises(ConfigError, match="another process is writing it"):
            Parts(tmp_path / "out.jsonl", "job")
    with Parts(tmp_path / "out.jsonl", "job"):
        pass


def test_a_table_has_a_column_for_each_field_and_one_for_those_of_a_task(tmp_path: Path) -> None:
    pq = pytest.importorskip("pyarrow.parquet")
    answer = {
        "id": "w@1", "key": "w", "start": 1.0, "end": 2.0, "label": "up", "confidence": 0.5, "scores": [0.5, 0.5],
        "route": "local", "hard": True, "model": "m/1", "variant": "v", "latency_ms": 0.1,
    }  # fmt: skip
    (tmp_path / "1").write_bytes(orjson.dumps(answer) + b"\n")
    (tmp_path / "2").write_bytes(orjson.dumps(answer | {"values": {"x": 1}}) + b"\n")
    write_all(tmp_path / "out.parquet", [tmp_path / "1", tmp_path / "2"])
    first, second = pq.read_table(tmp_path / "out.parquet").to_pylist()
    assert first == answer | {"more": None}
    assert second == answer | {"more": '{"values":{"x":1}}'}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["1", "2", "out.parquet"]
