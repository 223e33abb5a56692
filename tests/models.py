"""Tiny real models and bundles for the tests, and the same networks in plain numpy as the oracle.

Every file is built from one `TinyNet`: a strided convolution over time, ReLU, mean over time, a dense layer and
softmax. The ONNX ones take (batch, channels, samples), the TFLite ones (batch, samples, channels); the int8 ones share
one calibration. Nothing here needs TensorFlow or torch.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import flatbuffers
import numpy as np
import numpy.typing as npt
import onnx
from ai_edge_litert import schema_py_generated as tfl
from edge_export.package.pack import VariantSource, pack
from onnx import TensorProto, helper, numpy_helper

from edge_runtime.manifest import Channel, GateSpec, InputContract, OutputContract
from edge_runtime.model import engines
from edge_runtime.model.engines.base import EngineOptions
from edge_runtime.signal.windowing.window import Window

Floats = npt.NDArray[np.float32]

KERNEL = 3
STRIDE = 2
HIDDEN = 8

VARIANTS = ("onnx-fp32", "onnx-int8", "tflite-fp32", "tflite-int8")
"""Names that `variant` and `tiny_bundle` know."""


def usable(engine: str) -> bool:
    """Whether this engine is installed and works with this numpy."""
    if engine == "tflite-runtime" and int(np.__version__.split(".")[0]) >= 2:
        return False
    return engines.find(engine).importable()


@dataclass(frozen=True)
class TinyNet:
    """Weights of the network, and its forward pass in numpy."""

    kernel: Floats
    """(HIDDEN, channels, KERNEL)"""
    bias: Floats
    dense: Floats
    """(labels, HIDDEN)"""
    offset: Floats

    @classmethod
    def random(cls, channels: int, labels: int, seed: int) -> TinyNet:
        rng = np.random.default_rng(seed)

        def normal(scale: float, *shape: int) -> Floats:
            return (scale * rng.standard_normal(shape)).astype(np.float32)

        return cls(
            kernel=normal((channels * KERNEL) ** -0.5, HIDDEN, channels, KERNEL),
            bias=normal(0.1, HIDDEN),
            dense=normal(2.0, labels, HIDDEN),
            offset=normal(0.1, labels),
        )

    def hidden(self, x: Floats) -> Floats:
        """(n, channels, samples) to (n, HIDDEN, steps) after the ReLU."""
        patches = np.lib.stride_tricks.sliding_window_view(x, KERNEL, axis=2)[:, :, ::STRIDE]
        y = np.einsum("ncsk,hck->nhs", patches, self.kernel) + self.bias[:, None]
        return np.asarray(np.maximum(y, 0), np.float32)

    def logits(self, x: Floats) -> Floats:
        return np.asarray(self.hidden(x).mean(axis=2) @ self.dense.T + self.offset, np.float32)

    def probabilities(self, x: Floats) -> Floats:
        """(n, channels, samples) to (n, labels): the reference answer."""
        z = self.logits(x)
        e = np.exp(z - z.max(axis=1, keepdims=True))
        return np.asarray(e / e.sum(axis=1, keepdims=True), np.float32)


@functools.cache
def tiny_net(channels: int, labels: int, seed: int) -> TinyNet:
    """The network that the builders below use for the same three numbers."""
    return TinyNet.random(channels, labels, seed)


def windows(n: int, channels: int, window: int, seed: int = 0) -> Floats:
    """(n, channels, window) standard normal samples."""
    return np.random.default_rng((seed, 1)).standard_normal((n, channels, window)).astype(np.float32)


def completed(n: int) -> list[Window]:
    """Windows as the windower completes them, for the tiny networks' default sizes."""
    samples = windows(n, 3, 16, seed=5).transpose(0, 2, 1)
    return [Window("k", i, 0.0, one, one, 0.0) for i, one in enumerate(samples)]


def tiny_onnx_classifier(
    channels: int = 3,
    window: int = 16,
    labels: int = 3,
    seed: int = 0,
    *,
    batch: int | None = None,
) -> bytes:
    """Float ONNX file; `batch` fixes the first axis, None leaves it dynamic."""
    net = tiny_net(channels, labels, seed)
    nodes = [
        helper.make_node("Conv", ["x", "kernel", "bias"], ["c"], kernel_shape=[KERNEL], strides=[STRIDE]),
        helper.make_node("Relu", ["c"], ["r"]),
        helper.make_node("GlobalAveragePool", ["r"], ["g"]),
        helper.make_node("Flatten", ["g"], ["f"]),
        helper.make_node("Gemm", ["f", "dense", "offset"], ["z"], transB=1),
        helper.make_node("Softmax", ["z"], ["y"], axis=1),
    ]
    constants = {"kernel": net.kernel, "bias": net.bias, "dense": net.dense, "offset": net.offset}
    return _onnx(nodes, constants, (channels, window), labels, batch)


