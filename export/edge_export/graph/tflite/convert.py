"""Conversion of an ONNX graph, float or int8 with QuantizeLinear/DequantizeLinear pairs, to TensorFlow Lite.

The integers of the ONNX file are taken over as they are, so both files compute the same numbers up to the rounding
of a requantisation (one step). Neither TensorFlow nor torch takes part.

How a graph is mapped:

1. A node whose inputs come from DequantizeLinear and whose only reader is a QuantizeLinear becomes one int8 operator,
   where TensorFlow Lite has such a one. Everything else stays float, with QUANTIZE and DEQUANTIZE where the two meet.
2. Convolutions and pools work with channels last: (N, C, W) becomes (N, 1, W, C), (N, C, H, W) becomes (N, H, W, C).
   What lies between them works in the same layout; a transposition is written only where a value in ONNX's order meets
   them, and not where the graph's own one undoes it.
3. A 1-D convolution is a 2-D one of height 1.
4. A dense layer with one scale per output becomes a 1x1 convolution: older readers take the first scale of such a
   layer for all of it, without a word.
5. Padding is the operator's own where it is what TensorFlow calls SAME, else a PAD before it.
6. Sigmoid, tanh and softmax have a fixed int8 step. They are int8 where that is about as fine as the graph's, else
   float.
7. The model is normalised, constants are folded, composites (normalisations, recurrent layers) taken apart first:
   `graph.onnx_graph.normalise`, `graph.tflite.lower.composites`. What ONNX defines by other operators is replaced by
   that definition.
8. A node whose attributes and inputs were not all looked at is refused (`graph.tflite.watch`), and so is an operator
   that one of the engines would not compute (`graph.tflite.write.limits`).

The batch is 1 in the file. Where it is open in the ONNX graph, and every node lets it be, it can be changed with
`resize_tensor_input`; the file then says so in the signature of its shapes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import onnx

from edge_export.graph.tflite.errors import UnsupportedNodeError
from edge_export.graph.tflite.lower.patterns import DOMAIN
from edge_export.graph.tflite.lower.prepare import prepare
from edge_export.graph.tflite.watch import Watched
from edge_export.graph.tflite.write import convolutions, dense, elementwise, moves, pools, reductions
from edge_export.graph.tflite.write.graph import Graph
from edge_export.graph.tflite.write.limits import LimitError
from edge_runtime.errors import ConfigError

_Writer = Callable[[Graph, Watched], None]


def convert(model: onnx.ModelProto, *, io: Literal["float32", "int8"] = "float32", compact: bool = False) -> bytes:
    """Write an ONNX graph as a TensorFlow Lite file.

    Args:
        model: fixed sizes except the batch: the first axis of an input, and every size of the same name. Quantised
            activations are int8 or uint8, quantised weights symmetric: int8 with zero point 0, or uint8 with 128.
        io: type of the file's inputs and outputs. ``int8`` leaves the QuantizeLinear at the start and the
            DequantizeLinear at the end to the caller, and needs the graph to have them there.
        compact: a file for engines alone: no names between inputs and outputs; constants that a narrower type holds
            exactly are stored in it. Quantisers of TensorFlow Lite files, and people who look for a layer, want the
            names, which take a tenth of a small network's file.

    Returns:
        The file's bytes; the same for the same graph. Inputs and outputs keep their names and their order.

    Raises:
        UnsupportedNodeError: names the first node that cannot be written.
        ConfigError: the graph is not of the form described above.
    """
    graph = Graph(prepare(model, _WRITERS.keys()), compact=compact)
    inputs = {info.name: _entry(graph, info.name, io) for info in graph.onnx.input}
    for node in graph.onnx.node:
        if node.output[0] not in graph.written:
            known = node.domain in ("", "ai.onnx", DOMAIN)
            watched = Watched(node, graph.opset)
            try:
                (_WRITERS.get(node.op_type, _refuse) if known else _refuse)(graph, watched)
            except LimitError as error:
                raise UnsupportedNodeError(watched, str(error)) from error
            watched.refuse_overlooked()
    outputs: dict[str, int] = {}
    for info in graph.onnx.output:
        index = _exit(graph, info.name, io)
        outputs[info.name] = _own(graph, info.name, index, {*inputs.values(), *outputs.values()})
    if graph.open_axes:
        for name, index in inputs.items():
            graph.file.open_axis(index, graph.open_axes[name])
    return graph.file.pack(inputs, outputs, names=not compact)


def _entry(graph: Graph, name: str, io: Literal["float32", "int8"]) -> int:
    graph.shape(name)
    if io == "float32" or graph.dtype(name).kind != "f":
        return graph.new(name, None)[1]
    readers = graph.readers(name)
    steps = [graph.quantization(reader) for reader in readers if reader.op_type == "QuantizeLinear"]
    alike = all(step.same(steps[0]) for step in steps)
    if not steps or len(steps) != len(readers) or not alike or graph.is_result(name):
        raise ConfigError(f"int8 input needs one QuantizeLinear, and nothing else, to read {name!r}")
    value, index = graph.new(readers[0].output[0], steps[0], of=name)
    for reader in readers:
        graph.written.add(reader.output[0])
        graph.values[reader.output[0]] = value
    return index


def _exit(graph: Graph, name: str, io: Literal["float32", "int8"]) -> int:
    node = graph.producers.get(name)
    if node is None:
        # An input handed through, or a constant.
        value = graph.values.get(name)
        if value is not None:
            return graph.plain(value, onnx.NodeProto())
        if name not in graph.constants:
            raise ConfigError(f"output {name!r} is made by no node of the graph")
        graph.dtype(name)
        fixed = graph.file.constant(f"{name}:fixed", graph.constants[name])
        made = graph.file.like(fixed, name)
        graph.write_reshape(fixed, made, None)
        return made
    if io == "float32" or graph.dtype(name).kind != "f":
        return graph.plain(graph.plain_value(name, node), node)
    if (stored := graph.int8_value(name)) is None:
        raise ConfigError(f"int8 output needs DequantizeLinear to produce {name!r}, not {node.op_type}")
    return graph.plain(stored, node)


def _own(graph: Graph, name: str, index: int, taken: set[int]) -> int:
    """Copy a tensor that is taken already: readers address inputs and outputs by tensors of their own."""
    if index not in taken:
        return index
    copy = graph.file.like(index, name)
    graph.write_reshape(index, copy, graph.open_axes.get(name))
    return copy


def _quantize(graph: Graph, node: Watched) -> None:
    step = graph.quantization(node)
    stored = graph.int8_value(node.input[0])
    source = stored or graph.plain_value(node.input[0], node)
    last = source.channels_last
    if stored is not None and stored.quantization is not None and stored.quantization.same(step):
        graph.values[node.output[0]] = stored
        return
    index = graph.tensor(source, node, channels_last=last)
    _, target = graph.new(node.output[0], step, of=node.input[0], channels_last=last)
    graph.file.operator("QUANTIZE", [index], [target], options="QuantizeOptions")


def _dequantize(graph: Graph, node: Watched) -> None:
    """Nothing yet: a node that needs the floats writes it (`Graph.plain_value`). Its step is that of the integers."""
    source, *_ = node.input
    if source in graph.constants:
        return
    stored = graph.values.get(source)
    if stored is None or stored.quantization is None:
        raise UnsupportedNodeError(node, f"it reads {source!r}, which no QuantizeLinear has made")
    if not stored.quantization.same(graph.quantization(node)):
        raise UnsupportedNodeError(node, f"its scale or zero point is not that of the QuantizeLinear behind {source!r}")


def _refuse(_graph: Graph, node: Watched) -> None:
    if node.domain not in ("", "ai.onnx", DOMAIN):
        raise UnsupportedNodeError(node, f"it is of {node.domain!r}, not of ONNX; optimise less before converting")
    raise UnsupportedNodeError(node, f"known here are {', '.join(sorted(_WRITERS))}")


_WRITERS: dict[str, _Writer] = {
    **convolutions.WRITERS,
    **dense.WRITERS,
    **elementwise.WRITERS,
    **moves.WRITERS,
    **pools.WRITERS,
    **reductions.WRITERS,
    "DequantizeLinear": _dequantize,
    "QuantizeLinear": _quantize,
}
