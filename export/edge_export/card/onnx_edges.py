"""The form of a bundle put around an ONNX graph: axes and scaling in front, softmax and labels behind."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx
import onnx_ir as ir

from edge_export.card.spec import Card, Layout, check_numbers, layout_of
from edge_export.onnx_graph.edge import Edge, read_through
from edge_export.onnx_graph.model import free_name, from_proto, name_of, read_model, sizes_of, to_proto
from edge_export.onnx_graph.normalise import normalise
from edge_export.onnx_graph.passes.canonicalise import Canonicalise, without_traces
from edge_export.quantize.checks import fault_of
from edge_runtime.errors import ConfigError, one_line

_PREFIX = "card"
_FLOATS = (ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.DOUBLE)
_INTEGERS = (ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.INT16)
CONTINUOUS = (
    "a window holds measured values, as float32, float16, float64, int8, uint8 or int16; if the model means such "
    "values, put a cast in front of it, and if it means indices or text, a bundle cannot feed it"
)
QUANTISED = ("QuantizeLinear", "ConvInteger", "MatMulInteger", "DynamicQuantizeLinear", "QLinearConv", "QLinearMatMul")


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
    model = read_model(data, file)
    try:
        onnx.checker.check_model(model)
    except Exception as error:  # of the checker's own library
        raise ConfigError(f"{file}: not a usable ONNX model: {one_line(error)}") from error
    try:
        fitted = from_proto(without_traces(normalise(model)))
    except ConfigError as error:
        raise ConfigError(f"{file}: {error}") from error
    graph = fitted.graph
    source = _source(graph, file)
    if fault := fault_of(graph):
        raise ConfigError(f"{file}: {fault}; the file is damaged or diverged")
    batch, *rest = _sizes(source)
    layout = layout_of(rest, card.input, file)
    channels, samples = len(card.input.channels), card.input.window
    sizes = (channels, samples) if layout == "NCW" else (samples, channels)
    window = ir.Value(name=free_name(graph, "window"))
    flow, front = _front(Edge(graph, _PREFIX, next(iter(graph), None)), card, source, window, layout, rest)
    if flow is window:
        window = source
    else:
        read_through(graph, window, flow)
    answer, back = _back(Edge(graph, _PREFIX), card, graph.outputs[0], file)
    graph.outputs[0] = answer
    for value, behind in ((window, sizes), (answer, (len(card.output.labels),))):
        value.type = ir.TensorType(ir.DataType.FLOAT)
        value.shape = ir.Shape(["batch" if batch < 0 else batch, *behind])
    try:
        fitted = Canonicalise()(fitted).model
    except ConfigError as error:
        # The file itself passed the checker: what does not hold follows from the card's sizes.
        reason = str(error).removeprefix("not a valid ONNX model: ")
        raise ConfigError(
            f"{file}: its shapes do not hold for the card's {channels} channels and {samples} samples: {reason}"
        ) from error
    return Fitted(
        model=to_proto(fitted).SerializeToString(deterministic=True),
        layout=layout,
        precision=_precision(fitted.graph),
        changes=(*front, *back),
    )


def several_ends(file: str, what: str, names: Sequence[str]) -> str:
    """Say what to do about a model with other than one input or output."""
    return (
        f"{file}: has {len(names)} {what}s ({', '.join(names)}); a bundle's model has one input and one output, and no "
        "state that is carried from call to call"
    )


def _source(graph: ir.Graph, file: str) -> ir.Value:
    """Return the one input of a graph that has one output too."""
    for what, values in (("input", graph.inputs), ("output", graph.outputs)):
        if len(values) != 1:
            raise ConfigError(several_ends(file, what, [name_of(value) for value in values]))
    if not sizes_of(graph.inputs[0]):
        raise ConfigError(f"{file}: input {graph.inputs[0].name} has no axes; a window needs some")
    return graph.inputs[0]


def _sizes(value: ir.Value) -> list[int]:
    """Sizes by axis, -1 for open ones."""
    return [-1 if size is None else size for size in sizes_of(value)]


def _kind(value: ir.Value) -> str:
    return value.dtype.name if value.dtype else "UNDEFINED"


def _front(
    edge: Edge, card: Card, source: ir.Value, window: ir.Value, layout: Layout, rest: Sequence[int]
) -> tuple[ir.Value, list[str]]:
    """From the window in physical units to what the graph reads; what was done, in words."""
    flow, done = window, list[str]()
    channels, samples = len(card.input.channels), card.input.window
    sizes = (channels, 1) if layout == "NCW" else (1, channels)
    if card.input.scaled:
        offset = np.array([channel.offset for channel in card.input.channels]).reshape(1, *sizes)
        scale = np.array([channel.scale for channel in card.input.channels]).reshape(1, *sizes)
        if offset.any():
            flow = edge.node("Sub", flow, edge.constant(offset, np.float32))
        flow = edge.node("Mul", flow, edge.constant(scale, np.float32))
        done.append("scaling of each channel")
    stored = source.dtype
    if stored in _INTEGERS:
        ends = np.iinfo(stored.numpy())
        bounds = (edge.constant(ends.min, np.float32), edge.constant(ends.max, np.float32))
        flow = edge.node("Clip", edge.node("Round", flow), *bounds)
        done.append(f"rounding to {ends.dtype}")
    elif stored not in _FLOATS:
        raise ConfigError(f"input {source.name} takes {_kind(source)}; {CONTINUOUS}")
    if stored != ir.DataType.FLOAT:
        flow = edge.node("Cast", flow, to=stored)
    wanted = [channels, samples] if layout == "NCW" else [samples, channels]
    if len(rest) != 2 or any(a not in (-1, b) for a, b in zip(rest, wanted, strict=True)):
        # Sizes that the file leaves open are those of the window; 0 keeps the batch.
        known = [0, *(_filled(rest, channels * samples) if -1 in rest else rest)]
        flow = edge.node("Reshape", flow, edge.constant(known, np.int64))
        done.append(f"axes as the file has them ({', '.join(map(str, known[1:]))})")
    return flow, done


def _filled(rest: Sequence[int], total: int) -> list[int]:
    """Open sizes written out: one takes what is left; of several, Reshape's -1 takes the last."""
    known = int(np.prod([size for size in rest if size > 0]))
    if list(rest).count(-1) == 1:
        return [size if size > 0 else total // known for size in rest]
    return [size if size > 0 else -1 for size in rest]


def _back(edge: Edge, card: Card, answer: ir.Value, file: str) -> tuple[ir.Value, list[str]]:
    """From what the graph answers to probabilities of the labels; what was done, in words."""
    flow, done, output = answer, list[str](), card.output
    sizes = _sizes(answer)
    if len(sizes) > 1 and min(sizes[1:]) > 0:
        check_numbers(int(np.prod(sizes[1:])), card, file, name_of(answer))
    if answer.dtype not in _FLOATS:
        raise ConfigError(f"{file}: output {answer.name} is {_kind(answer)}; put its DequantizeLinear into the graph")
    if answer.dtype != ir.DataType.FLOAT:
        flow = edge.node("Cast", flow, to=ir.DataType.FLOAT)
    if len(sizes) != 2:
        flow = edge.node("Reshape", flow, edge.constant([-1, output.numbers], np.int64))
        done.append("answers as one row per window")
    if output.temperature != 1:
        flow = edge.node("Mul", flow, edge.constant(1 / output.temperature, np.float32))
        done.append(f"temperature {output.temperature:g}")
    if output.values == "logits":
        flow = edge.node("Softmax", flow, axis=1)
        done.append("softmax")
    if output.values == "logit":
        flow = edge.node("Sigmoid", flow)
        done.append("sigmoid")
    if output.numbers == 1:
        rest = edge.node("Sub", edge.constant(1.0, np.float32), flow)
        flow = edge.node("Concat", rest, flow, axis=1)
        done.append("the first label's probability")
    return flow, done


def _precision(graph: ir.Graph) -> str:
    if any(node.op_type in QUANTISED for node in graph):
        return "int8"
    stored = graph.initializers.values()
    halves = any(value.dtype == ir.DataType.FLOAT16 and len(value.shape or ()) > 1 for value in stored)
    return "fp16" if halves else "fp32"
