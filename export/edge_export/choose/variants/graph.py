"""The float graph that variants are made of, and the files that are written of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx
from onnx import numpy_helper

from edge_export.choose.variants.source import FloatModel, Format
from edge_export.graph.onnx_graph.examples import Examples
from edge_export.graph.onnx_graph.model import Array, from_proto, graphs_in, transform
from edge_export.graph.onnx_graph.normalise import normalise
from edge_export.graph.onnx_graph.passes.canonicalise import Canonicalise, canonicalise, without_traces
from edge_export.graph.onnx_graph.passes.conv2d import Conv1dToConv2d
from edge_export.graph.onnx_graph.passes.minimise import Minimise
from edge_export.graph.onnx_graph.passes.shield import ShieldFloatLayers
from edge_export.graph.quantize.write import prepare
from edge_export.graph.tflite.convert import convert


def float_graph(source: FloatModel, calls: Mapping[str, Array], constants: Mapping[str, float]) -> onnx.ModelProto:
    """Bring a model to the form that it is quantised in.

    1. Inputs that are one number in every call become constants.
    2. Open sizes become those of the calls. Where they are 1 they stay open, for they may be the batch, unless a choice
       or a loop is left in the graph then.
    3. The graph is normalised, named by place and prepared (`edge_export.graph.quantize.write.prepare`).

    Args:
        source: the model.
        calls: arrays by input, (n, *sizes of one call), states included.
        constants: numbers by input.

    Raises:
        ConfigError: it cannot be brought there.
    """
    bare = _with_constants(source.graph, constants)  # rule 1
    sizes = {name: array.shape[1:] for name, array in calls.items()}
    form = normalise(_pinned(bare, sizes, ones=False))  # rule 2
    if len(list(graphs_in(form.graph))) > 1:
        form = normalise(_pinned(bare, sizes, ones=True))
    return prepare(canonicalise(form))  # rule 3


def _with_constants(model: onnx.ModelProto, constants: Mapping[str, float]) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for info in list(copy.graph.input):
        if info.name in constants:
            dtype = onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
            sizes = [max(dim.dim_value, 1) for dim in info.type.tensor_type.shape.dim]
            value = np.full(sizes, constants[info.name], dtype)
            copy.graph.initializer.append(numpy_helper.from_array(value, info.name))
            copy.graph.input.remove(info)
    return copy


def _pinned(model: onnx.ModelProto, sizes: Mapping[str, Sequence[int]], *, ones: bool) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for info in copy.graph.input:
        for dim, size in zip(info.type.tensor_type.shape.dim, sizes.get(info.name, ()), strict=False):
            if not dim.dim_value and (ones or size != 1):
                dim.dim_value = size
    return copy


def examples_of(prepared: onnx.ModelProto, calls: Mapping[str, Array]) -> Examples:
    """Arrange calls for a prepared graph; they are run together where every input and output has an open batch."""
    inputs = {info.name: info.type.tensor_type.shape.dim for info in prepared.graph.input}
    own = {name: array for name, array in calls.items() if name in inputs}
    ends = [*inputs.values(), *(info.type.tensor_type.shape.dim for info in prepared.graph.output)]
    return Examples(own, joined=all(len(sizes) and not sizes[0].dim_value for sizes in ends) and _one_batch(prepared))


def _one_batch(model: onnx.ModelProto) -> bool:
    """Say whether the open first axes of all inputs and outputs have one name, so that one size is meant."""
    ends = (*model.graph.input, *model.graph.output)
    inputs = {info.type.tensor_type.shape.dim[0].dim_param for info in model.graph.input}
    return len(inputs) == 1 and all(len(info.type.tensor_type.shape.dim) for info in ends)


def onnx_file(graph: onnx.ModelProto, source: FloatModel) -> bytes:
    """Write a graph as the ONNX file that ships: small, shielded, and with the inputs that the source has."""
    passes = (Canonicalise(), Conv1dToConv2d(), ShieldFloatLayers(), Minimise())
    model = transform(without_traces(graph), *passes)
    return bytes(_with_inputs(model, source).SerializeToString(deterministic=True))


def _with_inputs(model: onnx.ModelProto, source: FloatModel) -> onnx.ModelProto:
    """Put inputs that became constants back, unread, so that a caller gives what it gave before; in the old order."""
    before = [info for info in source.graph.graph.input if info.name in {spec.name for spec in source.inputs}]
    now = {info.name: info for info in model.graph.input}
    if [info.name for info in before] == list(now):
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    del copy.graph.input[:]
    copy.graph.input.extend(now.get(info.name, info) for info in before)
    return copy


def tflite_file(graph: onnx.ModelProto) -> bytes:
    """Write a graph as a TensorFlow Lite file.

    Raises:
        ConfigError: an operator cannot be written.
    """
    return convert(canonicalise(graph), compact=True)


def file_of(graph: onnx.ModelProto, format_: Format, source: FloatModel) -> bytes:
    """Write a graph in a format."""
    return onnx_file(graph, source) if format_ == "onnx" else tflite_file(graph)


def by_row_copy(model: bytes, calls: Mapping[str, Array]) -> bytes:
    """Copy an ONNX file so that each input's first axis counts calls, as a timing gives them.

    States and single numbers have no such axis; an operator in front takes it off, in every file that is compared.
    """
    proto = onnx.load_model_from_string(model)
    graph = from_proto(proto).graph
    names = [value.name or "" for value in graph.inputs]
    odd = {name for name in names if name in calls and not _is_row(calls[name].shape[1:])}
    if not odd:
        return model
    copy = onnx.ModelProto()
    copy.CopyFrom(proto)
    axis = numpy_helper.from_array(np.array([0], np.int64), "timing_axis")
    copy.graph.initializer.append(axis)
    nodes: list[onnx.NodeProto] = []
    for info in copy.graph.input:
        if info.name not in odd:
            continue
        old, info.name = info.name, f"{info.name}_timed"
        dims = calls[old].shape[1:]
        kind = info.type.tensor_type.elem_type
        info.CopyFrom(onnx.helper.make_tensor_value_info(info.name, kind, [1, *dims]))
        nodes.append(onnx.helper.make_node("Squeeze", [info.name, "timing_axis"], [old]))
    rest = list(copy.graph.node)
    del copy.graph.node[:]
    copy.graph.node.extend([*nodes, *rest])
    return bytes(copy.SerializeToString())


def _is_row(shape: Sequence[int]) -> bool:
    return bool(shape) and shape[0] == 1
