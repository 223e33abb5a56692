"""``edge-export pack --recipe``: a model that someone else trained notices how its sensors are mounted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from edge_export.cli import main

from edge_runtime.model.bundle.bundle import open_bundle
from tests.edge_export.graphs import GraphBuilder
from tests.edge_export.recipe_text import RECIPE

pytestmark = pytest.mark.usefixtures("models_in_this_process")

SAMPLES = 20
AXES = ("ax", "ay", "az")
RECIPE_OF_AXES = RECIPE.replace('["still", "moving"]', '["x", "y", "z"]').replace(
    '{ name = "ay", unit = "g" }]', '{ name = "ay", unit = "g" }, { name = "az", unit = "g" }]'
)

CARD = """
name = "borrowed"
origin = { name = "made up", source = "this test", licence = "CC0" }
signal = { rate_hz = 50, channels = [CHANNELS] }
window = 20
hop = 10

[[stages]]
inputs = [{ rows = 20 }]

[task]
type = "classification"
labels = ["x", "y", "z"]
values = "logits"
"""


def recordings(folder: Path) -> Path:
    """Four people who hold a sensor in three ways, each for a while; every axis has noise of its own size."""
    folder.mkdir()
    for person in range(4):
        rng = np.random.default_rng(person)
        y = np.repeat(np.arange(60) // 10 % 3, SAMPLES)
        x = rng.normal(0, (0.3, 0.1, 0.03), (len(y), 3)) + np.eye(3)[y]
        np.savez(folder / f"p{person}.npz", x=x.astype(np.float32), y=y)
    return folder


@pytest.fixture
def packing(tmp_path: Path) -> list[str]:
    """Arguments that pack a model whose answer is the axis that lies along gravity."""
    b = GraphBuilder(3, SAMPLES)
    weights = np.repeat(np.eye(3, dtype=np.float32)[:, :, np.newaxis], SAMPLES, axis=2).reshape(3, -1)
    flat = b.node("Flatten", "window")
    onnx.save(b.model(b.node("MatMul", flat, b.constant(weights.T))), str(tmp_path / "net.onnx"))
    channels = ", ".join(f'{{ name = "{name}", unit = "g", low = -2, high = 2 }}' for name in AXES)
    (tmp_path / "card.toml").write_text(CARD.replace("CHANNELS", channels))
    (tmp_path / "recipe.toml").write_text(RECIPE_OF_AXES)
    folder = recordings(tmp_path / "data")
    out = ["-o", str(tmp_path / "net.edge"), "--recipe", str(tmp_path / "recipe.toml"), "--data", f"home={folder}"]
    return ["pack", str(tmp_path / "net.onnx"), "--card", str(tmp_path / "card.toml"), *out]


def test_labelled_recordings_tell_which_faults_a_packed_model_can_notice(
    packing: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(packing) == 0
    printed = capsys.readouterr().out
    with open_bundle(tmp_path / "net.edge") as bundle:
        references, sensors = bundle.manifest.references, bundle.manifest.sensors
    assert [reference.channels for reference in references] == [AXES]
    assert sensors is not None
    costs = {repair.fault: repair.cost for repair in sensors.repairs}
    assert costs["ax and ay swapped"] == pytest.approx(2 / 3, abs=0.05), "by the answers of the model itself"
    assert costs["ax and az swapped"] == pytest.approx(2 / 3, abs=0.05)
    assert "sensors: ax and ay swapped: costs 0.6" in printed
    assert "reference: norm of ax, ay, az: " in printed


@pytest.mark.parametrize(
    ("before", "after", "reason"),
    [
        ('["x", "y", "z"]', '["x", "z", "y"]', "classes must be the card's labels: x, y, z"),
        (
            '"ay", unit = "g"',
            '"ay", unit = "m/s2"',
            "channels under [window] must be the card's: ax (g), ay (g), az (g)",
        ),
    ],
)
def test_a_recipe_of_another_model_is_refused(
    packing: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str], before: str, after: str, reason: str
) -> None:
    (tmp_path / "recipe.toml").write_text(RECIPE_OF_AXES.replace(before, after))
    assert main(packing) == 2
    assert reason in capsys.readouterr().err
    assert not (tmp_path / "net.edge").exists()


def test_data_without_a_recipe_are_refused(packing: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    at = packing.index("--recipe")
    assert main(packing[:at] + packing[at + 2 :]) == 2
    assert "--data needs the recipe that says how it is read; give --recipe RECIPE.toml" in capsys.readouterr().err
