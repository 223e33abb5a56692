"""Weights in 4 bits: half of int8's bytes, where the engine can read them.

Two forms, both read by onnxruntime and neither by TensorFlow Lite's:

- ``DequantizeLinear`` on int4 (ONNX operator set 21), one step per output or per block of inputs. It works for every
  layer and in front of integer activations, too; onnxruntime unpacks the weights of convolutions and Gemms before it
  computes, so the file and the transfer get smaller, not the memory, and nothing gets faster. In front of a MatMul it
  fuses the pair into the operator below, in a form that rounds activations to 8 bits on the way (its session option
  ``session.qdq_matmulnbits_accuracy_level``, 4 by default): answers then differ by some thousandths from the graph's.
- ``MatMulNBits`` (onnxruntime's own operator), one step per block, for dense layers with float activations. Weights
  stay packed in memory, and activations float.

Files of small networks are names and structure for a good part: `Size` counts whole files, so what is reported is what
is saved.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass
from typing import Literal

import numpy as np
import onnx
from onnx import TensorProto, helper

from edge_export.onnx_graph.graph import Array, Net
from edge_export.quantize.layers import Layer, layers
from edge_export.quantize.write import WeightSteps
from edge_runtime.errors import ConfigError

OPSET = 21
"""First whose DequantizeLinear takes 4-bit integers and blocks."""

_LOW, _HIGH = -8, 7


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Bytes of a model file.

    Attributes:
        file: as it lies on disk.
        compressed: by zlib at its best, as a transfer may send it.
    """

    file: int
    compressed: int


def size_of(model: onnx.ModelProto) -> Size:
    """Bytes of a model, whole."""
    content = model.SerializeToString(deterministic=True)
    return Size(file=len(content), compressed=len(zlib.compress(content, 9)))


def store(model: onnx.ModelProto, steps: WeightSteps) -> onnx.ModelProto:
    """Store weights that lie on a 4-bit grid in 4 bits, one step per output or per layer.

    Args:
        model: float, its weights multiples of their steps: `edge_export.quantize.adaround` with ``bits=4`` gives both.
        steps: by the weights' name. Weights that are not in it stay float.

    Returns:
        A model that computes the same.

    Raises:
        ConfigError: a weight is not within -8 to 7 steps, or no multiple of its step.
    """
    net = Net(_at_opset(model))
    for layer in layers(net):
        if layer.weight not in steps:
            continue
        weights, step = net.constant(layer.weight), np.asarray(steps[layer.weight], np.float32)
        spread = layer.per_output(step, weights.ndim) if step.ndim else step
        exact = weights / spread
        whole = np.rint(exact)
        if whole.min() < _LOW or whole.max() > _HIGH or np.abs(exact - whole).max() > 1e-3:
            raise ConfigError(f"weights of {layer.name!r} do not lie on a 4-bit grid; round them to 4 bits first")
        settings = {"axis": layer.output_axis} if step.ndim else {}
        _dequantize(net, layer, _int4(whole.astype(np.int8)), step, settings)
    net.drop_unread_constants()
    return net.model


def store_integers(model: onnx.ModelProto) -> onnx.ModelProto:
    """Store the int8 weights of a quantised model in 4 bits where they fit, and change nothing else.

    Args:
        model: with QuantizeLinear/DequantizeLinear pairs, its weights rounded to 4 bits.

    Raises:
        ConfigError: no layer's weights lie within -8 to 7.
    """
    net = Net(_at_opset(model))
    stored = 0
    for node in net.graph.node:
        if node.op_type != "DequantizeLinear" or not net.is_constant(node.input[0]):
            continue
        name, array = node.input[0], net.constant(node.input[0])
        if array.dtype != np.int8 or array.ndim < 2 or len(net.readers(name)) != 1:
            continue
        if array.min() < _LOW or array.max() > _HIGH or (len(node.input) > 2 and net.constant(node.input[2]).any()):
            continue
        node.input[0] = net.store(f"{name}_int4", _int4(array))
        # Its zero point is int8 and 0, which is also what a missing one means.
        del node.input[2:]
        stored += 1
    if not stored:
        raise ConfigError("no layer's weights fit into 4 bits; round them to 4 bits first")
    net.index()
    net.drop_unread_constants()
    del net.graph.value_info[:]
    return net.model


