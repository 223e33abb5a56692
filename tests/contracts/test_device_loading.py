"""Every accelerated choice, loaded: what the vendor's library is handed, and what happens when it fails."""

from __future__ import annotations

import ctypes
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edge_runtime.base.hardware import EngineChoice, find_devices, this_device
from edge_runtime.base.hardware.discovery import BUILT_IN
from edge_runtime.errors import EngineError
from edge_runtime.model import engines
from edge_runtime.model.engines import litert, onnx, providers
from edge_runtime.model.engines.base import EngineOptions
from edge_runtime.model.tuning.engine_choices import choices_for, load, missing
from tests import models
from tests.edge_devices import fakes

pytest.importorskip("onnxruntime")
pytest.importorskip("ai_edge_litert")

OPTIONS = EngineOptions(max_batch=4)
X = models.windows(3, 3, 16)
OURS = {"library", "fixed_batch"}


# Each choice once, on the first machine that offers it, and the Nano's TensorRT, which differs from an Orin's. Written
# out, since making every machine costs each process a second before its first test.
ACCELERATED = [
    ("android-phone", "nnapi"),
    ("imx8mp-evk", "vx"),
    ("imx93-evk", "ethos-u"),
    ("jetson-agx-orin", "cuda"),
    ("jetson-agx-orin", "tensorrt"),
    ("jetson-agx-orin", "tensorrt-dla0"),
    ("jetson-agx-orin", "tensorrt-dla1"),
    ("jetson-nano", "tensorrt"),
    ("laptop-core-ultra", "openvino-gpu"),
    ("laptop-core-ultra", "openvino-npu"),
    ("laptop-ryzen-ai", "vitisai"),
    ("macos", "coreml"),
    ("orange-pi-5-plus-mainline", "teflon"),
    ("qualcomm-rb3gen2", "qnn"),
    ("raspberry-pi-4", "xnnpack"),
    ("raspberry-pi-4-coral", "edgetpu-litert"),
    ("raspberry-pi-4-coral", "edgetpu-tflite-runtime"),
]


def accelerated(roots: dict[str, Path]) -> list[tuple[str, str]]:
    """What the list above has to be."""
    found = {("tensorrt", "int8"): ("jetson-nano", "tensorrt")}
    for name, root in roots.items():
        for choice in this_device(root).choices:
            if choice.accelerated and name != "jetson-nano":
                found.setdefault((choice.name, ""), (name, choice.name))
    return sorted(found.values())


def choice_of(root: Path, name: str) -> EngineChoice:
    return next(choice for choice in this_device(root).choices if choice.name == name)


def test_every_accelerator_that_a_model_runs_on_is_among_the_machines(roots: dict[str, Path]) -> None:
    found = {one.family for root in roots.values() for one in find_devices(root).accelerators}
    assert found == {family for family in BUILT_IN if family.startswith("npu_")}


def test_every_accelerated_choice_of_every_machine_is_loaded_here(roots: dict[str, Path]) -> None:
    assert accelerated(roots) == ACCELERATED, "a choice is new or gone: write it into ACCELERATED"


def model_for(choice: EngineChoice) -> tuple[bytes, str, str, str]:
    """A model that the choice takes, its format, precision and scheme."""
    precision = "fp32" if "fp32" in choice.precisions else "int8"
    if "onnx" not in engines.find(choice.engine).formats:
        return models.tiny_tflite(int8=precision == "int8"), "tflite", precision, ""
    if precision == "fp32":
        return models.tiny_onnx_classifier(), "onnx", precision, ""
    return models.tiny_onnx_int8(scheme="u8s8"), "onnx", precision, "u8s8"


def windows_for(choice: EngineChoice) -> Any:
    return X if "onnx" in engines.find(choice.engine).formats else np.ascontiguousarray(X.transpose(0, 2, 1))


def install(monkeypatch: pytest.MonkeyPatch, choice: EngineChoice, **how: Any) -> Any:
    """Put a fake of the vendor's library in place, and give it back."""
    monkeypatch.setattr(engines.EngineKind, "importable", lambda self: True)
    if choice.engine == "onnxruntime":
        plugins = [name for name, options in choice.providers.items() if "library" in options]
        fake = fakes.onnxruntime([n for n in choice.providers if n not in plugins], plugins=plugins, **how)
        monkeypatch.setattr(onnx, "_library", lambda: fake)
        monkeypatch.setattr(providers, "_library_path", lambda provider: f"/fake/{provider.name}.so")
        monkeypatch.setattr(providers, "_registered", {})
    else:
        fake = fakes.litert(takes=how.get("takes", 1) > 0, device=how.get("fails", "never") == "never")
        monkeypatch.setattr(litert, "_library", lambda package: (f"fake {package}", fake))
        monkeypatch.setattr(ctypes, "CDLL", lambda path: None)
    return fake


