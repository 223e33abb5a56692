"""Layers back in float in a graph that is written in integers already: a search writes once, not once for each set.

onnxruntime's writer takes seconds for a network of 50 layers. What it writes has one pair of QuantizeLinear and
DequantizeLinear per tensor: the same graph with fewer integer layers is that graph with some of the pairs bypassed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping

import onnx

from edge_export.graph.onnx_graph.model import drop_unread, from_proto, to_proto


def loosened(written: onnx.ModelProto, model: onnx.ModelProto, integers: Collection[str]) -> onnx.ModelProto:
    """Put nodes back into float.

    1. A Relu or Clip behind a node in float is in float, as the writer has it.
    2. A node in float reads its own constants as floats.
    3. A tensor that only nodes in float write and read is not rounded.

    Args:
        written: `edge_export.graph.quantize.write.write` of the model, all activations kept.
        model: what it was written of.
        integers: names of the nodes that stay in integers.

    Returns:
        What `write` gives with all others excluded, but for activations that it would leave to the integers' limits.
    """
    result = onnx.ModelProto()
    result.CopyFrom(written)
    constants = {tensor.name: tensor for tensor in model.graph.initializer}
    before = {node.name: node for node in model.graph.node}
    integers = _with_company(model.graph, integers)  # rule 1
    computed = {name for node in result.graph.node for name in node.output}
    added: dict[str, onnx.TensorProto] = {}
    for node in result.graph.node:  # rule 2
        if node.name not in before or node.name in integers:
            continue
        for place, name in enumerate(before[node.name].input):
            if name in constants and node.input[place] in computed:
                # A bias in integers is widened to the name that it had.
                node.input[place] = f"{name}_loosened"
                added[name] = onnx.TensorProto()
                added[name].CopyFrom(constants[name])
                added[name].name = f"{name}_loosened"
    result.graph.initializer.extend(added.values())
    _bypass(result.graph, integers)  # rule 3
    parsed = from_proto(result)
    drop_unread(parsed.graph)
    return to_proto(parsed)


def _with_company(graph: onnx.GraphProto, integers: Collection[str]) -> set[str]:
    producers = {name: node.name for node in graph.node for name in node.output}
    kept = set(integers)
    for node in graph.node:
        if node.op_type in {"Relu", "Clip"} and producers.get(node.input[0]) not in kept:
            kept.discard(node.name)
    return kept


def _bypass(graph: onnx.GraphProto, integers: Collection[str]) -> None:
    producers = {name: node for node in graph.node for name in node.output}
    readers = _readers(graph)
    ends = {each.name for each in graph.output}
    for node in graph.node:
        source, rounded = _rounding(node, producers), node.output[0]
        if not source:
            continue
        touching = {each.name for each in (*readers[rounded], producers.get(source, node))}
        if touching.isdisjoint(integers):
            _read_instead(readers[rounded], rounded, source)
            if rounded in ends:
                _pass_on(node, source)


def _read_instead(readers: Iterable[onnx.NodeProto], before: str, after: str) -> None:
    for reader in readers:
        reader.input[:] = [after if name == before else name for name in reader.input]


def _rounding(node: onnx.NodeProto, producers: Mapping[str, onnx.NodeProto]) -> str:
    """Name of the tensor that a DequantizeLinear gives back rounded; empty for any other node, and for constants."""
    pair = producers.get(node.input[0]) if node.op_type == "DequantizeLinear" else None
    return pair.input[0] if pair is not None and pair.op_type == "QuantizeLinear" else ""


def _pass_on(node: onnx.NodeProto, source: str) -> None:
    """Make a DequantizeLinear at the model's end give what came."""
    node.op_type = "Identity"
    del node.attribute[:]
    node.input[:] = [source]


def _readers(graph: onnx.GraphProto) -> dict[str, list[onnx.NodeProto]]:
    readers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
    for node in graph.node:
        for name in node.input:
            readers[name].append(node)
    return readers
