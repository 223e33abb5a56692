"""The MLPerf Tiny reference networks as float ONNX, with inputs to calibrate and to evaluate on.

The networks are shared as TensorFlow Lite and Keras files, and every quantiser here is to start from the same float
ONNX file. So the float TensorFlow Lite files are read operator by operator and written with `onnx.helper`; inputs keep
their layout (channels last), as the reference files and the sensors have it.

The shared "float32" keyword file is not float: five of its weight tensors are int8. Its weights are taken from the
SavedModel's variables beside it, batch normalisation folded in.

Sources: schema.fbs of LiteRT; tensor_bundle.proto and table_format of TensorFlow 2 (the index is a LevelDB table).
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from ai_edge_litert import schema_py_generated as tfl
from onnx import TensorProto, helper, numpy_helper

Array = np.ndarray[Any, np.dtype[Any]]

_BATCH_NORM_EPSILON = 1e-3  # Keras' default, as the reference training scripts leave it


@dataclass(frozen=True, kw_only=True)
class Network:
    """One reference network.

    Attributes:
        name: short.
        file: of its float form.
        int8: of its reference int8 form.
        what: it does, and where the inputs here come from.
    """

    name: str
    file: str
    int8: str
    what: str


NETWORKS = (
    Network(
        name="kws",
        file="kws_ref_model_float32.tflite",
        int8="kws_ref_model.tflite",
        what="DS-CNN, keywords; real MFCC of 213 words, calibrated and judged on different speakers",
    ),
    Network(
        name="ad",
        file="ad01_fp32.tflite",
        int8="ad01_int8.tflite",
        what="dense autoencoder, anomalies; 196 windows of the one real sound there is, half to calibrate",
    ),
    Network(
        name="ic",
        file="pretrainedResnet.tflite",
        int8="pretrainedResnet_quant.tflite",
        what="ResNet-8, CIFAR-10; crops of four real photographs, unlabelled: agreement with float only",
    ),
    Network(
        name="vww",
        file="vww_96_float.tflite",
        int8="vww_96_int8.tflite",
        what="MobileNetV1 0.25, person or not; crops of four real photographs, unlabelled: agreement with float only",
    ),
)


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """Inputs that a network is calibrated and evaluated on.

    Attributes:
        calibration: (n, ...) float32.
        unseen: (m, ...) float32.
        labels: (m,) of `unseen`, or None where there are none.
    """

    calibration: Array
    unseen: Array
    labels: Array | None = None


def inputs_for(name: str, shared: Path) -> Inputs:
    """Inputs of a network from the shared folder."""
    data = shared / "data"
    if name == "kws":
        table = np.load(data / "speech-commands-mini" / "mfcc.npz")
        x = table["mfcc"].astype(np.float32)[..., None]
        speakers = [Path(str(wav)).name.split("_")[0] for wav in table["wav"]]
        seen = np.array([zlib.crc32(speaker.encode()) % 2 == 0 for speaker in speakers])
        labels = table["label"].astype(np.int64)
        return Inputs(calibration=x[seen], unseen=x[~seen], labels=labels[~seen])
    if name == "ad":
        frames = toycar_frames(shared)
        return Inputs(calibration=frames[::2], unseen=frames[1::2])
    size = 32 if name == "ic" else 96
    scale = 1.0 if name == "ic" else 255.0
    pictures = [read_png(path) for path in sorted((data / "images-coral").glob("*.png"))]
    crops = np.stack(list(_crops(pictures, size, count=128))).astype(np.float32) / np.float32(scale)
    return Inputs(calibration=crops[::2], unseen=crops[1::2])


def toycar_frames(shared: Path) -> Array:
    """(196, 640) inputs of the anomaly network: five log-mel frames in a row, of the one sound that is shared."""
    (path,) = sorted((shared / "data" / "anomaly-scores-toycar").glob("*.bin"))
    mel = np.fromfile(path, "<f4").reshape(-1, 128)
    return np.lib.stride_tricks.sliding_window_view(mel, 5, axis=0).transpose(0, 2, 1).reshape(-1, 640).copy()


def _crops(pictures: list[Array], size: int, count: int) -> Iterator[Array]:
    """Squares from random places at random scales, shrunk by averaging."""
    random = np.random.default_rng(0)
    for i in range(count):
        picture = pictures[i % len(pictures)]
        most = min(picture.shape[:2]) // size
        factor = int(random.integers(1, max(2, most + 1)))
        edge = factor * size
        top, left = (int(random.integers(0, limit - edge + 1)) for limit in picture.shape[:2])
        square = picture[top : top + edge, left : left + edge].astype(np.float64)
        yield square.reshape(size, factor, size, factor, 3).mean(axis=(1, 3)).round()


def read_png(path: Path) -> Array:
    """(height, width, 3) uint8 of an 8-bit RGB or RGBA picture without interlacing.

    Source: PNG (Third Edition), sections 5, 9 and 11.
    """
    data, place, packed = path.read_bytes(), 8, b""
    width = height = channels = 0
    while place < len(data):
        (length,), kind = struct.unpack_from(">I", data, place), data[place + 4 : place + 8]
        body = data[place + 8 : place + 8 + length]
        if kind == b"IHDR":
            width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", body)
            channels = {2: 3, 6: 4}.get(colour, 0)
            if depth != 8 or not channels or interlaced:
                raise ValueError(f"{path.name}: only 8-bit RGB or RGBA without interlacing")
        elif kind == b"IDAT":
            packed += body
        place += 12 + length
    rows, stride = zlib.decompress(packed), width * channels
    above, lines = bytearray(stride), []
    for y in range(height):
        start = y * (stride + 1)
        above = _unfiltered(rows[start], bytearray(rows[start + 1 : start + 1 + stride]), above, channels)
        lines.append(bytes(above))
    return np.frombuffer(b"".join(lines), np.uint8).reshape(height, width, channels)[:, :, :3]


def _unfiltered(kind: int, line: bytearray, above: bytearray, channels: int) -> bytearray:
    """One row of a PNG; each byte is predicted from those to its left and above."""
    for i, byte in enumerate(line):
        left = line[i - channels] if i >= channels else 0
        up = above[i]
        if kind == 1:
            line[i] = (byte + left) & 255
        elif kind == 2:
            line[i] = (byte + up) & 255
        elif kind == 3:
            line[i] = (byte + ((left + up) >> 1)) & 255
        elif kind == 4:
            corner = above[i - channels] if i >= channels else 0
            by_left, by_up, by_corner = abs(up - corner), abs(left - corner), abs(left + up - 2 * corner)
            nearest = left if by_left <= by_up and by_left <= by_corner else up if by_up <= by_corner else corner
            line[i] = (byte + nearest) & 255
    return line


# ---- TensorFlow Lite to ONNX -------------------------------------------------------------------------------------


def to_onnx(network: Network, shared: Path) -> onnx.ModelProto:
    """The float network as ONNX: input ``window`` as in the reference file, output ``probabilities``, open batch."""
    folder = shared / "models" / "mlperf-tiny"
    weights = _keyword_weights(folder / "kws_ref_model_savedmodel") if network.name == "kws" else {}
    return _Import((folder / network.file).read_bytes(), weights).model()


class _Import:
    """Reads one TensorFlow Lite file; activations are kept in ONNX's layout (channels first) between operators."""

    def __init__(self, data: bytes, weights: dict[int, tuple[Array, Array]]) -> None:
        self._model = tfl.ModelT.InitFromPackedBuf(data, 0)
        (self._graph,) = self._model.subgraphs
        self._weights = weights
        self._nodes: list[onnx.NodeProto] = []
        self._constants: list[onnx.TensorProto] = []

    def model(self) -> onnx.ModelProto:
        (source,), (result,) = self._graph.inputs, self._graph.outputs
        names = {source: "window"}
        shape = self._shape(source)
        if len(shape) == 4:
            names[source] = self._node("Transpose", ["window"], perm=[0, 3, 1, 2])
        layer = 0
        for operator in self._graph.operators:
            code = self._model.operatorCodes[operator.opcodeIndex]
            kind = max(code.builtinCode, code.deprecatedBuiltinCode)
            name, options = _OPERATORS[kind], operator.builtinOptions
            inputs = [names[i] for i in operator.inputs if i in names]
            shapes = [self._shape(i) for i in operator.inputs]
            output = operator.outputs[0]
            if name in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED"):
                weights, bias = self._weights.get(layer) or (
                    self._constant(operator.inputs[1]),
                    self._constant(operator.inputs[2]),
                )
                layer += 1
                if name == "FULLY_CONNECTED":
                    value = self._node("Gemm", [*inputs, self._add(weights), self._add(bias)], transB=1)
                else:
                    value = self._conv(name, inputs[0], weights, bias, shapes[0], self._shape(output), options)
            elif name == "ADD":
                value = self._node("Add", inputs)
            elif name == "AVERAGE_POOL_2D":
                assert (options.filterHeight, options.filterWidth) == tuple(shapes[0][1:3])
                value = self._node("GlobalAveragePool", inputs)
            elif name == "RESHAPE":
                assert shapes[0][1:3] == [1, 1]
                value = self._node("Flatten", inputs)
            else:
                value = self._node("Softmax", inputs, axis=1)
            names[output] = self._activation(value, getattr(options, "fusedActivationFunction", 0))
        self._nodes[-1].output[0] = "probabilities"
        graph = helper.make_graph(
            self._nodes,
            "model",
            [helper.make_tensor_value_info("window", TensorProto.FLOAT, ["batch", *shape[1:]])],
            [helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["batch", *self._shape(result)[1:]])],
            self._constants,
        )
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
        onnx.checker.check_model(model, full_check=True)
        return model

    def _conv(
        self, name: str, source: str, weights: Array, bias: Array, before: list[int], after: list[int], options: Any
    ) -> str:
        depthwise = name == "DEPTHWISE_CONV_2D"
        # Outputs x height x width x inputs, or 1 x height x width x channels.
        kernel = weights.transpose(3, 0, 1, 2) if depthwise else weights.transpose(0, 3, 1, 2)
        strides = [options.strideH, options.strideW]
        pads = [0, 0]
        ends = [0, 0]
        if options.padding == tfl.Padding.SAME:
            for axis in range(2):
                total = max(0, (after[1 + axis] - 1) * strides[axis] + kernel.shape[2 + axis] - before[1 + axis])
                pads[axis], ends[axis] = total // 2, total - total // 2
        return self._node(
            "Conv",
            [source, self._add(np.ascontiguousarray(kernel)), self._add(bias)],
            kernel_shape=list(kernel.shape[2:]),
            strides=strides,
            pads=[*pads, *ends],
            group=before[3] if depthwise else 1,
        )

    def _activation(self, value: str, kind: int) -> str:
        if kind == tfl.ActivationFunctionType.NONE:
            return value
        assert kind == tfl.ActivationFunctionType.RELU
        return self._node("Relu", [value])

    def _node(self, operator: str, inputs: list[str], **attributes: Any) -> str:
        name = f"t{len(self._nodes)}"
        self._nodes.append(
            helper.make_node(operator, inputs, [name], name=f"{operator}_{len(self._nodes)}", **attributes)
        )
        return name

    def _add(self, array: Array) -> str:
        name = f"c{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(array.astype(np.float32), name))
        return name

    def _shape(self, index: int) -> list[int]:
        return [int(n) for n in self._graph.tensors[index].shape]

    def _constant(self, index: int) -> Array:
        tensor = self._graph.tensors[index]
        assert tensor.type == tfl.TensorType.FLOAT32, f"{tensor.name} is not float"
        data = np.asarray(self._model.buffers[tensor.buffer].data, np.uint8)
        return np.frombuffer(data.tobytes(), "<f4").reshape(self._shape(index))


