"""Float16 for machines that compute in it (Jetson's GPU): half the bytes, float32 at both ends.

onnxruntime's own converter writes the graph. What it leaves to chance is decided here: it clips constants beyond
float16 and lets values overflow; nodes that read or write either stay in float32.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass

import numpy as np
import onnx
from onnx import TensorProto
from onnxruntime.transformers.float16 import DEFAULT_OP_BLOCK_LIST, convert_float_to_float16

from edge_export.data.dataset import Float32
from edge_export.onnx_graph.graph import Net, attributes, observe
from edge_export.quantize.checks import check_model, check_windows

LARGEST = float(np.finfo(np.float16).max)
"""65504."""

_HEADROOM = 4.0
"""What the device may meet beyond the windows seen, as a factor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Half:
    """A model in float16.

    Attributes:
        model: float16 inside, float32 input and output.
        float32_nodes: nodes that stayed in float32 since their values need it, in graph order.
    """

    model: onnx.ModelProto
    float32_nodes: tuple[str, ...]


def to_half(model: onnx.ModelProto, windows: Float32) -> Half:
    """Write a model in float16.

    Args:
        model: as `edge_export.quantize.write.prepare` gives it.
        windows: (n, ...) inputs that span what the model will meet: physical units may exceed float16 (101325 Pa).

    Raises:
        ConfigError: windows or weights are not finite.
    """
    check_windows(windows)
    check_model(model, windows)
    net = Net(model)
    large = _beyond(net, windows)
    large.update(
        tensor.name
        for tensor in net.graph.initializer
        if (array := net.constant(tensor.name)).dtype == np.float32 and np.abs(array).max(initial=0.0) > LARGEST
    )
    kept = [node.name for node in net.graph.node if large.intersection((*node.input, *node.output))]
    # A shape may be named in a larger type than infer_shapes reaches; stale ones would be written as they are.
    del net.graph.value_info[:]
    with warnings.catch_warnings():
        # It warns of constants below float16's smallest number, which become that number or zero: no harm.
        warnings.simplefilter("ignore")
        converted = convert_float_to_float16(
            net.model,
            keep_io_types=True,
            op_block_list=[*DEFAULT_OP_BLOCK_LIST],
            node_block_list=kept,
        )
    _join(converted, frozenset(kept))
    return Half(model=converted, float32_nodes=tuple(kept))


def _join(model: onnx.ModelProto, kept: frozenset[str]) -> None:
    """Take out the detours through float16 between float32 nodes, and sort the nodes by what they read.

    The converter casts every input and every answer of a float32 node to float16 and back, which is where a large
    value would overflow; and it appends its casts at the end, which ONNX's checker refuses.
    """
    graph = model.graph
    single = {info.name for info in graph.input} | {name for n in graph.node if n.name in kept for name in n.output}
    halves = {node.output[0]: node.input[0] for node in graph.node if _casts(node, TensorProto.FLOAT16)}
    back = {
        node.output[0]: halves[node.input[0]]
        for node in graph.node
        if _casts(node, TensorProto.FLOAT) and halves.get(node.input[0]) in single
    }
    for node in graph.node:
        node.input[:] = [back.get(name, name) for name in node.input]
    answers = {info.name for info in graph.output}
    waiting = list(graph.node)
    while True:
        read = answers.union(*(node.input for node in waiting))
        if len(needed := [node for node in waiting if read.intersection(node.output)]) == len(waiting):
            break
        waiting = needed
    made = {name for node in waiting for name in node.output}
    ordered: list[onnx.NodeProto] = []
    while waiting:
        ready = [node for node in waiting if not made.intersection(node.input)]
        made.difference_update(name for node in ready for name in node.output)
        ordered += ready
        waiting = [node for node in waiting if made.intersection(node.output)]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in ordered]
    del graph.node[:]
    graph.node.extend(copies)


def _casts(node: onnx.NodeProto, to: int) -> bool:
    return bool(node.op_type == "Cast" and attributes(node)["to"] == to)


def _beyond(net: Net, windows: Float32) -> set[str]:
    """Float tensors whose values come near float16's largest."""
    infos = net.infos()
    names = [net.source.name] + [
        name
        for node in net.graph.node
        for name in node.output
        if name in infos and infos[name].type.tensor_type.elem_type == TensorProto.FLOAT
    ]
    large = set()
    for values in observe(net.model, names, windows):
        for name, array in values.items():
            if array.size and not float(np.abs(array).max()) * _HEADROOM <= LARGEST:
                large.add(name)
    return large
