"""Windowed networks of many forms, drawn at random or written out, as float ONNX."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from tests.edge_export.graphs import GraphBuilder

FAR = 1 << 40


@dataclass(frozen=True)
class Net:
    """A windowed network, and what its total stride is."""

    model: onnx.ModelProto
    stride: int


class NetBuilder(GraphBuilder):
    """Adds layers to a 1-D network and knows channels, frames and stride of what it has."""

    def __init__(self, channels: int, samples: int, seed: int = 0) -> None:
        super().__init__(channels, samples, seed=seed)
        self.tensor, self.channels, self.frames, self.stride = "window", channels, samples, 1

    def convolution(
        self,
        width: int,
        kernel: int,
        *,
        stride: int = 1,
        dilation: int = 1,
        left: int = 0,
        right: int = 0,
        group: int = 1,
        **more: Any,
    ) -> NetBuilder:
        frames = (self.frames + left + right - (kernel - 1) * dilation - 1) // stride + 1
        if frames < 1:
            return self
        self.tensor = self.conv(
            self.tensor,
            self.channels,
            width,
            kernel,
            group=group,
            pads=[left, right],
            strides=[stride],
            dilations=[dilation],
            **more,
        )
        self.channels, self.frames, self.stride = width, frames, self.stride * stride
        return self

    def pool(
        self, operator: str, kernel: int, stride: int, left: int = 0, right: int = 0, *, up: bool = False
    ) -> NetBuilder:
        room = self.frames + left + right - kernel
        frames = room // stride + 1
        if room < 0:
            return self
        # A window that would start behind the samples is counted by some and not by others; leave it out.
        up = up and frames * stride < self.frames + left
        if up and room % stride:
            frames += 1
        more: dict[str, Any] = {"ceil_mode": 1} if up else {}
        self.tensor = self.node(
            operator, self.tensor, kernel_shape=[kernel], strides=[stride], pads=[left, right], **more
        )
        self.frames, self.stride = frames, self.stride * stride
        return self

    def apply(self, operator: str, *inputs: str, **attributes: Any) -> NetBuilder:
        self.tensor = self.node(operator, self.tensor, *inputs, **attributes)
        return self

    def cut(self, left: int, right: int, tensor: str | None = None) -> str:
        ends = self.constant(np.array([-right if right else FAR]))
        return self.node(
            "Slice", tensor or self.tensor, self.constant(np.array([left])), ends, self.constant(np.array([2]))
        )

    def head(self, aggregation: str, classes: int = 3) -> onnx.ModelProto:
        """Take time away and answer with probabilities."""
        features, time = self.channels, self.constant(np.array([2]))
        if aggregation == "last":
            self.apply("Gather", self.constant(np.array(-1)), axis=2)
        elif aggregation == "first":
            self.apply("Gather", self.constant(np.array(0)), axis=2)
        elif aggregation == "flatten":
            features *= self.frames
            self.apply("Flatten")
        elif aggregation == "pool":
            self.apply("GlobalAveragePool").apply("Flatten")
        elif aggregation == "attention":
            weights = self.node("Softmax", self.tensor, axis=2)
            self.apply("Mul", weights).apply("ReduceSum", time, keepdims=0)
        else:
            self.apply(aggregation, time, keepdims=0)
        self.tensor = self.dense(self.tensor, features, classes)
        # Sharper than random weights are, so that a wrong feature shows in the answer.
        self.apply("Mul", self.constant(np.float32(5)))
        return self.model(self.node("Softmax", self.tensor, axis=1))


def _activation(net: NetBuilder, kind: int) -> None:
    if kind == 0:
        net.apply("Relu")
    elif kind == 1:
        net.apply("Clip", net.constant(np.float32(-1)), net.constant(np.float32(1.5)))
    elif kind == 2:
        net.apply("Sigmoid")
    elif kind == 3:
        scale = net.constant(np.linspace(0.5, 1.5, net.channels, dtype=np.float32).reshape(-1, 1))
        net.apply("Mul", scale).apply("Tanh")
    else:
        spread = [
            net.constant((np.abs(net.random.standard_normal(net.channels)) + 0.5).astype(np.float32)) for _ in "gv"
        ]
        shift = [net.constant(net.random.standard_normal(net.channels).astype(np.float32)) for _ in "bm"]
        net.apply("BatchNormalization", spread[0], shift[0], shift[1], spread[1])


@st.composite
def networks(draw: st.DrawFn, *, padding: bool = True) -> Net:
    """Random 1-D networks: convolutions, pools, residual and parallel branches, layout changes, any aggregation."""
    samples = draw(st.integers(24, 72))
    net = NetBuilder(draw(st.integers(1, 3)), samples, seed=draw(st.integers(0, 2**16)))
    pad = st.integers(0, 4) if padding else st.just(0)
    for _ in range(draw(st.integers(1, 5))):
        kind = draw(
            st.sampled_from(["conv", "conv", "depthwise", "pool", "residual", "branches", "mix", "pad", "norm"])
        )
        kernel, dilation = draw(st.integers(1, 4)), draw(st.integers(1, 3))
        stride = draw(st.sampled_from([1, 1, 1, 2, 3])) if net.stride < 4 else 1
        left, right = draw(pad), draw(pad)
        width = draw(st.sampled_from([2, 4]))
        if kind == "conv":
            net.convolution(width, kernel, stride=stride, dilation=dilation, left=left, right=right)
        elif kind == "depthwise":
            net.convolution(net.channels, kernel, stride=stride, left=left, right=right, group=net.channels)
        elif kind == "pool":
            operator = draw(st.sampled_from(["MaxPool", "AveragePool"]))
            # Rounding up reads past the last sample, which is padding by another name.
            up = padding and draw(st.booleans())
            net.pool(operator, kernel, stride, min(left, kernel - 1), min(right, kernel - 1), up=up)
        elif kind == "residual" and (kernel - 1) * dilation < net.frames:
            before, span = net.tensor, (kernel - 1) * dilation
            lead = draw(st.integers(0, span))
            if padding and draw(st.booleans()):
                net.convolution(net.channels, kernel, dilation=dilation, left=lead, right=span - lead)
            else:
                net.convolution(net.channels, kernel, dilation=dilation)
                before = net.cut(lead, span - lead, before)
            _activation(net, draw(st.integers(0, 4)))
            net.apply("Add", before)
        elif kind == "branches":
            first, channels = net.tensor, net.channels
            second = net.node("Relu", net.conv(first, channels, 2, 1))
            net.tensor, net.channels = net.node("Concat", second, first, axis=1), channels + 2
        elif kind == "mix":
            turned = net.node("Transpose", net.tensor, perm=[0, 2, 1])
            mixed = net.node("MatMul", turned, net.weights(net.channels, width))
            net.tensor, net.channels = net.node("Transpose", mixed, perm=[0, 2, 1]), width
        elif kind == "pad" and padding:
            net.apply("Pad", net.constant(np.array([0, 0, left, 0, 0, right])), net.constant(np.float32(0.5)))
            net.frames += left + right
        elif kind == "norm":
            lengths = net.node("ReduceL2", net.tensor, net.constant(np.array([1])), keepdims=1)
            net.apply("Div", net.node("Add", lengths, net.constant(np.float32(1))))
        _activation(net, draw(st.integers(0, 4)))
    kinds = ["ReduceMean", "ReduceMax", "ReduceSum", "pool", "last", "first", "flatten", "attention"]
    return Net(model=net.head(draw(st.sampled_from(kinds))), stride=net.stride)


def valid_student(channels: int = 6, samples: int = 128, widths: tuple[int, ...] = (16, 24, 32)) -> onnx.ModelProto:
    """Convolutions without padding, halved twice, mean over time."""
    net = NetBuilder(channels, samples)
    scale = np.linspace(0.05, 0.1, channels, dtype=np.float32).reshape(1, channels, 1)
    net.apply("Mul", net.constant(scale))
    for place, width in enumerate(widths):
        net.convolution(width, 5).apply("Relu")
        if place < 2:
            net.pool("MaxPool", 2, 2)
    return net.head("pool", 5)


def tcn(
    *,
    channels: int = 6,
    samples: int = 128,
    width: int = 16,
    causal: bool = False,
    aggregation: str = "last",
    levels: int = 4,
) -> onnx.ModelProto:
    """Residual dilated convolutions: without padding and cropped shortcuts, or padded on the left."""
    net = NetBuilder(channels, samples)
    scale = np.full((1, channels, 1), 0.1, np.float32)
    net.apply("Mul", net.constant(scale)).convolution(width, 1)
    for level in range(levels):
        before, dilation = net.tensor, 2**level
        reach = 2 * dilation
        for _ in range(2):
            net.convolution(width, 3, dilation=dilation, left=reach if causal else 0).apply("Relu")
        net.apply("Add", before if causal else net.cut(2 * reach, 0, before)).apply("Relu")
    return net.head(aggregation, 5)


def gru_net(
    *,
    cell: str = "GRU",
    channels: int = 6,
    samples: int = 96,
    hidden: int = 12,
    aggregation: str = "state",
    stride: int = 2,
) -> onnx.ModelProto:
    """A causal convolution, a recurrent layer, and its last state or the mean of its outputs."""
    net = NetBuilder(channels, samples)
    net.apply("Mul", net.constant(np.full((1, channels, 1), 0.1, np.float32)))
    net.convolution(8, 3 + stride - 1, stride=stride, left=2).apply("Relu")
    gates = {"GRU": 3, "LSTM": 4, "RNN": 1}[cell]
    net.apply("Transpose", perm=[2, 0, 1])
    more: dict[str, Any] = {"linear_before_reset": 1} if cell == "GRU" else {}
    weights = [
        net.weights(1, gates * hidden, 8),
        net.constant((net.random.standard_normal((1, gates * hidden, hidden)) * 0.6).astype(np.float32)),
        net.weights(1, 2 * gates * hidden),
    ]
    steps, last = "steps", "last"
    names = ["", last] if aggregation == "state" else [steps]
    net.nodes.append(
        helper.make_node(cell, [net.tensor, *weights], names, name="recurrent", hidden_size=hidden, **more)
    )
    if aggregation == "state":
        net.tensor = net.node("Squeeze", last, net.constant(np.array([0])))
    else:
        net.tensor = net.node("Transpose", net.node("Squeeze", steps, net.constant(np.array([1]))), perm=[1, 2, 0])
        net.tensor = net.node("ReduceMean", net.tensor, net.constant(np.array([2])), keepdims=0)
    net.tensor = net.dense(net.tensor, hidden, 4)
    return net.model(net.node("Softmax", net.tensor, axis=1))


def spectrogram_net(
    *, samples: int = 4000, frame: int = 200, hop: int = 80, bins: int = 33, bands: int = 12, width: int = 8
) -> onnx.ModelProto:
    """Log band energies by a strided convolution, then separable 2-D convolutions over (time, band)."""
    net = NetBuilder(1, samples)
    phase = 2 * np.pi * np.outer(np.arange(bins), np.arange(frame)) / 64
    taper = np.hanning(frame)
    waves = np.concatenate([taper * np.cos(phase), taper * np.sin(phase)])[:, None].astype(np.float32)
    spectrum = net.node("Conv", "window", net.constant(waves), strides=[hop])
    real, imaginary = (
        net.node("Slice", spectrum, *(net.constant(np.array([v])) for v in (first, last, 1)))
        for first, last in ((0, bins), (bins, 2 * bins))
    )
    power = net.node("Add", net.node("Mul", real, real), net.node("Mul", imaginary, imaginary))
    bank = np.abs(net.random.standard_normal((bins, bands))).astype(np.float32)
    energy = net.node("MatMul", net.node("Transpose", power, perm=[0, 2, 1]), net.constant(bank))
    t = net.node("Log", net.node("Max", energy, net.constant(np.float32(1e-3))))
    t = net.node("Unsqueeze", t, net.constant(np.array([1])))
    t = net.node("Relu", net.conv(t, 1, width, 3, 3, pads=[0, 1, 0, 1], strides=[1, 2]))
    for _ in range(2):
        t = net.node("Relu", net.conv(t, width, width, 3, 3, group=width, pads=[0, 1, 0, 1]))
        t = net.node("Relu", net.conv(t, width, width, 1, 1))
    t = net.node("Flatten", net.node("GlobalAveragePool", t))
    return net.model(net.node("Softmax", net.dense(t, width, 5), axis=1))


def with_batch(model: onnx.ModelProto, batch: int) -> onnx.ModelProto:
    """The same network for a fixed batch."""
    fixed = onnx.ModelProto()
    fixed.CopyFrom(model)
    del fixed.graph.value_info[:]
    for info in (*fixed.graph.input, *fixed.graph.output):
        info.type.tensor_type.shape.dim[0].dim_value = batch
    return fixed


__all__ = [
    "Net", "NetBuilder", "TensorProto", "gru_net", "networks", "numpy_helper", "spectrogram_net", "tcn",
    "valid_student", "with_batch",
]  # fmt: skip
