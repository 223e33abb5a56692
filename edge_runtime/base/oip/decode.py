"""From the bytes that came in to requests, answers and metadata; nothing in them is trusted."""

from __future__ import annotations

import math
import reprlib
from collections.abc import Mapping
from typing import Any

import orjson

from edge_runtime.base.oip.messages import (
    DEFAULT_LIMITS,
    JSON_LENGTH_HEADER,
    Array,
    Buffer,
    InferRequest,
    InferResponse,
    OipLimits,
    OipTensor,
    RequestedOutput,
)
from edge_runtime.base.oip.tensors import array_from_bytes, array_from_json
from edge_runtime.errors import InputError


def decode_request(data: Buffer, json_bytes: int | None, limits: OipLimits = DEFAULT_LIMITS) -> InferRequest:
    """Decode an inference request.

    Args:
        data: the whole body.
        json_bytes: value of `JSON_LENGTH_HEADER`, None without that header.
        limits: what to accept.

    Returns:
        The request; its arrays are writable, aligned and own their memory.

    Raises:
        InputError: anything in it is malformed, contradictory or over a limit.
    """
    document, blob = _split(data, json_bytes, limits)
    requested = _list_of_objects(document, "outputs", limits) if "outputs" in document else []
    outputs = []
    for entry in requested:
        flags = _parameters(entry, "output")
        unsupported = flags.keys() - {"binary_data"}
        if unsupported:
            raise InputError("parameter", f"output parameter {min(unsupported)!r} is not supported; leave it out")
        binary = flags.get("binary_data")
        if binary is not None and not isinstance(binary, bool):
            raise InputError("parameter", "output parameter 'binary_data' is true or false")
        outputs.append(RequestedOutput(_name(entry, "output", limits), binary))
    return InferRequest(
        inputs=_decode_tensors(document, "inputs", blob, limits),
        id=_optional_text(document, "id", limits),
        outputs=tuple(outputs),
        parameters=_parameters(document, "request"),
    )


def decode_response(data: Buffer, json_bytes: int | None, limits: OipLimits = DEFAULT_LIMITS) -> InferResponse:
    """Decode an inference answer; arguments, arrays and errors as in `decode_request`."""
    document, blob = _split(data, json_bytes, limits)
    return InferResponse(
        outputs=_decode_tensors(document, "outputs", blob, limits),
        id=_optional_text(document, "id", limits),
        model_name=_optional_text(document, "model_name", limits),
        model_version=_optional_text(document, "model_version", limits),
    )


def decode_specs(document: Mapping[str, Any], key: str, limits: OipLimits = DEFAULT_LIMITS) -> tuple[OipTensor, ...]:
    """Decode the tensor specs under `key` ("inputs", "outputs") of a model's metadata; empty where there are none.

    Raises:
        InputError: they are malformed.
    """
    if document.get(key) is None:
        return ()
    return tuple(
        OipTensor(_name(entry, "tensor", limits), str(entry.get("datatype")), _shape(entry, limits, wildcard=True))
        for entry in _list_of_objects(document, key, limits)
    )


def decode_object(data: Buffer, limits: OipLimits = DEFAULT_LIMITS) -> dict[str, Any]:
    """Decode a JSON object.

    Raises:
        InputError: it is too long, not JSON, or not an object.
    """
    if len(data) > limits.max_json_bytes:
        raise InputError("too_large", f"JSON of {len(data)} bytes is over the limit of {limits.max_json_bytes}")
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise InputError("json", f"not JSON ({error}); it begins with {excerpt(data)}") from None
    if not isinstance(document, dict):
        raise InputError("json", f"a JSON object was expected; it begins with {excerpt(data)}")
    return document


def excerpt(data: Buffer, limit: int = 60) -> str:
    """Render the first bytes of something unreadable on one printable line, for an error message."""
    text = " ".join(bytes(data[: 4 * limit]).decode("ascii", "replace").split())
    shown = "".join(character if character.isprintable() else "?" for character in text)
    return repr(shown[:limit] + ("..." if len(shown) > limit else ""))


