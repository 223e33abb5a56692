"""A converted network: the stateful graph, its states, and when its answers begin to count."""

from __future__ import annotations

from dataclasses import dataclass, field

import onnx

from edge_export.graph.streaming.plan import Mode, NodeCost
from edge_export.graph.streaming.window_graph import Array


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamState:
    """One tensor that an update hands to the next.

    Attributes:
        name: of the input that takes it.
        shape: of one stream's state; the tensors of the graph have the batch in front.
        dtype: ``float32``, or the integer type of a quantised network.
        initial: of `shape`, before the first sample.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    initial: Array = field(repr=False, compare=False)

    @property
    def output(self) -> str:
        """Name of the output that gives it to the next update."""
        return f"{self.name}_next"


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamingModel:
    """A stateful graph.

    Attributes:
        model: inputs ``hop`` (batch, channels, hop) float32 and the states; outputs those of the windowed network and
            the states for the next update. The batch is in front everywhere, so streams can be answered together.
        states: in the order of the graph's inputs.
        hop: samples that an update brings.
        window: samples of the windowed network.
        mode: what the answers equal; see `edge_export.graph.streaming`.
        delay: samples by which an answer lies behind the newest sample; 0 in mode ``window``.
        warm_up: updates, counted from a reset, until an answer has seen a whole window. Earlier answers have not and
            mean nothing.
        costs: of every node, here and in the windowed network.
    """

    model: onnx.ModelProto
    states: tuple[StreamState, ...]
    hop: int
    window: int
    mode: Mode
    delay: int
    warm_up: int
    costs: tuple[NodeCost, ...] = field(repr=False)

    @property
    def work(self) -> float:
        """Multiply-accumulates of an update as a share of those of the windowed network."""
        return sum(cost.update for cost in self.costs) / max(1, sum(cost.window for cost in self.costs))
