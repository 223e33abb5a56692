"""Small streaming files: one with its state outside and in a variable, one with it in variable tensors of a layer."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema
from edge_export.graph.tflite.read.editing import repack, unpack
from edge_export.graph.tflite.write.file import Quantization, TfliteFile

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


UNITS = 5


class Remembering:
    """A file of one layer that keeps its state in variable tensors: rows (1, `rows`, 4) to (1, `rows`, 5).

    Args:
        kind: ``LSTM`` or ``SVDF``, which takes (1, 4).
        rows: of a call.
    """

    def __init__(self, kind: str = "LSTM", rows: int = 1) -> None:
        self.model, self.graph = schema.ModelT(), schema.SubGraphT()
        self.model.version, self.model.subgraphs, self.model.buffers = 3, [self.graph], [schema.BufferT()]
        self.graph.tensors = []
        self._rng = np.random.default_rng(0)
        lstm = kind == "LSTM"
        self.source = self._add("rows", (1, rows, WIDTH) if lstm else (1, WIDTH))
        self.kept, read = self._lstm() if lstm else self._svdf()
        self.target = self._add("answer", (1, rows, UNITS) if lstm else (1, UNITS))
        operator, code = schema.OperatorT(), schema.OperatorCodeT()
        name = "UNIDIRECTIONAL_SEQUENCE_LSTM" if lstm else "SVDF"
        code.builtinCode = code.deprecatedBuiltinCode = getattr(schema.BuiltinOperator, name)
        code.version = 1
        operator.opcodeIndex, operator.inputs, operator.outputs = 0, [self.source, *read], [self.target]
        options = schema.UnidirectionalSequenceLSTMOptionsT() if lstm else schema.SVDFOptionsT()
        options.fusedActivationFunction = schema.ActivationFunctionType.TANH
        operator.builtinOptions = options
        operator.builtinOptionsType = getattr(schema.BuiltinOptions, type(options).__name__.removesuffix("T"))
        if not lstm:
            options.rank = 1
        self.model.operatorCodes, self.graph.operators = [code], [operator]
        self.graph.inputs, self.graph.outputs = [self.source], [self.target]

    def bytes(self) -> bytes:
        return repack(self.model)

    def _lstm(self) -> tuple[list[int], list[int]]:
        """Weights of four gates for rows and for the last answer; biases; no peepholes, projection, normalisation."""
        fed = [self._add("fed", (UNITS, WIDTH), fixed=True) for _ in range(4)]
        again = [self._add("again", (UNITS, UNITS), fixed=True) for _ in range(4)]
        biases = [self._add("bias", (UNITS,), fixed=True) for _ in range(4)]
        kept = [self._add("zeros", (1, UNITS), kept=True) for _ in range(2)]
        return kept, [*fed, *again, *[-1] * 3, *biases, *[-1] * 2, *kept, *[-1] * 4]

    def _svdf(self) -> tuple[list[int], list[int]]:
        features, times = self._add("features", (UNITS, WIDTH), fixed=True), self._add("times", (UNITS, 3), fixed=True)
        kept = self._add("zeros", (1, UNITS * 3), kept=True)
        return [kept], [features, times, -1, kept]

    def _add(self, name: str, shape: tuple[int, ...], *, fixed: bool = False, kept: bool = False) -> int:
        made, buffer = schema.TensorT(), schema.BufferT()
        made.name, made.shape, made.type, made.isVariable = name, list(shape), schema.TensorType.FLOAT32, kept
        made.hasRank = True
        if fixed:
            numbers = self._rng.normal(0, 0.7, shape).astype(np.float32)
            buffer.data = np.frombuffer(numbers.tobytes(), np.uint8)
        self.model.buffers.append(buffer)
        made.buffer = len(self.model.buffers) - 1
        self.graph.tensors.append(made)
        return len(self.graph.tensors) - 1
