"""Windowed networks of the kinds that run on sensor streams, built from random weights: speed depends on shapes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

CLASSES = 6


class _Builder:
    """Appends nodes; each call returns the name of its result."""

    def __init__(self) -> None:
        self.random = np.random.default_rng(0)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: list[onnx.TensorProto] = []

    def constant(self, value: npt.ArrayLike, dtype: Any = np.float32) -> str:
        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def integers(self, *values: int) -> str:
        return self.constant(values, np.int64)

    def weights(self, *shape: int) -> str:
        return self.constant(self.random.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:])))

    def add(self, operator: str, *inputs: str, **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, inputs, [name], name=name, **attributes))
        return name

    def conv(self, source: str, before: int, after: int, *kernel: int, group: int = 1, **attributes: Any) -> str:
        weights, bias = self.weights(after, before // group, *kernel), self.constant(np.zeros(after))
        return self.add("Conv", source, weights, bias, group=group, **attributes)

    def relu_conv(self, *arguments: Any, **attributes: Any) -> str:
        return self.add("Relu", self.conv(*arguments, **attributes))

    def answer(self, features: str, width: int, channels: int, samples: int) -> onnx.ModelProto:
        logits = self.add("Gemm", features, self.weights(CLASSES, width), self.constant(np.zeros(CLASSES)), transB=1)
        result = self.add("Softmax", logits, axis=1)
        graph = helper.make_graph(
            self.nodes,
            "window",
            [helper.make_tensor_value_info("window", TensorProto.FLOAT, ["batch", channels, samples])],
            [helper.make_tensor_value_info(result, TensorProto.FLOAT, ["batch", CLASSES])],
            self.constants,
        )
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


def student(samples: int, widths: Sequence[int], *, channels: int = 6, same: bool = False) -> onnx.ModelProto:
    """Convolutions of five taps, halved after the first and the second, mean over time."""
    b, t, before = _Builder(), "window", channels
    pads = [2, 2] if same else [0, 0]
    for place, width in enumerate(widths):
        t, before = b.relu_conv(t, before, width, 5, pads=pads), width
        if place < 2:
            t = b.add("MaxPool", t, kernel_shape=[2], strides=[2])
    return b.answer(b.add("Flatten", b.add("GlobalAveragePool", t)), before, channels, samples)


def separable(samples: int = 128, widths: Sequence[int] = (16, 32, 32, 48), *, channels: int = 6) -> onnx.ModelProto:
    """The size of the demo's device network, without its padding: depthwise and pointwise convolutions in turn."""
    b, before = _Builder(), widths[0]
    t = b.relu_conv("window", channels, before, 8, strides=[2])
    for place, width in enumerate(widths[1:]):
        t = b.relu_conv(t, before, before, 7, group=before, strides=[2 if place == 0 else 1])
        t, before = b.relu_conv(t, before, width, 1), width
    return b.answer(b.add("Flatten", b.add("GlobalAveragePool", t)), before, channels, samples)


def tcn(samples: int = 256, width: int = 64, levels: int = 5, *, channels: int = 6) -> onnx.ModelProto:
    """Residual blocks of two dilated convolutions of three taps without padding; the last step answers.

    Source: temporal convolutional networks, Bai et al. 2018 (arXiv:1803.01271).
    """
    b = _Builder()
    t = b.conv("window", channels, width, 1)
    for level in range(levels):
        inner = t
        for _ in range(2):
            inner = b.relu_conv(inner, width, width, 3, dilations=[2**level])
        cut = b.add("Slice", t, b.integers(4 * 2**level), b.integers(1 << 40), b.integers(2))
        t = b.add("Relu", b.add("Add", inner, cut))
    return b.answer(b.add("Gather", t, b.constant(-1, np.int64), axis=2), width, channels, samples)


