"""A reduction over time and other axes is taken over the other axes first: fewer numbers are kept per frame."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edge_export.graph.streaming.plan import Plan
from edge_export.graph.streaming.window_graph import attributes

_BY_POOL = {"GlobalAveragePool": "ReduceMean", "GlobalMaxPool": "ReduceMax"}
_REDUCTIONS = ("ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum")
_AXES_ARE_INPUTS = 18
"""Operator set from which on every reduction takes its axes as an input."""


def frames_reduced_first(plan: Plan) -> onnx.ModelProto | None:
    """Split such reductions of the windowed network; None where there are none.

    Args:
        plan: the network's plan, as it was given.

    Returns:
        A new model. Its second reduction is the given one, over axes of which all but time have one number left, so it
        computes the same up to the order of a sum. An integer network is left as it is: its pool computes in integers
        what two would not.
    """
    graph = plan.graph
    if graph.opset < _AXES_ARE_INPUTS:
        return None
    model = onnx.ModelProto()
    model.CopyFrom(graph.model)
    nodes = []
    for position, node in enumerate(model.graph.node):
        others = _others(plan, node) if position in plan.whole else []
        if others:
            axes, result = f"others_{position}", f"{node.output[0]}_by_frame"
            model.graph.initializer.append(numpy_helper.from_array(np.array(others, np.int64), axes))
            operator = _BY_POOL.get(node.op_type, node.op_type)
            nodes.append(helper.make_node(operator, [node.input[0], axes], [result], name=result, keepdims=1))
            node.input[0] = result
        nodes.append(node)
    if len(nodes) == len(graph.model.graph.node):
        return None
    del model.graph.value_info[:]
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(copies)
    return model


def _others(plan: Plan, node: onnx.NodeProto) -> list[int]:
    """Axes that a node reduces besides time and that have more than one number.

    1. Not for integers, which two pools would round twice, nor where the axes are not stated.
    2. Time must be among the axes, or nothing is gained; the batch must not, as its rows are streams of their own.
    """
    graph = plan.graph
    frames = plan.timed(node).get(0)
    producer = graph.producers.get(node.input[0])
    if frames is None or (producer is not None and producer.op_type == "DequantizeLinear"):  # rule 1
        return []
    shape = graph.shapes[node.input[0]]
    if node.op_type in _BY_POOL:
        axes = list(range(2, len(shape)))
    elif node.op_type in _REDUCTIONS:
        given = graph.constant(node, 1)
        if given is None or (not given.size and attributes(node).get("noop_with_empty_axes", 0)):  # rule 1
            return []
        axes = sorted(int(axis) % len(shape) for axis in np.atleast_1d(given))
    else:
        return []
    if frames.axis not in axes or frames.batch in axes:  # rule 2
        return []
    return [axis for axis in axes if axis != frames.axis and shape[axis] > 1]
