"""The candidates of a build are timed once, judged, and chosen among for each architecture."""

from __future__ import annotations

import dataclasses
import platform
from pathlib import Path

import numpy as np
import pytest
from edge_export.choose.evaluation.teacher_comparison import against_teacher
from edge_export.choose.selection.choice import Chosen, choose_files, measure_files
from edge_export.choose.selection.limits import Choice
from edge_export.choose.selection.timing import answers
from edge_export.data.dataset import Windows
from edge_export.package.pack import VariantSource
from edge_export.recipe.recipe import Recipe, parse
from edge_export.step_cache import StepCache

from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import ConfigError
from tests import models
from tests.edge_export.recipe_text import RECIPE

pytestmark = pytest.mark.skipif(
    not (models.usable("onnxruntime") and models.usable("litert")), reason="onnxruntime or LiteRT is not installed"
)
SOURCES = [models.variant("tflite-fp32"), models.variant("onnx-fp32")]


def recipe(**limits: float) -> Recipe:
    text = RECIPE.replace("[[data]]", 'targets = ["cpu", "raspberry-pi-4"]\n\n[[data]]', 1)
    text += "\n[limits]\n" + "\n".join(f"{name} = {value}" for name, value in limits.items())
    return parse(text, Path("recipe.toml"))


def asked(n: int = 48) -> Windows:
    """Windows that the tiny network is right about."""
    x = models.windows(n, 3, 24)
    return Windows(
        contexts=x,
        samples=16,
        y=models.tiny_net(3, 3, 0).probabilities(x[:, :, -16:]).argmax(axis=1),
        group=np.array([f"p{i % 4}" for i in range(n)]),
        recording=np.zeros(n, np.int64),
        start=np.arange(n),
    )


def chosen(folder: Path, said: list[str], which: Recipe | None = None) -> Chosen:
    steps = StepCache(folder, {}, said.append, SimulatedClock())
    windows = asked()
    timed = measure_files(SOURCES, windows.x, steps)
    given = {source.name: answers(source, windows.x) for source in SOURCES}
    return choose_files(which or recipe(), SOURCES, timed, windows, given, said.append)


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Chosen, list[str]]:
    """Folder with the times, what was chosen, and what was said of it."""
    folder, said = tmp_path_factory.mktemp("cache"), list[str]()
    return folder, chosen(folder, said), said


@pytest.mark.slow
def test_times_are_taken_once_and_kept(measured: tuple[Path, Chosen, list[str]]) -> None:
    folder, first, first_said = measured
    again_said: list[str] = []
    again = chosen(folder, again_said)
    assert first_said[0].startswith("measure: done")
    assert again_said == ["measure: found in the cache", *first_said[1:]]
    assert again.metrics() == first.metrics()


def test_the_figures_say_what_was_chosen_for_which_architecture(measured: tuple[Path, Chosen, list[str]]) -> None:
    _, first, said = measured
    figures = first.metrics()
    assert list(first.targets) == list(figures["choice"]) == ["x86_64", "aarch64"]
    assert {each["name"] for each in figures["timings"]} == {"tflite-fp32", "onnx-fp32"}
    assert {each["name"] for each in figures["candidates"]} == {"tflite-fp32", "onnx-fp32"}
    assert figures["validation"]["onnx-fp32"]["accuracy"] == 1
    assert first.device.name == figures["choice"]["x86_64"]["shipped"][0]
    assert f"aarch64: {', '.join(figures['choice']['aarch64']['shipped'])}" in said


def test_nothing_within_the_limits_says_what_each_lacks(measured: tuple[Path, Chosen, list[str]]) -> None:
    with pytest.raises(ConfigError, match=r"no candidate is within the limits: .* bytes; 10 are allowed"):
        chosen(measured[0], [], recipe(max_bytes=10))


def test_a_bundle_holds_the_best_of_each_format_where_times_were_taken() -> None:
    sources = tuple(
        dataclasses.replace(models.variant(kind), name=name)
        for name, kind in (("a", "onnx-fp32"), ("b", "tflite-fp32"), ("c", "onnx-int8"), ("d", "tflite-int8"))
    )
    choice = Choice(shipped=sources, lost={}, metrics=())
    both = Chosen(targets={platform.machine(): choice, "elsewhere": choice}, timings=(), judged=())

    def names(packed: list[VariantSource]) -> str:
        return "".join(source.name for source in packed)

    assert both.device.name == "a"
    assert names(both.packed(platform.machine(), "best")) == "ab"
    assert names(both.packed(platform.machine(), "all")) == "abcd"
    assert names(both.packed("elsewhere", "best")) == "abcd"


@pytest.mark.slow
def test_the_teacher_and_what_ships_take_turns() -> None:
    cloud = dataclasses.replace(
        models.variant("onnx-fp32"), model=models.tiny_onnx_classifier(channels=3, window=24, labels=3)
    )
    found = against_teacher(cloud, {source.name: source for source in SOURCES}, "tflite-fp32", asked())
    assert list(found) == ["teacher", "onnx-fp32", "tflite-fp32"]
    assert found["teacher"]["times_faster"] == 1
    assert all(each["p50_us"] > 0 for each in found.values())
