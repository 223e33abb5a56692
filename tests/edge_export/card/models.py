"""Small models as other people ship them: other axes, other numbers, no softmax."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from edge_export.card.spec import Card, load
from edge_export.tflite.convert import convert
from onnx import TensorProto, helper

from tests.edge_export.graphs import GraphBuilder

CHANNELS, SAMPLES = 3, 20


def card(tmp_path: Path, **changes: Any) -> Card:
    path = tmp_path / "card.toml"
    path.write_text(card_text(**changes))
    return load(path)


def card_text(
    *,
    channels: Sequence[str] = (
        '{ name = "ax", unit = "m/s2", low = -20, high = 20, offset = 0.5, scale = 0.1 }',
        '{ name = "ay", unit = "m/s2", low = -20, high = 20, scale = 0.1 }',
        '{ name = "p", unit = "kPa", low = 90, high = 110, offset = 100 }',
    ),
    labels: str = '["rest", "walk", "run"]',
    input: str = "",  # noqa: A002 - the card's own word
    output: str = 'values = "logits"',
    more: str = "",
) -> str:
    return f"""
name = "borrowed"
created = "2026-01-02"
{more}
[origin]
name = "made up"
source = "this test"
licence = "CC0"

[input]
rate_hz = 50
window = {SAMPLES}
hop = 10
channels = [{", ".join(channels)}]
{input}

[output]
labels = {labels}
{output}
"""


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


def of_type(kind: int) -> onnx.ModelProto:
    """`plain`, whose input is of another type."""
    model = plain()
    model.graph.input[0].name = "raw"
    model.graph.input[0].type.tensor_type.elem_type = kind
    model.graph.node.insert(0, helper.make_node("Cast", ["raw"], ["window"], to=TensorProto.FLOAT))
    return model


def tflite(model: onnx.ModelProto) -> bytes:
    return convert(model)


def softmax(x: Any) -> np.ndarray:
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return np.asarray(e / e.sum(axis=1, keepdims=True), np.float32)


def physical(count: int = 6, seed: int = 4) -> np.ndarray:
    """Windows in the units of `card_text`."""
    x = np.random.default_rng(seed).uniform(-20, 20, (count, CHANNELS, SAMPLES))
    x[:, 2] = 100 + x[:, 2] / 2
    return x.astype(np.float32)


def seen(x: np.ndarray) -> np.ndarray:
    """What the model sees of them."""
    offset, scale = np.array([[0.5], [0], [100]], np.float32), np.array([[0.1], [0.1], [1]], np.float32)
    return np.asarray((x - offset) * scale, np.float32)
