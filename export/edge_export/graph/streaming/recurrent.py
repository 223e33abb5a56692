"""Recurrent layers that go with the stream: their state becomes an input and an output of the graph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from edge_export.graph.streaming.frames import Frames
from edge_export.graph.streaming.window_graph import Array, WindowGraph, attributes, label
from edge_runtime.errors import ConfigError

OPERATORS = ("GRU", "LSTM", "RNN")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Memory:
    """One state of a layer.

    Attributes:
        source: position among the node's inputs.
        result: position among its outputs.
        initial: (hidden,) float32, before the first sample.
    """

    source: int
    result: int
    initial: Array


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A recurrent layer: its input is (frames, batch, features), its states (1, batch, hidden)."""

    memories: tuple[_Memory, ...]


def cell(graph: WindowGraph, node: onnx.NodeProto, timed: Mapping[int, Frames]) -> Cell:
    """List the states of a layer.

    Raises:
        ConfigError: the layer cannot run along a stream.
    """
    settings = attributes(node)
    if settings.get("direction", b"forward") != b"forward":
        raise ConfigError(f"{label(node)} also runs backwards, and a stream has no end to start from; train it forward")
    if set(timed) != {0} or (timed[0].axis, timed[0].batch) != (0, 1) or settings.get("layout", 0):
        raise ConfigError(f"{label(node)} must step along time, (frames, batch, features); here it steps otherwise")
    if len(node.input) > 4 and node.input[4]:
        raise ConfigError(f"{label(node)} is given lengths of sequences; a stream has none, export it without")
    hidden = graph.shapes[node.input[2]][2]
    memories = []
    for source, result in ((5, 1), (6, 2)) if node.op_type == "LSTM" else ((5, 1),):
        name = node.input[source] if source < len(node.input) else ""
        initial = np.zeros(hidden, np.float32)
        if name:
            given = graph.first_rows.get(name, graph.values.get(name))
            if given is None or not (given == given[:1, :1]).all():
                raise ConfigError(f"{label(node)} starts from '{name}', which is not the same for all; start from zero")
            initial = given[0, 0].astype(np.float32)
        memories.append(_Memory(source=source, result=result, initial=initial))
    return Cell(memories=tuple(memories))
