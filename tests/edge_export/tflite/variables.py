"""A small streaming file, with its state outside and inside."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema
from edge_export.tflite.editing import repack, unpack
from edge_export.tflite.file import Quantization, TfliteFile

ROWS, KEPT, WIDTH = 2, 3, 4


def explicit(dtype: npt.DTypeLike = np.float32) -> bytes:
    """Rows (1, 2, 4) and the three before them; answers with all five, as (1, 20)."""
    file = TfliteFile()
    step = Quantization.of(0.5, -7) if np.dtype(dtype) == np.int8 else None
    rows = file.tensor("rows", (1, ROWS, WIDTH), dtype, step)
    state = file.tensor("state", (1, KEPT, WIDTH), dtype, step)
    joined = file.tensor("joined", (1, KEPT + ROWS, WIDTH), dtype, step)
    file.operator("CONCATENATION", [state, rows], [joined], options="ConcatenationOptions", axis=1)
    kept = file.like(state, "kept")
    spans = ([0, ROWS, 0], [1, ROWS + KEPT, WIDTH], [1, 1, 1])
    numbers = [file.constant(f"span{k}", np.array(each, np.int32)) for k, each in enumerate(spans)]
    file.operator("STRIDED_SLICE", [joined, *numbers], [kept], options="StridedSliceOptions")
    answer = file.tensor("answer", (1, (KEPT + ROWS) * WIDTH), dtype, step)
    shape = file.constant("shape", np.array([1, (KEPT + ROWS) * WIDTH], np.int32))
    file.operator("RESHAPE", [joined, shape], [answer], options="ReshapeOptions", newShape=[1, (KEPT + ROWS) * WIDTH])
    return file.pack({"rows": rows, "state": state}, {"answer": answer, "kept": kept})


class Inside:
    """`explicit` with its state in a variable, as TensorFlow writes it; methods damage it further.

    Args:
        data: of `explicit`.
        initial: first value.
    """

    def __init__(self, data: bytes, initial: npt.NDArray[Any]) -> None:
        self.model = unpack(data, "test")
        self.graph = self.model.subgraphs[0]
        (rows, self.state), (answer, self.kept) = self.graph.inputs, self.graph.outputs
        self.graph.inputs, self.graph.outputs = [rows], [answer]
        self.model.signatureDefs = None
        self.handle = self._resource(self.graph)
        once = self._operator("CALL_ONCE", [], [], schema.CallOnceOptionsT())
        once.builtinOptions.initSubgraphIndex = 1
        self.graph.operators[:0] = [once, self.handle_of(self.handle), self.reading(self.state)]
        self.graph.operators.append(self.writing(self.handle, self.kept))
        self.init = schema.SubGraphT()
        self.init.name, self.init.tensors, self.init.inputs, self.init.outputs = b"init", [], [], []
        handle = self._resource(self.init)
        first = self.add(self.init, self.graph.tensors[self.state].type, initial.shape)
        buffer = schema.BufferT()
        buffer.data = np.frombuffer(initial.tobytes(), np.uint8)
        self.model.buffers.append(buffer)
        self.init.tensors[first].buffer = len(self.model.buffers) - 1
        self.init.operators = [self.handle_of(handle), self.writing(handle, first)]
        self.model.subgraphs.append(self.init)

    def bytes(self) -> bytes:
        return repack(self.model)

    def add(self, graph: Any, kind: int, shape: tuple[int, ...]) -> int:
        made = schema.TensorT()
        made.name, made.shape, made.type, made.buffer = f"t{len(graph.tensors)}".encode(), list(shape), kind, 0
        graph.tensors.append(made)
        return len(graph.tensors) - 1

    def handle_of(self, tensor: int) -> Any:
        options = schema.VarHandleOptionsT()
        options.sharedName = b"stream/states"
        return self._operator("VAR_HANDLE", [], [tensor], options)

    def reading(self, tensor: int) -> Any:
        return self._operator("READ_VARIABLE", [self.handle], [tensor], schema.ReadVariableOptionsT())

    def writing(self, handle: int, tensor: int) -> Any:
        return self._operator("ASSIGN_VARIABLE", [handle, tensor], [], schema.AssignVariableOptionsT())

    def _resource(self, graph: Any) -> int:
        return self.add(graph, schema.TensorType.RESOURCE, ())

    def _operator(self, name: str, inputs: list[int], outputs: list[int], options: Any) -> Any:
        code = schema.OperatorCodeT()
        code.builtinCode, code.deprecatedBuiltinCode = getattr(schema.BuiltinOperator, name), 127
        code.version = 1
        self.model.operatorCodes.append(code)
        made = schema.OperatorT()
        made.opcodeIndex, made.inputs, made.outputs = len(self.model.operatorCodes) - 1, inputs, outputs
        made.builtinOptions = options
        made.builtinOptionsType = getattr(schema.BuiltinOptions, type(options).__name__.removesuffix("T"))
        return made