_OPERATORS = {
    getattr(tfl.BuiltinOperator, name): name
    for name in ("CONV_2D", "DEPTHWISE_CONV_2D", "FULLY_CONNECTED", "ADD", "AVERAGE_POOL_2D", "RESHAPE", "SOFTMAX")
}


# ---- variables of a SavedModel -----------------------------------------------------------------------------------


def _keyword_weights(folder: Path) -> dict[int, tuple[Array, Array]]:
    """Weights and biases of the keyword network by position, in the layout of TensorFlow Lite."""
    variables = read_variables(folder / "variables")
    layers: dict[int, dict[str, Array]] = {}
    for key, value in variables.items():
        if found := re.fullmatch(r"layer_with_weights-(\d+)/(\w+)/\.ATTRIBUTES/VARIABLE_VALUE", key):
            layers.setdefault(int(found[1]), {})[found[2]] = value
    ordered = [layers[i] for i in sorted(layers)]
    weights: dict[int, tuple[Array, Array]] = {}
    for layer in ordered:
        if "gamma" in layer:
            kernel, bias = weights[len(weights) - 1]
            factor = layer["gamma"] / np.sqrt(layer["moving_variance"] + _BATCH_NORM_EPSILON)
            along = (
                (1, 1, 1, -1)
                if kernel.shape[0] == 1 and kernel.ndim == 4 and kernel.shape[3] == len(factor)
                else (-1, 1, 1, 1)
            )
            weights[len(weights) - 1] = (
                kernel * factor.reshape(along),
                (bias - layer["moving_mean"]) * factor + layer["beta"],
            )
        elif "depthwise_kernel" in layer:  # height x width x channels x 1
            weights[len(weights)] = (layer["depthwise_kernel"].transpose(3, 0, 1, 2), layer["bias"])
        elif layer["kernel"].ndim == 4:  # height x width x inputs x outputs
            weights[len(weights)] = (layer["kernel"].transpose(3, 0, 1, 2), layer["bias"])
        else:
            weights[len(weights)] = (layer["kernel"].T, layer["bias"])
    return weights


