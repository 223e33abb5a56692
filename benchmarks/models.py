"""Int8 networks of the size that runs on a sensor stream, built from random weights: speed does not depend on them.

All take (batch, channels, samples) float32 and give probabilities for six labels. The convolutions are
quantised as QuantizeLinear/DequantizeLinear pairs, calibrated on the signals that the benchmarks send.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import onnx
from onnx import TensorProto, helper, numpy_helper

from edge_runtime.manifest import Channel, InputContract, OutputContract
from edge_runtime.model.engines.base import EngineOptions

Floats = npt.NDArray[np.float32]

RATE_HZ: Final = 50.0
HOP: Final = 64
LABELS: Final = ("rest", "press", "row", "curl", "raise", "swing")


@dataclass(frozen=True)
class Layer:
    """A convolution over time with ReLU."""

    filters: int
    kernel: int
    stride: int


@dataclass(frozen=True)
class Net:
    """A network and the windows that it takes.

    Attributes:
        layers: its convolutions; then comes a mean over time, and a dense layer.
        channels: of a sample.
        window: samples.
        hop: samples from one window to the next.
    """

    layers: tuple[Layer, ...]
    channels: int = 6
    window: int = 128
    hop: int = HOP

    @property
    def contract(self) -> InputContract:
        """As a bundle says it."""
        return InputContract(
            channels=tuple(Channel(name=f"c{i}", unit="1") for i in range(self.channels)),
            rate_hz=RATE_HZ,
            window=self.window,
            hop=self.hop,
        )

    def windows(self, n: int, seed: int) -> Floats:
        """Windows of signals: (n, channels, window)."""
        return np.ascontiguousarray(signals(n, self.window, self.channels, seed).transpose(0, 2, 1))

    def products(self) -> int:
        """Multiplications of a window."""
        total, width, steps = 0, self.channels, self.window
        for layer in self.layers:
            steps = (steps + 2 * (layer.kernel // 2) - layer.kernel) // layer.stride + 1
            total += steps * layer.filters * layer.kernel * width
            width = layer.filters
        return total + width * len(LABELS)


def _medium(filters: int) -> tuple[Layer, ...]:
    return Layer(filters, 5, 1), Layer(2 * filters, 5, 2), Layer(2 * filters, 3, 2)


WINDOWS: Final = (64, 128, 256, 512, 1024, 2048)
CHANNELS: Final = (1, 3, 6, 12, 24, 48)
FILTERS: Final = (4, 8, 16, 32, 64, 128)
_SMALL: Final = (Layer(16, 5, 2), Layer(32, 5, 2), Layer(32, 1, 1))

NETS: Final[dict[str, Net]] = {
    "cnn_s": Net(_SMALL),
    "cnn_m": Net(_medium(32)),
    **{f"window_{window}": Net(_SMALL, window=window) for window in WINDOWS},
    **{f"channels_{channels}": Net(_SMALL, channels=channels) for channels in CHANNELS},
    **{f"filters_{filters}": Net(_medium(filters)) for filters in FILTERS},
}
"""``cnn_s`` and ``cnn_m``, 146 thousand and 1.17 million multiplications a window; the others are points of a curve."""


def signals(streams: int, samples: int, channels: int, seed: int = 7) -> Floats:
    """(streams, samples, channels): each stream swings at a rate of its own, changing every ten seconds, with noise."""
    rng = np.random.default_rng(seed)
    t = np.arange(samples) / RATE_HZ
    pace = rng.uniform(0.3, 6.0, (streams, samples // 500 + 1)).repeat(500, axis=1)[:, :samples]
    phase = np.cumsum(pace, axis=1) * (2 * np.pi / RATE_HZ)
    lag = rng.uniform(0, 2 * np.pi, (streams, 1, channels))
    size = rng.uniform(0.2, 2.0, (streams, 1, channels))
    wave = size * np.sin(phase[:, :, np.newaxis] + lag) + 0.1 * np.sin(0.2 * t)[np.newaxis, :, np.newaxis]
    return (wave + rng.normal(0, 0.1, wave.shape)).astype(np.float32)


@functools.cache
def onnx_int8(net: str, *, signed: bool = False) -> bytes:
    """The named network as an int8 ONNX file with a free batch axis.

    Args:
        net: one of `NETS`.
        signed: activations are int8 and not uint8, which is what Arm and TensorFlow Lite want, and x86 does not.
    """
    found = NETS[net]
    weights = _weights(found)
    ranges = _calibrate(_float_model(found, weights), found)
    return _int8_model(found, weights, ranges, shift=-128 if signed else 0)


@functools.cache
def tflite_int8(net: str) -> bytes:
    """The named network for TensorFlow Lite; the same integers, channels last."""
    from edge_export.graph.tflite.convert import convert  # noqa: PLC0415 - only where it is wanted

    return convert(onnx.load_from_string(onnx_int8(net, signed=True)))


def bundle(path: Path, net: str, tflite: bytes | None = None) -> Path:
    """Write a bundle of the named network.

    Args:
        path: file to write.
        net: one of `NETS`.
        tflite: the same network for LiteRT, to be packed instead of the ONNX file.
    """
    from edge_export.package.pack import VariantSource, pack  # noqa: PLC0415 - only where a bundle is wanted

    source = VariantSource(
        name="tflite-int8" if tflite else "onnx-int8",
        model=tflite or onnx_int8(net),
        format="tflite" if tflite else "onnx",
        precision="int8",
        scheme="s8s8" if tflite else "u8s8",
    )
    pack(
        path,
        name=f"bench-{net.replace('_', '-')}",
        version=1,
        input=NETS[net].contract,
        output=OutputContract(labels=LABELS),
        variants=[source],
        golden_inputs=NETS[net].windows(8, seed=3),
        options=EngineOptions(),
    )
    return path


def _weights(net: Net) -> dict[str, Floats]:
    rng = np.random.default_rng(1)
    weights: dict[str, Floats] = {}
    width = net.channels
    for i, layer in enumerate(net.layers):
        scale = (2 / (width * layer.kernel)) ** 0.5
        weights[f"w{i}"] = rng.normal(0, scale, (layer.filters, width, layer.kernel)).astype(np.float32)
        weights[f"b{i}"] = rng.normal(0, 0.1, layer.filters).astype(np.float32)
        width = layer.filters
    weights["dense"] = rng.normal(0, 4 * width**-0.5, (len(LABELS), width)).astype(np.float32)
    weights["offset"] = rng.normal(0, 0.1, len(LABELS)).astype(np.float32)
    return weights


def _conv(layer: Layer, inputs: list[str], output: str) -> onnx.NodeProto:
    pad = layer.kernel // 2
    return helper.make_node(
        "Conv", inputs, [output], kernel_shape=[layer.kernel], strides=[layer.stride], pads=[pad, pad]
    )


def _pool(source: str) -> list[onnx.NodeProto]:
    return [helper.make_node("GlobalAveragePool", [source], ["g"])]


def _dense(source: str, weight: str, bias: str) -> list[onnx.NodeProto]:
    return [
        helper.make_node("Flatten", [source], ["f"]),
        helper.make_node("Gemm", ["f", weight, bias], ["z"], transB=1),
    ]


def _softmax(source: str) -> list[onnx.NodeProto]:
    return [helper.make_node("Softmax", [source], ["y"], axis=1)]


def _float_model(net: Net, weights: dict[str, Floats]) -> bytes:
    nodes: list[onnx.NodeProto] = []
    last = "x"
    for i, layer in enumerate(net.layers):
        nodes += [_conv(layer, [last, f"w{i}", f"b{i}"], f"c{i}"), helper.make_node("Relu", [f"c{i}"], [f"r{i}"])]
        last = f"r{i}"
    nodes += [*_pool(last), *_dense("g", "dense", "offset"), *_softmax("z")]
    between = [f"r{i}" for i in range(len(net.layers))] + ["g", "z"]
    return _model(net, nodes, dict(weights), ["y", *between])


def _calibrate(model: bytes, net: Net) -> dict[str, float]:
    """Largest magnitude of each activation and of the input."""
    from edge_runtime.model.engines import load  # noqa: PLC0415 - imports an engine

    engine = load("onnxruntime", model, EngineOptions(max_batch=256))
    x = net.windows(256, seed=2)
    values = engine.run(x)
    ranges = {spec.name: float(np.abs(value).max()) for spec, value in zip(engine.outputs, values, strict=True)}
    engine.close()
    return ranges | {"x": float(np.abs(x).max())}


def _int8_model(net: Net, weights: dict[str, Floats], ranges: dict[str, float], *, shift: int) -> bytes:
    """Zero points are those of uint8, moved by `shift`."""
    constants: dict[str, Any] = {}
    nodes: list[onnx.NodeProto] = []
    activation = np.int8 if shift else np.uint8

    def pair(name: str, scale: float, zero: int) -> str:
        constants[f"{name}_s"], constants[f"{name}_z"] = np.float32(scale), np.array(zero + shift, activation)
        nodes.append(helper.make_node("QuantizeLinear", [name, f"{name}_s", f"{name}_z"], [f"{name}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], [f"{name}_d"]))
        return f"{name}_d"

    def weight(name: str) -> str:
        value = weights[name]
        scale = np.float32(np.abs(value).max() / 127)
        constants[f"{name}_q"] = np.clip(np.rint(value / scale), -127, 127).astype(np.int8)
        constants[f"{name}_s"], constants[f"{name}_z"] = scale, np.array(0, np.int8)
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], [f"{name}_d"]))
        return f"{name}_d"

    def bias(name: str, source: str, kernel: str) -> str:
        scale = np.float32(constants[f"{source}_s"] * constants[f"{kernel}_s"])
        constants[f"{name}_q"] = np.rint(weights[name] / scale).astype(np.int32)
        constants[f"{name}_s"], constants[f"{name}_z"] = scale, np.array(0, np.int32)
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], [f"{name}_d"]))
        return f"{name}_d"

    source, last = "x", pair("x", 2 * ranges["x"] / 255, 128)
    for i, layer in enumerate(net.layers):
        inputs = [last, weight(f"w{i}"), bias(f"b{i}", source, f"w{i}")]
        nodes += [_conv(layer, inputs, f"c{i}"), helper.make_node("Relu", [f"c{i}"], [f"r{i}"])]
        source, last = f"r{i}", pair(f"r{i}", ranges[f"r{i}"] / 255, 0)
    nodes += _pool(last)
    pooled = pair("g", ranges["g"] / 255, 0)
    kernel = weight("dense")
    nodes += _dense(pooled, kernel, bias("offset", "g", "dense"))
    # Quantised up to the softmax, so that an answer does not depend on who else was in the batch.
    nodes += _softmax(pair("z", 2 * ranges["z"] / 255, 128))
    return _model(net, nodes, constants, ["y"])


def _model(net: Net, nodes: list[onnx.NodeProto], constants: dict[str, Any], outputs: list[str]) -> bytes:
    def value(name: str) -> onnx.ValueInfoProto:
        shape = ["n", len(LABELS)] if name == "y" else None
        return helper.make_tensor_value_info(name, TensorProto.FLOAT, shape)

    graph = helper.make_graph(
        nodes,
        "bench",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", net.channels, net.window])],
        [value(name) for name in outputs],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()],
    )
    opset = helper.make_opsetid("", 17)
    model = helper.make_model(graph, opset_imports=[opset], ir_version=9, producer_name="benchmarks")
    return bytes(model.SerializeToString(deterministic=True))