def tiny_onnx_int8(
    channels: int = 3,
    window: int = 16,
    labels: int = 3,
    seed: int = 0,
    *,
    scheme: Literal["s8s8", "u8s8"] = "s8s8",
) -> bytes:
    """The same network with int8 weights and activations, as quantise/dequantise pairs, dynamic batch."""
    net = tiny_net(channels, labels, seed)
    ranges = _ranges(net, channels, window)
    dtype = np.dtype(np.int8 if scheme == "s8s8" else np.uint8)
    constants: dict[str, Any] = {}
    nodes: list[onnx.NodeProto] = []

    def qdq(name: str, low: float, high: float) -> str:
        scale, zero = _affine(low, high, dtype)
        constants[f"{name}_s"], constants[f"{name}_z"] = np.float32(scale), np.array(zero, dtype)
        pair = [f"{name}_s", f"{name}_z"]
        nodes.append(helper.make_node("QuantizeLinear", [name, *pair], [f"{name}_q"]))
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", *pair], [f"{name}_d"]))
        return f"{name}_d"

    def weight(name: str, value: Floats) -> str:
        scale = _symmetric(value)
        constants[f"{name}_q"], constants[f"{name}_s"] = _round(value / scale), np.float32(scale)
        constants[f"{name}_z"] = np.array(0, np.int8)
        nodes.append(helper.make_node("DequantizeLinear", [f"{name}_q", f"{name}_s", f"{name}_z"], [f"{name}_d"]))
        return f"{name}_d"

    x = qdq("x", *ranges["x"])
    conv = [x, weight("kernel", net.kernel), "bias"]
    nodes.append(helper.make_node("Conv", conv, ["c"], kernel_shape=[KERNEL], strides=[STRIDE]))
    nodes.append(helper.make_node("Relu", ["c"], ["r"]))
    nodes.append(helper.make_node("GlobalAveragePool", [qdq("r", *ranges["r"])], ["g"]))
    nodes.append(helper.make_node("Flatten", [qdq("g", *ranges["g"])], ["f"]))
    nodes.append(helper.make_node("Gemm", ["f", weight("dense", net.dense), "offset"], ["z"], transB=1))
    nodes.append(helper.make_node("Softmax", [qdq("z", *ranges["z"])], ["y"], axis=1))
    constants |= {"bias": net.bias, "offset": net.offset}
    return _onnx(nodes, constants, (channels, window), labels, None)


def tiny_tflite(
    channels: int = 3,
    window: int = 16,
    labels: int = 3,
    seed: int = 0,
    *,
    int8: bool = False,
    any_batch: bool = True,
    float_edges: bool = False,
) -> bytes:
    """The same network as a TFLite file of batch 1, input (1, window, channels).

    Args:
        int8: quantise everything, input and output too.
        float_edges: keep input and output float32, and quantise inside the graph.
        any_batch: False writes the batch into a reshape, as many converters do, so that it cannot be changed.
    """
    net = tiny_net(channels, labels, seed)
    ranges = _ranges(net, channels, window)
    graph = _TfliteGraph(int8)
    steps = (window - KERNEL) // STRIDE + 1
    x = graph.activation("x", (1, window, channels), ranges["x"])
    x4 = graph.activation("x4", (1, 1, window, channels), ranges["x"])
    r = graph.activation("r", (1, 1, steps, HIDDEN), ranges["r"])
    g = graph.activation("g", (1, HIDDEN), ranges["g"])
    z = graph.activation("z", (1, labels), ranges["z"])
    y = graph.activation("y", (1, labels), (0.0, 255 / 256))
    op, options = tfl.BuiltinOperator, tfl.BuiltinOptions
    reshape = tfl.ReshapeOptionsT()
    reshape.newShape = [-1 if any_batch else 1, 1, window, channels]
    graph.add(
        op.RESHAPE, [x, graph.constant("shape", np.array(reshape.newShape, np.int32))], [x4],
        reshape, options.ReshapeOptions,
    )  # fmt: skip
    conv = tfl.Conv2DOptionsT()
    conv.padding, conv.strideH, conv.strideW = tfl.Padding.VALID, 1, STRIDE
    conv.fusedActivationFunction = tfl.ActivationFunctionType.RELU
    kernel = np.ascontiguousarray(net.kernel.transpose(0, 2, 1))[:, None]
    graph.add(
        op.CONV_2D, [x4, *graph.weights("kernel", kernel, net.bias, x4)], [r], conv, options.Conv2DOptions, version=3,
    )  # fmt: skip
    mean = tfl.ReducerOptionsT()
    mean.keepDims = False
    graph.add(op.MEAN, [r, graph.constant("axes", np.array([1, 2], np.int32))], [g], mean, options.ReducerOptions, 2)
    graph.add(
        op.FULLY_CONNECTED, [g, *graph.weights("dense", net.dense, net.offset, g)], [z],
        tfl.FullyConnectedOptionsT(), options.FullyConnectedOptions, version=4,
    )  # fmt: skip
    softmax = tfl.SoftmaxOptionsT()
    softmax.beta = 1.0
    graph.add(op.SOFTMAX, [z], [y], softmax, options.SoftmaxOptions, version=2)
    if not (int8 and float_edges):
        return graph.finish([x], [y])
    x_float, y_float = graph.floats("x_float", (1, window, channels)), graph.floats("y_float", (1, labels))
    graph.add(op.QUANTIZE, [x_float], [x], tfl.QuantizeOptionsT(), options.QuantizeOptions, first=True)
    graph.add(op.DEQUANTIZE, [y], [y_float], tfl.DequantizeOptionsT(), options.DequantizeOptions, version=2)
    return graph.finish([x_float], [y_float])


