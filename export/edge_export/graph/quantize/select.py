"""Selection of the nodes that are quantised, and the reasons of those that are not."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import onnx_ir as ir

from edge_export.graph.onnx_graph.model import Array, constant, name_of
from edge_export.graph.quantize.scheme import OPERATORS

BETWEEN = ("HardSigmoid", "HardSwish", "LeakyRelu", "Mul", "Sigmoid")
"""Quantised between quantised nodes only, where each saves conversions. At a model's ends they would
cost what float ends are there for: channels of different ranges, and more than 256 confidences."""

_MOVES = frozenset({"Flatten", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
_LAYERS = frozenset({"ConvTranspose", "GRU", "LSTM", "RNN"})
_COMPARISONS = frozenset({"Greater", "GreaterOrEqual", "Less", "LessOrEqual"})
_BOUNDS = frozenset({"Clip", "Max", "Min"})
_BOUNDED = _BOUNDS | {"Softmax", "Sigmoid", "Tanh", "HardSigmoid", "MaxPool", "ReduceMax"}
EXTREME = 1e9
"""Of constants: what float16 and bfloat16 masks, -1e9 and -inf have in common, and no learnt number."""
_SETTLES = frozenset({"Cast", "Identity", "Shape", "DequantizeLinear", "QuantizeLinear"})


def quantised(graph: ir.Graph, exclude: Collection[str] = ()) -> frozenset[str]:
    """Names of the nodes that are quantised.

    1. Nodes of `OPERATORS` are.
    2. Nodes of `BETWEEN` are if every operand is computed by a quantised node, and a quantised node reads the result;
       constants and products of a tensor with itself are none of them, since their ranges are those of a front end.
    3. Nodes to exclude are not, and with them go those of rule 2 that have them as neighbours.
    4. Nor are nodes that come before a comparison with several constants, as in a forest or a rocket: learnt thresholds
       lie closer together than the steps of eight bits. One constant may be a limit of scores at a network's end.
    5. Nor are nodes that read a constant beyond `EXTREME`, such as an attention's mask of -inf, nor those behind them
       up to one whose result is bounded: eight bits from there to the numbers beside it have no step between those.

    Args:
        graph: a prepared model's graph (`edge_export.graph.quantize.write.prepare`).
        exclude: names of nodes that stay in float.
    """
    kept = _compared(graph) | _extreme(graph)
    chosen = {
        name_of(node): node for node in graph if node.op_type in (*OPERATORS, *BETWEEN) and name_of(node) not in kept
    }
    for name in exclude:  # rule 3
        chosen.pop(name, None)
    while True:
        gone = [name for name, node in chosen.items() if node.op_type in BETWEEN and not _enclosed(node, chosen)]
        if not gone:
            return frozenset(chosen)
        for name in gone:
            del chosen[name]


def _compared(graph: ir.Graph) -> frozenset[str]:
    """Rule 4."""
    found: set[str] = set()
    waiting: list[ir.Value | None] = []
    for node in graph:
        learnt = any((numbers := constant(value)) is not None and numbers.size > 1 for value in node.inputs)
        if node.op_type in _COMPARISONS and learnt:
            waiting += node.inputs
    while waiting:
        value = waiting.pop()
        producer = value.producer() if value is not None else None
        if producer is not None and name_of(producer) not in found:
            found.add(name_of(producer))
            waiting += producer.inputs
    return frozenset(found)


def _extreme(graph: ir.Graph) -> frozenset[str]:
    """Rule 5."""
    found: set[str] = set()
    waiting = [
        node for node in graph if node.op_type not in _BOUNDS and any(_beyond(constant(one)) for one in node.inputs)
    ]
    while waiting:
        node = waiting.pop()
        if name_of(node) in found:
            continue
        found.add(name_of(node))
        if node.op_type not in _BOUNDED:
            waiting += [reader for value in node.outputs for reader in value.consumers()]
    return frozenset(found)


def _beyond(array: Array | None) -> bool:
    return array is not None and array.dtype.kind == "f" and array.size > 0 and not np.abs(array).max() < EXTREME


def _enclosed(node: ir.Node, chosen: Mapping[str, ir.Node]) -> bool:
    """Rule 2."""
    operands, result = node.inputs if node.op_type == "Mul" else node.inputs[:1], node.outputs[0]
    if len(set(operands)) < len(operands) or not all(_computed(value, chosen) for value in operands):
        return False
    return any(name_of(reader) in chosen for reader in result.consumers()) and not result.is_graph_output()


def _computed(value: ir.Value | None, chosen: Mapping[str, ir.Node]) -> bool:
    """Say whether a quantised node computes a tensor, maybe behind others that move its numbers."""
    producer = value.producer() if value is not None else None
    if producer is None or name_of(producer) not in chosen:
        return False
    return producer.op_type not in _MOVES or _computed(producer.inputs[0], chosen)


def left_in_float(graph: ir.Graph, exclude: Collection[str] = ()) -> Mapping[str, str]:
    """Reasons by operator of nodes that stay in float; what is excluded by name has its own.

    Args:
        graph: a prepared model's graph.
        exclude: names of nodes that stay in float.
    """
    chosen, compared, extreme = quantised(graph, exclude), _compared(graph), _extreme(graph)
    reasons: dict[str, str] = {}
    for node in graph:
        kind = node.op_type
        if name_of(node) in chosen or node.name in exclude or kind in _SETTLES or kind in reasons:
            continue
        if name_of(node) in compared and kind in OPERATORS:
            reasons[kind] = "a comparison with learnt thresholds follows, closer together than the steps of eight bits"
        elif name_of(node) in extreme:
            reasons[kind] = "it reads or follows a constant such as -inf, beside which eight bits hold nothing"
        elif kind in BETWEEN:
            reasons[kind] = "it is at an end of the model, where eight bits hold neither channels nor confidences"
        elif kind in _LAYERS:
            reasons[kind] = "onnxruntime has no integer kernel for it"
        else:
            reasons[kind] = "integers gain nothing there"
    return reasons
