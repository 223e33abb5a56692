"""Recordings as a source: order, pace, back-pressure, and the end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_runtime import schema
from edge_runtime.errors import ConfigError
from edge_runtime.io.recordings.tables import ROWS
from edge_runtime.io.sources.recording import BATCH, BATCH_SAMPLES, CHUNK_S, IN_FLIGHT, RecordingConfig
from tests.edge_runtime.io.sources.player import Player


def csv(path: Path, seconds: float, start: float = 0.0) -> Path:
    n = int(seconds * 10)
    path.write_text("t,ax\n" + "".join(f"{start + i / 10},{i}\n" for i in range(n)))
    return path


def test_files_are_played_one_after_another_to_the_end(tmp_path: Path) -> None:
    player = Player(RecordingConfig(files=(csv(tmp_path / "b.csv", 3), csv(tmp_path / "a.csv", 3)), chunk_s=1)).play()
    assert [reading.key for reading in player.readings] == ["b"] * 3 + ["a"] * 3
    assert sum(len(reading.values) for reading in player.readings) == 60
    assert player.source.finished


def test_as_fast_as_possible_takes_no_time(tmp_path: Path) -> None:
    player = Player(RecordingConfig(files=(csv(tmp_path / "a.csv", 500),), chunk_s=1)).play()
    assert player.clock.monotonic() == 0.0
    sizes = [len(readings) for _, readings in player.deliveries]
    assert sizes[:-1] == [BATCH] * 7
    assert sizes[-1] <= BATCH


def test_as_fast_as_possible_readings_are_long_and_deliveries_bounded(tmp_path: Path) -> None:
    player = Player(RecordingConfig(files=(csv(tmp_path / "a.csv", 2000),))).play()
    assert len(player.readings) <= 2000 / CHUNK_S + 2000 * 10 / ROWS + 1
    assert max(sum(len(one.values) for one in readings) for _, readings in player.deliveries) < BATCH_SAMPLES + ROWS
    assert sum(len(reading.values) for reading in player.readings) == 20_000


@pytest.mark.parametrize("speed", [1.0, 10.0])
def test_pace_follows_the_stamps(speed: float, tmp_path: Path) -> None:
    player = Player(RecordingConfig(files=(csv(tmp_path / "a.csv", 20),), speed=speed)).play()
    assert len(player.deliveries) == 20
    np.testing.assert_allclose([at * speed for at, _ in player.deliveries], np.arange(20), atol=1e-6)


def test_a_recording_that_starts_anew_is_not_waited_for(tmp_path: Path) -> None:
    files = (csv(tmp_path / "a.csv", 5, start=1e9), csv(tmp_path / "b.csv", 5, start=5e8))
    player = Player(RecordingConfig(files=files, speed=1.0)).play()
    assert len(player.deliveries) >= 9
    assert player.clock.monotonic() < 10


def test_a_pipeline_that_lags_holds_the_file_back(tmp_path: Path) -> None:
    player = Player(RecordingConfig(files=(csv(tmp_path / "a.csv", 2000),), chunk_s=1), hold=True)
    player.source.open(player.loop, player.deliver)
    for _ in range(50):
        player.loop.iterate(0)
    assert len(player.deliveries) == IN_FLIGHT
    player.held.pop(0)()
    for _ in range(50):
        player.loop.iterate(0)
    assert len(player.deliveries) == IN_FLIGHT + 1
    player.source.close()
    player.loop.close()


def test_bad_rows_are_counted_and_left_out(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("t,ax\n0,1\n0.1,x\n0.2,nan\n0.3,4\n")
    player = Player(RecordingConfig(files=(path,))).play()
    assert sum(len(reading.values) for reading in player.readings) == 2
    assert player.metrics.dropped == {"malformed": 1, "not_finite": 1}


def test_nothing_is_played_when_one_file_does_not_fit(tmp_path: Path) -> None:
    (tmp_path / "bad.csv").write_text("t,ay\n1,2\n")
    player = Player(RecordingConfig(files=(csv(tmp_path / "a.csv", 3), tmp_path / "bad.csv")))
    with pytest.raises(ConfigError, match="channel ax"):
        player.play()
    assert not player.deliveries


def test_a_file_that_vanishes_while_another_is_played_is_counted(tmp_path: Path) -> None:
    files = (csv(tmp_path / "a.csv", 5), csv(tmp_path / "b.csv", 5))
    player = Player(RecordingConfig(files=files, speed=1.0))
    player.source.open(player.loop, player.deliver)
    player.loop.iterate(0)
    files[1].unlink()
    while not player.source.finished:
        player.loop.iterate(1.0)
    assert {reading.key for reading in player.readings} == {"a"}
    assert player.metrics.dropped == {"malformed": 1}
    player.source.close()
    player.loop.close()


def test_an_empty_recording_is_finished_at_once(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").touch()
    assert Player(RecordingConfig(files=(tmp_path / "a.jsonl",))).play(turns=1).source.finished


def test_settings_come_from_a_table(tmp_path: Path) -> None:
    table = {"type": "recording", "files": ["a.csv"], "speed": 2, "columns": {"ax": "x"}, "codec": {"type": "json"}}
    config = schema.load(RecordingConfig, table, base=tmp_path)
    assert config.files == (tmp_path / "a.csv",)
    assert config.columns == {"ax": "x"}
    mistakes: list[dict[str, Any]] = [{"files": []}, {"speed": -1}, {"chunk_s": -1}]
    for wrong in mistakes:
        with pytest.raises(schema.SchemaError):
            schema.load(RecordingConfig, table | wrong)