def log_mel_net(
    samples: int = 16_000, *, frame: int = 480, hop: int = 320, bins: int = 257, bands: int = 40, width: int = 64
) -> onnx.ModelProto:
    """Log band energies of a second at 16 kHz, then four separable convolutions over (time, band).

    The convolutions have no padding in time. Source: DS-CNN, Zhang et al. 2017 (arXiv:1711.07128).
    """
    b = _Builder()
    phase = 2 * np.pi * np.outer(np.arange(bins), np.arange(frame)) / (2 * (bins - 1))
    waves = np.concatenate([np.hanning(frame) * np.cos(phase), np.hanning(frame) * np.sin(phase)])
    t = b.add("Conv", "window", b.constant(waves[:, None]), strides=[hop])
    cuts = ((0, bins), (bins, 2 * bins))
    parts = [b.add("Slice", t, b.integers(first), b.integers(last), b.integers(1)) for first, last in cuts]
    power = b.add("Add", *(b.add("Mul", part, part) for part in parts))
    bank = b.constant(np.abs(b.random.standard_normal((bins, bands))) / bins)
    energy = b.add("MatMul", b.add("Transpose", power, perm=[0, 2, 1]), bank)
    t = b.add("Unsqueeze", b.add("Log", b.add("Max", energy, b.constant(1e-6))), b.integers(1))
    t = b.relu_conv(t, 1, width, 5, 5, pads=[0, 2, 0, 2], strides=[1, 2])
    for _ in range(4):
        t = b.relu_conv(t, width, width, 3, 3, group=width, pads=[0, 1, 0, 1])
        t = b.relu_conv(t, width, width, 1, 1)
    return b.answer(b.add("Flatten", b.add("GlobalAveragePool", t)), width, 1, samples)


def gru(samples: int = 128, hidden: int = 64, *, channels: int = 6, width: int = 32) -> onnx.ModelProto:
    """A causal convolution, a GRU, and its last state."""
    b = _Builder()
    t = b.add("Transpose", b.relu_conv("window", channels, width, 5, pads=[4, 0]), perm=[2, 0, 1])
    weights = [b.weights(1, 3 * hidden, width), b.weights(1, 3 * hidden, hidden), b.constant(np.zeros((1, 6 * hidden)))]
    b.nodes.append(
        helper.make_node("GRU", [t, *weights], ["", "last"], name="gru", hidden_size=hidden, linear_before_reset=1)
    )
    return b.answer(b.add("Squeeze", "last", b.integers(0)), hidden, channels, samples)


def swish(samples: int = 128, widths: Sequence[int] = (32, 64, 64), *, channels: int = 6) -> onnx.ModelProto:
    """Convolutions of five taps with swish, x times sigmoid of x, and halving.

    Source: Ramachandran et al. 2017 (arXiv:1710.05941).
    """
    b, t, before = _Builder(), "window", channels
    for width in widths:
        t, before = b.conv(t, before, width, 5, pads=[2, 2]), width
        t = b.add("MaxPool", b.add("Mul", t, b.add("Sigmoid", t)), kernel_shape=[2], strides=[2])
    return b.answer(b.add("Flatten", b.add("GlobalAveragePool", t)), before, channels, samples)


def squeeze_excite(samples: int = 256, blocks: int = 4, *, channels: int = 6) -> onnx.ModelProto:
    """Inverted bottlenecks with hard-swish and squeeze-and-excite.

    Source: MobileNetV3, Howard et al. 2019 (arXiv:1905.02244).
    """
    b, width, wide = _Builder(), 32, 96
    t = b.add("HardSwish", b.conv("window", channels, width, 3, strides=[2], pads=[1, 1]))
    for _ in range(blocks):
        inner = b.add("HardSwish", b.conv(t, width, wide, 1))
        inner = b.add("HardSwish", b.conv(inner, wide, wide, 5, group=wide, pads=[2, 2]))
        gate = b.relu_conv(b.add("GlobalAveragePool", inner), wide, wide // 4, 1)
        gate = b.add("HardSigmoid", b.conv(gate, wide // 4, wide, 1), alpha=1 / 6)
        t = b.add("Add", b.conv(b.add("Mul", inner, gate), wide, width, 1), t)
    return b.answer(b.add("Flatten", b.add("GlobalAveragePool", t)), width, channels, samples)