def read_variables(folder: Path) -> dict[str, Array]:
    """Float variables of a TensorFlow checkpoint with one data file."""
    (index,) = folder.glob("*.index")
    (shard,) = folder.glob("*.data-00000-of-00001")
    data = shard.read_bytes()
    found = {}
    for key, value in _table(index.read_bytes()):
        entry = _message(value)
        if key and entry.get(1, [0])[0] == 1:  # DT_FLOAT; the empty key is the header
            shape = [_message(size).get(1, [0])[0] for size in _message(entry.get(2, [b""])[0]).get(2, [])]
            offset, size = entry.get(4, [0])[0], entry.get(5, [0])[0]
            found[key.decode()] = np.frombuffer(data[offset : offset + size], "<f4").reshape(shape)
    return found


def _table(data: bytes) -> Iterator[tuple[bytes, bytes]]:
    """Keys and values of a LevelDB table without compression."""
    place = len(data) - 48
    for _ in range(2):  # the meta index, of no use here
        _, place = _varint(data, place)
    offset, place = _varint(data, place)
    size, _ = _varint(data, place)
    for _, handle in _block(data[offset : offset + size]):
        start, at = _varint(handle, 0)
        length, _ = _varint(handle, at)
        yield from _block(data[start : start + length])


def _block(block: bytes) -> Iterator[tuple[bytes, bytes]]:
    (restarts,) = struct.unpack_from("<I", block, len(block) - 4)
    place, end, key = 0, len(block) - 4 - 4 * restarts, b""
    while place < end:
        shared, place = _varint(block, place)
        unshared, place = _varint(block, place)
        size, place = _varint(block, place)
        key = key[:shared] + block[place : place + unshared]
        place += unshared
        yield key, block[place : place + size]
        place += size


def _message(data: bytes) -> dict[int, list[Any]]:
    """Fields of a protobuf message: numbers and bytes."""
    fields: dict[int, list[Any]] = {}
    place = 0
    while place < len(data):
        tag, place = _varint(data, place)
        if tag & 7 == 0:
            value: Any
            value, place = _varint(data, place)
        elif tag & 7 == 2:
            size, place = _varint(data, place)
            value, place = data[place : place + size], place + size
        else:
            width = 4 if tag & 7 == 5 else 8
            value, place = data[place : place + width], place + width
        fields.setdefault(tag >> 3, []).append(value)
    return fields


def _varint(data: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[place]
        place += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, place
