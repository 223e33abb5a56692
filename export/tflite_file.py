"""A TensorFlow Lite file as one writes it by hand: tensors, operators, one graph, bytes.

It knows the file format and no network. The classes that pack the flatbuffer come with LiteRT, so that neither
TensorFlow nor a schema compiler is needed.

Source: https://ai.google.dev/edge/litert (schema version 3, file identifier ``TFL3``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

_TYPES = {
    np.dtype(np.float32): schema.TensorType.FLOAT32,
    np.dtype(np.int8): schema.TensorType.INT8,
    np.dtype(np.int32): schema.TensorType.INT32,
}

_LAST_ONE_BYTE_CODE = 127
"""Readers older than schema 3a know operators by one signed byte; above it they read this placeholder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """How stored integers stand for reals: real = scale * (stored - zero_point).

    Attributes:
        scale: one step, or one per index of `axis`.
        zero_point: the integer that stands for 0; 0 for weights.
        axis: dimension that `scale` runs along when it has more than one entry.
    """

    scale: npt.NDArray[np.float32]
    zero_point: int
    axis: int = 0


class TfliteFile:
    """Collects tensors and operators, and packs them."""

    def __init__(self) -> None:
        self._tensors: list[Any] = []
        self._operators: list[Any] = []
        # The format reserves buffer 0 for tensors without data.
        self._buffers: list[Any] = [schema.BufferT()]
        self._stored: dict[bytes, int] = {}
        self._codes: dict[tuple[int, int], int] = {}

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        dtype: npt.DTypeLike,
        quantization: Quantization | None = None,
        *,
        batched: bool = False,
    ) -> int:
        """Declare a tensor that an operator or the caller fills.

        Args:
            name: for people and tools.
            shape: sizes with a batch of 1.
            dtype: float32, int8 or int32.
            quantization: how an integer tensor is read.
            batched: say in the file that the first size may be changed.

        Returns:
            The tensor's index.
        """
        tensor = schema.TensorT()
        tensor.name = name
        tensor.shape = [int(size) for size in shape]
        if batched:
            tensor.shapeSignature = [-1, *tensor.shape[1:]]
        tensor.type = _TYPES[np.dtype(dtype)]
        tensor.buffer = 0
        if quantization is not None:
            packed = schema.QuantizationParametersT()
            packed.scale = np.atleast_1d(quantization.scale).astype(np.float32)
            packed.zeroPoint = np.full(packed.scale.shape, quantization.zero_point, np.int64)
            packed.quantizedDimension = quantization.axis
            tensor.quantization = packed
        self._tensors.append(tensor)
        return len(self._tensors) - 1

    def constant(self, name: str, data: npt.NDArray[Any], quantization: Quantization | None = None) -> int:
        """Declare a tensor with fixed content; equal contents share one buffer.

        Returns:
            The tensor's index.
        """
        index = self.tensor(name, data.shape, data.dtype, quantization)
        content = np.ascontiguousarray(data).tobytes()
        if content not in self._stored:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(content, np.uint8)
            self._stored[content] = len(self._buffers)
            self._buffers.append(buffer)
        self._tensors[index].buffer = self._stored[content]
        return index

    def operator(
        self,
        name: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        *,
        version: int = 1,
        options: str = "",
        **settings: Any,
    ) -> None:
        """Append an operator.

        Args:
            name: of `BuiltinOperator`, for example ``CONV_2D``.
            inputs: tensor indices.
            outputs: tensor indices.
            version: the oldest version of the operator that does what is asked; a reader that has only older
                ones refuses the file instead of computing something else.
            options: of `BuiltinOptions`, for example ``Conv2DOptions``; empty for none.
            settings: fields of those options.
        """
        operator = schema.OperatorT()
        operator.opcodeIndex = self._code(getattr(schema.BuiltinOperator, name), version)
        operator.inputs = list(inputs)
        operator.outputs = list(outputs)
        if options:
            packed = getattr(schema, f"{options}T")()
            for field, value in settings.items():
                if not hasattr(packed, field):
                    raise AttributeError(f"{options} has no field {field!r}")
                setattr(packed, field, value)
            operator.builtinOptions = packed
            operator.builtinOptionsType = getattr(schema.BuiltinOptions, options)
        self._operators.append(operator)

    def _code(self, builtin: int, version: int) -> int:
        return self._codes.setdefault((builtin, version), len(self._codes))

    def pack(self, inputs: Sequence[int], outputs: Sequence[int]) -> bytes:
        """The finished file.

        Args:
            inputs: tensor indices the caller fills.
            outputs: tensor indices the caller reads.
        """
        graph = schema.SubGraphT()
        graph.name = "main"
        graph.tensors = self._tensors
        graph.operators = self._operators
        graph.inputs = list(inputs)
        graph.outputs = list(outputs)
        model = schema.ModelT()
        model.version = 3
        model.description = "edge-runtime"
        model.subgraphs = [graph]
        model.buffers = self._buffers
        model.operatorCodes = []
        for builtin, version in self._codes:
            code = schema.OperatorCodeT()
            code.builtinCode = builtin
            code.deprecatedBuiltinCode = min(builtin, _LAST_ONE_BYTE_CODE)
            code.version = version
            model.operatorCodes.append(code)
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())
