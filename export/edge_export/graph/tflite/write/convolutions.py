"""Convolutions: plain, depthwise, grouped, dilated, and transposed; 1-D as 2-D of height 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx

from edge_export.graph.tflite.errors import UnsupportedNodeError
from edge_export.graph.tflite.write.dense import parameters
from edge_export.graph.tflite.write.graph import Graph, attributes
from edge_export.graph.tflite.write.moves import sliced
from edge_export.graph.tflite.write.values import Value, channels_last_shape
from edge_export.graph.tflite.write.windows import SAME, VALID, KernelWindow, is_same, padded, window


def conv(graph: Graph, node: onnx.NodeProto) -> None:
    """Conv. Padding is the operator's own where it is what TensorFlow calls SAME, else a PAD before it."""
    result, activation = graph.fused_activation(node)
    value, quantized = graph.operand(node, results=[result], int8=node.input[1] not in graph.constants)
    kernel = _kernel(graph, node)
    place = window(node, value, kernel.shape[2:])
    outputs, inputs, groups = kernel.shape[0], value.shape[1], attributes(node).get("group", 1)
    depthwise = groups > 1 and groups == inputs
    weights = graph.weights(node, outputs=outputs, axis=0, quantized=quantized)
    stored = weights.stored[:, :, None] if weights.stored.ndim == 3 else weights.stored
    index, padding = graph.tensor(value, node, channels_last=True), VALID
    if any(place.pads):
        if is_same(value, place):
            padding = SAME
        else:
            index = padded(graph, value, index, place.pads, node)
    # LiteRT's kernels take dilation at stride 1 only; what they leave out is left out afterwards then.
    thinned = place.strides != (1, 1) and place.dilations != (1, 1)
    strides = (1, 1) if thinned else place.strides
    if thinned and padding == SAME:
        index, padding = padded(graph, value, index, place.pads, node), VALID
    out, target = graph.output(result, quantized=quantized, channels_last=True)
    written = target if not thinned else _before_thinning(graph, out, index, place)
    arranged = stored[:, 0].transpose(1, 2, 0)[None] if depthwise else stored.transpose(0, 2, 3, 1)
    settings: dict[str, Any] = {
        "padding": padding,
        "strideH": strides[0],
        "strideW": strides[1],
        "dilationHFactor": place.dilations[0],
        "dilationWFactor": place.dilations[1],
        "fusedActivationFunction": activation,
    }
    tensors = [index, *parameters(graph, node, value, weights, arranged, axis=3 if depthwise else 0)]
    if depthwise:
        settings["depthMultiplier"] = outputs // inputs
        graph.file.operator("DEPTHWISE_CONV_2D", tensors, [written], options="DepthwiseConv2DOptions", **settings)
    else:
        graph.file.operator("CONV_2D", tensors, [written], options="Conv2DOptions", **settings)
    if thinned:
        n, h, w, c = graph.file.shape(target)
        spans = [(0, n, 1), (0, h * place.strides[0], place.strides[0]), (0, w * place.strides[1], place.strides[1])]
        sliced(graph, written, target, [*spans, (0, c, 1)])


def _kernel(graph: Graph, node: onnx.NodeProto) -> Any:
    kernel = graph.constant(node.input[1])
    if kernel is None:
        raise UnsupportedNodeError(node, "its weights and bias must be constant")
    return kernel


def _before_thinning(graph: Graph, out: Value, index: int, place: KernelWindow) -> int:
    n, h, w, _ = graph.file.shape(index)
    sizes = (n, h - place.reach[0] + 1, w - place.reach[1] + 1, out.shape[1])
    return graph.file.tensor(f"{out.name}:every_place", sizes, out.dtype, out.quantization)


def conv_transpose(graph: Graph, node: onnx.NodeProto) -> None:
    """ConvTranspose: everything the kernel reaches is computed, and the padding cut off afterwards."""
    settings = attributes(node)
    if settings.get("auto_pad", b"NOTSET") != b"NOTSET" or "output_shape" in settings:
        raise UnsupportedNodeError(node, "auto_pad and output_shape have no form; export with the padding written out")
    value, quantized = graph.operand(node, int8=node.input[1] not in graph.constants)
    kernel = _kernel(graph, node)
    place = window(node, value, kernel.shape[2:])
    groups = settings.get("group", 1)
    outputs = kernel.shape[1] * groups
    per_output = groups == 1 or not quantized
    weights = graph.weights(node, outputs=outputs, axis=1, quantized=quantized)
    if not per_output and weights.scale is not None and weights.scale.size > 1:
        raise UnsupportedNodeError(node, "with groups its weights need one scale for all")
    stored = weights.stored[:, :, None] if weights.stored.ndim == 3 else weights.stored
    stored = _without_groups(stored, groups)
    spread = np.zeros((*stored.shape[:2], *place.reach), stored.dtype)
    spread[:, :, :: place.dilations[0], :: place.dilations[1]] = stored
    _, height, width, _ = channels_last_shape(value.shape)
    wanted = channels_last_shape(graph.shape(node.output[0]))
    needed = [
        max((size - 1) * place.strides[axis] + place.reach[axis], place.pads[axis] + wanted[1 + axis])
        for axis, size in enumerate((height, width))
    ]
    graph.close_batch()  # the operator wants its whole output size written down, the batch included
    source = graph.tensor(value, node, channels_last=True)
    out, target = graph.output(node.output[0], quantized=quantized, channels_last=True)
    full = (wanted[0], *needed, outputs)
    whole = target if full == wanted else graph.file.tensor(f"{out.name}:whole", full, out.dtype, out.quantization)
    kernel_index, bias = parameters(graph, node, value, weights, spread.transpose(1, 2, 3, 0), axis=0)
    graph.file.operator(
        "TRANSPOSE_CONV",
        [graph.integers(full, "size"), kernel_index, source, bias],
        [whole],
        options="TransposeConvOptions",
        padding=VALID,
        strideH=place.strides[0],
        strideW=place.strides[1],
    )
    if whole != target:
        begins = (0, place.pads[0], place.pads[1], 0)
        sliced(graph, whole, target, [(b, b + size, 1) for b, size in zip(begins, wanted, strict=True)])


def _without_groups(stored: np.ndarray[Any, Any], groups: int) -> np.ndarray[Any, Any]:
    """Expand (inputs, outputs per group, ...) to (inputs, outputs, ...), zero where the groups do not meet."""
    if groups == 1:
        return stored
    inputs, each = stored.shape[0] // groups, stored.shape[1]
    whole = np.zeros((stored.shape[0], each * groups, *stored.shape[2:]), stored.dtype)
    for group in range(groups):
        rows = slice(group * inputs, (group + 1) * inputs)
        whole[rows, group * each : (group + 1) * each] = stored[rows]
    return whole


WRITERS = {"Conv": conv, "ConvTranspose": conv_transpose}
