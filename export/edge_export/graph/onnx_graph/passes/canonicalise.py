"""Canonical ONNX files, which depend on the network alone: no traces of the machine, short names, no leftovers.

Exporters write stack traces, local paths and source lines into the metadata of nodes, and tools downstream keep them.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import onnx
import onnx_ir as ir

from edge_export.graph.onnx_graph.model import (
    InvalidModelError,
    apply,
    constant,
    drop_unread,
    forget_shapes,
    has_subgraphs,
    name_of,
    rename,
    shapes_of,
    to_proto,
    transform,
)
from edge_runtime.errors import one_line


class Canonicalise(ir.passes.InPlacePass):
    """Remove traces and leftovers, name everything by its place, and pool by GlobalAveragePool."""

    def call(self, model: ir.Model) -> ir.passes.PassResult:
        """Rewrite the graph; a second time changes nothing."""
        model.producer_name, model.producer_version, model.domain = "edge-export", "", ""
        # A reader that needs intermediate shapes infers them; stale ones make quantisers fail.
        forget_shapes(model.graph)
        _pool_globally(model)
        drop_unread(model.graph)
        _name_by_place(model.graph)
        # Quantisers list every operator set they know; a reader that lacks one of them would refuse the file.
        parts: list[ir.Graph | ir.Function] = [model.graph, *model.functions.values()]
        used = {node.domain for part in parts for node in ir.traversal.RecursiveGraphIterator(part)}
        for domain in set(model.opset_imports) - used:
            del model.opset_imports[domain]
        return ir.passes.PassResult(model, modified=True)

    def ensures(self, model: ir.Model) -> None:
        """ONNX's checker passes the model."""
        try:
            onnx.checker.check_model(to_proto(model), full_check=True)
        except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
            raise InvalidModelError(f"not a valid ONNX model: {one_line(error)}") from error


def canonicalise(model: onnx.ModelProto) -> onnx.ModelProto:
    """Bring a model to its canonical form (`Canonicalise`).

    Args:
        model: any ONNX model with its data inside.

    Returns:
        A new model that computes the same; doing so again changes nothing.

    Raises:
        ConfigError: the model does not pass ONNX's checker.
    """
    return transform(without_traces(model), Canonicalise())


def without_traces(model: onnx.ModelProto) -> onnx.ModelProto:
    """Copy a model without what exporters note, which goes before `Canonicalise` reads it.

    onnx-ir keeps the messages of tensors as they are, with all that is noted there.
    """
    bare = onnx.ModelProto()
    bare.CopyFrom(model)
    for message in _messages(bare):
        for name in ("doc_string", "metadata_props"):
            if name in message.DESCRIPTOR.fields_by_name:
                message.ClearField(name)
    return bare


def _messages(model: onnx.ModelProto) -> Iterator[onnx.ModelProto]:
    """Yield the model and every message inside it, at any depth."""
    waiting = [model]
    while waiting:
        message = waiting.pop()
        yield message
        for field, value in message.ListFields():
            if field.message_type is not None:
                # Map fields do not occur in onnx.proto3; a field is a message or a list of them.
                waiting.extend([value] if hasattr(value, "ListFields") else value)


def _pool_globally(model: ir.Model) -> None:
    """Write a mean over all axes behind the channels as GlobalAveragePool: ReduceMean has no int8 kernel."""
    means = [node for node in model.graph if node.op_type == "ReduceMean"]
    shapes = shapes_of(model) if means else {}
    for node in means:
        data = node.inputs[0]
        rank = len(shapes.get(name_of(data), ())) if data is not None else 0
        axes = constant(node.inputs[1]) if len(node.inputs) > 1 else None
        if rank < 3 or axes is None or sorted(int(a) % rank for a in np.atleast_1d(axes)) != list(range(2, rank)):
            continue
        if node.attributes.get_int("keepdims", 1):
            node.op_type = "GlobalAveragePool"
            node.resize_inputs(1)
        else:
            pooled = apply("GlobalAveragePool", [data], f"{node.outputs[0].name}_pooled")
            model.graph.insert_before(node, pooled)
            node.op_type = "Squeeze"
            node.replace_input_with(0, pooled.outputs[0])
        node.attributes.clear()
        node.name = ""


def _name_by_place(graph: ir.Graph) -> None:
    """Name nodes and tensors by their place. Graphs with subgraphs keep their names: scopes would have to agree."""
    graph.name = "model"
    if has_subgraphs(graph):
        return
    fixed = {value.name for value in (*graph.inputs, *graph.outputs)}
    names: dict[ir.Value, str] = {}
    for position, node in enumerate(graph):
        node.name = f"{node.op_type}_{position}"
        for value in (*node.inputs, *node.outputs):
            if value is None or not value.name or value in names:
                continue
            letter = "p" if value.is_initializer() else "v"
            names[value] = value.name if value.name in fixed else f"{letter}{len(names) + 1}"
    rename(graph, names)
