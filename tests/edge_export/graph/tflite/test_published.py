"""Published ONNX files, made by other exporters for other purposes, answer the same as TensorFlow Lite."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from edge_export.graph.tflite.convert import convert

from tests.edge_export.graph.tflite.compare import on_onnx, on_tflite, random_inputs

FILES = {
    "dtln/model_1.onnx": "two LSTM layers with their states outside",
    "dtln/model_2.onnx": "the same, in pieces, with normalisations",
    "basic-pitch/nmp.onnx": "a constant-Q transform in the graph, and harmonic stacking",
    "openwakeword-frontend/embedding_model.onnx": "2-D convolutions over a spectrogram",
}


@pytest.mark.parametrize("name", FILES)
def test_a_published_file(name: str, shared: Path) -> None:
    model = onnx.load(str(shared / "models" / name))
    inputs = random_inputs(model, 1, spread=0.1)
    answers, expected = on_tflite(convert(model), inputs), on_onnx(model, inputs)
    for answer, reference in zip(answers, expected, strict=True):
        # Logarithms of faint bands magnify rounding: onnxruntime's own two levels of optimisation differ by 1e-4.
        assert np.abs(answer - reference).max() <= 2e-4 * np.abs(reference).max()
