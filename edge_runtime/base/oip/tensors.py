"""One tensor between numpy and the wire, as bytes and as JSON."""

from __future__ import annotations

import math
import struct
from collections.abc import Iterable
from typing import Any

import numpy as np

from edge_runtime.base.oip.messages import WIRE_DTYPES, Array, Buffer, OipTensor, datatype_of
from edge_runtime.errors import InputError


def tensor_bytes(array: Array) -> Buffer:
    """Encode an array's bytes as OIP sends them; BYTES elements each follow their length (4 bytes, little-endian)."""
    datatype = datatype_of(array.dtype)
    if datatype == "BYTES":
        elements = [_element_bytes(element) for element in array.ravel()]
        return b"".join(piece for data in elements for piece in (struct.pack("<I", len(data)), data))
    flat = np.ascontiguousarray(array, dtype=WIRE_DTYPES[datatype]).reshape(-1)
    return flat.view(np.uint8).data


def tensor_json(name: str, array: Array) -> Any:
    """Encode an array for the JSON encoder: flat, row-major.

    Raises:
        InputError: JSON cannot carry its values.
    """
    kind = array.dtype.kind
    if kind in "OSU":
        try:
            return [_element_bytes(element).decode() for element in array.ravel()]
        except UnicodeDecodeError:
            raise InputError(
                "json", f"tensor {name!r} holds bytes that are not UTF-8, which JSON cannot carry"
            ) from None
    if kind == "f" and not np.isfinite(array).all():
        raise InputError("not_finite", f"tensor {name!r} holds NaN or infinity, which JSON cannot carry")
    # float16 widens first: some releases of the JSON encoder do not know it. The value stays the same.
    wire = np.dtype(np.float32) if array.dtype.itemsize == 2 and kind == "f" else array.dtype.newbyteorder("=")
    return np.ascontiguousarray(array, dtype=wire).reshape(-1)


def _element_bytes(element: object) -> bytes:
    if isinstance(element, str):
        return element.encode()
    if isinstance(element, bytes):
        return element
    raise InputError("datatype", f"BYTES tensors hold bytes or str, not {type(element).__name__}")


def array_from_bytes(spec: OipTensor, blob: Buffer) -> Array:
    """Decode the array that `blob` holds; `spec` has no -1 in its shape.

    Raises:
        InputError: the length does not fit the shape and datatype.
    """
    count = math.prod(spec.shape)
    if spec.datatype == "BYTES":
        elements = _split_elements(spec, blob, count)
        array: Array = np.empty(count, dtype=object)  # only now: the shape may have promised billions
        array[:] = elements
    else:
        wire = WIRE_DTYPES[spec.datatype]
        if len(blob) != count * wire.itemsize:
            raise InputError("size", f"tensor {spec} needs {count * wire.itemsize} bytes, {len(blob)} came")
        # A copy: aligned whatever the length of the JSON before it, writable, and free of the body it came in.
        raw = np.frombuffer(blob, dtype=np.uint8 if spec.datatype == "BOOL" else wire)
        if spec.datatype == "BOOL" and raw.size and raw.max() > 1:
            raise InputError("value", f"tensor {spec} holds bytes other than 0 and 1")
        array = raw.astype(spec.dtype)
    return array.reshape(spec.shape)


def array_from_json(spec: OipTensor, data: Any) -> Array:
    """Decode the array that a JSON list holds, flat or nested as the shape says; `spec` has no -1 in its shape.

    1. Strings may be nested in any way, for their number alone has to fit.
    2. UINT64 stays exact: where numpy makes floats of small and huge integers in one list, the integers are kept.
    3. Numbers are flat, and as many as the shape says, or nested exactly as it says.

    Raises:
        InputError: the number of elements, their kind or their range does not fit.
    """
    if not isinstance(data, list):
        raise InputError("value", f"tensor {spec} needs a list under 'data'")
    if spec.datatype == "BYTES":
        texts = _flatten(data)  # rule 1
        if not all(isinstance(text, str) for text in texts):
            raise InputError("value", f"tensor {spec} needs strings under 'data'")
        raw: Array = np.empty(len(texts), dtype=object)
        raw[:] = [text.encode() for text in texts]
    else:
        try:
            raw = np.asarray(data)
            if spec.datatype == "UINT64" and raw.dtype.kind == "f":  # rule 2
                raw = np.asarray(data, dtype=object)
        except (ValueError, OverflowError):
            raise InputError("shape", f"tensor {spec} has a ragged list under 'data'") from None
        if raw.ndim != 1 and raw.shape != spec.shape:  # rule 3
            raise InputError("shape", f"tensor {spec} has lists of shape {list(raw.shape)} under 'data'")
    if raw.size != math.prod(spec.shape):  # rule 3
        raise InputError("shape", f"tensor {spec} needs {math.prod(spec.shape)} elements, {raw.size} came")
    return raw.reshape(spec.shape) if spec.datatype == "BYTES" else _cast(spec, raw).reshape(spec.shape)


def _cast(spec: OipTensor, raw: Array) -> Array:
    """Numbers as the JSON parser made them -> the tensor's dtype, refusing what does not fit exactly enough."""
    target = spec.dtype
    if raw.size == 0:
        return np.empty(0, dtype=target)
    allowed = {"f": "iuf", "b": "biu"}.get(target.kind, "iu")
    integers = raw.dtype.kind == "O" and target.kind == "u" and all(type(value) is int for value in raw.flat)
    if raw.dtype.kind not in allowed and not integers:
        raise InputError("value", f"tensor {spec} holds something else than numbers of its datatype (null, text, ...)")
    if target.kind == "f":
        with np.errstate(over="ignore"):
            array = raw.astype(target)
        if not np.isfinite(array).all():
            raise InputError("value", f"tensor {spec} holds numbers beyond {spec.datatype}")
        return array
    low, high = (0, 1) if target.kind == "b" else (np.iinfo(target).min, np.iinfo(target).max)
    if raw.dtype.kind != "b" and (int(raw.min()) < low or int(raw.max()) > high):
        raise InputError("value", f"tensor {spec} holds integers beyond {spec.datatype}")
    return raw.astype(target)


def _flatten(data: Iterable[Any]) -> list[Any]:
    """Elements of nested lists, depth first, without recursion (the JSON parser bounds the depth, not we)."""
    flat: list[Any] = []
    stack = [iter(data)]
    while stack:
        for item in stack[-1]:
            if isinstance(item, list):
                stack.append(iter(item))
                break
            flat.append(item)
        else:
            stack.pop()
    return flat


def _split_elements(spec: OipTensor, blob: Buffer, count: int) -> list[bytes]:
    view = memoryview(blob)
    if count * 4 > len(view):
        raise InputError("size", f"tensor {spec} needs at least {count * 4} bytes, {len(view)} came")
    elements: list[bytes] = []
    at = 0
    for _ in range(count):
        if at + 4 > len(view):
            break
        (length,) = struct.unpack_from("<I", view, at)
        elements.append(bytes(view[at + 4 : at + 4 + length]))
        at += 4 + length
    if len(elements) != count or at != len(view):
        raise InputError("size", f"tensor {spec} has element lengths that do not add up to its {len(view)} bytes")
    return elements
