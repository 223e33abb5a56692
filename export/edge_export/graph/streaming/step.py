"""One operator that goes frame by frame: what it reads, where its result has time, and how a part of it is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import onnx

from edge_export.graph.streaming.frames import Frames, Reach
from edge_export.graph.streaming.window_graph import Array, WindowGraph


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run of output frames to write.

    Attributes:
        frames: how many.
        before: frames missing in front of the input that is given: the padding that belongs there.
        after: the same behind it.
    """

    frames: int
    before: int
    after: int


class Writer(Protocol):
    """Appends nodes to the graph that is being made."""

    graph: WindowGraph

    def node(self, operator: str, inputs: Sequence[str], outputs: int = 1, **settings: Any) -> list[str]:
        """Append a node; returns names of its results."""
        ...

    def copy(self, node: onnx.NodeProto, inputs: Sequence[str], **changed: Any) -> list[str]:
        """Append a node like this one with other inputs and some other attributes; returns names of its results."""
        ...

    def constant(self, name: str, value: Array) -> str:
        """Name of a constant; the same one for the same name."""
        ...

    def integers(self, values: Sequence[int]) -> str:
        """Name of a constant, int64 of one dimension."""
        ...


Build = Callable[[Writer, onnx.NodeProto, list[str], Run], list[str]]
"""Writes a run, given the node and its inputs, those with time cut to the frames that the run reads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrameStep:
    """An operator that goes frame by frame.

    Attributes:
        reach: what an output frame reads of every input that has time.
        axis: which axis of the outputs is time.
        batch: which axis of the outputs is the batch.
        build: writes a run.
        keeps: whether results may be kept for later updates; where not, they are computed again from inputs that are.
    """

    reach: Reach
    axis: int
    batch: int
    build: Build
    keeps: bool = True


Rule = Callable[[WindowGraph, onnx.NodeProto, Mapping[int, Frames]], FrameStep | None]
"""Says how a node goes frame by frame, given the time axes of its inputs by position, or None if it does not: then it
sees the whole window."""


def copied(writer: Writer, node: onnx.NodeProto, inputs: list[str], _: Run) -> list[str]:
    """Repeat the node as it is, on fewer frames."""
    return writer.copy(node, inputs)


def passed_on(_: Writer, __: onnx.NodeProto, inputs: list[str], ___: Run) -> list[str]:
    """No node: the frames of the input are those of the output."""
    return inputs[:1]
