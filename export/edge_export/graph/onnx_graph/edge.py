"""The edges of a graph: nodes in front of all others, or behind them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from edge_export.graph.onnx_graph.model import add_constant, apply, free_name


@dataclass(frozen=True, slots=True)
class Edge:
    """A place in a graph where nodes are added, under names that the graph does not use.

    Attributes:
        graph: changed in place.
        prefix: of the names.
        before: the node that those added stand in front of; None adds behind all.
    """

    graph: ir.Graph
    prefix: str
    before: ir.Node | None = None

    def constant(self, value: npt.ArrayLike, dtype: npt.DTypeLike) -> ir.Value:
        """Add a constant."""
        return add_constant(self.graph, f"{self.prefix}_constant", np.asarray(value, dtype))

    def node(self, kind: str, *inputs: ir.Value, **attributes: Any) -> ir.Value:
        """Add a node with one result, and return that."""
        node = apply(kind, list(inputs), free_name(self.graph, f"{self.prefix}_{kind.lower()}"), **attributes)
        if self.before is None:
            self.graph.append(node)
        else:
            self.graph.insert_before(self.before, node)
        return node.outputs[0]


def read_through(graph: ir.Graph, window: ir.Value, flow: ir.Value) -> None:
    """Give a graph another input, from which nodes in front compute what it read of its first one."""
    source = graph.inputs[0]
    flow.name, flow.type, flow.shape = source.name, source.type, source.shape
    graph.inputs[0] = window
    source.replace_all_uses_with(flow, replace_graph_outputs=True)
