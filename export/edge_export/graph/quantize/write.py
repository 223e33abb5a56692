"""From a float model and ranges to an integer one.

onnxruntime's writer does it (which operators take integers, which share their input's scale, how biases are stored):
it is the reader's own, and is handed every range and weight step as an override, so nothing is calibrated there. One
thing is checked first: it drops a Relu or Clip in front of a quantisation and trusts the integers' limits to clip.
"""

from __future__ import annotations

import contextlib
import itertools
import logging
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnxruntime import quantization as ort_quantization
from onnxruntime.quantization.shape_inference import quant_pre_process

from edge_export.graph.onnx_graph.examples import Windows
from edge_export.graph.onnx_graph.model import Array, constant, from_proto, name_of, sizes_of, sole_reader
from edge_export.graph.onnx_graph.normalise import normalise
from edge_export.graph.onnx_graph.run import session
from edge_export.graph.quantize.layers import layers
from edge_export.graph.quantize.ranges import Ranges, affine, calibrate
from edge_export.graph.quantize.scheme import OPERATORS, Scheme
from edge_export.graph.quantize.select import BETWEEN, quantised
from edge_runtime.errors import ConfigError

WeightSteps = Mapping[str, Array]
"""Step between a layer's stored weights by the weights' name: (outputs,), or () for all outputs together.

Where a layer is not in it, its largest weight decides."""


def quantize(model: onnx.ModelProto, windows: Windows, scheme: Scheme) -> onnx.ModelProto:
    """Quantise a model after training (post-training quantisation, static).

    Args:
        model: float ONNX model; batch normalisation already folded into convolutions.
        windows: (n, ...) float32 inputs, or examples, from training groups, that span what the model will meet.
        scheme: types and ranges.

    Returns:
        A model that computes in integers; its input and output stay float32.

    Raises:
        ConfigError: no windows, not finite ones, weights that are not finite, or a node to exclude that is not there.
    """
    prepared = prepare(model)
    ranges = calibrate(prepared, windows, scheme.calibration, percentile=scheme.percentile, symmetric=scheme.symmetric)
    return write(prepared, ranges, scheme)


def prepare(model: onnx.ModelProto) -> onnx.ModelProto:
    """Fold constants and normalisations, infer shapes, and name what has no name: the form every step works on.

    Steps of weights by channel need operator set 13, to which `graph.onnx_graph.normalise` raises older models.

    Returns:
        A new model that computes the same; preparing it again changes no node and no tensor.

    Raises:
        ConfigError: its operator set is too old to be raised.
    """
    with tempfile.TemporaryDirectory() as folder, without_advice():
        given, prepared = (Path(folder) / f"{name}.onnx" for name in ("given", "prepared"))
        onnx.save(normalise(model), str(given))
        # Symbolic shape inference would need sympy, and only matters for transformers.
        quant_pre_process(str(given), str(prepared), skip_symbolic_shape=True)
        result = onnx.load(str(prepared))
    # Names may be places already (`graph.onnx_graph.passes.canonicalise`), and functions such as HardSwish, which
    # are written out, moved those.
    taken = {node.name for node in result.graph.node}
    for position, node in enumerate(result.graph.node):
        if not node.name:
            bare = f"{node.op_type}_{position}"
            free = itertools.chain([bare], (f"{bare}_{count}" for count in itertools.count(1)))
            node.name = next(name for name in free if name not in taken)
            taken.add(node.name)
    return result


def write(
    model: onnx.ModelProto,
    ranges: Ranges,
    scheme: Scheme,
    *,
    steps: WeightSteps | None = None,
    float_biases: bool = False,
    keep_activations: bool = False,
) -> onnx.ModelProto:
    """Write a prepared model in integers. Ranges are found once, and written for every scheme.

    Args:
        model: what `prepare` gave, maybe with equalised, rounded or corrected weights.
        ranges: its activations' ranges (`edge_export.graph.quantize.ranges.calibrate`).
        scheme: types; its method of calibration is not used here.
        steps: steps of weights that something else than their largest value decided (`graph.quantize.adaround`).
        float_biases: leave biases as they are, so that they can be changed in what is written.
        keep_activations: leave every Relu and Clip in, also where the integers' limits do the same.

    Returns:
        A model that computes in integers, and that onnxruntime loads; its input and output stay float32.

    Raises:
        ConfigError: a node to exclude that is not there, or onnxruntime does not load what was written.
    """
    parsed = from_proto(model)
    graph = parsed.graph
    names = {name_of(node) for node in graph}
    if missing := [name for name in scheme.exclude if name not in names]:
        raise ConfigError(f"cannot keep node {missing[0]!r} in float: the prepared model has no such node")
    signed = scheme.activations == "int8"
    extra: dict[str, Any] = {"WeightSymmetric": True, "ActivationSymmetric": scheme.symmetric}
    extra["QuantizeBias"] = not float_biases
    extra["TensorQuantOverrides"] = {**_activations(graph, ranges), **_weights(graph, scheme, steps or {})}
    if keep_activations or not _limits_clip(graph, ranges):
        extra["QDQKeepRemovableActivations"] = True
    with tempfile.TemporaryDirectory() as folder, without_advice():
        given, written = (Path(folder) / f"{name}.onnx" for name in ("given", "int8"))
        onnx.save(model, str(given))
        ort_quantization.quantize_static(
            str(given),
            str(written),
            _OneExample(graph),
            quant_format=ort_quantization.QuantFormat.QDQ
            if scheme.form == "qdq"
            else ort_quantization.QuantFormat.QOperator,
            op_types_to_quantize=[*OPERATORS, *BETWEEN],
            nodes_to_exclude=sorted(names - quantised(graph, scheme.exclude)),
            per_channel=scheme.per_channel,
            reduce_range=scheme.weight_bits == 7,
            activation_type=ort_quantization.QuantType.QInt8 if signed else ort_quantization.QuantType.QUInt8,
            weight_type=ort_quantization.QuantType.QInt8,
            calibrate_method=ort_quantization.CalibrationMethod.MinMax,
            extra_options=extra,
        )
        result = onnx.load(str(written))
    session(result)
    return result


