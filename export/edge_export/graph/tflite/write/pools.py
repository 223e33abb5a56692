"""Maxima and averages under a sliding window."""

from __future__ import annotations

import numpy as np
import onnx

from edge_export.graph.tflite.errors import UnsupportedNodeError
from edge_export.graph.tflite.write.graph import Graph, attributes
from edge_export.graph.tflite.write.moves import unscaled
from edge_export.graph.tflite.write.values import Value, channels_last_shape
from edge_export.graph.tflite.write.windows import SAME, VALID, KernelWindow, is_same, padded, window


def pool(graph: Graph, node: onnx.NodeProto) -> None:
    """MaxPool or AveragePool, with any padding and rounding of sizes.

    1. Dilations, and the places of maxima, have no form.
    2. Padding that is not TensorFlow's SAME is written as a PAD.
    3. An average over places that do not count is then put right by a constant factor per place, in floats.
    """
    settings = attributes(node)
    average = node.op_type == "AveragePool"
    if any(dilation != 1 for dilation in settings.get("dilations", [])):  # rule 1
        raise UnsupportedNodeError(node, "dilated pools have no form")
    if any(graph.readers(name) or graph.is_result(name) for name in node.output[1:]):  # rule 1
        raise UnsupportedNodeError(node, "only the values of a pool have a form, not their places")
    shape = graph.shape(node.input[0])
    probe = Value(name="", shape=shape, dtype=np.dtype(np.float32), quantization=None, open_axis=None)
    place = window(node, probe, settings["kernel_shape"])
    counted = bool(settings.get("count_include_pad", 0)) and average
    full = _extended(node, place, shape, channels_last_shape(graph.shape(node.output[0])))
    same = any(full.pads) and is_same(probe, full) and not counted
    share = _share(place, full, shape, counted=counted) if average and any(full.pads) and not same else None
    corrected = share is not None and not np.all(share == 1)  # rule 3
    value, quantized = graph.operand(node, results=node.output[:1], int8=not corrected)

    def write(source: int, target: int) -> None:
        if any(full.pads) and not same:  # rule 2
            source = padded(graph, value, source, full.pads, node, 0 if average else -np.inf)
        pooled = target
        if corrected:
            pooled = graph.file.tensor(f"{node.output[0]}:all", graph.file.shape(target), np.float32)
        graph.file.operator(
            "AVERAGE_POOL_2D" if average else "MAX_POOL_2D",
            [source],
            [pooled],
            options="Pool2DOptions",
            padding=SAME if same else VALID,
            filterHeight=full.kernel[0],
            filterWidth=full.kernel[1],
            strideH=full.strides[0],
            strideW=full.strides[1],
        )
        if corrected and share is not None:  # rule 3
            factor = graph.file.constant(f"{node.output[0]}:share", (1 / share).astype(np.float32))
            graph.file.operator("MUL", [pooled, factor], [target], options="MulOptions")

    unscaled(graph, node, value, quantized=quantized, channels_last=True, write=write)


def _extended(
    node: onnx.NodeProto, place: KernelWindow, shape: tuple[int, ...], wanted: tuple[int, int, int, int]
) -> KernelWindow:
    """Give the window the padding that sizes rounded up need at the end, or that sizes rounded down leave unused."""
    sizes = channels_last_shape(shape)[1:3]
    if any((wanted[1 + axis] - 1) * place.strides[axis] >= size + place.pads[axis] for axis, size in enumerate(sizes)):
        # onnx's shapes count such a window, onnxruntime and torch leave it out.
        raise UnsupportedNodeError(node, "its last window lies on padding alone; pad less, or leave out ceil_mode")
    ends = [
        (wanted[1 + axis] - 1) * place.strides[axis] + place.kernel[axis] - size - place.pads[axis]
        for axis, size in enumerate(sizes)
    ]
    # Places that the last step does not reach stay in the tensor: VALID ignores them too.
    ends = [max(end, 0) for end in ends]
    return KernelWindow(
        kernel=place.kernel,
        strides=place.strides,
        dilations=place.dilations,
        pads=(place.pads[0], place.pads[1], ends[0], ends[1]),
    )


def _share(
    place: KernelWindow, full: KernelWindow, shape: tuple[int, ...], *, counted: bool
) -> np.ndarray[tuple[int, ...], np.dtype[np.float64]]:
    """(1, H, W, 1): part of each window that lies on places which count."""
    shares = []
    for axis, size in enumerate(channels_last_shape(shape)[1:3]):
        before, after = full.pads[axis], full.pads[2 + axis]
        valid = np.zeros(before + size + after)
        valid[before : before + size] = 1
        if counted:
            # The given padding counts, places that only rounding up adds do not.
            valid[: before + size + place.pads[2 + axis]] = 1
        starts = range(0, len(valid) - place.kernel[axis] + 1, place.strides[axis])
        shares.append(np.array([valid[start : start + place.kernel[axis]].mean() for start in starts]))
    return np.outer(*shares)[None, :, :, None]


WRITERS = {"AveragePool": pool, "MaxPool": pool}
