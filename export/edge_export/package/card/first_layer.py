"""First layer of an ONNX graph that sums over an input: evidence of which axis holds the columns, and how many.

1. What moves axes is followed: Transpose, Squeeze, Unsqueeze. What computes number by number is passed.
2. A product sums over its last axis, a convolution over its second, a recurrent layer over its last.
3. Anything else, or an axis that the graph put in, is no evidence.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import onnx
from onnx import helper, numpy_helper

_PASSED = frozenset({
    "Identity", "Cast", "Dropout", "Add", "Sub", "Mul", "Div", "BatchNormalization", "Clip", "Abs", "Log", "Sqrt",
})  # fmt: skip
_RECURRENT = frozenset({"LSTM", "GRU", "RNN"})


class FirstLayer(NamedTuple):
    """Layer that reads an input.

    Attributes:
        axis: of the input, over which it sums.
        size: numbers on that axis.
        operator: of the layer.
    """

    axis: int
    size: int
    operator: str


def first_layer(graph: onnx.GraphProto, name: str, rank: int) -> FirstLayer | None:
    """Return the first layer behind an input, None where nothing tells."""
    constants = _constants(graph)
    axes: dict[str, list[int]] = {name: list(range(rank))}
    for node in graph.node:
        read = next((one for one in node.input if axes.get(one)), "")
        if read:
            place, size = _summed(node, axes[read], constants) or (-1, -1)  # rule 2
            if size >= 0:
                return FirstLayer(place, size, node.op_type) if place >= 0 and size else None  # rule 3
            axes.update(dict.fromkeys(node.output[:1], _moved(node, axes[read], constants)))  # rule 1
    return None


def _constants(graph: onnx.GraphProto) -> dict[str, onnx.TensorProto]:
    made = {node.output[0]: one.t for node in graph.node for one in node.attribute if one.name == "value"}
    return {**{one.name: one for one in graph.initializer}, **made}


def _summed(
    node: onnx.NodeProto, axes: Sequence[int], constants: Mapping[str, onnx.TensorProto]
) -> tuple[int, int] | None:
    """Return the input's axis that a layer sums over, and its size."""
    weight = constants.get(node.input[1]) if len(node.input) > 1 else None
    known = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    if weight is None or len(weight.dims) < 2:
        return None
    if node.op_type in ("MatMul", "Gemm") and not known.get("transA"):
        return axes[-1], int(weight.dims[-1 if known.get("transB") else -2])
    if node.op_type == "Conv" and len(axes) > 1:
        return axes[1], int(weight.dims[1]) * int(known.get("group", 1))
    if node.op_type in _RECURRENT:
        return axes[-1], int(weight.dims[2])
    return None


def _moved(node: onnx.NodeProto, axes: list[int], constants: Mapping[str, onnx.TensorProto]) -> list[int]:
    """Return where the input's axes lie behind a node, -1 for one that it puts in; nothing where that is not known."""
    known = {one.name: helper.get_attribute_value(one) for one in node.attribute}
    if node.op_type == "Transpose":
        return [axes[k] for k in known.get("perm", range(len(axes))[::-1])]
    if node.op_type not in ("Squeeze", "Unsqueeze"):
        return axes if node.op_type in _PASSED else []
    given = constants.get(node.input[1]) if len(node.input) > 1 else None
    places = known.get("axes", []) if given is None else numpy_helper.to_array(given).ravel().tolist()
    return _squeezed(axes, list(places), wider=node.op_type == "Unsqueeze") if len(places) else []


def _squeezed(axes: list[int], places: list[int], *, wider: bool) -> list[int]:
    rank = len(axes) + (len(places) if wider else 0)
    at, rest = {place % rank for place in places}, iter(axes)
    if wider:
        return [-1 if k in at else next(rest) for k in range(rank)]
    return [axis for k, axis in enumerate(axes) if k not in at]
