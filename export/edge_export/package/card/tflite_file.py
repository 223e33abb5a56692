"""Properties of a TensorFlow Lite file that no run tells, and a copy of it whose engine quantises.

Source: schema version 3 of LiteRT.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from ai_edge_litert import schema_py_generated as schema

from edge_export.graph.tflite.read import editing
from edge_export.graph.tflite.write import versions


def precision_of(data: bytes, file: str) -> str:
    """Return the precision of a file, as `Variant.precision`: integers all the way, floats all the way, or both.

    Raises:
        ConfigError: it is no TensorFlow Lite file, or a damaged one.
    """
    model = editing.unpack(data, file)
    graph = model.subgraphs[0]
    fixed = {i for i, tensor in enumerate(graph.tensors) if model.buffers[tensor.buffer].data is not None}
    flowing = {
        _dtype(graph.tensors[int(i)])
        for op in graph.operators
        for i in (*op.inputs, *op.outputs)
        if i not in fixed and i >= 0
    }
    stored = {editing.TYPES.get(graph.tensors[i].type) for i in fixed}
    integers = {dtype for dtype in flowing if dtype is not None and dtype.kind in "iu"}
    if integers and np.dtype(np.float32) not in flowing:
        return "int8"
    if integers or np.dtype(np.int8) in stored:
        return "mixed"
    return "fp16" if np.dtype(np.float16) in stored else "fp32"


def input_shapes(data: bytes, file: str) -> dict[str, tuple[int, ...]]:
    """Return the sizes of each input, -1 for open ones.

    Raises:
        ConfigError: it is no TensorFlow Lite file, or a damaged one.
    """
    graph = editing.unpack(data, file).subgraphs[0]
    found = {}
    for tensor in (graph.tensors[i] for i in graph.inputs):
        sizes = tensor.shape if tensor.shapeSignature is None else tensor.shapeSignature
        found[editing.text(tensor.name) if tensor.name else ""] = () if sizes is None else tuple(map(int, sizes))
    return found


def custom_operators(data: bytes, file: str) -> list[str]:
    """Return the names of operators that are no part of the format: custom ones, and TensorFlow's own (Flex).

    Raises:
        ConfigError: it is no TensorFlow Lite file, or a damaged one.
    """
    codes = editing.unpack(data, file).operatorCodes
    return sorted(editing.text(code.customCode) for code in codes if code.customCode)


def with_float_ends(data: bytes, file: str) -> bytes:
    """Put QUANTIZE before an input of 8 bits and DEQUANTIZE behind its answer: numpy takes 12 to 46 us for the same.

    Only a value that lies between two integers to the last bit may go to the other one.

    Args:
        data: the file's bytes.
        file: named in errors.

    Returns:
        A copy with ends of the same names; the file itself where it takes or gives anything else.

    Raises:
        ConfigError: it is no TensorFlow Lite file, or a damaged one.
    """
    model = editing.unpack(data, file)
    graph = model.subgraphs[0]
    ends = [graph.tensors[int(i)] for i in (*graph.inputs, *graph.outputs)]
    integers = all(_dtype(one) in (np.dtype(np.int8), np.dtype(np.uint8)) for one in ends)
    if len(graph.inputs) != 1 or len(graph.outputs) != 1 or not integers:
        return data
    own, last = int(graph.inputs[0]), int(graph.outputs[0])
    graph.inputs, graph.outputs = [len(graph.tensors)], [len(graph.tensors) + 1]
    steps = (("QUANTIZE", graph.inputs[0], own), ("DEQUANTIZE", last, graph.outputs[0]))
    for inner, (name, read, made) in zip(ends, steps, strict=True):
        outer, code, operator = schema.TensorT(), schema.OperatorCodeT(), schema.OperatorT()
        outer.name, outer.shape, outer.shapeSignature = inner.name, inner.shape, inner.shapeSignature
        outer.type, outer.buffer = schema.TensorType.FLOAT32, 0
        inner.name = editing.text(inner.name) + "/integers"
        graph.tensors.append(outer)
        code.builtinCode = code.deprecatedBuiltinCode = getattr(schema.BuiltinOperator, name)
        dtypes = [editing.TYPES[graph.tensors[read].type]]
        code.version = versions.oldest(name, dtypes, [tuple(map(int, inner.shape))], {})
        operator.opcodeIndex, operator.inputs, operator.outputs = len(model.operatorCodes), [read], [made]
        model.operatorCodes.append(code)
        graph.operators.insert(0 if name == "QUANTIZE" else len(graph.operators), operator)
    # The signature names tensors that are no longer at the ends; engines go by the graph's own lists.
    model.signatureDefs = None
    return editing.repack(model)


def _dtype(tensor: Any) -> np.dtype[Any] | None:
    """Element type; None for text, and for integers without a scale."""
    found = editing.TYPES.get(tensor.type)
    scale = None if tensor.quantization is None else tensor.quantization.scale
    return found if found is None or found.kind == "f" or (scale is not None and len(scale)) else None
