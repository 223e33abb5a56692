"""Sound of a WAV file is the same in whatever pieces it is read, at the model's rate."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_runtime.errors import ConfigError, InputError
from edge_runtime.io.recordings import wav
from edge_runtime.io.recordings.layout import RecordingLayout
from edge_runtime.io.recordings.reader import iter_readings
from edge_runtime.manifest import Channel, InputContract
from tests.edge_runtime.base.media.sounds import resampled
from tests.edge_runtime.io.recordings.wav_files import write

CONTRACT = InputContract(channels=(Channel(name="sound", unit="1"),), rate_hz=800, window=100, hop=100)


def sound(path: Path, **layout: object) -> tuple[list[float], list[float]]:
    readings = list(iter_readings(path, CONTRACT, RecordingLayout(**layout)))  # type: ignore[arg-type]
    assert {reading.key for reading in readings} == {path.stem}
    return (
        np.concatenate([np.atleast_1d(reading.t) for reading in readings]).tolist(),
        np.concatenate([reading.values for reading in readings])[:, 0].tolist(),
    )


def test_samples_are_a_period_apart_from_0_and_lie_between_minus_1_and_1(tmp_path: Path) -> None:
    t, values = sound(write(tmp_path / "a.wav", np.array([0, 0.5, -1], np.float32)))
    assert (t, values) == ([0, 1 / 800, 2 / 800], [0, 0.5, -1])


def test_channels_are_averaged_and_a_scale_counts(tmp_path: Path) -> None:
    pcm = np.array([[0.5, 0.25], [0, 0.5]], np.float32)
    assert sound(write(tmp_path / "a.wav", pcm, channels=2), scale=(2.0,))[1] == [0.75, 0.5]


@pytest.mark.parametrize("rate", [400, 800, 1200, 2205, 4800])
def test_another_rate_is_resampled_and_every_period_of_the_file_counts(rate: int, tmp_path: Path) -> None:
    pcm = np.random.default_rng(rate).uniform(-1, 1, 1001).astype(np.float32)
    t, values = sound(write(tmp_path / "a.wav", pcm, rate))
    exact = (np.trunc(pcm * 32768) / 32768).astype(np.float32)
    assert values == resampled(exact[:, None], rate, 800)[:, 0].tolist()
    assert len(t) == -(-1001 * 800 // rate)
    np.testing.assert_allclose(np.diff(t), 1 / 800, rtol=1e-9)


def test_channels_of_the_file_are_those_of_a_model_that_has_as_many(tmp_path: Path) -> None:
    contract = InputContract(
        channels=(Channel(name="left", unit="1"), Channel(name="right", unit="1")), rate_hz=800, window=9, hop=9
    )
    pcm = np.array([[0.5, 0.25], [0, -0.5]], np.float32)
    (reading,) = iter_readings(write(tmp_path / "a.wav", pcm, channels=2), contract)
    assert reading.values.tolist() == pcm.tolist()


def test_a_file_longer_than_one_piece_is_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pcm = np.random.default_rng(1).uniform(-1, 1, 1000).astype(np.float32)
    path = write(tmp_path / "a.wav", pcm, rate=1600)
    whole = sound(path)
    monkeypatch.setattr(wav, "FRAMES", 64)
    assert sound(path) == whole
    assert len(whole[0]) == 500


def test_a_file_of_many_channels_is_read_in_pieces_of_as_many_numbers(tmp_path: Path) -> None:
    pcm = np.zeros((4000, 256), np.float32)
    pieces = list(wav.read_sound(write(tmp_path / "wide.wav", pcm, rate=1600, channels=256), 1600))
    assert [len(piece) for piece in pieces] == [256] * 15 + [160]


@pytest.mark.parametrize(
    ("rate", "width", "told"),
    [
        (1103, 2, "1103 Hz cannot become 800 Hz: the ratio"),
        (40, 2, "40 Hz cannot become 800 Hz: at most"),
        (800, 1, "8 bits a sample"),
    ],
)
def test_what_cannot_be_played_is_refused(rate: int, width: int, told: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=told):
        sound(write(tmp_path / "a.wav", np.zeros(10, np.float32), rate, width=width))


def test_a_model_of_other_channels_is_refused(tmp_path: Path) -> None:
    contract = InputContract(channels=(Channel(name="a", unit="g"), *CONTRACT.channels), rate_hz=800, window=9, hop=9)
    with pytest.raises(ConfigError, match="sound of 1 channels, the model has 2"):
        list(iter_readings(write(tmp_path / "a.wav", np.zeros(9, np.float32)), contract))


def test_a_damaged_file_is_an_error_and_a_short_one_is_played_as_far_as_it_goes(tmp_path: Path) -> None:
    path = write(tmp_path / "a.wav", np.zeros(100, np.float32))
    whole = path.read_bytes()
    path.write_bytes(whole[:-21])
    refused: list[InputError] = []
    assert sum(len(r.values) for r in iter_readings(path, CONTRACT, on_refused=refused.append)) == 89
    path.write_bytes(whole[:20])
    with pytest.raises(ConfigError, match="not a PCM WAV file"):
        sound(path)
