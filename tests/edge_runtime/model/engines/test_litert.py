"""What is particular to LiteRT: batches by resizing, where that is right."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edge_runtime.errors import EngineError
from edge_runtime.model import engines
from edge_runtime.model.engines import litert
from edge_runtime.model.engines.base import EngineOptions
from tests import models

pytest.importorskip("ai_edge_litert")


def _loaded(model: bytes, max_batch: int = 32) -> litert.LitertEngine:
    engine = engines.load("litert", model, EngineOptions(max_batch=max_batch))
    assert isinstance(engine, litert.LitertEngine)
    return engine


@pytest.mark.parametrize("int8", [False, True])
def test_a_model_that_allows_it_is_resized_and_one_that_does_not_is_run_by_row(int8: bool) -> None:
    free, fixed = (_loaded(models.tiny_tflite(int8=int8, any_batch=any_batch)) for any_batch in (True, False))
    assert free._many is not None
    assert fixed._many is None
    x = np.ascontiguousarray(models.windows(70, 3, 16).transpose(0, 2, 1))
    np.testing.assert_array_equal(free.run(x)[0], fixed.run(x)[0])


def test_a_largest_batch_of_one_needs_no_second_interpreter() -> None:
    assert _loaded(models.tiny_tflite(), max_batch=1)._many is None


@pytest.mark.parametrize(
    ("file", "resized"),
    [
        ("mlperf-tiny/kws_ref_model.tflite", True),
        ("tflm-examples/trained_lstm.tflite", False),
        ("micro-wake-word/okay_nabu.tflite", False),
        ("mediapipe-face/face_detection_front.tflite", False),  # resizes without an error, and ignores all but one row
    ],
)
def test_real_models_are_resized_only_if_their_answers_stay(shared: Path, file: str, resized: bool) -> None:
    assert (_loaded((shared / "models" / file).read_bytes())._many is not None) == resized


def test_quantised_edges_of_other_widths_are_floats_outside(shared: Path) -> None:
    engine = _loaded((shared / "models/hard-cases/keyword_scrambled.tflite").read_bytes())  # int16 in, int32 out
    assert engine.inputs[0].dtype == engine.outputs[0].dtype == np.float32
    (y,) = engine.run(np.random.default_rng(0).uniform(-20, 20, (4, 96)).astype(np.float32))
    np.testing.assert_allclose(y.sum(axis=1), 1, atol=0.01)


def test_integers_that_are_no_quantised_floats_stay_integers(shared: Path) -> None:
    engine = _loaded((shared / "models/coral/deeplabv3_mnv2_dm05_pascal_quant.tflite").read_bytes(), max_batch=1)
    assert engine.inputs[0].dtype == np.float32
    assert engine.outputs[0].dtype == np.int64


def test_tflite_runtime_is_refused_with_numpy_2_and_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(np, "__version__", "2.4.6")
    monkeypatch.setattr(engines.EngineKind, "importable", lambda self: True)
    with pytest.raises(EngineError, match="pip install 'numpy<2'"):
        engines.load("tflite-runtime", models.tiny_tflite(), EngineOptions())


def test_a_package_that_cannot_be_imported_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ai_edge_litert.interpreter", None)
    with pytest.raises(EngineError, match=r'pip install "edge-runtime\[tflite\]"'):
        engines.load("litert", models.tiny_tflite(), EngineOptions())
