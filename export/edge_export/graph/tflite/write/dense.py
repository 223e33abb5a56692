"""Dense layers and products of activations."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from edge_export.graph.tflite.errors import UnsupportedNodeError
from edge_export.graph.tflite.watch import Watched
from edge_export.graph.tflite.write.file import Quantization
from edge_export.graph.tflite.write.graph import Graph, attributes
from edge_export.graph.tflite.write.values import ConstantOperand, Value, Weights
from edge_export.graph.tflite.write.windows import VALID

_INT32_MAX = int(np.iinfo(np.int32).max)


def parameters(
    graph: Graph, node: onnx.NodeProto, value: Value, weights: Weights, arranged: np.ndarray[Any, Any], *, axis: int
) -> tuple[int, int]:
    """Weights and bias as constants.

    Args:
        graph: being written.
        node: they belong to.
        value: what they are applied to.
        weights: the node's weights.
        arranged: the stored weights, as the operator wants them.
        axis: the axis of `arranged` along which the outputs run.

    Returns:
        Indices of the weights' and the bias's tensors.
    """
    arranged, name = np.ascontiguousarray(arranged), f"{node.output[0]}:bias"
    if weights.scale is None or value.quantization is None:
        return (
            graph.floats(node.input[1], arranged),
            graph.file.constant(name, weights.bias.astype(np.float32)),
        )
    # The format fixes the bias's step: input step times weight step. ONNX stores it the same way, so this only
    # brings back the integers of the ONNX file.
    step = weights.scale * value.quantization.scale
    stored = np.rint(weights.bias.astype(np.float64) / step.astype(np.float64))
    if np.abs(stored).max() > _INT32_MAX:
        raise UnsupportedNodeError(node, "its bias exceeds int32 at the scale of its weights")
    return (
        graph.file.constant(node.input[1], arranged, Quantization(scale=weights.scale, zero_point=0, axis=axis)),
        graph.file.constant(name, stored.astype(np.int32), Quantization(scale=step, zero_point=0)),
    )


def dense(graph: Graph, node: Watched) -> None:
    """Gemm, or MatMul with a constant matrix on the right.

    With one scale per output it becomes a 1x1 convolution: older readers take the first scale of a dense layer for all
    of it, without a word.
    """
    outputs_first = node.op_type == "Gemm" and bool(attributes(node).get("transB", 0))
    node, name = (node, node.output[0]) if node.op_type == "Gemm" else _with_bias(graph, node)
    result, activation = _activation_behind(graph, node, name)
    is_stored = node.input[1] not in graph.constants
    value, quantized = graph.operand(node, results=[result], int8=is_stored)
    outputs = graph.shape(result)[-1]
    weights = graph.weights(node, outputs=outputs, axis=0 if outputs_first else 1, quantized=quantized)
    weights = _with_full_bias(node, weights, outputs)
    matrix = weights.stored if outputs_first else weights.stored.T
    source = graph.plain(value, node)
    out, target = graph.output(result, quantized=quantized)
    if weights.scale is None or weights.scale.size == 1:
        keep = len(value.shape) != 2
        graph.file.operator(
            "FULLY_CONNECTED",
            [source, *parameters(graph, node, value, weights, matrix, axis=0)],
            [target],
            options="FullyConnectedOptions",
            fusedActivationFunction=activation,
            keepNumDims=keep,
        )
        return
    # Every row is a picture of one place.
    rows = int(np.prod(value.shape[:-1]))
    at = None if value.open_axis is None else 0
    pixel = graph.reshaped(source, value, f"{value.name}:pixels", (rows, 1, 1, value.shape[-1]), at)
    answer = graph.file.tensor(f"{out.name}:pixels", (rows, 1, 1, outputs), np.int8, out.quantization)
    graph.file.operator(
        "CONV_2D",
        [pixel, *parameters(graph, node, value, weights, matrix[:, None, None, :], axis=0)],
        [answer],
        options="Conv2DOptions",
        padding=VALID,
        strideH=1,
        strideW=1,
        fusedActivationFunction=activation,
    )
    graph.write_reshape(answer, target, out.open_axis)


def _with_bias(graph: Graph, node: Watched) -> tuple[Watched, str]:
    """Fuse a MatMul and the Add of a constant per output that alone reads it into one dense layer."""
    result = node.output[0]
    reader = graph.sole_reader(result)
    if reader is None or reader.op_type != "Add":
        return node, result
    other = reader.input[1] if reader.input[0] == result else reader.input[0]
    bias = graph.constants.get(other)
    # One in front of the sizes would add axes to the result, which only shows in its own shape.
    if bias is None or bias.size != graph.shape(result)[-1] or bias.shape[-1:] != (bias.size,):
        return node, result
    if len(graph.shape(reader.output[0])) != len(graph.shape(result)):
        return node, result
    graph.written.add(reader.output[0])
    return node.changed(added=[other]), reader.output[0]


def _activation_behind(graph: Graph, node: Watched, name: str) -> tuple[str, int]:
    return graph.fused_activation(node.changed(output=name))


def _with_full_bias(node: onnx.NodeProto, weights: Weights, outputs: int) -> Weights:
    """One bias per output, where ONNX lets one number stand for all."""
    bias = weights.bias
    if bias.size not in (1, outputs):
        raise UnsupportedNodeError(node, f"its bias has {bias.size} numbers for {outputs} outputs")
    full = np.broadcast_to(bias.reshape(-1), (outputs,)).copy()
    return Weights(stored=weights.stored, bias=full, scale=weights.scale)


def matmul(graph: Graph, node: Watched) -> None:
    """MatMul."""
    right = graph.fixed(node.input[1])
    if right is not None and right.real.ndim == 2 and graph.fixed(node.input[0]) is None:
        dense(graph, node)
        return
    operands, quantized = graph.operands(node, node.input, node.output[:1])
    tensors = []
    for operand in operands:
        if len(operand.shape) < 2:
            raise UnsupportedNodeError(node, "both operands need two axes or more; unsqueeze the vector")
        if isinstance(operand, Value):
            tensors.append(graph.plain(operand, node))
        elif quantized and (integers := operand.integers()) is not None:
            tensors.append(graph.file.constant(operand.name, *integers))
        else:
            tensors.append(graph.file.constant(operand.name, operand.real.astype(np.float32)))
    _, target = graph.output(node.output[0], quantized=quantized)
    graph.file.operator("BATCH_MATMUL", tensors, [target], options="BatchMatMulOptions")


def gemm(graph: Graph, node: Watched) -> None:
    """Gemm; what is no dense layer has been taken apart before (`edge_export.graph.tflite.lower.composites`)."""
    if isinstance(graph.fixed(node.input[1]), ConstantOperand):
        dense(graph, node)
        return
    raise UnsupportedNodeError(node, "its weights must be constant")


WRITERS = {"Gemm": gemm, "MatMul": matmul}
