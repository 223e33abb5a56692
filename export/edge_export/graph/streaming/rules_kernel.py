"""Operators whose kernel reaches over several frames: convolutions and pools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx

from edge_export.graph.streaming.frames import Frames, Reach
from edge_export.graph.streaming.step import FrameStep, Rule, Run, Writer
from edge_export.graph.streaming.window_graph import WindowGraph, attributes

_FEW = 16
"""Frames below which a 1-D convolution is written as a 2-D one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernel:
    """Sizes of a convolution or pool along its spatial axes.

    Attributes:
        sizes: of the kernel.
        strides: from one output to the next.
        dilations: from one tap to the next.
        begins: padding in front.
        ends: padding behind.
    """

    sizes: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    begins: tuple[int, ...]
    ends: tuple[int, ...]

    def reach(self, place: int) -> Reach:
        """Return what an output reads along one spatial axis."""
        size = (self.sizes[place] - 1) * self.dilations[place] + 1
        return Reach(stride=self.strides[place], size=size, before=self.begins[place])


def kernel_of(graph: WindowGraph, node: onnx.NodeProto) -> Kernel:
    """Sizes of a node, automatic padding worked out."""
    settings = attributes(node)
    source, result = graph.shapes[node.input[0]][2:], graph.shapes[node.output[0]][2:]
    many = len(source)
    sizes = tuple(settings["kernel_shape"] if "kernel_shape" in settings else graph.shapes[node.input[1]][2:])
    strides = tuple(settings.get("strides", (1,) * many))
    dilations = tuple(settings.get("dilations", (1,) * many))
    pads = list(settings.get("pads", (0,) * 2 * many))
    automatic = settings.get("auto_pad", b"NOTSET")
    if automatic != b"NOTSET":
        pads = [0] * 2 * many
    if automatic in (b"SAME_UPPER", b"SAME_LOWER"):
        for i in range(many):
            total = max(0, (result[i] - 1) * strides[i] + (sizes[i] - 1) * dilations[i] + 1 - source[i])
            less, more = total // 2, total - total // 2
            pads[i], pads[many + i] = (less, more) if automatic == b"SAME_UPPER" else (more, less)
    return Kernel(sizes=sizes, strides=strides, dilations=dilations, begins=tuple(pads[:many]), ends=tuple(pads[many:]))


def _kernel(graph: WindowGraph, node: onnx.NodeProto, timed: Mapping[int, Frames]) -> FrameStep | None:
    frames = timed[0]
    if set(timed) != {0} or frames.axis < 2 or frames.batch != 0 or len(node.output) != 1:
        return None
    kernel, place, settings = kernel_of(graph, node), frames.axis - 2, attributes(node)
    flat = (
        node.op_type == "Conv"
        and kernel.dilations == (1,)
        and node.input[1] in graph.initializers
        and graph.types[node.input[1]] == np.float32
    )
    rounded_up = bool(settings.get("ceil_mode", 0))
    if rounded_up and settings.get("count_include_pad", 0):
        # What lies behind the padding is not counted, what lies in it is: two kinds of nothing at one edge.
        return None

    def build(writer: Writer, node: onnx.NodeProto, inputs: list[str], run: Run) -> list[str]:
        pads = [*kernel.begins, *kernel.ends]
        pads[place], pads[len(kernel.begins) + place] = run.before, run.after
        if flat and run.frames < _FEW:
            return _planar(writer, node, inputs, pads)
        return writer.copy(node, inputs, pads=pads, auto_pad="NOTSET")

    return FrameStep(reach=kernel.reach(place), axis=frames.axis, batch=0, build=build)


def _planar(writer: Writer, node: onnx.NodeProto, inputs: list[str], pads: list[int]) -> list[str]:
    """Write a 1-D convolution as a 2-D one over a single row.

    onnxruntime computes 1-D convolutions as a matrix product whose columns are the frames, sixteen or more at a time
    however few there are; 2-D ones block by channels. 64 to 64 channels, 5 taps, 3 frames: 8.2 against 3.0
    microseconds; 514 waves of 512 samples, 5 frames: 70 against 36 (x86-64, one thread). Dilated ones lose by it.
    """
    graph, weights = writer.graph, node.input[1]
    kernel = kernel_of(graph, node)
    axis = writer.integers([2])
    (source,) = writer.node("Unsqueeze", [inputs[0], axis])
    planar = writer.constant(f"planar_{weights}", graph.values[weights][:, :, None])
    (result,) = writer.copy(
        node,
        [source, planar, *inputs[2:]],
        pads=[0, pads[0], 0, pads[1]],
        auto_pad="NOTSET",
        strides=[1, *kernel.strides],
        dilations=[1, 1],
        kernel_shape=[1, *kernel.sizes],
    )
    return writer.node("Squeeze", [result, axis])


RULES: dict[str, Rule] = dict.fromkeys(("AveragePool", "Conv", "LpPool", "MaxPool"), _kernel)