class _OneExample(ort_quantization.CalibrationDataReader):  # type: ignore[misc]  # onnxruntime ships no types
    """The least that onnxruntime's writer calibrates on; every range it finds is overridden."""

    def __init__(self, graph: ir.Graph) -> None:
        inputs = [value for value in graph.inputs if not value.is_initializer()]
        self._examples = iter([{name_of(value): _zeros(value) for value in inputs}])

    def get_next(self) -> dict[str, Array] | None:
        return next(self._examples, None)


def _zeros(value: ir.Value) -> Array:
    return np.zeros([size or 1 for size in sizes_of(value)], (value.dtype or ir.DataType.FLOAT).numpy())


def _activations(graph: ir.Graph, ranges: Ranges) -> dict[str, list[dict[str, Any]]]:
    """Ranges as overrides. What only a Relu or Clip reads needs no more than what passes it."""
    overrides = {}
    values = ir.convenience.create_value_mapping(graph)
    for name, (low, high) in ranges.items():
        if name not in values or values[name].is_initializer():
            continue
        reader = sole_reader(values[name])
        if reader is not None and reader.op_type in {"Relu", "Clip"}:
            low, high = ranges.get(name_of(reader.outputs[0]), (low, high))  # noqa: PLW2901 - the range that is written
        overrides[name] = [{"rmin": np.array(low, np.float32), "rmax": np.array(high, np.float32)}]
    return overrides


def _weights(graph: ir.Graph, scheme: Scheme, steps: WeightSteps) -> dict[str, list[dict[str, Any]]]:
    """Turn steps into the ranges that give them.

    1. Layers that stay in float, or whose step is not given, are left to the writer.
    2. One step may stand for all outputs; one for each cannot be written where the scheme has one for all.
    """
    overrides = {}
    for layer in layers(graph):
        weight = name_of(layer.weight)
        if weight not in steps or layer.name in scheme.exclude:  # rule 1
            continue
        step = np.atleast_1d(steps[weight])
        if not scheme.per_channel and step.size > 1:  # rule 2
            raise ConfigError(f"layer {layer.name!r} has a weight step per output, and the scheme asks for one for all")
        ends: list[dict[str, Any]] = [
            {"rmin": np.float32(-scheme.weight_max * s), "rmax": np.float32(scheme.weight_max * s)} for s in step
        ]
        if scheme.per_channel:
            every = ends * layer.outputs if step.size == 1 else ends  # rule 2
            ends = [{"axis": layer.output_axis, **end} for end in every]
        overrides[weight] = ends
    return overrides


def _limits_clip(graph: ir.Graph, ranges: Ranges) -> bool:
    """Say whether the integers' limits do what every Relu and Clip does, within half a step."""
    for node in graph:
        result = name_of(node.outputs[0])
        if node.op_type not in {"Relu", "Clip"} or result not in ranges:
            continue
        low, high = ranges[result]
        bounds = [-np.inf, np.inf]
        if node.op_type == "Relu":
            bounds[0] = 0.0
        for place, value in enumerate(node.inputs[1:3]):
            if (bound := constant(value)) is not None:
                bounds[place] = float(bound)
        slack = affine(low, high)[0] / 2
        if low < bounds[0] - slack or high > bounds[1] + slack:
            return False
    return True


@contextlib.contextmanager
def without_advice() -> Iterator[None]:
    """Hold back the quantiser's advice on the root logger; it repeats what this module already does.

    And numpy's about ranges of masks, which the quantiser computes and then leaves out.
    """
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with np.errstate(all="ignore"):
            yield
    finally:
        logging.disable(before)
