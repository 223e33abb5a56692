"""A windowed network, opened up: the shape of every tensor, and the value of those that no window changes.

Shapes are not inferred but looked at: the network is run once on zeros with every tensor as an output, for two batch
sizes where the batch is open. So no operator is unknown, and what exporters compute from shapes at run time (the
target of a Reshape, the zero state of a GRU) is a plain number here.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import helper, numpy_helper

from edge_export.graph.onnx_graph.normalise import opset_of
from edge_export.graph.onnx_graph.passes.fold import has_subgraph
from edge_export.graph.onnx_graph.passes.raise_opset import OLDEST_OPSET
from edge_export.graph.onnx_graph.run import observe
from edge_runtime.errors import ConfigError

Array = npt.NDArray[Any]


class WindowGraph:
    """A windowed network and what is known of its tensors.

    Args:
        model: one input (batch, channels, samples), one batch-first output or more.

    Attributes:
        source: name of the input.
        batch: rows, 0 where the batch is open.
        samples: of the window.
        shapes: of every tensor, with `rows` in place of an open batch.
        rows: batch size that `shapes` were taken at.
        values: of every tensor that depends on neither window nor batch.
        static: names of all tensors that no window changes, those that the batch changes among them.

    Raises:
        ConfigError: not a network of this form, an operator set that is too old, or operators that hold graphs.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        self.model = onnx.ModelProto()
        self.model.CopyFrom(model)
        graph = self.model.graph
        _name_states(graph)
        self.source, (self.batch, self.channels, self.samples) = _window_of(graph)
        self.opset = opset_of(model)
        _refuse_other_forms(graph, self.opset)
        self.producers = {name: node for node in graph.node for name in node.output if name}
        self.initializers = {tensor.name: tensor for tensor in graph.initializer}
        self.values: dict[str, Array] = {name: numpy_helper.to_array(t) for name, t in self.initializers.items()}
        self.static = _unchanged_by_windows(graph, self.values)
        self.rows = self.batch or 2
        seen = self._tensors(self.rows)
        # With a batch that is fixed nothing can depend on it, and a second run would not load.
        other = seen if self.batch else self._tensors(self.rows + 1)
        arrays = {**seen, **self.values}
        self.shapes: dict[str, tuple[int, ...]] = {name: array.shape for name, array in arrays.items()}
        self.types: dict[str, np.dtype[Any]] = {name: array.dtype for name, array in arrays.items()}
        self.first_rows: Mapping[str, Array] = {name: seen[name] for name in self.static if name in seen}
        self._other_rows: Mapping[str, Array] = {name: other[name] for name in self.first_rows}
        self.values |= {name: array for name, array in self.first_rows.items() if _same(array, other[name])}

    def constant(self, node: onnx.NodeProto, position: int) -> Array | None:
        """Return the value of an input, None where it is absent or not fixed."""
        if position >= len(node.input) or not node.input[position]:
            return None
        return self.values.get(node.input[position])

    def open_sizes(self, name: str) -> Array:
        """Mark the numbers of a Shape that are the batch."""
        return np.asarray(self.first_rows[name] != self._other_rows[name])

    def _tensors(self, rows: int) -> Mapping[str, Array]:
        """Run on zeros, and return every tensor."""
        names = [name for node in self.model.graph.node for name in node.output if name]
        window = np.zeros((rows, self.channels, self.samples), np.float32)
        return next(observe(self.model, [self.source, *names], window, batch=rows))


def _refuse_other_forms(graph: onnx.GraphProto, opset: int) -> None:
    if opset < OLDEST_OPSET:
        raise ConfigError(f"operator set {opset} is too old; convert the model to {OLDEST_OPSET} or later")
    if (inside := next(filter(has_subgraph, graph.node), None)) is not None:
        raise ConfigError(f"{label(inside)} holds a graph of its own; export the network without control flow")


def _same(one: Array, other: Array) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def _name_states(graph: onnx.GraphProto) -> None:
    """Name the outputs that no node reads of recurrent operators; they are needed once the state leaves the graph."""
    for position, node in enumerate(graph.node):
        if node.op_type in ("GRU", "LSTM", "RNN"):
            names = [*node.output, "", "", ""][: 3 if node.op_type == "LSTM" else 2]
            node.output[:] = [name or f"recurrent_{position}_{place}" for place, name in enumerate(names)]


def _window_of(graph: onnx.GraphProto) -> tuple[str, tuple[int, int, int]]:
    """Return name and sizes (batch, channels, samples) of the one input; the batch is 0 where it is open."""
    initialised = {tensor.name for tensor in graph.initializer}
    inputs = [info for info in graph.input if info.name not in initialised]
    if len(inputs) != 1:
        raise ConfigError(
            f"a windowed network has one input, not {len(inputs)}; give the network before its conversion"
        )
    name, dims = str(inputs[0].name), [int(dim.dim_value) for dim in inputs[0].type.tensor_type.shape.dim]
    if len(dims) != 3 or dims[1] < 1 or dims[2] < 1:
        raise ConfigError(
            f"input '{name}' must be (batch, channels, samples) with fixed channels and samples, not {dims}"
        )
    return name, (dims[0], dims[1], dims[2])


def _unchanged_by_windows(graph: onnx.GraphProto, constants: Iterable[str]) -> set[str]:
    """Names of constants, of sizes, and of what is computed of both alone."""
    static = set(constants)
    for node in graph.node:
        if node.op_type == "Shape" or static.issuperset(inputs_of(node)):
            static.update(name for name in node.output if name)
    return static


def attributes(node: onnx.NodeProto) -> dict[str, Any]:
    """Attributes of a node as plain values."""
    return {attribute.name: helper.get_attribute_value(attribute) for attribute in node.attribute}


def label(node: onnx.NodeProto) -> str:
    """Name a node for messages."""
    return f"{node.op_type} '{node.name or next(iter(node.output), '')}'"


def inputs_of(node: onnx.NodeProto) -> Iterator[str]:
    """Names of the inputs that are given."""
    return (name for name in node.input if name)
