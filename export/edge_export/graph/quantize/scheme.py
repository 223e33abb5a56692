"""Quantisation scheme: types, steps and form of integers, as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from edge_runtime.errors import ConfigError

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
costs more than it computes (1.3 times the whole net, measured on a 3-layer convolutional net).
`edge_export.graph.quantize.select` adds some between them."""

Method = Literal["minmax", "percentile", "entropy", "mse"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """Quantisation scheme: types, steps and form of integers.

    Attributes:
        activations: ``uint8`` is the type the fast x86 kernels take, ``int8`` the one of Arm and TensorFlow Lite. Both
            give the same steps: the zero point moves by 128.
        weight_bits: 7 keeps pairs of products within int16. x86 processors without VNNI add two uint8 x int8
            products in 16 bits and saturate without a word: with 8 bits, a third of this project's demo model's
            activations came out wrong by up to 86 of 255 steps on an AVX2 machine, with 7 none by more than one.
            onnxruntime takes that path for int8 activations too.
        calibration: how ranges follow from the values seen, see `edge_export.graph.quantize.ranges.choose`.
        per_channel: one weight scale per output channel, or one for all. One for all saves bytes in tiny files, and
            needs equalised channels (`edge_export.graph.quantize.equalize`).
        symmetric: zero points of activations in the middle. Costs half the steps after a ReLU; some accelerators know
            nothing else.
        form: ``qdq`` writes QuantizeLinear/DequantizeLinear pairs that runtimes fuse, ``qoperator`` the integer
            operators of onnxruntime themselves.
        exclude: names of nodes that stay in float.
        percentile: of the values that the method ``percentile`` covers, in percent.
    """

    activations: Literal["uint8", "int8"]
    weight_bits: Literal[7, 8] = 7
    calibration: Method = "minmax"
    per_channel: bool = True
    symmetric: bool = False
    form: Literal["qdq", "qoperator"] = "qdq"
    exclude: tuple[str, ...] = ()
    percentile: float = 99.999

    def __post_init__(self) -> None:
        if not 50 < self.percentile <= 100:
            raise ConfigError(f"percentile must lie above 50 and up to 100, not at {self.percentile}")

    @property
    def name(self) -> str:
        """Types in short, activations first: ``u8s8`` or ``s8s8``."""
        return "u8s8" if self.activations == "uint8" else "s8s8"

    @property
    def weight_max(self) -> int:
        """Largest magnitude of a stored weight: 64 or 127 (onnxruntime's own limits)."""
        return 64 if self.weight_bits == 7 else 127
