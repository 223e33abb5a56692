"""Draft of the nodes that replace one: the rules of `edge_export.graph.tflite.lower.composites` write into it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper

from edge_export.graph.tflite.errors import UnsupportedNodeError
from edge_export.graph.tflite.watch import Watched

Array = npt.NDArray[Any]


class Draft:
    """Draft of the nodes that replace one.

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
        self.node, self.opset = Watched(node, opset), opset
        self.settings = self.node.settings
        self._first = str(node.input[0]) if node.input else ""
        self.nodes: list[onnx.NodeProto] = []
        self.added: dict[str, Array] = {}
        self.alike: list[str] = []
        """Results that shape inference does not know: as large as the node's own."""
        self._constants, self._shapes, self._dtypes = constants, shapes, dtypes
        self._parameters = parameters

    def input(self, position: int) -> str:
        """Name of an input; empty where it is left out."""
        return self.node.input[position] if position < len(self.node.input) else ""

    def inputs(self) -> list[str]:
        """Names of all inputs."""
        return list(self.node.input)

    def parameter(self, position: int, label: str) -> Array | None:
        """Content of a constant input that sizes or selects something; None where the node leaves it out.

        Raises:
            UnsupportedNodeError: it is computed at run time.
        """
        name = self.input(position)
        if not name:
            return None
        if name not in self._constants:
            raise self.refuse(f"its {label} must be constant, and {name!r} is computed")
        return self._constants[name]

    def fixed(self, name: str) -> Array | None:
        """Content of a constant."""
        return self._constants.get(name)

    def is_parameter(self, name: str) -> bool:
        """Report that a tensor is fixed, as real numbers or as integers behind a DequantizeLinear."""
        return name in self._parameters

    def shape(self, name: str) -> tuple[int, ...] | None:
        """Sizes of a tensor of the original graph, or None while they are not known."""
        return self._shapes.get(name)

    def dtype(self) -> np.dtype[Any]:
        """Element type of the first input."""
        return self.dtype_of(self._first)

    def dtype_of(self, name: str) -> np.dtype[Any]:
        """Element type of a tensor of the original graph."""
        return self._dtypes.get(name, np.dtype(np.float32))

    def number(self, value: float) -> str:
        """Add a constant scalar of the type of the first input."""
        return self.constant(np.array(value, self.dtype()))

    def constant(self, array: Array) -> str:
        """Add a constant."""
        name = f"{self.node.output[0] or self.node.name}:c{len(self.added)}"
        self.added[name] = np.asarray(array)
        return name

    def add(self, op_type: str, *inputs: str, outputs: int = 1, domain: str = "", **settings: Any) -> str:
        """Append a node, and name its first result; more follow as ``name.1``, ``name.2`` and so on.

        Args:
            op_type: operator.
            inputs: names.
            outputs: how many it has.
            domain: the operator's domain; where it is not ONNX's, the result has the size and type of the node's own.
            settings: attributes.
        """
        base = f"{next(filter(None, self.node.output))}:{len(self.nodes)}"
        names = [base, *(f"{base}.{i}" for i in range(1, outputs))]
        made = helper.make_node(op_type, inputs, names, name=f"{self.node.name}:{len(self.nodes)}", domain=domain)
        if domain:
            self.alike.append(base)
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
        if self.opset >= 18 or op_type == "ReduceSum":
            return self.add(op_type, source, self.constant(np.array(axes, np.int64)), keepdims=int(keep))
        return self.add(op_type, source, axes=list(axes), keepdims=int(keep))

    def split(self, source: str, sizes: Sequence[int], axis: int) -> list[str]:
        """Append a Split."""
        if len(sizes) == 1:
            return [source]
        first = self.add("Split", source, self.constant(np.array(sizes, np.int64)), outputs=len(sizes), axis=axis)
        return [first, *(f"{first}.{i}" for i in range(1, len(sizes)))]

    def unsqueeze(self, source: str, axis: int) -> str:
        """Append an Unsqueeze of one axis."""
        return self.add("Unsqueeze", source, self.constant(np.array([axis], np.int64)))

    def moved_last(self, source: str, axis: int, rank: int) -> tuple[str, Callable[[str], str]]:
        """Bring an axis to the end; gives the tensor, and what brings the axis of a result back."""
        order = [*(i for i in range(rank) if i != axis % rank), axis % rank]
        if order == list(range(rank)):
            return source, lambda result: result
        back = [order.index(i) for i in range(rank)]
        return self.add("Transpose", source, perm=order), lambda result: self.add("Transpose", result, perm=back)

    def cast(self, source: str, kind: npt.DTypeLike) -> str:
        """Append a Cast."""
        return self.add("Cast", source, to=helper.np_dtype_to_tensor_dtype(np.dtype(kind)))

    def reshape(self, source: str, sizes: Sequence[int]) -> str:
        """Append a Reshape."""
        return self.add("Reshape", source, self.constant(np.array(sizes, np.int64)))

    def refuse(self, why: str) -> UnsupportedNodeError:
        """Make an error that names the node."""
        return UnsupportedNodeError(self.node, why)