def _split(data: Buffer, json_bytes: int | None, limits: OipLimits) -> tuple[dict[str, Any], memoryview]:
    """Split the JSON document from the bytes after it."""
    view = memoryview(data)
    if len(view) > limits.max_body_bytes:
        raise InputError("too_large", f"a body of {len(view)} bytes is over the limit of {limits.max_body_bytes}")
    length = len(view) if json_bytes is None else json_bytes
    if not 0 <= length <= len(view):
        raise InputError("size", f"{JSON_LENGTH_HEADER} says {length} bytes, the body has {len(view)}")
    return decode_object(view[:length], limits), view[length:]


def _decode_tensors(document: Mapping[str, Any], key: str, blob: memoryview, limits: OipLimits) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    at = 0
    for entry in _list_of_objects(document, key, limits):
        spec = OipTensor(_name(entry, "tensor", limits), str(entry.get("datatype")), _shape(entry, limits))
        if spec.name in arrays:
            raise InputError("name", f"tensor {spec.name!r} is there twice")
        size = _parameters(entry, "tensor").get("binary_data_size")
        if size is None:
            arrays[spec.name] = array_from_json(spec, entry.get("data"))
        elif "data" in entry:
            raise InputError("size", f"tensor {spec} has both 'data' and 'binary_data_size'")
        elif type(size) is not int or not 0 <= size <= len(blob) - at:
            raise InputError("size", f"tensor {spec} says {reprlib.repr(size)} bytes, {len(blob) - at} are left")
        else:
            arrays[spec.name] = array_from_bytes(spec, blob[at : at + size])
            at += size
    if at != len(blob):
        raise InputError("size", f"{len(blob) - at} bytes after the last tensor belong to none")
    return arrays


def _list_of_objects(document: Mapping[str, Any], key: str, limits: OipLimits) -> list[dict[str, Any]]:
    entries = document.get(key)
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise InputError("json", f"{key!r} must be a list of objects")
    if len(entries) > limits.max_tensors:
        raise InputError("too_large", f"{len(entries)} {key} are over the limit of {limits.max_tensors}")
    return entries


def _parameters(entry: Mapping[str, Any], what: str) -> Mapping[str, Any]:
    parameters = entry.get("parameters")
    if parameters is None:
        return {}
    if not isinstance(parameters, dict):
        raise InputError("parameter", f"the {what}'s 'parameters' must be an object")
    return parameters


def _name(entry: Mapping[str, Any], what: str, limits: OipLimits) -> str:
    name = entry.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= limits.max_name_chars:
        raise InputError("name", f"a {what} needs a 'name' of 1 to {limits.max_name_chars} characters")
    return name


def _optional_text(document: Mapping[str, Any], key: str, limits: OipLimits) -> str | None:
    text = document.get(key)
    if text is None:
        return None
    if not isinstance(text, str) or len(text) > limits.max_name_chars:
        raise InputError("json", f"{key!r} must be text of at most {limits.max_name_chars} characters")
    return text


def _shape(entry: Mapping[str, Any], limits: OipLimits, *, wildcard: bool = False) -> tuple[int, ...]:
    return check_shape(str(entry.get("name")), entry.get("shape"), limits, wildcard=wildcard)


def check_shape(
    name: str, shape: object, limits: OipLimits = DEFAULT_LIMITS, *, wildcard: bool = False
) -> tuple[int, ...]:
    """Check the shape of tensor `name`: small enough that its element count can be trusted with an allocation.

    Every dimension is below 2**31 and the product of the non-zero ones below 2**40, so no later product overflows; the
    number of *bytes* is held against what really came before anything is allocated.

    Raises:
        InputError: it is not a list of sizes (-1 among them only with `wildcard`), or absurd.
    """
    low = -1 if wildcard else 0
    if not isinstance(shape, list) or not all(type(size) is int and low <= size < 2**31 for size in shape):
        raise InputError("shape", f"tensor {name!r} needs a 'shape' of sizes, not {reprlib.repr(shape)}")
    if len(shape) > limits.max_dims or math.prod(size for size in shape if size > 0) >= 2**40:
        raise InputError("shape", f"tensor {name!r} has an absurd shape {reprlib.repr(shape)}")
    return tuple(shape)
