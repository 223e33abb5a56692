"""Error for a node that the TensorFlow Lite writer cannot write."""

from __future__ import annotations

from typing import Any, Protocol

from edge_runtime.errors import ConfigError


class _Node(Protocol):
    """The part of an ``onnx.NodeProto`` that an error names; its wrapper `graph.tflite.watch.Watched` has it."""

    name: Any
    op_type: Any

    @property
    def output(self) -> Any:
        """Names of its outputs."""


class UnsupportedNodeError(ConfigError):
    """Refusal of a node that has no TensorFlow Lite form here.

    Attributes:
        node: name of the ONNX node, or of its first output where it has none.
        op_type: its operator.
    """

    def __init__(self, node: _Node, why: str) -> None:
        self.node = node.name or (node.output[0] if node.output else "unnamed")
        self.op_type = node.op_type
        super().__init__(f"node {self.node!r} ({self.op_type}) cannot be written as TensorFlow Lite: {why}")
