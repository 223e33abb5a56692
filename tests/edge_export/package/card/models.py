"""Small models as other people ship them: other axes, other numbers, no softmax."""

from __future__ import annotations

import numpy as np
import onnx
from edge_export.graph.tflite.convert import convert

from tests.edge_export.graphs import GraphBuilder

CHANNELS, SAMPLES = 3, 20


def logits(b: GraphBuilder, flow: str, classes: int = 3) -> str:
    flow = b.node("Relu", b.conv(flow, CHANNELS, 8, 5, pads=[2, 2]))
    return b.dense(b.node("Flatten", flow), 8 * SAMPLES, classes)


def plain(classes: int = 3) -> onnx.ModelProto:
    """(batch, channels, samples) to logits."""
    b = GraphBuilder(CHANNELS, SAMPLES)
    return b.model(logits(b, "window", classes))


def samples_first() -> onnx.ModelProto:
    """(batch, samples, 1, channels) to logits of shape (batch, 1, 3)."""
    b = GraphBuilder(SAMPLES, 1, CHANNELS)
    flow = b.node("Transpose", b.node("Squeeze", "window", b.constant(np.array([2]))), perm=[0, 2, 1])
    return b.model(b.node("Unsqueeze", logits(b, flow), b.constant(np.array([1]))))


def tflite(model: onnx.ModelProto) -> bytes:
    return convert(model)