def variant(name: str, *, channels: int = 3, window: int = 16, labels: int = 3, seed: int = 0) -> VariantSource:
    """One of `VARIANTS`, ready to be packed."""
    model = {
        "onnx-fp32": lambda: tiny_onnx_classifier(channels, window, labels, seed),
        "onnx-int8": lambda: tiny_onnx_int8(channels, window, labels, seed),
        "tflite-fp32": lambda: tiny_tflite(channels, window, labels, seed),
        "tflite-int8": lambda: tiny_tflite(channels, window, labels, seed, int8=True),
    }[name]()
    tflite, quantized = name.startswith("tflite"), name.endswith("int8")
    return VariantSource(
        name=name,
        model=model,
        format="tflite" if tflite else "onnx",
        precision="int8" if quantized else "fp32",
        scheme="s8s8" if quantized else "",
        layout="NWC" if tflite else "NCW",
    )


def tiny_bundle(
    path: Path,
    *,
    channels: int = 3,
    window: int = 16,
    labels: Sequence[str] = ("rest", "walk", "run"),
    rate_hz: float = 50.0,
    hop: int | None = None,
    seed: int = 0,
    variants: Sequence[str | VariantSource] = ("onnx-fp32",),
    gate: GateSpec | None = None,
    name: str = "tiny",
    version: int = 1,
    input_contract: Mapping[str, Any] | None = None,
    sensor: Sequence[Channel] = (),
    **more: Any,
) -> Path:
    """Write a small bundle and return its path.

    Args:
        path: file to write, or an existing folder in which ``tiny.edge`` is written.
        variants: names from `VARIANTS`, or sources of the caller's own.
        sensor: the channels; default: ``c0``, ``c1``, ... without a unit.
        input_contract: more fields of `InputContract` (``context``, ``resample``, ``max_gap_s``, ...).
        more: further arguments of `edge_export.package.pack.pack`, for example ``expires``.
    """
    contract = InputContract(
        channels=tuple(sensor) or tuple(Channel(name=f"c{i}", unit="1") for i in range(channels)),
        rate_hz=rate_hz,
        window=window,
        hop=window if hop is None else hop,
        **(input_contract or {}),
    )
    sources = [
        variant(v, channels=channels, window=window, labels=len(labels), seed=seed) if isinstance(v, str) else v
        for v in variants
    ]
    file = path / "tiny.edge" if path.is_dir() else path
    pack(
        file,
        name=name,
        version=version,
        input=contract,
        output=OutputContract(labels=tuple(labels)),
        gate=gate or GateSpec(),
        variants=sources,
        golden_inputs=windows(4, channels, window, seed),
        options=EngineOptions(),
        **more,
    )
    return file


def _ranges(net: TinyNet, channels: int, window: int) -> dict[str, tuple[float, float]]:
    """Smallest and largest value of each activation over 64 calibration windows, zero included."""
    x = windows(64, channels, window, seed=99)
    values = {"x": x, "r": net.hidden(x), "g": net.hidden(x).mean(axis=2), "z": net.logits(x)}
    return {name: (min(0.0, float(v.min())), max(0.0, float(v.max()))) for name, v in values.items()}


