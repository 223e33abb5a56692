"""The form of a bundle put around an ONNX graph: axes and scaling in front, softmax and labels behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from edge_export.card.spec import Card, Layout, check_numbers, layout_of
from edge_export.onnx_graph.normalise import normalise
from edge_export.onnx_graph.passes.canonicalise import canonicalise
from edge_runtime.errors import ConfigError

_FLOATS: dict[int, type[np.floating[Any]]] = {
    TensorProto.FLOAT: np.float32,
    TensorProto.FLOAT16: np.float16,
    TensorProto.DOUBLE: np.float64,
}
_INTEGERS: dict[int, type[np.integer[Any]]] = {
    TensorProto.INT8: np.int8,
    TensorProto.UINT8: np.uint8,
    TensorProto.INT16: np.int16,
}
CONTINUOUS = (
    "a window holds measured values, as float32, float16, float64, int8, uint8 or int16; if the model means such "
    "values, put a cast in front of it, and if it means indices or text, a bundle cannot feed it"
)
_QUANTISED = ("QuantizeLinear", "ConvInteger", "MatMulInteger", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A model file in the form of a bundle.

    Attributes:
        model: its bytes.
        layout: of its input.
        precision: of its numbers.
        changes: what was put into it, a few words each.
    """

    model: bytes = field(repr=False)
    layout: Layout
    precision: str
    changes: tuple[str, ...]


class _Edges:
    """Appends nodes in front of and behind a graph, under names that it does not use."""

    def __init__(self, model: onnx.ModelProto) -> None:
        graph = model.graph
        self.front: list[onnx.NodeProto] = []
        self.back: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []
        self._taken = {name for node in graph.node for name in (*node.input, *node.output)}
        self._taken |= {value.name for value in (*graph.input, *graph.output, *graph.initializer)}

    def name(self, base: str) -> str:
        name, count = base, 0
        while name in self._taken:
            count += 1
            name = f"{base}_{count}"
        self._taken.add(name)
        return name

    def constant(self, value: npt.ArrayLike, dtype: npt.DTypeLike) -> str:
        name = self.name("card_constant")
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def node(self, place: list[onnx.NodeProto], kind: str, *inputs: str, result: str = "", **attributes: Any) -> str:
        result = result or self.name(f"card_{kind.lower()}")
        place.append(helper.make_node(kind, list(inputs), [result], **attributes))
        return result


def fit_onnx(data: bytes, card: Card, file: str) -> Fitted:
    """Write a copy of an ONNX model that takes windows in physical units and answers with probabilities.

    Args:
        data: the file's bytes.
        card: what it eats and answers.
        file: named in errors.

    Raises:
        ConfigError: it is no ONNX model, has several inputs or outputs, keeps state, holds NaN, or does not fit the
            card; names the tensor.
    """
    try:
        model = onnx.load_model_from_string(data)
        onnx.checker.check_model(model)
    except Exception as error:  # the parser and the checker raise types of their own libraries
        raise ConfigError(f"{file}: not a usable ONNX model: {str(error).splitlines()[0]}") from error
    try:
        model = normalise(model)
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
    source, answer = _ends(model, file)
    _refuse_nan(model, file)
    edges, changes = _Edges(model), list[str]()
    batch, rest = _shape(source, file)
    layout = layout_of(rest, card.input, file)
    channels, samples = len(card.input.channels), card.input.window
    sizes = (channels, samples) if layout == "NCW" else (samples, channels)
    window = edges.name("window")
    changes += _front(edges, card, source, window, layout, rest)
    if not edges.front:
        window = source.name
    changes += _back(edges, card, answer, model, file)
    last = edges.back[-1].output[0] if edges.back else answer.name
    graph = model.graph
    inside = [*edges.front, *graph.node, *edges.back]
    del graph.node[:], graph.input[:], graph.output[:], graph.value_info[:]
    graph.node.extend(inside)
    graph.initializer.extend(edges.constants)
    graph.input.append(helper.make_tensor_value_info(window, TensorProto.FLOAT, [batch, *sizes]))
    labels = len(card.output.labels)
    graph.output.append(helper.make_tensor_value_info(last, TensorProto.FLOAT, [batch, labels]))
    try:
        fitted = canonicalise(model)
    except ConfigError as error:
        # The file itself passed the checker: what does not hold follows from the card's sizes.
        reason = str(error).removeprefix("not a valid ONNX model: ")
        raise ConfigError(
            f"{file}: its shapes do not hold for the card's {channels} channels and {samples} samples: {reason}"
        ) from error
    return Fitted(
        model=fitted.SerializeToString(deterministic=True),
        layout=layout,
        precision=_precision(fitted),
        changes=tuple(changes),
    )


def several_ends(file: str, what: str, names: Sequence[str]) -> str:
    """Say what to do about a model with other than one input or output."""
    return (
        f"{file}: has {len(names)} {what}s ({', '.join(names)}); a bundle's model has one input and one output, and no "
        "state that is carried from call to call"
    )


def _ends(model: onnx.ModelProto, file: str) -> tuple[onnx.ValueInfoProto, onnx.ValueInfoProto]:
    inputs, outputs = list(model.graph.input), list(model.graph.output)
    if len(inputs) != 1 or len(outputs) != 1:
        several = inputs if len(inputs) != 1 else outputs
        what = "input" if several is inputs else "output"
        raise ConfigError(several_ends(file, what, [value.name for value in several]))
    return inputs[0], outputs[0]