def in_blocks(
    model: onnx.ModelProto,
    *,
    block: int = 32,
    form: Literal["dequantize", "matmulnbits"] = "dequantize",
    keep: tuple[str, ...] = (),
) -> onnx.ModelProto:
    """Store the weights of dense layers in 4 bits, one step per block of inputs of each output, rounded to nearest.

    Args:
        model: float, as `edge_export.quantize.write.prepare` gives it.
        block: inputs that share a step; a power of two from 16.
        form: see the top of this module.
        keep: names of layers that stay float.

    Raises:
        ConfigError: the block's size, or a model without dense layers.
    """
    if block < 16 or block & (block - 1):
        raise ConfigError(f"a block must be a power of two from 16, not {block}")
    net = Net(_at_opset(model) if form == "dequantize" else model)
    found = [layer for layer in layers(net) if layer.operator != "Conv" and layer.name not in keep]
    if not found:
        raise ConfigError("the model has no dense layer with constant weights to store in blocks")
    for layer in found:
        rows = layer.matrix(net.constant(layer.weight))[0]
        outputs, inputs = rows.shape
        padded = np.pad(rows, ((0, 0), (0, -inputs % block))).reshape(outputs, -1, block)
        # The value of largest magnitude becomes -8: the side with one more step.
        peak = np.take_along_axis(padded, np.abs(padded).argmax(axis=2)[..., None], axis=2)[..., 0]
        step = np.where(peak != 0, peak / _LOW, 1).astype(np.float32)
        whole = np.clip(np.rint(padded / step[..., None]), _LOW, _HIGH).astype(np.int8)
        if form == "matmulnbits":
            _matmul_nbits(net, layer, whole, step, inputs)
            continue
        flat = whole.reshape(outputs, -1)[:, :inputs]
        axis = 1 - layer.output_axis
        stored, steps = (flat, step) if layer.outputs_first else (flat.T, step.T)
        _dequantize(net, layer, _int4(np.ascontiguousarray(stored)), steps, {"axis": axis, "block_size": block})
    if form == "matmulnbits":
        net.model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    net.index()
    net.drop_unread_constants()
    return net.model


def _at_opset(model: onnx.ModelProto) -> onnx.ModelProto:
    (version,) = [entry.version for entry in model.opset_import if entry.domain in {"", "ai.onnx"}]
    if version >= OPSET:
        return model
    try:
        return onnx.version_converter.convert_version(model, OPSET)
    except Exception as error:  # its C++ errors derive from nothing narrower
        raise ConfigError(f"cannot bring the model to operator set {OPSET}: {str(error).splitlines()[0]}") from error


def _int4(values: Array) -> TensorProto:
    """Pack two to a byte, the first in the lower half, as ONNX stores them."""
    flat = np.pad(values.ravel(), (0, values.size % 2)).view(np.uint8) & 0xF
    packed = (flat[0::2] | flat[1::2] << 4).tobytes()
    return helper.make_tensor("int4", TensorProto.INT4, values.shape, packed, raw=True)


def _dequantize(net: Net, layer: Layer, stored: TensorProto, step: Array, settings: dict[str, int]) -> None:
    integers = net.store(f"{layer.weight}_int4", stored)
    steps = net.store(f"{layer.weight}_step", np.ascontiguousarray(step))
    result = f"{layer.weight}_float"
    node = helper.make_node("DequantizeLinear", [integers, steps], [result], name=f"{layer.name}_weights", **settings)
    place = next(index for index, other in enumerate(net.graph.node) if other.name == layer.name)
    net.graph.node[place].input[1] = result
    net.graph.node.insert(place, node)
    net.index()


def _matmul_nbits(net: Net, layer: Layer, whole: Array, step: Array, inputs: int) -> None:
    outputs, blocks, block = whole.shape
    unsigned = (whole + 8).astype(np.uint8)
    packed = unsigned[..., 0::2] | unsigned[..., 1::2] << 4
    place = next(index for index, other in enumerate(net.graph.node) if other.name == layer.name)
    node = helper.make_node(
        "MatMulNBits",
        [
            layer.source,
            net.store(f"{layer.weight}_int4", packed.reshape(outputs, blocks, block // 2)),
            net.store(f"{layer.weight}_step", step.reshape(-1)),
            *(["", "", layer.bias] if layer.bias else []),
        ],
        [layer.result],
        name=layer.name,
        domain="com.microsoft",
        K=inputs,
        N=outputs,
        bits=4,
        block_size=block,
    )
    net.graph.node[place].CopyFrom(node)
