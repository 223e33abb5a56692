"""The demo's command from recordings to bundles, in steps few enough for a test."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch", reason="the export toolchain's networks need torch (edge-export[train])")
pytest.importorskip("onnxscript", reason="the export to ONNX needs onnxscript (edge-export[train])")
pytest.importorskip("sklearn", reason="the export toolchain's baseline needs scikit-learn (edge-export[train])")

from edge_export.cli import main
from edge_export.data.dataset import Dataset, Recording
from edge_export.data.readers.seglearn import CHANNELS, CLASSES, RATE_HZ
from edge_export.demo import build as demo
from edge_export.recipe.training_spec import Training
from edge_export.training.distill import Distillation

from edge_runtime.bundle.bundle import open_bundle
from edge_runtime.errors import ConfigError

QUICK = replace(
    demo.PLAN,
    teacher=Training(steps=30, batch=32),
    members=2,
    student=Training(steps=60, batch=32, learning_rate=1e-2),
    distillation=Distillation(pool=512),
)


@pytest.fixture(scope="module")
def exercises() -> Dataset:
    """Seven made-up exercises that differ in gravity's direction and frequency, by four people of different vigour."""
    random = np.random.default_rng(6)
    recordings = []
    for person in range(1, 5):
        for label in range(7):
            t = np.arange(450)[:, None] / RATE_HZ
            swing = np.sin(2 * np.pi * (0.3 + 0.2 * label) * t + np.arange(6)) * (0.2 + 0.1 * person)
            values = swing + 0.05 * random.standard_normal((450, 6))
            values[:, label % 3] += 1.0 if label < 4 else -1.0
            recordings.append(
                Recording(name=f"{person}-{label}", group=str(person), label=label, values=values.astype(np.float32))
            )
    return Dataset(name="made-up", channels=CHANNELS, rate_hz=RATE_HZ, classes=CLASSES, recordings=tuple(recordings))


@pytest.mark.slow
def test_recordings_become_bundles_and_the_same_seed_gives_the_same_files(exercises: Dataset, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        demo.build(exercises, QUICK, training=("1", "2"), demo=("4",), out=tmp_path / name)
    for file in ("watch.edge", "teacher.edge", "recordings.npz", "figures.json"):
        assert (tmp_path / "one" / file).read_bytes() == (tmp_path / "two" / file).read_bytes(), file
    figures = json.loads((tmp_path / "one" / "figures.json").read_text())
    assert figures["held_out"]["gate"]["cloud_accuracy"] > 0.5
    assert list(figures["held_out"]["people"]) == ["1", "2"]
    assert list(figures["demo"]["people"]) == ["4"]
    assert figures["demo"]["difference_from_onnx_int8_s8s8"]["tflite-int8"]["same_label"] > 0.95
    watch = open_bundle(tmp_path / "one" / "watch.edge").manifest
    assert [v.name for v in watch.variants] == ["tflite-int8", "onnx-int8-u8s8", "onnx-int8-s8s8", "onnx-fp32"]
    assert watch.input.context == 300


def test_people_cannot_be_trained_on_and_shown(exercises: Dataset, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must not be among those trained on"):
        demo.build(exercises, QUICK, training=("1", "2"), demo=("2",), out=tmp_path)


def test_a_missing_wheel_ends_with_one_line_and_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", str(tmp_path / "no.whl"), "-o", str(tmp_path / "out")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("edge-export: cannot read 'no.whl'")
    assert error.count("\n") == 1
    assert not (tmp_path / "out").exists()
