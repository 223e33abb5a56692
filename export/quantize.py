"""Int8 by calibration: an ONNX file with float weights to one whose convolutions and dense layers compute in integers.

Only the operators that gain are quantised. What surrounds them (channel scaling in front, temperature and softmax at
the end) stays float: physical channels differ too much in range for one int8 step, and an int8 softmax knows only 256
confidences, too few for a threshold.
"""

from __future__ import annotations

import contextlib
import logging
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import onnx
from onnxruntime import quantization as ort_quantization
from onnxruntime.quantization.shape_inference import quant_pre_process

from edge_runtime.errors import ConfigError
from export.data import Float32

OPERATORS = (
    "Conv",
    "Gemm",
    "MatMul",
    "Add",
    "Relu",
    "Clip",
    "MaxPool",
    "AveragePool",
    "GlobalAveragePool",
    "Reshape",
    "Flatten",
    "Squeeze",
    "Unsqueeze",
    "Transpose",
    "Concat",
)
"""Quantised where they occur. Activations and pools are in the list because a float one between two integer layers
costs more than it computes (1.3 times the whole net, measured on a 3-layer convolutional net)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """How numbers are stored as integers.

    Attributes:
        activations: ``uint8`` is the type the fast x86 kernels take, ``int8`` the one of Arm and TensorFlow Lite. Both
            give the same steps: the zero point moves by 128.
        weight_bits: 7 keeps pairs of products within int16. x86 processors without VNNI add two uint8 x int8
            products in 16 bits and saturate without a word: with 8 bits, a third of this project's demo model's
            activations came out wrong by up to 86 of 255 steps on an AVX2 machine, with 7 none by more than one.
            onnxruntime takes that path for int8 activations too.
        calibration: ``minmax`` covers every value seen, ``percentile`` leaves out the largest 0.001 %.
    """

    activations: Literal["uint8", "int8"]
    weight_bits: Literal[7, 8] = 7
    calibration: Literal["minmax", "percentile"] = "minmax"


class _Calibration(ort_quantization.CalibrationDataReader):  # type: ignore[misc]  # onnxruntime ships no types
    """Feeds calibration windows in batches."""

    def __init__(self, name: str, windows: Float32, batch: int) -> None:
        self._batches: Iterator[dict[str, Float32]] = iter(
            [{name: windows[i : i + batch]} for i in range(0, len(windows), batch)]
        )

    def get_next(self) -> dict[str, Float32] | None:
        return next(self._batches, None)


def quantize(model: onnx.ModelProto, windows: Float32, scheme: Scheme) -> onnx.ModelProto:
    """Quantise a model after training (post-training quantisation, static, one scale per output channel).

    Args:
        model: float ONNX model with one input; batch normalisation already folded into convolutions.
        windows: (n, ...) float32 inputs, from training groups, that span what the model will meet.
        scheme: types and ranges.

    Returns:
        A model with QuantizeLinear/DequantizeLinear pairs; its input and output stay float32.

    Raises:
        ConfigError: no windows, or not finite ones.
    """
    if not len(windows) or not np.isfinite(windows).all():
        raise ConfigError("calibration needs windows, all of them finite")
    signed = scheme.activations == "int8"
    methods = ort_quantization.CalibrationMethod
    extra: dict[str, Any] = {"WeightSymmetric": True, "ActivationSymmetric": False}
    if scheme.calibration == "percentile":
        extra["CalibPercentile"] = 99.999
    with tempfile.TemporaryDirectory() as folder, _without_advice():
        given, prepared, written = (Path(folder) / f"{name}.onnx" for name in ("given", "prepared", "int8"))
        onnx.save(model, str(given))
        # Symbolic shape inference would need sympy, and only matters for transformers.
        quant_pre_process(str(given), str(prepared), skip_symbolic_shape=True)
        ort_quantization.quantize_static(
            str(prepared),
            str(written),
            _Calibration(model.graph.input[0].name, windows, batch=64),
            quant_format=ort_quantization.QuantFormat.QDQ,
            op_types_to_quantize=list(OPERATORS),
            per_channel=True,
            reduce_range=scheme.weight_bits == 7,
            activation_type=ort_quantization.QuantType.QInt8 if signed else ort_quantization.QuantType.QUInt8,
            weight_type=ort_quantization.QuantType.QInt8,
            calibrate_method=methods.MinMax if scheme.calibration == "minmax" else methods.Percentile,
            extra_options=extra,
        )
        return onnx.load(str(written))


@contextlib.contextmanager
def _without_advice() -> Iterator[None]:
    """Hold back the quantiser's advice on the root logger; it repeats what this module already does."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
