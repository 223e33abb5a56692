"""Measurements of models of other sensors; see `benchmarks.real_models.cases`."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from benchmarks.real_models.playing import Bundle, arrays
from benchmarks.real_models.sounds import SPEECH
from edge_runtime.types import Float32


def toycar_features(shared: Path, folder: Path) -> Path:
    """Write the features of one normal sound."""
    path = shared / "data/anomaly-scores-toycar/normal_id_01_00000000_hist_librosa.bin"
    rows = np.fromfile(path, "<f4").reshape(200, 128)
    return arrays(folder, "toycar", {"toycar": rows}, [f"c{i}" for i in range(128)], 31.25)


def toycar(bundle: Bundle, shared: Path, folder: Path) -> str:
    """Mean error of the sound: the mean of its last 196 windows is that of all."""
    recording = toycar_features(shared, folder)
    found = [float(bundle.rows(recording, variant)[-1, 0]) for variant in bundle.variants]
    assert [round(one, 2) for one in found] == [9.71, 10.27]
    return f"{found[0]:.2f} float32, {found[1]:.2f} int8"


def finite(bundle: Bundle, shared: Path, _: Path) -> str:
    """Range of the scores of sound that it was not made for."""
    scores = bundle.rows(shared / SPEECH)
    assert np.isfinite(scores).all()
    return f"speech scores {scores.min():.0f} to {scores.max():.0f}"


def _vibration(shared: Path, name: str) -> Float32:
    with np.load(shared / "data/fan-vibration-esp32" / f"{name}.npz", allow_pickle=False) as file:
        return np.asarray(file["data"], np.float32)


def _fan_recording(shared: Path, folder: Path, name: str) -> Path:
    return arrays(folder, name, {name: _vibration(shared, name)}, ["x", "y", "z"], 200)


def fan_normal(shared: Path, folder: Path) -> Path:
    """Write the vibration of the fan as it is in order."""
    return _fan_recording(shared, folder, "fan_0_low_0_weight-moving")


def fan(bundle: Bundle, shared: Path, folder: Path) -> str:
    """Area under the curve of three faults against normal vibration."""
    normal = bundle.rows(fan_normal(shared, folder))
    found = []
    for name, stated in (("low_1_weight", 0.73), ("med_1_weight", 0.97), ("off_0_weight", 0.90)):
        scores = bundle.rows(_fan_recording(shared, folder, f"fan_0_{name}"))
        found.append(float((scores > normal.T).mean()))
        assert abs(found[-1] - stated) < 0.01
    return f"area under the curve {', '.join(f'{one:.2f}' for one in found)}"


def angles(_: Path, folder: Path) -> Path:
    """Write angles from 0 to one turn."""
    return arrays(folder, "angles", {"angle": np.linspace(0, 2 * np.pi, 200, dtype=np.float32)}, ["angle"], 10)


def sine(bundle: Bundle, shared: Path, folder: Path) -> str:
    """Largest error of the sine."""
    recording = angles(shared, folder)
    wanted = np.sin(np.linspace(0, 2 * np.pi, 200))
    found = [float(np.abs(bundle.rows(recording, variant)[:, 0] - wanted).max()) for variant in bundle.variants]
    assert max(found) < 0.2
    return f"off by up to {found[0]:.2f} float32, {found[1]:.2f} int8"


def scrambled(bundle: Bundle, _: Path, folder: Path) -> str:
    """Answer something: its weights mean nothing."""
    rows = np.random.default_rng(0).uniform(-10, 10, 96 * 4).astype(np.float32)
    answers = bundle.rows(arrays(folder, "noise", {"noise": rows}, ["feature"], 50))
    assert answers.shape == (4, 2)
    return "answers"
