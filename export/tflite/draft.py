"""The nodes that are to replace one: what a rule of `lower` writes into."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from export.tflite.errors import UnsupportedNodeError

Array = npt.NDArray[Any]


class Draft:
    """The nodes that are to replace one.

    Args:
        node: the composite.
        constants: fixed tensors of its graph.
        shapes: sizes of the graph's tensors, as far as known.
        dtypes: element types of the graph's tensors, as far as known.
        parameters: names of fixed tensors, those behind a DequantizeLinear among them.
        opset: operator set of the graph; several operators took attributes where newer ones take inputs.
    """

    def __init__(
        self,
        node: onnx.NodeProto,
        constants: Mapping[str, Array],
        shapes: Mapping[str, tuple[int, ...]],
        dtypes: Mapping[str, np.dtype[Any]],
        parameters: AbstractSet[str],
        opset: int,
    ) -> None:
        self.node, self.opset = node, opset
        self.settings = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        self.nodes: list[onnx.NodeProto] = []
        self.added: dict[str, Array] = {}
        self._constants, self._shapes, self._dtypes = constants, shapes, dtypes
        self._parameters = parameters

    def input(self, position: int) -> str:
        """Name of an input; empty where it is left out."""
        return str(self.node.input[position]) if position < len(self.node.input) else ""

    def fixed(self, name: str) -> Array | None:
        """Content of a constant."""
        return self._constants.get(name)

    def is_parameter(self, name: str) -> bool:
        """Whether a tensor is fixed, as real numbers or as integers behind a DequantizeLinear."""
        return name in self._parameters

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Sizes of a tensor of the original graph, or None while they are not known."""
        return self._shapes.get(name)

    def dtype(self) -> np.dtype[Any]:
        """Element type of the first input."""
        return self._dtypes.get(self.node.input[0], np.dtype(np.float32))

    def number(self, value: float) -> str:
        """A constant scalar of the type of the first input."""
        return self.constant(np.array(value, self.dtype()))

    def constant(self, array: Array) -> str:
        """A constant."""
        name = f"{self.node.output[0] or self.node.name}:c{len(self.added)}"
        self.added[name] = np.asarray(array)
        return name

    def add(self, op_type: str, *inputs: str, outputs: int = 1, **settings: Any) -> str:
        """Append a node, and name its first result; more follow as ``name.1``, ``name.2`` and so on."""
        base = f"{next(filter(None, self.node.output))}:{len(self.nodes)}"
        names = [base, *(f"{base}.{i}" for i in range(1, outputs))]
        made = helper.make_node(op_type, inputs, names, name=f"{self.node.name}:{len(self.nodes)}")
        made.attribute.extend(helper.make_attribute(key, value) for key, value in settings.items())
        self.nodes.append(made)
        return base

    def done(self, result: str, output: int = 0) -> None:
        """Give a result the name of an output of the original node."""
        target = self.node.output[output] if output < len(self.node.output) else ""
        if not target:
            return
        self.nodes.append(helper.make_node("Identity", [result], [target], name=f"{self.node.name}:as:{output}"))

    def reduce(self, op_type: str, source: str, axes: Sequence[int], *, keep: bool = True) -> str:
        """Append a reduction, in the form the operator set has."""
        if self.opset >= 18 or (op_type == "ReduceSum" and self.opset >= 13):
            return self.add(op_type, source, self.constant(np.array(axes, np.int64)), keepdims=int(keep))
        return self.add(op_type, source, axes=list(axes), keepdims=int(keep))

    def split(self, source: str, sizes: Sequence[int], axis: int) -> list[str]:
        """Append a Split."""
        if len(sizes) == 1:
            return [source]
        if self.opset >= 13:
            first = self.add("Split", source, self.constant(np.array(sizes, np.int64)), outputs=len(sizes), axis=axis)
        else:
            first = self.add("Split", source, outputs=len(sizes), axis=axis, split=list(sizes))
        return [first, *(f"{first}.{i}" for i in range(1, len(sizes)))]

    def reshape(self, source: str, sizes: Sequence[int]) -> str:
        """Append a Reshape."""
        return self.add("Reshape", source, self.constant(np.array(sizes, np.int64)))

    def refuse(self, why: str) -> UnsupportedNodeError:
        """An error that names the node."""
        return UnsupportedNodeError(self.node, why)
