"""The engines that the contract suite runs, each with a model of one kind."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from edge_runtime.model import engines
from edge_runtime.model.engines import null
from edge_runtime.model.engines.base import Engine, EngineOptions
from edge_runtime.model.engines.subprocess_engine import WorkerEngine
from tests import models

Floats = npt.NDArray[np.float32]

CHANNELS, WINDOW, LABELS = 3, 16, 3
OPTIONS = EngineOptions()


@dataclass(frozen=True)
class Case:
    """One engine with a model of one kind."""

    name: str
    engine: str
    model: Callable[[], bytes]
    layout: str = "NCW"
    close: float = 0.0
    """Largest difference that the size of the batch may make."""
    reference: float | None = None
    """Largest difference from the float network in numpy."""
    limits: float | None = None
    """Samples beyond this saturate."""
    apart: bool = False
    """It runs in a process of its own."""

    def load(self) -> Engine:
        if self.apart:
            return WorkerEngine(self.engine, self.model(), OPTIONS, deadline_s=60.0, load_timeout_s=60.0)
        return engines.load(self.engine, self.model(), OPTIONS)

    def arrange(self, x: Floats) -> Floats:
        return x if self.layout == "NCW" else np.ascontiguousarray(x.transpose(0, 2, 1))


CASES = [
    Case("onnx fp32", "onnxruntime", models.tiny_onnx_classifier, close=1e-6, reference=1e-5),
    Case("onnx fp32, batch 1 only", "onnxruntime", lambda: models.tiny_onnx_classifier(batch=1), close=1e-6,
         reference=1e-5),
    Case("onnx fp32, batch 5 only", "onnxruntime", lambda: models.tiny_onnx_classifier(batch=5), close=1e-6,
         reference=1e-5),
    Case("onnx int8 s8s8", "onnxruntime", models.tiny_onnx_int8, reference=0.1, limits=100.0),
    Case("onnx int8 u8s8", "onnxruntime", lambda: models.tiny_onnx_int8(scheme="u8s8"), reference=0.1, limits=100.0),
    Case("litert fp32", "litert", models.tiny_tflite, layout="NWC", close=1e-6, reference=1e-5),
    Case("litert int8", "litert", lambda: models.tiny_tflite(int8=True), layout="NWC", reference=0.05, limits=100.0),
    Case("litert int8, float edges", "litert", lambda: models.tiny_tflite(int8=True, float_edges=True), layout="NWC",
         reference=0.05, limits=100.0),
    Case("litert fp32, batch 1 only", "litert", lambda: models.tiny_tflite(any_batch=False), layout="NWC", close=1e-6,
         reference=1e-5),
    Case("tflite-runtime fp32", "tflite-runtime", models.tiny_tflite, layout="NWC", close=1e-6, reference=1e-5),
    Case("tflite-runtime int8", "tflite-runtime", lambda: models.tiny_tflite(int8=True), layout="NWC", reference=0.05,
         limits=100.0),
    Case("null", "null", lambda: null.describe((CHANNELS, WINDOW), LABELS), limits=1e7),
    Case("null, apart", "null", lambda: null.describe((CHANNELS, WINDOW), LABELS), limits=1e7, apart=True),
]  # fmt: skip
