"""A TensorFlow Lite file as one writes it by hand: tensors, operators, one graph, bytes.

It knows the file format and no network. The classes that pack the flatbuffer come with LiteRT, so that neither
TensorFlow nor a schema compiler is needed.

Source: https://ai.google.dev/edge/litert (schema version 3, file identifier ``TFL3``).
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from export.tflite import versions

TYPES = {
    np.dtype(np.float32): schema.TensorType.FLOAT32,
    np.dtype(np.int8): schema.TensorType.INT8,
    np.dtype(np.int32): schema.TensorType.INT32,
    np.dtype(np.int64): schema.TensorType.INT64,
    np.dtype(np.bool_): schema.TensorType.BOOL,
}
"""The element types that are written, by their number in the schema."""

_LAST_ONE_BYTE_CODE = 127
"""Readers older than schema 3a know operators by one signed byte; above it they read this placeholder."""

_SIGNATURE = "serving_default"
"""The name TensorFlow's own converter gives the one signature of a file."""


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

    @classmethod
    def of(cls, scale: float, zero_point: int) -> Quantization:
        """One step for a whole tensor."""
        return cls(scale=np.array([scale], np.float32), zero_point=zero_point)

    def same(self, other: Quantization) -> bool:
        """Whether integers can pass from one tensor to the other as they are."""
        return self.zero_point == other.zero_point and np.array_equal(self.scale, other.scale)


class TfliteFile:
    """Collects tensors and operators, and packs them."""

    def __init__(self) -> None:
        self._tensors: list[Any] = []
        self._dtypes: list[np.dtype[Any]] = []
        self._operators: list[Any] = []
        # The format reserves buffer 0 for tensors without data.
        self._buffers: list[Any] = [schema.BufferT()]
        self._stored: dict[bytes, int] = {}
        self._constants: dict[tuple[Any, ...], int] = {}
        self._codes: dict[tuple[int, int], int] = {}

    def tensor(
        self,
        name: str,
        shape: Sequence[int],
        dtype: npt.DTypeLike,
        quantization: Quantization | None = None,
    ) -> int:
        """Declare a tensor that an operator or the caller fills.

        Args:
            name: for people and tools.
            shape: sizes with a batch of 1.
            dtype: one of `TYPES`.
            quantization: how an integer tensor is read.

        Returns:
            The tensor's index.
        """
        tensor = schema.TensorT()
        tensor.name = name
        tensor.shape = [int(size) for size in shape]
        tensor.type = TYPES[np.dtype(dtype)]
        tensor.buffer = 0
        if quantization is not None:
            packed = schema.QuantizationParametersT()
            packed.scale = np.atleast_1d(quantization.scale).astype(np.float32)
            packed.zeroPoint = np.full(packed.scale.shape, quantization.zero_point, np.int64)
            packed.quantizedDimension = quantization.axis
            tensor.quantization = packed
        self._tensors.append(tensor)
        self._dtypes.append(np.dtype(dtype))
        return len(self._tensors) - 1

    def like(self, index: int, name: str) -> int:
        """Declare a tensor of the same type, sizes and step as another one."""
        twin = copy.copy(self._tensors[index])
        twin.name, twin.buffer = name, 0
        self._tensors.append(twin)
        self._dtypes.append(self._dtypes[index])
        return len(self._tensors) - 1

    def shape(self, index: int) -> tuple[int, ...]:
        """Sizes of a tensor, with a batch of 1."""
        return tuple(self._tensors[index].shape)

    def constant(self, name: str, data: npt.NDArray[Any], quantization: Quantization | None = None) -> int:
        """Declare a tensor with fixed content; equal ones are one tensor, equal contents share one buffer.

        Returns:
            The tensor's index.
        """
        content = np.ascontiguousarray(data).tobytes()
        step = None if quantization is None else (quantization.scale.tobytes(), quantization.zero_point)
        axis = 0 if quantization is None else quantization.axis
        key = (content, data.shape, data.dtype, step, axis)
        if key in self._constants:
            return self._constants[key]
        index = self.tensor(name, data.shape, data.dtype, quantization)
        if content not in self._stored:
            buffer = schema.BufferT()
            buffer.data = np.frombuffer(content, np.uint8)
            self._stored[content] = len(self._buffers)
            self._buffers.append(buffer)
        self._tensors[index].buffer = self._stored[content]
        self._constants[key] = index
        return index

    def operator(
        self,
        name: str,
        inputs: Sequence[int],
        outputs: Sequence[int],
        *,
        options: str = "",
        **settings: Any,
    ) -> None:
        """Append an operator, at the oldest version that reads these types and sizes (`export.tflite.versions`).

        Args:
            name: of `BuiltinOperator`, for example ``CONV_2D``.
            inputs: tensor indices.
            outputs: tensor indices.
            options: of `BuiltinOptions`, for example ``Conv2DOptions``; empty for none.
            settings: fields of those options.
        """
        operator = schema.OperatorT()
        version = versions.oldest(name, [self._dtypes[i] for i in inputs], [self.shape(i) for i in inputs], settings)
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

    def open_axis(self, index: int, axis: int) -> None:
        """Say in the file that a size of a tensor may be changed by whoever loads it."""
        tensor = self._tensors[index]
        tensor.shapeSignature = [-1 if i == axis else size for i, size in enumerate(tensor.shape)]

    def _name_apart(self, fixed: Mapping[int, str]) -> None:
        """Give every tensor a name of its own: tools like quantisers know them by it."""
        taken = set(fixed.values())
        counts: dict[str, int] = {}
        for index, tensor in enumerate(self._tensors):
            name = base = fixed.get(index, tensor.name)
            while index not in fixed and name in taken:
                counts[base] = counts.get(base, 0) + 1
                name = f"{base}.{counts[base]}"
            tensor.name = name
            taken.add(name)

    def pack(self, inputs: Mapping[str, int], outputs: Mapping[str, int]) -> bytes:
        """The finished file.

        Args:
            inputs: name to index of the tensors the caller fills, in order. Names go to the tensors and into the
                signature; a tensor has one role at most.
            outputs: the same of the tensors the caller reads.
        """
        self._name_apart({index: name for name, index in (*inputs.items(), *outputs.items())})
        graph = schema.SubGraphT()
        graph.name = "main"
        graph.tensors = self._tensors
        graph.operators = self._operators
        graph.inputs = list(inputs.values())
        graph.outputs = list(outputs.values())
        signature = schema.SignatureDefT()
        signature.signatureKey = _SIGNATURE
        signature.subgraphIndex = 0
        signature.inputs, signature.outputs = _named(inputs), _named(outputs)
        model = schema.ModelT()
        model.version = 3
        model.description = "edge-runtime"
        model.subgraphs = [graph]
        model.buffers = self._buffers
        model.signatureDefs = [signature]
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


def _named(tensors: Mapping[str, int]) -> list[Any]:
    entries = []
    for name, index in tensors.items():
        entry = schema.TensorMapT()
        entry.name, entry.tensorIndex = name, index
        entries.append(entry)
    return entries
