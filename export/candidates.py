"""Model files that could ship: one student in every format, precision and scheme that a device might run best."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import onnx

from edge_runtime.errors import ConfigError
from export.clean import clean
from export.data import Float32
from export.pack import VariantSource
from export.quantize import Scheme, quantize
from export.temperature import with_temperature
from export.to_tflite import convert

TOLERANCE_INT8 = 0.1
"""On probabilities: engines may round a logit to the next of its 256 steps, which moves an undecided answer by less
than half of this; the saturation that the replay is there to catch moves answers by far more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """One student's files.

    Attributes:
        graphs: ONNX graph that each file comes from, at temperature 1, by name of the candidate.
        left_out: why a candidate could not be written, by its name.
    """

    graphs: Mapping[str, onnx.ModelProto]
    left_out: Mapping[str, str]

    def sources(self, temperature: float) -> list[VariantSource]:
        """The files, answering at a temperature; best bets first, which counts where nothing was measured."""
        return [_source(name, with_temperature(graph, temperature)) for name, graph in self.graphs.items()]


def candidates(fp32: onnx.ModelProto, calibration: Float32, *, weight_bits: Literal[7, 8] = 7) -> Candidates:
    """Quantise and convert a float student.

    Args:
        fp32: answers windows with probabilities at temperature 1.
        calibration: (n, n_channels, samples) windows of training groups that set the ranges.
        weight_bits: 7 gives the same answers on every processor, see `export.quantize.Scheme`.
    """
    graphs: dict[str, onnx.ModelProto] = {}
    left_out: dict[str, str] = {}

    def add(name: str, make: Callable[[], onnx.ModelProto]) -> None:
        try:
            graph = make()
            _source(name, graph)
        except ConfigError as error:
            left_out[name] = str(error)
        else:
            graphs[name] = graph

    def quantized(activations: Literal["uint8", "int8"]) -> onnx.ModelProto:
        return clean(quantize(fp32, calibration, Scheme(activations=activations, weight_bits=weight_bits)))

    add("tflite-int8", lambda: quantized("int8"))
    add("onnx-int8-u8s8", lambda: quantized("uint8"))
    add("onnx-int8-s8s8", lambda: quantized("int8"))
    add("tflite-fp32", lambda: fp32)
    add("onnx-fp32", lambda: fp32)
    return Candidates(graphs=graphs, left_out=left_out)


_TARGETS = {"onnx-int8-u8s8": ("x86_64",), "onnx-int8-s8s8": ("aarch64", "armv7l")}


def _source(name: str, graph: onnx.ModelProto) -> VariantSource:
    tflite, int8 = name.startswith("tflite"), "int8" in name
    return VariantSource(
        name=name,
        model=convert(graph) if tflite else clean(graph).SerializeToString(),
        format="tflite" if tflite else "onnx",
        precision="int8" if int8 else "fp32",
        scheme=("u8s8" if name.endswith("u8s8") else "s8s8") if int8 else "",
        targets=_TARGETS.get(name, ()),
        tolerance=TOLERANCE_INT8 if int8 else None,
    )
