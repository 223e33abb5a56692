"""Is this the model file it claims to be, and is it whole in itself? Asked without any model library.

Only what must be known before a library sees the bytes: the format is the one the manifest names (a library that
guesses formats could be handed a third one), the outermost structure is not cut short, and no tensor's data lies in
another file. Everything finer is left to the library in a child process (`edge_runtime.model.bundle.sandbox`).

Sources: onnx.proto3 of ONNX (field numbers below); Protocol Buffers encoding; schema.fbs of LiteRT (file identifier
TFL3, fields of Model); CVE-2022-25882, CVE-2024-27318 and CVE-2026-27489 for why external data is refused.
"""

from __future__ import annotations

import struct

from edge_runtime.base.system import protobuf
from edge_runtime.errors import IntegrityError

# Message fields that lead from a ModelProto to every TensorProto in it: {message: {field: message}}.
_ONNX_PATHS: dict[str, dict[int, str]] = {
    "model": {7: "graph", 20: "training", 25: "function"},
    "training": {1: "graph", 2: "graph"},
    "function": {7: "node", 11: "attribute"},
    "graph": {1: "node", 5: "tensor", 15: "sparse"},
    "node": {5: "attribute"},
    "attribute": {5: "tensor", 6: "graph", 10: "tensor", 11: "graph", 22: "sparse", 23: "sparse"},
    "sparse": {1: "tensor", 2: "tensor"},
    "tensor": {},
}
_EXTERNAL_DATA, _DATA_LOCATION = 13, 14
_MAX_DEPTH = 64

_TFLITE_MAGIC = b"TFL3"
# Slots of Model in schema.fbs: weights in other files.
_TFLITE_EXTERNAL = {8: "external_buffer_groups", 9: "external_buffers"}


def check(data: bytes, model_format: str) -> None:
    """Refuse bytes that are not a self-contained model file of the format.

    Args:
        data: a file's bytes, digest already verified.
        model_format: ``onnx`` or ``tflite``.

    Raises:
        IntegrityError: says what is wrong, without the file's name.
    """
    if model_format == "tflite":
        _check_tflite(data)
    else:
        _check_onnx(data)


def _check_onnx(data: bytes) -> None:
    view = memoryview(data)
    try:
        found = {number for number, _, _ in protobuf.fields(view)}
        if not {1, 7, 8} <= found:  # ir_version, graph, opset_import
            raise IntegrityError("not an ONNX model: no graph, or no version")
        _walk("model", view, 0)
    except ValueError as error:
        raise IntegrityError(f"not an ONNX model: {error}") from None


def _walk(message: str, view: memoryview, depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise IntegrityError(f"not a usable ONNX model: graphs nested deeper than {_MAX_DEPTH}")
    paths = _ONNX_PATHS[message]
    for number, wire, value in protobuf.fields(view):
        if message == "tensor" and (number == _EXTERNAL_DATA or (number == _DATA_LOCATION and value)):
            raise IntegrityError("keeps tensor data in another file; save the model with its data inside")
        if number in paths and wire == protobuf.BYTES:
            assert isinstance(value, memoryview)
            _walk(paths[number], value, depth + 1)


def _check_tflite(data: bytes) -> None:
    if len(data) < 16 or data[4:8] != _TFLITE_MAGIC:
        raise IntegrityError("not a TFLite model: its identifier is not TFL3")
    try:
        (table,) = struct.unpack_from("<I", data, 0)
        (back,) = struct.unpack_from("<i", data, table)
        (size,) = struct.unpack_from("<H", data, table - back) if table >= back else (0,)
    except struct.error as error:
        raise IntegrityError("not a TFLite model, or cut short: its root table lies outside the file") from error
    for slot, name in _TFLITE_EXTERNAL.items():
        entry = 4 + 2 * slot
        if entry + 2 <= size and struct.unpack_from("<H", data, table - back + entry)[0]:
            raise IntegrityError(f"keeps weights in another file ({name}); save the model with its data inside")
