"""TensorFlow Lite file taken apart, to be edited and written again.

Source: schema version 3 of LiteRT.
"""

from __future__ import annotations

from typing import Any

import flatbuffers
import numpy as np
import numpy.typing as npt
from ai_edge_litert import schema_py_generated as schema

from edge_runtime.errors import ConfigError

TYPES: dict[int, np.dtype[Any]] = {
    schema.TensorType.FLOAT32: np.dtype(np.float32),
    schema.TensorType.FLOAT16: np.dtype(np.float16),
    schema.TensorType.INT8: np.dtype(np.int8),
    schema.TensorType.UINT8: np.dtype(np.uint8),
    schema.TensorType.INT16: np.dtype(np.int16),
    schema.TensorType.INT32: np.dtype(np.int32),
    schema.TensorType.INT64: np.dtype(np.int64),
    schema.TensorType.BOOL: np.dtype(np.bool_),
}
"""Element types as numpy has them, by their number in the schema."""

_NAMES = {number: name for name, number in vars(schema.BuiltinOperator).items() if isinstance(number, int)}


def unpack(data: bytes, file: str) -> Any:
    """Return the file as objects of LiteRT's schema, a ``ModelT``.

    Args:
        data: the file's bytes.
        file: named in errors.

    Raises:
        ConfigError: it is no such file, or a damaged one.
    """
    if data[4:8] != b"TFL3":
        raise ConfigError(f"{file}: not a TensorFlow Lite file")
    try:
        model = schema.ModelT.InitFromPackedBuf(data, 0)
    except Exception as error:  # a damaged buffer ends in any of a dozen types
        raise ConfigError(f"{file}: not a whole TensorFlow Lite file: {error}") from error
    if not model.subgraphs:
        raise ConfigError(f"{file}: holds no graph")
    return model


def repack(model: Any) -> bytes:
    """Write what `unpack` returned."""
    builder = flatbuffers.Builder(1024)
    builder.Finish(model.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def builtin(code: Any) -> int:
    """Return an operator code's number; old writers know the one-byte field only."""
    return max(int(code.builtinCode), int(code.deprecatedBuiltinCode))


def operator_name(code: Any) -> str:
    """Return an operator code's name in the schema, or the name of its own that it has."""
    number = builtin(code)
    return text(code.customCode) if code.customCode else _NAMES.get(number, str(number))


def text(name: Any) -> str:
    """Return a name, which the schema reads as bytes."""
    return name.decode("utf-8", "replace") if isinstance(name, bytes) else str(name)


def constant(model: Any, tensor: Any) -> npt.NDArray[np.uint8] | None:
    """Return the bytes of a tensor's fixed content; None where an operator or the caller fills it."""
    content = model.buffers[tensor.buffer].data
    return None if content is None or not len(content) else np.asarray(content, np.uint8)


def drop_unused(model: Any) -> None:
    """Take operator codes and buffers out of a file that nothing of it refers to any more."""
    operators = [operator for graph in model.subgraphs for operator in graph.operators]
    codes = sorted({operator.opcodeIndex for operator in operators})
    for operator in operators:
        operator.opcodeIndex = codes.index(operator.opcodeIndex)
    model.operatorCodes = [model.operatorCodes[code] for code in codes]
    owners = [tensor for graph in model.subgraphs for tensor in graph.tensors]
    owners += model.metadata or []
    # The format reserves buffer 0 for tensors without content.
    kept = sorted({0} | {owner.buffer for owner in owners})
    places = {old: new for new, old in enumerate(kept)}
    for owner in owners:
        owner.buffer = places[owner.buffer]
    model.metadataBuffer = None
    model.buffers = [model.buffers[old] for old in kept]
