"""Make an ONNX file depend on the network alone: no traces of the machine, short names, no leftovers.

Exporters write stack traces, local paths and source lines into the metadata of nodes, and tools downstream keep them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
from onnx import helper, numpy_helper

from edge_export.onnx_graph.normalise import drop_unread, has_subgraph, replace
from edge_runtime.errors import ConfigError


def clean(model: onnx.ModelProto) -> onnx.ModelProto:
    """Remove traces and leftovers, name everything by its place, and pool by GlobalAveragePool.

    Args:
        model: any ONNX model with its data inside.

    Returns:
        A new model that computes the same; cleaning it again changes nothing.

    Raises:
        ConfigError: the model does not pass ONNX's checker.
    """
    cleaned = onnx.ModelProto()
    cleaned.CopyFrom(model)
    for message in _messages(cleaned):
        for name in ("doc_string", "metadata_props"):
            if name in message.DESCRIPTOR.fields_by_name:
                message.ClearField(name)
    cleaned.producer_name, cleaned.producer_version, cleaned.domain = "edge-export", "", ""
    # Whoever needs intermediate shapes infers them; stale ones make quantisers fail.
    del cleaned.graph.value_info[:]
    _pool_globally(cleaned)
    drop_unread(cleaned.graph)
    _rename(cleaned.graph)
    # Quantisers list every operator set they know; a reader that lacks one of them would refuse the file.
    used = {_domain(message) for message in _messages(cleaned) if isinstance(message, onnx.NodeProto)}
    replace(cleaned.opset_import, [entry for entry in cleaned.opset_import if _domain(entry) in used])
    try:
        onnx.checker.check_model(cleaned, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ConfigError(f"not a valid ONNX model: {str(error).splitlines()[0]}") from error
    return cleaned


def _messages(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """The model and every message inside it, at any depth."""
    waiting = [model]
    while waiting:
        message = waiting.pop()
        yield message
        for field, value in message.ListFields():
            if field.message_type is not None:
                # Map fields do not occur in onnx.proto3; a field is a message or a list of them.
                waiting.extend([value] if hasattr(value, "ListFields") else value)


def _domain(message: onnx.NodeProto | onnx.OperatorSetIdProto) -> str:
    """ONNX's own operator set goes by two names."""
    return "" if message.domain == "ai.onnx" else str(message.domain)


def _pool_globally(model: onnx.ModelProto) -> None:
    """Write a mean over all axes behind the channels as GlobalAveragePool: ReduceMean has no int8 kernel."""
    graph = model.graph
    inferred = onnx.shape_inference.infer_shapes(model).graph
    infos = (*inferred.input, *inferred.value_info, *inferred.output)
    ranks = {info.name: len(info.type.tensor_type.shape.dim) for info in infos}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    rewritten = []
    for node in graph.node:
        rank = ranks.get(node.input[0], 0) if node.input else 0
        axes = constants.get(node.input[1]) if len(node.input) > 1 else None
        if node.op_type != "ReduceMean" or rank < 3 or axes is None:
            rewritten.append(node)
            continue
        if sorted(int(a) % rank for a in np.atleast_1d(numpy_helper.to_array(axes))) != list(range(2, rank)):
            rewritten.append(node)
            continue
        keep = all(attribute.i for attribute in node.attribute if attribute.name == "keepdims")
        source, axes_name, result = node.input[0], node.input[1], node.output[0]
        pooled = result if keep else f"{result}_pooled"
        rewritten.append(helper.make_node("GlobalAveragePool", [source], [pooled]))
        if not keep:
            rewritten.append(helper.make_node("Squeeze", [pooled, axes_name], [result]))
    replace(graph.node, rewritten)


def _rename(graph: onnx.GraphProto) -> None:
    """Name nodes and tensors by their place. Graphs with subgraphs keep their names: scopes would have to agree."""
    graph.name = "model"
    if any(map(has_subgraph, graph.node)):
        return
    fixed = {info.name for info in (*graph.input, *graph.output)}
    parameters = {tensor.name for tensor in graph.initializer}
    names = {"": ""}
    for position, node in enumerate(graph.node):
        node.name = f"{node.op_type}_{position}"
        for name in (*node.input, *node.output):
            if name not in names:
                names[name] = name if name in fixed else f"{'p' if name in parameters else 'v'}{len(names)}"
        node.input[:] = [names[name] for name in node.input]
        node.output[:] = [names[name] for name in node.output]
    for tensor in graph.initializer:
        tensor.name = names[tensor.name]
