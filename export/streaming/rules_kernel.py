"""Operators whose kernel reaches over several frames: convolutions and pools."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from export.streaming.frames import Frames, Reach
from export.streaming.step import Rule, Run, Step, Writer
from export.streaming.window_graph import WindowGraph, attributes


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
        """What an output reads along one spatial axis."""
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


def _kernel(graph: WindowGraph, node: onnx.NodeProto, timed: Mapping[int, Frames]) -> Step | None:
    frames = timed[0]
    if set(timed) != {0} or frames.axis < 2 or frames.batch != 0 or len(node.output) != 1:
        return None
    kernel, place, settings = kernel_of(graph, node), frames.axis - 2, attributes(node)
    rounded_up = bool(settings.get("ceil_mode", 0))
    if rounded_up and settings.get("count_include_pad", 0):
        # What lies behind the padding is not counted, what lies in it is: two kinds of nothing at one edge.
        return None

    def build(writer: Writer, node: onnx.NodeProto, inputs: list[str], run: Run) -> list[str]:
        pads = [*kernel.begins, *kernel.ends]
        pads[place], pads[len(kernel.begins) + place] = run.before, run.after
        return writer.copy(node, inputs, pads=pads, auto_pad="NOTSET")

    return Step(reach=kernel.reach(place), axis=frames.axis, batch=0, build=build)


RULES: dict[str, Rule] = dict.fromkeys(("AveragePool", "Conv", "LpPool", "MaxPool"), _kernel)
