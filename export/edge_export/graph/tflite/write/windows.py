"""The geometry that convolutions and pools share: kernels that slide over two axes, the first of height 1 for 1-D."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx

from edge_export.graph.tflite.errors import UnsupportedNodeError
from edge_export.graph.tflite.write.graph import Graph, attributes
from edge_export.graph.tflite.write.values import Value, channels_last_shape

SAME, VALID = 0, 1
"""Values of ``Padding`` in the TensorFlow Lite schema."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelWindow:
    """Kernel, strides, dilations and padding of a sliding window; pairs are (height, width).

    Attributes:
        kernel: sizes.
        strides: steps.
        dilations: distance between neighbours under the kernel.
        pads: (top, left, bottom, right).
    """

    kernel: tuple[int, int]
    strides: tuple[int, int]
    dilations: tuple[int, int]
    pads: tuple[int, int, int, int]

    @property
    def reach(self) -> tuple[int, int]:
        """Places from the first under the kernel to the last, both included."""
        height, width = ((size - 1) * step + 1 for size, step in zip(self.kernel, self.dilations, strict=True))
        return height, width


def window(node: onnx.NodeProto, value: Value, kernel: Sequence[int]) -> KernelWindow:
    """Read a node's geometry.

    Args:
        node: a convolution or pool.
        value: what it works on, (N, C, W) or (N, C, H, W).
        kernel: one size, or two.
    """
    rank = len(value.shape)
    if rank not in (3, 4):
        raise UnsupportedNodeError(node, f"it needs (N, C, W) or (N, C, H, W), not {rank} axes")
    settings, flat = attributes(node), rank == 3
    plain = KernelWindow(
        kernel=_pair(kernel, flat=flat),
        strides=_pair(settings.get("strides"), flat=flat),
        dilations=_pair(settings.get("dilations"), flat=flat),
        pads=_pads(settings, flat=flat),
    )
    automatic = settings.get("auto_pad", b"NOTSET").decode()
    if automatic in ("NOTSET", "VALID"):
        return plain
    sizes = channels_last_shape(value.shape)[1:3]
    totals = [_same_total(sizes[axis], plain, axis) for axis in (0, 1)]
    short, long = [total // 2 for total in totals], [total - total // 2 for total in totals]
    before, after = (short, long) if automatic == "SAME_UPPER" else (long, short)
    return KernelWindow(
        kernel=plain.kernel,
        strides=plain.strides,
        dilations=plain.dilations,
        pads=(before[0], before[1], after[0], after[1]),
    )


def is_same(value: Value, window: KernelWindow) -> bool:
    """Report that padding equals TensorFlow's SAME: as little as keeps ceil(size / stride) outputs."""
    for axis, size in enumerate(channels_last_shape(value.shape)[1:3]):
        total = _same_total(size, window, axis)
        if (window.pads[axis], window.pads[2 + axis]) != (total // 2, total - total // 2):
            return False
    return True


def padded(graph: Graph, value: Value, index: int, pads: Sequence[int], node: onnx.NodeProto, fill: float = 0) -> int:
    """Pad a channels-last tensor.

    Args:
        graph: being written.
        value: what the tensor holds.
        index: the tensor's index.
        pads: (top, left, bottom, right).
        node: the node that asks for it.
        fill: real number to fill with; minus infinity stands for the lowest one there is.
    """
    n, h, w, c = graph.file.shape(index)
    sizes = (n, h + pads[0] + pads[2], w + pads[1] + pads[3], c)
    target = graph.file.tensor(f"{node.output[0]}:padded", sizes, value.dtype, value.quantization)
    amounts = np.array([[0, 0], [pads[0], pads[2]], [pads[1], pads[3]], [0, 0]], np.int32)
    places = graph.file.constant("pads", amounts)
    if fill == 0:
        # An int8 PAD fills with the zero point: the real 0 that ONNX pads with.
        graph.file.operator("PAD", [index, places], [target], options="PadOptions")
        return target
    lowest = np.array([-128], np.int8) if value.quantization else np.array([np.finfo(np.float32).min], np.float32)
    filler = graph.file.constant("lowest", lowest, value.quantization)
    graph.file.operator("PADV2", [index, places, filler], [target], options="PadV2Options")
    return target


def _same_total(size: int, window: KernelWindow, axis: int) -> int:
    stride = window.strides[axis]
    return max((-(-size // stride) - 1) * stride + window.reach[axis] - size, 0)


def _pair(numbers: Sequence[int] | None, *, flat: bool) -> tuple[int, int]:
    """Height and width of a setting that 1-D operators give one number for, and that defaults to 1."""
    if numbers is None:
        return 1, 1
    return (1, int(numbers[0])) if flat else (int(numbers[0]), int(numbers[1]))


def _pads(settings: dict[str, Any], *, flat: bool) -> tuple[int, int, int, int]:
    pads = settings.get("pads", (0, 0) if flat else (0, 0, 0, 0))
    return (0, pads[0], 0, pads[1]) if flat else (pads[0], pads[1], pads[2], pads[3])