def _affine(low: float, high: float, dtype: np.dtype[Any]) -> tuple[float, int]:
    scale = (high - low) / 255
    return scale, int(np.iinfo(dtype).min + round(-low / scale))


def _symmetric(value: Floats) -> float:
    return float(np.abs(value).max()) / 127


def _round(value: Floats) -> npt.NDArray[np.int8]:
    return np.clip(np.rint(value), -127, 127).astype(np.int8)


def _onnx(
    nodes: Sequence[onnx.NodeProto],
    constants: Mapping[str, Any],
    sample: tuple[int, int],
    labels: int,
    batch: int | None,
) -> bytes:
    first: str | int = "n" if batch is None else batch
    graph = helper.make_graph(
        list(nodes),
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [first, *sample])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [first, labels])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9, producer_name="tests")
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString(deterministic=True))


class _TfliteGraph:
    """Collects tensors and operators of one subgraph; float or full int8."""

    def __init__(self, int8: bool) -> None:
        self.int8 = int8
        self.tensors: list[Any] = []
        self.buffers: list[Any] = [tfl.BufferT()]
        self.operators: list[Any] = []
        self.codes: list[Any] = []

    def activation(self, name: str, shape: Sequence[int], low_high: tuple[float, float]) -> int:
        index = self._tensor(name, shape, tfl.TensorType.INT8 if self.int8 else tfl.TensorType.FLOAT32)
        tensor = self.tensors[index]
        tensor.shapeSignature = [-1, *shape[1:]]
        if self.int8:
            tensor.quantization = self._quantization(*_affine(*low_high, np.dtype(np.int8)))
        return index

    def floats(self, name: str, shape: Sequence[int]) -> int:
        index = self._tensor(name, shape, tfl.TensorType.FLOAT32)
        self.tensors[index].shapeSignature = [-1, *shape[1:]]
        return index

    def constant(self, name: str, value: npt.NDArray[Any], scale: float | None = None) -> int:
        kinds = {"int8": tfl.TensorType.INT8, "int32": tfl.TensorType.INT32, "float32": tfl.TensorType.FLOAT32}
        index = self._tensor(name, value.shape, kinds[value.dtype.name])
        buffer = tfl.BufferT()
        buffer.data = np.frombuffer(value.tobytes(), np.uint8)
        self.buffers.append(buffer)
        self.tensors[index].buffer = len(self.buffers) - 1
        if scale is not None:
            self.tensors[index].quantization = self._quantization(scale, 0)
        return index

    def weights(self, name: str, value: Floats, bias: Floats, x: int) -> list[int]:
        """Weights and bias for an operator that reads tensor `x`."""
        if not self.int8:
            return [self.constant(name, value), self.constant(f"{name}_bias", bias)]
        scale = _symmetric(value)
        bias_scale = scale * float(self.tensors[x].quantization.scale[0])
        integers = np.rint(bias / bias_scale).astype(np.int32)
        return [self.constant(name, _round(value / scale), scale), self.constant(f"{name}_bias", integers, bias_scale)]

    def add(
        self, code: int, inputs: list[int], outputs: list[int], options: Any, kind: int, version: int = 1,
        *, first: bool = False,
    ) -> None:  # fmt: skip
        entry = tfl.OperatorCodeT()
        entry.builtinCode = entry.deprecatedBuiltinCode = code
        entry.version = version
        self.codes.append(entry)
        operator = tfl.OperatorT()
        operator.opcodeIndex = len(self.codes) - 1
        operator.inputs, operator.outputs = inputs, outputs
        operator.builtinOptions, operator.builtinOptionsType = options, kind
        self.operators.insert(0 if first else len(self.operators), operator)

    def finish(self, inputs: list[int], outputs: list[int]) -> bytes:
        graph = tfl.SubGraphT()
        graph.name, graph.tensors, graph.operators = "main", self.tensors, self.operators
        graph.inputs, graph.outputs = inputs, outputs
        model = tfl.ModelT()
        model.version, model.subgraphs, model.buffers, model.operatorCodes = 3, [graph], self.buffers, self.codes
        builder = flatbuffers.Builder(4096)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    def _tensor(self, name: str, shape: Sequence[int], kind: int) -> int:
        tensor = tfl.TensorT()
        tensor.name, tensor.shape, tensor.type, tensor.buffer = name, list(shape), kind, 0
        self.tensors.append(tensor)
        return len(self.tensors) - 1

    @staticmethod
    def _quantization(scale: float, zero: int) -> Any:
        quantization = tfl.QuantizationParametersT()
        quantization.scale = np.array([scale], np.float32)
        quantization.zeroPoint = np.array([zero], np.int64)
        return quantization
