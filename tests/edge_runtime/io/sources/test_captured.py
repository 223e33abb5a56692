"""Captured messages give the readings that the live source would have given, at the times of their arrival."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edge_devices.sources.iio import IioConfig
from edge_devices.sources.serial import SerialConfig

from edge_runtime.errors import ConfigError
from edge_runtime.io.codecs.json import JsonConfig
from edge_runtime.io.sources.build import as_recording
from edge_runtime.io.sources.mqtt import MqttSourceConfig
from edge_runtime.io.sources.recording import RecordingConfig
from edge_runtime.io.sources.stdin import StdinConfig
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.types import Reading
from tests.edge_runtime.io.sources.player import Player

CONTRACT = InputContract(channels=(Channel(name="ax", unit="g"),), rate_hz=10, window=10, hop=5)
AT = 1_700_000_000.0
STAMPED = MqttSourceConfig(broker="b", topics=("watch/+/imu",), codec=JsonConfig(channels={"ax": "ax"}))
UNSTAMPED = MqttSourceConfig(
    broker="b", topics=("attic/#",), share="g", key="topic", codec=JsonConfig(channels={"ax": "ax"}, time="")
)


def play(tmp_path: Path, lines: str, *sources: MqttSourceConfig) -> Player:
    path = tmp_path / "captured.txt"
    path.write_text(lines)
    return Player(as_recording(sources, [path])).play()


def plain(readings: list[Reading]) -> list[tuple[str, float, list[list[float]]]]:
    return [(one.key, float(np.atleast_1d(one.t)[0]), one.values.tolist()) for one in readings]


def test_each_source_reads_its_topics_by_its_own_codec(tmp_path: Path) -> None:
    player = play(
        tmp_path,
        f'{AT + 9:.6f} watch/w1/imu {{"t": {AT}, "ax": 1}}\n'
        f'{{"tst": "2023-11-14T22:13:29.500000Z+0000", "topic": "attic/x", "payload": {{"ax": 2}}}}\n'
        f'watch/w2/imu {{"t": {AT + 1}, "ax": 3}}\n',
        STAMPED,
        UNSTAMPED,
    )
    assert plain(player.readings) == [("w1", AT, [[1]]), ("attic/x", AT + 9.5, [[2]]), ("w2", AT + 1, [[3]])]
    assert not +player.metrics.dropped
    assert player.metrics.counts["messages_total"] == 3


def test_what_cannot_be_used_is_counted_under_its_reason(tmp_path: Path) -> None:
    player = play(
        tmp_path,
        f'watch/w1/imu {{"t": {AT}, "ax": 1}}\n'
        "watch/w1/imu soon\n"  # refused by the codec
        "cellar/x 1\n"  # nobody asked for it
        '{"topic": 1}\n'  # no message
        'attic/x {"ax": 2}\n',  # no time anywhere
        STAMPED,
        UNSTAMPED,
    )
    assert plain(player.readings) == [("w1", AT, [[1]])]
    assert player.metrics.dropped == {"malformed": 2, "unexpected_topic": 1, "bad_time": 1}
    assert (
        "line 5: neither message nor line has a time; capture with mosquitto_sub" in player.metrics.examples["bad_time"]
    )
    assert player.metrics.counts["recordings_unused_total"] == 0


def test_a_file_of_which_nothing_could_be_used_is_counted(tmp_path: Path) -> None:
    player = play(tmp_path, "cellar/x 1\n", STAMPED)
    assert player.metrics.counts["recordings_unused_total"] == 1


def test_files_of_lines_are_read_as_pipes_and_ports_are(tmp_path: Path) -> None:
    files = (tmp_path / "a.txt",)
    codec = JsonConfig(channels={"ax": "x"})
    live: list[Any] = [StdinConfig(key="w", codec=codec), SerialConfig(port="/dev/x", key="w", codec=codec)]
    for source in live:
        assert as_recording([source], files) == RecordingConfig(files=files, format="lines", key="w", codec=codec)
    recording = RecordingConfig(files=(Path("other.csv"),), time="ts", speed=1.0)
    assert as_recording([recording], files) == RecordingConfig(files=files, time="ts")


@pytest.mark.parametrize(
    ("sources", "told"),
    [
        ([], r"0 \[\[source\]\] tables"),
        ([STAMPED, StdinConfig()], r"2 \[\[source\]\] tables: keep the one"),
        ([SerialConfig(port="/dev/x", framing="cobs")], "type serial receives cannot be read from a file"),
        ([IioConfig(device="d", channels=("accel_x",), key="w")], "type iio receives cannot be read from a file"),
    ],
)
def test_sources_that_leave_no_files_are_refused(sources: list[Any], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        as_recording(sources, [Path("a.txt")])
