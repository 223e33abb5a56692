"""Front ends before the models that were trained on their rows, on real recordings; the engine is called directly."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_runtime import schema
from edge_runtime.io.recordings.wav import read_sound
from edge_runtime.manifest.frontends import Statistic
from edge_runtime.manifest.mel import Mel
from edge_runtime.model import engines
from edge_runtime.model.engines.base import Engine, EngineOptions
from edge_runtime.signal.frontends.build import build
from edge_runtime.types import Float32
from tests.edge_runtime.signal.frontends import cards
from tests.edge_runtime.signal.frontends.cuts import rows_of

ESC10 = {
    "chainsaw": "chainsaw", "clock_tick": "clock-tick", "crackling_fire": "fire-crackling", "crying_baby": "baby-cry",
    "dog": "dog-bark", "helicopter": "helicopter", "rain": "rain", "rooster": "rooster", "sea_waves": "sea-waves",
    "sneezing": "person-sneeze",
}  # fmt: skip
"""Folders of the recordings by the models' labels, in the models' order."""

pytest.importorskip("ai_edge_litert")


def litert(path: Path) -> Engine:
    return engines.load("litert", path.read_bytes(), EngineOptions())


def mel_rows(card: dict[str, Any], sound: Float32) -> Float32:
    return rows_of(build(schema.load(Mel, card), (len(sound), 1)), sound[:, None])


def heard(path: Path) -> Float32:
    """(n,) samples of a WAV file."""
    return np.concatenate(list(read_sound(path, 16000)))[:, 0]


def patches(rows: Float32, length: int, hop: int) -> Float32:
    """(n, bands, length): some rows every few rows, as ST's models take them."""
    return np.stack([rows[i : i + length].T for i in range(0, len(rows) - length + 1, hop)])


def clips(shared: Path) -> Iterator[tuple[Float32, int]]:
    """The 160 clips of folds 1 and 3."""
    soundfile = pytest.importorskip("soundfile", reason="soundfile reads the clips: pip install soundfile")
    for fold in (1, 3):
        for label, folder in enumerate(ESC10.values()):
            for path in sorted((shared / "data/env-sounds-esc10" / f"fold{fold}" / folder).glob("*.ogg")):
                yield soundfile.read(path, dtype="float32")[0], label


def test_keywords_are_told_apart_from_their_recordings(shared: Path) -> None:
    folder = shared / "data/speech-commands-mini"
    with np.load(folder / "mfcc.npz") as file:
        stored, labels, names = file["mfcc"], file["label"], file["wav"]
    made = []
    for name in names:
        sound = heard(folder / str(name))
        made.append(mel_rows(cards.KEYWORD, np.pad(sound, (0, 16000 - len(sound)))))
    rows = np.stack(made)
    assert np.abs(rows - stored).max() < 1e-6 * np.abs(stored).max()

    def accuracy(file: str) -> float:
        (scores,) = litert(shared / "models/mlperf-tiny" / file).run(rows[..., None])
        return float(np.mean(scores.argmax(axis=1) == labels))

    assert accuracy("kws_ref_model.tflite") == pytest.approx(0.967, abs=5e-4)
    assert accuracy("kws_ref_model_float32.tflite") == pytest.approx(0.962, abs=5e-4)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("file", "card", "length", "hop", "accuracy"),
    [
        ("miniresnet_1stacks_64x50_tl_int8.tflite", cards.MINIRESNET, 50, 37, 0.950),
        ("yamnet_256_64x96_tl_int8.tflite", cards.YAMNET, 96, 72, 0.950),
    ],
)
def test_sounds_are_told_apart(
    shared: Path, file: str, card: dict[str, Any], length: int, hop: int, accuracy: float
) -> None:
    model = litert(shared / "models/st-aed-esc10" / file)
    right = []
    for sound, label in clips(shared):
        (scores,) = model.run(patches(mel_rows(card, sound), length, hop)[..., None])
        right.append(scores.mean(axis=0).argmax() == label)
    assert len(right) == 160
    assert np.mean(right) == pytest.approx(accuracy, abs=1e-3)


def test_a_wake_word_is_heard_each_time_it_is_said_and_never_else(shared: Path) -> None:
    folder = shared / "data/wake-word-wavs/mlperf-streaming"
    sound = heard(folder / "short_wav_easy10s.wav")
    rows = (mel_rows(cards.WAKE_WORD, sound) + 21.897) / 64
    windows = np.stack([rows[i : i + 30, None] for i in range(len(rows) - 29)])
    (scores,) = litert(shared / "models/mlperf-tiny/str_ww_ref_model.tflite").run(windows)
    ends = (np.flatnonzero(scores[:, 0] > 0.75) + 30) * 0.032
    first = ends[np.diff(ends, prepend=-1) > 1]
    np.testing.assert_allclose(first, [1.22, 4.51, 7.33], atol=0.05)  # said at 1.0 to 1.65, 4.0 to 4.76, 7.0 to 7.36 s
    assert ends.max() < 8


def test_a_fan_that_was_stuck_with_weight_is_found(shared: Path) -> None:
    model = litert(shared / "models/fan-autoencoder/fan_low_model-moving.tflite")
    front_end = build(Statistic(what=("mad",)), (200, 3))

    def errors(name: str) -> Float32:
        with np.load(shared / "data/fan-vibration-esp32" / f"{name}.npz") as file:
            samples = file["data"].astype(np.float32)
        cuts = samples[: len(samples) // 200 * 200].reshape(-1, 1, 200, 3)
        row = front_end(cuts, [])[0][:, 0]
        return np.asarray(((model.run(row)[0] - row) ** 2).mean(axis=1))

    normal = errors("fan_0_low_0_weight-moving")

    def area(name: str) -> float:
        return float((errors(name)[:, None] > normal).mean())

    assert area("fan_0_low_1_weight") == pytest.approx(0.73, abs=5e-3)
    assert area("fan_0_med_1_weight") == pytest.approx(0.97, abs=5e-3)
    assert area("fan_0_off_0_weight") == pytest.approx(0.90, abs=5e-3)
