"""TensorFlow Lite file under construction: tensors, operators, one graph, bytes.

It knows the file format and no network. The classes that pack the flatbuffer come with LiteRT, so that neither
TensorFlow nor a schema compiler is needed.

Source: https://ai.google.dev/edge/litert (schema version 3, file identifier ``TFL3``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from edge_export.graph.tflite.write import limits, versions
from edge_export.graph.tflite.write.packing import Packing
from edge_runtime.errors import ConfigError

TYPES = {
    np.dtype(np.float32): schema.TensorType.FLOAT32,
    np.dtype(np.int8): schema.TensorType.INT8,
    np.dtype(np.int32): schema.TensorType.INT32,
    np.dtype(np.int64): schema.TensorType.INT64,
    np.dtype(np.bool_): schema.TensorType.BOOL,
}
"""The element types that operators compute with, by their number in the schema."""

_STORED = TYPES | {np.dtype(np.float16): schema.TensorType.FLOAT16}
"""Those, and the one that only constants have."""

_LAST_ONE_BYTE_CODE = 127
"""Readers older than schema 3a know operators by one signed byte; above it they read this placeholder."""

_SCHEMA = 3
"""Version of the schema."""

_SIGNATURE = "serving_default"
"""The name TensorFlow's own converter gives the one signature of a file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantization:
    """Scale and zero point of stored integers: real = scale * (stored - zero_point).

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
        """Report that integers can pass from one tensor to the other as they are."""
        return self.zero_point == other.zero_point and np.array_equal(self.scale, other.scale)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tensor:
    name: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    quantization: Quantization | None
    buffer: int = 0
    open_axis: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Operator:
    code: int
    inputs: tuple[int, ...]
    outputs: tuple[int, ...]
    options: str
    settings: dict[str, Any] = field(repr=False)


class TfliteFile:
    """Tensors and operators of a file, packed at the end."""

    def __init__(self) -> None:
        self._tensors: list[_Tensor] = []
        self._operators: list[_Operator] = []
        # The format reserves buffer 0 for tensors without data.
        self._buffers: list[tuple[bytes, int]] = [(b"", 0)]
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
            name: the tensor's name, for people and tools.
            shape: sizes with a batch of 1.
            dtype: one of `TYPES`.
            quantization: how an integer tensor is read.

        Returns:
            The tensor's index.
        """
        sizes = tuple(int(size) for size in shape)
        self._tensors.append(_Tensor(name=name, shape=sizes, dtype=np.dtype(dtype), quantization=quantization))
        return len(self._tensors) - 1

    def like(self, index: int, name: str) -> int:
        """Declare a tensor of the same type, sizes and step as another one."""
        self._tensors.append(replace(self._tensors[index], name=name, buffer=0))
        return len(self._tensors) - 1

    def shape(self, index: int) -> tuple[int, ...]:
        """Sizes of a tensor, with a batch of 1."""
        return self._tensors[index].shape

    def constant(self, name: str, data: npt.NDArray[Any], quantization: Quantization | None = None) -> int:
        """Declare a tensor with fixed content; equal ones are one tensor, equal contents share one buffer.

        Returns:
            The tensor's index.

        Raises:
            ConfigError: there are no numbers in it.
        """
        if not data.size:
            # Readers take a constant without content for an input that is never filled.
            raise ConfigError(f"tensor {name!r} holds no numbers, and TensorFlow Lite has no such constants")
        content = np.ascontiguousarray(data).tobytes()
        step = None if quantization is None else (quantization.scale.tobytes(), quantization.zero_point)
        axis = 0 if quantization is None else quantization.axis
        key = (content, data.shape, data.dtype, step, axis)
        if key in self._constants:
            return self._constants[key]
        index = self.tensor(name, data.shape, data.dtype, quantization)
        if content not in self._stored:
            self._stored[content] = len(self._buffers)
            self._buffers.append((content, data.dtype.itemsize))
        self._tensors[index] = replace(self._tensors[index], buffer=self._stored[content])
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
        """Append an operator, at the oldest version that reads these types and sizes (`graph.tflite.write.versions`).

        Args:
            name: a name of `BuiltinOperator`, for example ``CONV_2D``.
            inputs: tensor indices.
            outputs: tensor indices.
            options: a name of `BuiltinOptions`, for example ``Conv2DOptions``; empty for none.
            settings: fields of those options.

        Raises:
            LimitError: an engine would not compute it.
        """
        read = [self._tensors[i] for i in inputs]
        steps = [each.quantization is not None for each in read]
        limits.check(name, [each.dtype for each in read], [each.shape for each in read], steps)
        version = versions.oldest(name, [each.dtype for each in read], [each.shape for each in read], settings)
        key = (getattr(schema.BuiltinOperator, name), version)
        self._operators.append(
            _Operator(
                code=self._codes.setdefault(key, len(self._codes)),
                inputs=tuple(inputs),
                outputs=tuple(outputs),
                options=options,
                settings=settings,
            )
        )

    def open_axis(self, index: int, axis: int) -> None:
        """Mark an axis of a tensor whose size the reader of the file may change."""
        self._tensors[index] = replace(self._tensors[index], open_axis=axis)

    def _names(self, fixed: Mapping[int, str], *, inner: bool) -> list[str]:
        """Give every tensor a name of its own, by which quantisers know it; or only the fixed ones."""
        if not inner:
            return [fixed.get(index, "") for index in range(len(self._tensors))]
        taken = set(fixed.values())
        counts: dict[str, int] = {}
        names = []
        for index, tensor in enumerate(self._tensors):
            name = base = fixed.get(index, tensor.name)
            while index not in fixed and name in taken:
                counts[base] = counts.get(base, 0) + 1
                name = f"{base}.{counts[base]}"
            names.append(name)
            taken.add(name)
        return names

    def pack(self, inputs: Mapping[str, int], outputs: Mapping[str, int], *, names: bool = True) -> bytes:
        """Write the finished file.

        Args:
            inputs: name to index of the tensors the caller fills, in order. Names go to the tensors and into the
                signature; a tensor has one role at most.
            outputs: the same of the tensors the caller reads.
            names: all other tensors keep their names too.
        """
        packing = Packing()
        called = self._names({index: name for name, index in (*inputs.items(), *outputs.items())}, inner=names)
        buffers = [packing.table("Buffer", Data=packing.content(*each)) if each[0] else 0 for each in self._buffers]
        buffers[0] = packing.table("Buffer")
        graph = packing.table(
            "SubGraph",
            Tensors=packing.places(
                [_tensor(packing, each, name) for each, name in zip(self._tensors, called, strict=True)]
            ),
            Inputs=_integers(packing, inputs.values()),
            Outputs=_integers(packing, outputs.values()),
            Operators=packing.places([_operator(packing, each) for each in self._operators]),
            Name=packing.text("main"),
        )
        signature = packing.table(
            "SignatureDef",
            Inputs=_named(packing, inputs),
            Outputs=_named(packing, outputs),
            SignatureKey=packing.text(_SIGNATURE),
        )
        codes = [
            packing.table(
                "OperatorCode",
                BuiltinCode=builtin,
                Version=version,
                DeprecatedBuiltinCode=min(builtin, _LAST_ONE_BYTE_CODE),
            )
            for builtin, version in self._codes
        ]
        return packing.finish(
            packing.table(
                "Model",
                Version=_SCHEMA,
                OperatorCodes=packing.places(codes),
                Subgraphs=packing.places([graph]),
                Description=packing.text("edge-runtime"),
                Buffers=packing.places(buffers),
                SignatureDefs=packing.places([signature]),
            )
        )


