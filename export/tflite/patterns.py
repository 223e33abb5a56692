"""Groups of ONNX nodes that stand for one operator.

Exporters for operator sets before 20 write GELU as its formula: x / 2 * (1 + erf(x / sqrt(2))), in three orders.
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

_TOLERANCE = 1e-3
"""Relative; constants are written with few digits by some exporters."""


class _Lookup:
    def __init__(self, graph: onnx.GraphProto, constants: Mapping[str, npt.NDArray[Any]]) -> None:
        self.constants = constants
        self.producers = {name: node for node in graph.node for name in node.output}
        self.readers: dict[str, list[onnx.NodeProto]] = {}
        for node in graph.node:
            for name in node.input:
                self.readers.setdefault(name, []).append(node)
        for info in graph.output:
            self.readers.setdefault(info.name, []).append(onnx.NodeProto())

    def is_number(self, name: str, number: float) -> bool:
        array = self.constants.get(name)
        return array is not None and array.size == 1 and bool(np.isclose(float(array.item()), number, rtol=_TOLERANCE))

    def scaled(self, name: str, factor: float) -> str | None:
        """x, where a tensor is x times a number (or x divided by its inverse)."""
        node = self.producers.get(name)
        if node is None or node.op_type not in ("Mul", "Div"):
            return None
        first, second = map(str, node.input)
        if self.is_number(second, factor if node.op_type == "Mul" else 1 / factor):
            return first
        return second if node.op_type == "Mul" and self.is_number(first, factor) else None

    def only_reader(self, name: str, op_type: str) -> tuple[onnx.NodeProto, str] | None:
        """The one node that reads a tensor, if it is of this type, and its other input."""
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
    """Replace formulas by the operators they are; the nodes left over are read by nothing any more.

    Returns:
        Whether there was any.
    """
    lookup = _Lookup(graph, constants)
    found = False
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


def _gelu(lookup: _Lookup, erf: onnx.NodeProto) -> tuple[onnx.NodeProto, str] | None:
    """The last node of the formula around an Erf, and the formula's x."""
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
