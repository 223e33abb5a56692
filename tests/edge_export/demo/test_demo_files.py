"""The demo's committed files: what they promise, whom they show, and what they do not tell."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from edge_export.choose.evaluation.calibration import gate_metrics
from edge_export.data.dataset import Dataset, Windows, load_recordings
from edge_export.data.readers.seglearn import CHANNELS, CLASSES, RESERVED_PEOPLE

from edge_runtime.base.system import toml
from edge_runtime.model.bundle.bundle import Bundle, open_bundle
from edge_runtime.model.bundle.load import load_engine
from edge_runtime.model.engines.base import EngineOptions
from edge_runtime.model.tasks.classification import Gate
from tests.edge_export.recordings import cut_windows

FOLDER = Path(__file__).resolve().parents[3] / "examples" / "exercise-watch"


@pytest.fixture(scope="module")
def figures() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((FOLDER / "report.json").read_text())
    return loaded


@pytest.fixture(scope="module")
def recordings() -> Dataset:
    return load_recordings(FOLDER / "recordings.npz")


@pytest.fixture(scope="module")
def windows(recordings: Dataset) -> Windows:
    return cut_windows(recordings, samples=100, hop=50, context=300)


@pytest.fixture(scope="module")
def watch_bundle() -> Bundle:
    return open_bundle(FOLDER / "watch.edge")


@pytest.fixture(scope="module")
def teacher_bundle() -> Bundle:
    return open_bundle(FOLDER / "teacher.edge")


def answers(bundle: Bundle, variant: str, x: np.ndarray) -> np.ndarray:
    engine = load_engine(bundle, variant, EngineOptions())
    try:
        return np.concatenate([engine.run(x[i : i + 32])[0].copy() for i in range(0, len(x), 32)])
    finally:
        engine.close()


def test_only_people_nobody_trained_on_are_shown(recordings: Dataset, figures: dict[str, Any]) -> None:
    people = figures["groups"]
    assert set(recordings.groups) == set(people["test"]) == {"8", "10"}
    assert not set(people["test"]) & {*people["train"], *people["validation"]}
    assert not RESERVED_PEOPLE & {*people["test"], *people["train"], *people["validation"]}


def test_the_recordings_are_what_they_say(recordings: Dataset) -> None:
    assert recordings.channels == CHANNELS
    assert recordings.classes == CLASSES
    assert recordings.rate_hz == 50.0
    assert len(recordings.recordings) == 28
    assert {(r.group, r.tags["side"], r.label) for r in recordings.recordings} == {
        (group, side, label) for group in ("8", "10") for side in ("left", "right") for label in range(7)
    }
    # Gravity: 1 g at rest, a little more on average in movement.
    lengths = [np.linalg.norm(r.values[:, :3], axis=1).mean() for r in recordings.recordings]
    assert 0.9 < min(lengths) <= max(lengths) < 1.6


@pytest.mark.parametrize("variant", ["tflite-int8", "onnx-int8-u8s8", "onnx-int8-s8s8", "onnx-fp32"])
def test_every_variant_is_as_accurate_here_as_stated(
    watch_bundle: Bundle, windows: Windows, figures: dict[str, Any], variant: str
) -> None:
    probabilities = answers(watch_bundle, variant, windows.x)
    accuracy = (probabilities.argmax(axis=1) == windows.y).mean()
    stated = figures["test"]["judged"][variant]["accuracy"]
    assert accuracy == pytest.approx(stated, abs=0.01)
    assert watch_bundle.variant(variant).cost["accuracy"] == pytest.approx(stated, abs=5e-5)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-5)


@pytest.mark.slow
def test_device_and_cloud_together_do_what_the_figures_say(
    watch_bundle: Bundle, teacher_bundle: Bundle, windows: Windows, figures: dict[str, Any]
) -> None:
    device = answers(watch_bundle, "tflite-int8", windows.x)
    cloud = answers(teacher_bundle, "onnx-fp32", windows.contexts)
    spec = watch_bundle.manifest.gate
    found = gate_metrics(device, cloud, windows.y, threshold=spec.threshold, score=spec.score)
    stated = figures["test"]["gate"]
    assert found.combined_accuracy == pytest.approx(stated["combined_accuracy"], abs=0.01)
    assert found.forwarded == pytest.approx(stated["forwarded"], abs=0.02)
    assert found.device_accuracy < found.combined_accuracy


def test_the_gate_s_promise_is_that_of_the_person_it_was_set_by(watch_bundle: Bundle, figures: dict[str, Any]) -> None:
    spec, found = watch_bundle.manifest.gate, figures["gate"]["promise"]["validation"]
    assert spec.threshold == figures["gate"]["threshold"] == found["threshold"]
    assert spec.expected["forwarded"] == pytest.approx(found["forwarded"], abs=5e-5)
    assert spec.expected["forwarded"] <= 0.2
    assert spec.expected["local_error"] == pytest.approx(1 - found["local_accuracy"], abs=5e-5)


def test_the_models_beat_the_baseline_on_people_they_have_not_seen(figures: dict[str, Any]) -> None:
    ways = figures["ways"]
    forest = figures["test"]["judged"]["random-forest"]["accuracy"]
    assert forest < ways["device"]["accuracy"] < ways["with cloud"]["accuracy"] < ways["over time"]["accuracy"]


def test_answers_over_time_and_the_cloud_won_on_people_left_out_before_they_shipped(
    watch_bundle: Bundle, figures: dict[str, Any]
) -> None:
    tried = figures["surround"]
    assert tried["over_time"]["filter"]["gain"] > max(tried["over_time"][f"mean of {n}"]["gain"] for n in (2, 3, 5))
    assert tried["asking"]["20%"][tried["asking"]["way"]]["low"] > 0
    surround = watch_bundle.manifest.surround
    assert surround is not None
    assert surround.over_time is not None
    assert surround.fusion is not None
    assert surround.gate.share == 0.2


def test_answers_are_fine_enough_to_set_any_threshold(watch_bundle: Bundle, windows: Windows) -> None:
    """An int8 softmax would know 256 confidences; the graph keeps its softmax in floats."""
    spec = watch_bundle.manifest.gate
    trust = np.array(Gate(spec).decide(answers(watch_bundle, "tflite-int8", windows.x)).trust)
    assert len(np.unique(trust)) > 450
    assert trust[trust < 1].max() > 255 / 256


def test_the_first_windows_of_a_stream_are_answered_as_well(teacher_bundle: Bundle, windows: Windows) -> None:
    """Contexts that are mostly filling: less to go by, but nothing that misleads."""
    short = windows.start < 200
    right = answers(teacher_bundle, "onnx-fp32", windows.contexts[short]).argmax(axis=1) == windows.y[short]
    assert short.sum() >= 100
    assert right.mean() > 0.75


def test_contracts_fit_together(watch_bundle: Bundle, teacher_bundle: Bundle) -> None:
    device, cloud = watch_bundle.manifest, teacher_bundle.manifest
    assert device.input.context == cloud.input.window
    assert device.input.channels == cloud.input.channels
    assert device.output.labels == cloud.output.labels


@pytest.mark.parametrize("name", ["watch.edge", "teacher.edge"])
def test_no_model_file_names_a_place_or_a_tool_s_traces(name: str) -> None:
    bundle = open_bundle(FOLDER / name)
    for variant in bundle.manifest.variants:
        content = bundle.read_variant(variant.name)
        for trace in (b"/home", b"/tmp", b"/root", b"/usr", b".py", b"site-packages", b"stack_trace"):
            assert trace not in content, (variant.name, trace)


def test_sizes_stay_small() -> None:
    sizes = {path.name: path.stat().st_size for path in FOLDER.iterdir()}
    assert sizes["watch.edge"] < 150_000
    assert sizes["teacher.edge"] < 2_000_000
    assert sizes["recordings.npz"] < 1_000_000


def test_the_variant_for_another_processor_is_marked_so(watch_bundle: Bundle) -> None:
    targets = {variant.name: variant.targets for variant in watch_bundle.manifest.variants}
    assert targets["onnx-int8-u8s8"] == ("x86_64",)
    assert "aarch64" in targets["onnx-int8-s8s8"]
    assert targets["tflite-int8"] == targets["onnx-fp32"] == ()


def test_the_licence_travels_with_the_recordings() -> None:
    assert "Copyright (c) 2018, David M. Burns" in (FOLDER / "LICENSE.seglearn").read_text()
    assert "arXiv:1802.01489" in (FOLDER / "README.md").read_text()


def test_the_readme_s_table_is_that_of_the_report(figures: dict[str, Any]) -> None:
    text = (FOLDER / "README.md").read_text()
    judged, gate = figures["test"]["judged"], figures["test"]["gate"]
    ways = figures["ways"]
    cells = (
        judged["random-forest"]["accuracy"], judged["onnx-fp32"]["accuracy"], gate["device_accuracy"],
        ways["over time"]["accuracy"], ways["all"]["accuracy"], ways["all"]["forwarded"], gate["cloud_accuracy"],
    )  # fmt: skip
    assert f"| {' | '.join(f'{value:.3f}' for value in cells)} |" in text


def test_the_recipe_names_the_people_that_the_report_names(figures: dict[str, Any]) -> None:
    split = toml.loads((FOLDER / "recipe.toml").read_text())["split"]
    assert split["refit"] is True
    assert sorted([*split["train"], *split["validation"]]) == sorted(figures["groups"]["train"])
    assert sorted(split["test"]) == sorted(figures["groups"]["test"])