def _tensor(packing: Packing, tensor: _Tensor, name: str) -> int:
    fields = {"Shape": _integers(packing, tensor.shape), "Buffer": tensor.buffer}
    if name:
        fields["Name"] = packing.text(name)
    if tensor.quantization is not None:
        scale = np.atleast_1d(tensor.quantization.scale).astype(np.float32)
        fields["Quantization"] = packing.table(
            "QuantizationParameters",
            Scale=packing.numbers(scale),
            ZeroPoint=packing.numbers(np.full(scale.shape, tensor.quantization.zero_point, np.int64)),
            QuantizedDimension=tensor.quantization.axis,
        )
    if tensor.open_axis is not None:
        open_sizes = [-1 if axis == tensor.open_axis else size for axis, size in enumerate(tensor.shape)]
        fields["ShapeSignature"] = _integers(packing, open_sizes)
    return packing.table("Tensor", **fields, Type=_STORED[tensor.dtype])


def _operator(packing: Packing, operator: _Operator) -> int:
    fields = {
        "OpcodeIndex": operator.code,
        "Inputs": _integers(packing, operator.inputs),
        "Outputs": _integers(packing, operator.outputs),
    }
    if operator.options:
        fields["BuiltinOptions"] = packing.options(operator.options, operator.settings)
        fields["BuiltinOptionsType"] = getattr(schema.BuiltinOptions, operator.options)
    return packing.table("Operator", **fields)


def _named(packing: Packing, tensors: Mapping[str, int]) -> int:
    entries = [packing.table("TensorMap", Name=packing.text(n), TensorIndex=i) for n, i in tensors.items()]
    return packing.places(entries)


def _integers(packing: Packing, numbers: Iterable[int]) -> int:
    return packing.numbers(np.array([*numbers], np.int32))