def _shape(value: onnx.ValueInfoProto, file: str) -> tuple[str | int, list[int]]:
    """Batch as the file has it, and the sizes behind it, -1 for open ones."""
    tensor = value.type.tensor_type
    if not len(tensor.shape.dim):
        raise ConfigError(f"{file}: input {value.name} has no axes; a window needs some")
    dims = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in tensor.shape.dim]
    return ("batch" if dims[0] < 0 else dims[0]), dims[1:]


def _front(
    edges: _Edges, card: Card, source: onnx.ValueInfoProto, window: str, layout: Layout, rest: Sequence[int]
) -> Iterator[str]:
    """From the window in physical units to what the graph reads."""
    flow, to = window, edges.front
    sizes = (len(card.input.channels), 1) if layout == "NCW" else (1, len(card.input.channels))
    if card.input.scaled:
        offset = np.array([channel.offset for channel in card.input.channels]).reshape(1, *sizes)
        scale = np.array([channel.scale for channel in card.input.channels]).reshape(1, *sizes)
        if offset.any():
            flow = edges.node(to, "Sub", flow, edges.constant(offset, np.float32))
        flow = edges.node(to, "Mul", flow, edges.constant(scale, np.float32))
        yield "scaling of each channel"
    stored = source.type.tensor_type.elem_type
    if stored in _INTEGERS:
        ends = np.iinfo(_INTEGERS[stored])
        bounds = (edges.constant(ends.min, np.float32), edges.constant(ends.max, np.float32))
        flow = edges.node(to, "Clip", edges.node(to, "Round", flow), *bounds)
        yield f"rounding to {ends.dtype}"
    elif stored not in _FLOATS:
        kind = TensorProto.DataType.Name(stored)
        raise ConfigError(f"input {source.name} takes {kind}; {CONTINUOUS}")
    if stored != TensorProto.FLOAT:
        flow = edges.node(to, "Cast", flow, to=stored)
    channels, samples = len(card.input.channels), card.input.window
    wanted = [channels, samples] if layout == "NCW" else [samples, channels]
    if len(rest) != 2 or any(a not in (-1, b) for a, b in zip(rest, wanted, strict=True)):
        # Sizes that the file leaves open are those of the window; 0 keeps the batch.
        known = [0, *(_filled(rest, channels * samples) if -1 in rest else rest)]
        edges.node(to, "Reshape", flow, edges.constant(known, np.int64), result=source.name)
        yield f"axes as the file has them ({', '.join(map(str, known[1:]))})"
    elif to:
        to[-1].output[0] = source.name


def _filled(rest: Sequence[int], total: int) -> list[int]:
    """Open sizes written out: one takes what is left; of several, Reshape's -1 takes the last."""
    known = int(np.prod([size for size in rest if size > 0]))
    if list(rest).count(-1) == 1:
        return [size if size > 0 else total // known for size in rest]
    return [size if size > 0 else -1 for size in rest]


def _back(edges: _Edges, card: Card, answer: onnx.ValueInfoProto, model: onnx.ModelProto, file: str) -> Iterator[str]:
    """From what the graph answers to probabilities of the labels."""
    flow, to, output = answer.name, edges.back, card.output
    inferred = onnx.shape_inference.infer_shapes(model).graph
    found = next(value for value in inferred.output if value.name == answer.name).type.tensor_type
    dims = [dim.dim_value if dim.HasField("dim_value") else -1 for dim in found.shape.dim]
    if len(dims) > 1 and min(dims[1:]) > 0:
        check_numbers(int(np.prod(dims[1:])), card, file, answer.name)
    if found.elem_type != TensorProto.FLOAT:
        if found.elem_type not in _FLOATS:
            kind = TensorProto.DataType.Name(found.elem_type)
            raise ConfigError(f"{file}: output {answer.name} is {kind}; put its DequantizeLinear into the graph")
        flow = edges.node(to, "Cast", flow, to=TensorProto.FLOAT)
    if len(dims) != 2:
        flow = edges.node(to, "Reshape", flow, edges.constant([-1, output.numbers], np.int64))
        yield "answers as one row per window"
    if output.temperature != 1:
        flow = edges.node(to, "Mul", flow, edges.constant(1 / output.temperature, np.float32))
        yield f"temperature {output.temperature:g}"
    if output.values == "logits":
        flow = edges.node(to, "Softmax", flow, axis=1)
        yield "softmax"
    if output.values == "logit":
        flow = edges.node(to, "Sigmoid", flow)
        yield "sigmoid"
    if output.numbers == 1:
        rest = edges.node(to, "Sub", edges.constant(1.0, np.float32), flow)
        flow = edges.node(to, "Concat", rest, flow, axis=1)
        yield "the first label's probability"


def _refuse_nan(model: onnx.ModelProto, file: str) -> None:
    for tensor in model.graph.initializer:
        if tensor.data_type not in _FLOATS:
            continue
        array = numpy_helper.to_array(tensor)
        # A single infinity is a bound that Clip or Where is told.
        if np.isnan(array).any() or (array.ndim > 1 and not np.isfinite(array).all()):
            raise ConfigError(f"{file}: weight {tensor.name} holds NaN or infinity; the file is damaged or diverged")


def _precision(model: onnx.ModelProto) -> str:
    kinds = {node.op_type for node in model.graph.node}
    if kinds & set(_QUANTISED):
        return "int8"
    if any(tensor.data_type == TensorProto.FLOAT16 and len(tensor.dims) > 1 for tensor in model.graph.initializer):
        return "fp16"
    return "fp32"
