"""Groups of ONNX nodes that are written in another way than they stand in the graph.

1. Exporters for operator sets before 20 write GELU as its formula: x / 2 * (1 + erf(x / sqrt(2))), in three orders.
   It becomes one operator.
2. ONNX's bodies of GroupNormalization and MeanVarianceNormalization, and some exporters, write the variance as
   mean(x * x) - mean(x) * mean(x). It becomes mean((x - mean(x)) * (x - mean(x))). On paper that is the same. In
   float32 the first is noise, even negative, where numbers differ little beside their size, as those of a drifting
   sensor do: of a spread of 0.01 around 10 the norm came out 9 % off, and is now within 0.01 %.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

DOMAIN = "tflite"
"""Of nodes that exist only between the ONNX graph and the file: ``Gelu``, which older operator sets lack."""

_ONNX = ("", "ai.onnx")

_TOLERANCE = 1e-3
"""Relative; constants are written with few digits by some exporters."""


class _Lookup:
    def __init__(self, graph: onnx.GraphProto, constants: Mapping[str, npt.NDArray[Any]]) -> None:
        self.constants = constants
        self.producers = {name: node for node in graph.node if node.domain in _ONNX for name in node.output}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        for info in graph.output:
            self.readers.setdefault(info.name, []).append(onnx.NodeProto())

    def is_number(self, name: str, number: float) -> bool:
        array = self.constants.get(name)
        return array is not None and array.size == 1 and bool(np.isclose(float(array.item()), number, rtol=_TOLERANCE))

    def is_two(self, name: str) -> bool:
        array = self.constants.get(name)
        return array is not None and array.shape in ((), (1,)) and float(array.item()) == 2

    def scaled(self, name: str, factor: float) -> str | None:
        """x, where a tensor is x times a number (or x divided by its inverse)."""
        node = self.producers.get(name)
        if node is None or node.op_type not in ("Mul", "Div"):
            return None
        first, second = map(str, node.input)
        if self.is_number(second, factor if node.op_type == "Mul" else 1 / factor):
            return first
        return second if node.op_type == "Mul" and self.is_number(first, factor) else None

    def squared(self, name: str) -> str | None:
        """x, where a tensor is x times x, or x to the power of 2."""
        node = self.producers.get(name)
        if node is None or node.op_type not in ("Mul", "Pow"):
            return None
        first, second = map(str, node.input)
        alike = first == second if node.op_type == "Mul" else self.is_two(second)
        return first if alike else None

    def mean(self, name: str) -> tuple[onnx.NodeProto, object] | None:
        """Find the ReduceMean that makes a tensor and keeps its axes, and that node's axes and settings."""
        node = self.producers.get(name)
        if node is None or node.op_type != "ReduceMean":
            return None
        settings = {"keepdims": 1} | {each.name: helper.get_attribute_value(each) for each in node.attribute}
        others = [self.constants[each].tolist() if each in self.constants else each for each in node.input[1:]]
        return (node, (settings, others)) if settings["keepdims"] else None

    def only_reader(self, name: str, op_type: str) -> tuple[onnx.NodeProto, str] | None:
        """Find the one node that reads a tensor, if it is of this type, and its other input."""
        readers = self.readers.get(name, [])
        if len(readers) != 1 or readers[0].op_type != op_type or len(readers[0].input) != 2:
            return None
        first, second = readers[0].input
        return readers[0], second if first == name else first


def fuse(
    graph: onnx.GraphProto,
    constants: Mapping[str, npt.NDArray[Any]],
    shapes: dict[str, tuple[int, ...]],
    dtypes: dict[str, np.dtype[Any]],
) -> bool:
    """Replace formulas, by the numbers above; the nodes left over are read by nothing any more.

    Returns:
        Whether there was any.
    """
    found = _centre(graph, constants, dtypes)
    lookup = _Lookup(graph, constants)
    for node in graph.node:
        if node.op_type == "Erf" and (match := _gelu(lookup, node)) is not None:
            last, source = match
            result = last.output[0]
            last.Clear()
            last.CopyFrom(helper.make_node("Gelu", [source], [result], name=f"{result}:gelu", domain=DOMAIN))
            if result in shapes:
                kind = helper.np_dtype_to_tensor_dtype(dtypes.get(result, np.dtype(np.float32)))
                graph.value_info.append(helper.make_tensor_value_info(result, kind, shapes[result]))
            found = True
    return found


def _centre(
    graph: onnx.GraphProto, constants: Mapping[str, npt.NDArray[Any]], dtypes: Mapping[str, np.dtype[Any]]
) -> bool:
    """Write variances as means of squared differences; returns whether there was any."""
    lookup = _Lookup(graph, constants)
    nodes: list[onnx.NodeProto] = []
    for node in graph.node:
        match = _variance(lookup, node) if dtypes.get(node.output[0], np.dtype(np.float32)).kind == "f" else None
        if match is None:
            nodes.append(node)
            continue
        x, mean, power = match
        result = node.output[0]
        centred, squares = f"{result}:centred", f"{result}:squares"
        last = onnx.NodeProto()
        last.CopyFrom(power)
        last.name, last.input[0], last.output[0] = f"{result}:mean", squares, result
        nodes += [
            helper.make_node("Sub", [x, mean], [centred], name=centred),
            helper.make_node("Mul", [centred, centred], [squares], name=squares),
            last,
        ]
    if len(nodes) == len(graph.node):
        return False
    replace(graph.node, nodes)
    return True


def _variance(lookup: _Lookup, node: onnx.NodeProto) -> tuple[str, str, onnx.NodeProto] | None:
    """Of a difference that is a variance: x, the mean of x, and the ReduceMean of the squares of x."""
    if node.op_type != "Sub" or node.domain not in _ONNX:
        return None
    mean = lookup.squared(node.input[1])
    first, power = lookup.mean(mean or ""), lookup.mean(node.input[0])
    if mean is None or first is None or power is None or first[1] != power[1]:
        return None
    x = first[0].input[0]
    return (x, mean, power[0]) if lookup.squared(power[0].input[0]) == x else None


def _gelu(lookup: _Lookup, erf: onnx.NodeProto) -> tuple[onnx.NodeProto, str] | None:
    """Find the last node of the formula around an Erf, and the formula's x."""
    x = lookup.scaled(erf.input[0], float(np.sqrt(0.5)))
    raised = lookup.only_reader(erf.output[0], "Add")
    if x is None or raised is None or not lookup.is_number(raised[1], 1):
        return None
    product = lookup.only_reader(raised[0].output[0], "Mul")
    if product is None:
        return None
    node, partner = product
    if lookup.scaled(partner, 0.5) == x:
        return node, x
    last = lookup.only_reader(node.output[0], "Mul")
    if last is None:
        return None
    halved_last = partner == x and lookup.is_number(last[1], 0.5)
    halved_first = lookup.is_number(partner, 0.5) and last[1] == x
    return (last[0], x) if halved_last or halved_first else None


def replace(repeated: Any, items: list[Any]) -> None:
    """Give a repeated field of a message new content; its old items may be among the new ones."""
    copies = []
    for item in items:
        copy = type(item)()
        copy.CopyFrom(item)
        copies.append(copy)
    del repeated[:]
    repeated.extend(copies)