@pytest.mark.parametrize(("machine", "name"), ACCELERATED)
def test_the_vendors_library_is_handed_the_options_and_answers(
    machine: str, name: str, roots: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = choice_of(roots[machine], name)
    fake = install(monkeypatch, choice)
    model, *_ = model_for(choice)
    cache = tmp_path / "state" / "compiled"
    engine = load(choice, model, OPTIONS, cache)
    words = {"{min_shapes}": "x:1x3x16", "{max_shapes}": "x:4x3x16"}
    expected = {
        provider: {key: words.get(value, value) for key, value in options.items() if key not in OURS}
        for provider, options in choice.options(cache).items()
    }
    handed = dict(fake.handed[0]) if choice.engine == "onnxruntime" else dict(fake.handed)
    assert handed == expected
    assert list(handed) == list(expected)
    assert cache.is_dir()
    assert " on " in engine.name
    (answers,) = engine.run(windows_for(choice))
    plain = engines.load(choice.engine, model, OPTIONS)
    np.testing.assert_allclose(answers, plain.run(windows_for(choice))[0], atol=1e-6)


@pytest.mark.parametrize(("machine", "name"), ACCELERATED)
def test_a_missing_driver_is_said_with_the_line_that_installs_it(
    machine: str, name: str, roots: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = choice_of(roots[machine], name)
    monkeypatch.setattr(engines.EngineKind, "importable", lambda self: True)
    monkeypatch.setattr(np, "__version__", "1.26.4")  # tflite-runtime would be refused for the wrong reason
    monkeypatch.setattr(litert, "_library", lambda package: (package, fakes.litert()))
    with pytest.raises(EngineError) as caught:
        load(choice, model_for(choice)[0], OPTIONS)
    text = str(caught.value)
    assert text.startswith(f"{name}: ")
    assert choice.install in text
    assert choice.driver in text
    assert "\n" not in text


@pytest.mark.parametrize("how", ["start", "load", "run"])
@pytest.mark.parametrize(("machine", "name"), ACCELERATED)
def test_a_provider_that_fails_is_refused_by_name_and_the_processor_answers(
    machine: str, name: str, how: str, roots: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    profile = this_device(roots[machine])
    choice = choice_of(roots[machine], name)
    install(monkeypatch, choice, fails=how)
    model, *kind = model_for(choice)
    asked = list(choices_for(profile, *kind))
    assert choice in asked
    with pytest.raises(EngineError, match=f"^{name}: "):
        load(choice, model, OPTIONS)
    plain = next(one for one in asked if not one.accelerated)
    (answers,) = load(plain, model, OPTIONS).run(windows_for(plain))
    assert answers.shape == (3, 3)


@pytest.mark.parametrize(("machine", "name"), ACCELERATED)
def test_an_accelerator_that_takes_nothing_is_refused_out_loud(
    machine: str, name: str, roots: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = choice_of(roots[machine], name)
    install(monkeypatch, choice, takes=0, **({"leaves": 6} if choice.engine == "onnxruntime" else {}))
    with pytest.raises(EngineError, match=r"takes no (node|operator) of this model"):
        load(choice, model_for(choice)[0], OPTIONS)


def test_what_is_left_to_the_processor_is_warned_about_and_stands_in_the_name(
    roots: dict[str, Path], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    choice = choice_of(roots["jetson-orin-nano"], "cuda")
    install(monkeypatch, choice, takes=5, leaves=2)
    with caplog.at_level(logging.WARNING):
        engine = load(choice, model_for(choice)[0], OPTIONS)
    assert engine.name.endswith(" on CUDAExecutionProvider (5 of 7 nodes)")
    assert "left nodes to the CPU: count=2 of=7 beside=CUDAExecutionProvider kinds=Conv" in caplog.text


def test_a_read_only_disk_costs_the_cache_and_nothing_else(
    roots: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    choice = choice_of(roots["jetson-orin-nano"], "tensorrt")
    fake = install(monkeypatch, choice)
    (tmp_path / "file").write_text("in the way")
    load(choice, model_for(choice)[0], OPTIONS, tmp_path / "file" / "cache")
    assert not [key for key in dict(fake.handed[0])["TensorrtExecutionProvider"] if key.endswith("_path")]


@pytest.mark.parametrize(
    ("machine", "name", "there"),
    [
        ("jetson-nano", "tensorrt", True), ("jetson-orin-nano", "tensorrt", False), ("imx8mp-evk", "vx", True),
        ("imx93-evk", "ethos-u", False), ("laptop-core-ultra", "openvino-npu", True),
        ("laptop-core-ultra", "openvino-gpu", False), ("raspberry-pi-4-coral", "edgetpu-litert", False),
        ("x86-server", "litert", True),
    ],
)  # fmt: skip
def test_a_drivers_files_are_looked_for(machine: str, name: str, there: bool, roots: dict[str, Path]) -> None:
    assert (missing(choice_of(roots[machine], name), roots[machine]) == "") == there
