"""Candidates of the toolchain on the device's engines: timed, asked, refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest
from edge_export.choose.selection.timing import answers, measure_candidates

from edge_runtime.errors import ConfigError, EngineError, IncompatibleError
from edge_runtime.model.tuning.timing import TimingPlan
from tests import models

pytestmark = pytest.mark.skipif(
    not (models.usable("onnxruntime") and models.usable("litert")), reason="onnxruntime or LiteRT is not installed"
)
WINDOWS = models.windows(70, 3, 16)
QUICK = TimingPlan(rounds=3, block_s=0.001)


def test_both_formats_answer_the_same_windows_alike() -> None:
    expected = models.tiny_net(3, 3, 0).probabilities(WINDOWS)
    for name, tolerance in (("onnx-fp32", 1e-5), ("tflite-fp32", 1e-5), ("onnx-int8", 0.1), ("tflite-int8", 0.1)):
        found = answers(models.variant(name), WINDOWS)
        assert found.shape == (70, 3)
        assert found.dtype == np.float32
        np.testing.assert_allclose(found, expected, atol=tolerance)


@pytest.mark.slow
def test_candidates_are_timed_whatever_they_are_for() -> None:
    elsewhere = dataclasses.replace(models.variant("onnx-int8"), targets=("riscv64",))
    broken = dataclasses.replace(models.variant("tflite-int8"), name="broken", model=b"none")
    found = measure_candidates(
        [models.variant("onnx-fp32"), elsewhere, broken, models.variant("tflite-int8")],
        WINDOWS,
        threads=[1],
        plan=QUICK,
    )
    assert list(found.of()) == ["onnx-fp32", "onnx-int8", "tflite-int8"]
    assert list(found.failed) == ["broken"]
    assert found.of()["onnx-fp32"].ratio == 1


@pytest.mark.slow
def test_a_real_model_that_kills_its_process_costs_only_itself(shared: Path) -> None:
    model = (shared / "models/hard-cases/keyword_scrambled_8bit.tflite").read_bytes()
    deadly = dataclasses.replace(models.variant("tflite-int8"), name="deadly", model=model)
    calm = models.variant("onnx-fp32", channels=1, window=96)
    found = measure_candidates([calm, deadly], models.windows(4, 1, 96), threads=[1], plan=QUICK)
    assert list(found.of()) == ["onnx-fp32"]
    assert "SIG" in found.failed["deadly"]


@pytest.mark.parametrize(
    ("names", "windows", "what"),
    [
        (["onnx-int8"], WINDOWS, "'onnx-fp32' must be among"),
        (["onnx-fp32", "onnx-int8", "onnx-int8"], WINDOWS, "two candidates are called onnx-int8"),
        (["onnx-fp32"], WINDOWS[:0], "need windows"),
    ],
)
def test_wrong_use_is_said(names: list[str], windows: np.ndarray, what: str) -> None:
    with pytest.raises(ConfigError, match=what):
        measure_candidates([models.variant(name) for name in names], windows)


def test_windows_of_another_shape_are_an_error() -> None:
    with pytest.raises(EngineError, match="onnx-fp32 does not take these windows"):
        answers(models.variant("onnx-fp32"), models.windows(2, 4, 16))
    with pytest.raises(ConfigError, match="no windows"):
        answers(models.variant("onnx-fp32"), WINDOWS[:0])


def test_a_missing_engine_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edge_runtime.model.engines.available", lambda _format: ())
    with pytest.raises(IncompatibleError, match=r"tflite-int8 cannot run; run: pip install"):
        answers(models.variant("tflite-int8"), WINDOWS)
