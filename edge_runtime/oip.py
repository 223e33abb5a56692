"""Open Inference Protocol v2 (OIP, also "KServe v2"): tensors as JSON and as bytes, for client and server alike.

One message is a JSON document, optionally followed by the tensors' bytes ("binary tensor data extension")::

    ┌────────── JSON, `json_bytes` long ──────────┬── tensor 1 ──┬── tensor 2 ──┐
    {"id": "7", "inputs": [{"name": "x",           little-endian, row-major,
      "datatype": "FP32", "shape": [2, 3],         no padding, in JSON order
      "parameters": {"binary_data_size": 24}}]}
    └──────────────── Content-Length counts all of it ─────────────────────────┘

`json_bytes` travels as the header ``Inference-Header-Content-Length``; without that header the whole body is JSON.
This module holds the format and every limit on it. It opens no socket; `http1` frames it, `cloud` and `serve` use it.

Everything unreadable is an `InputError`; the client turns it into `CloudRejected`, the server into status 400.

Sources: the Open Inference Protocol specification (kserve/open-inference-protocol, ``inference_rest.md``) and Triton's
``extension_binary_data.md``. Where the examples printed there contradict real servers, the servers were followed.
"""

from __future__ import annotations

import math
import reprlib
import struct
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
import orjson

from edge_runtime.errors import InputError

Array: TypeAlias = npt.NDArray[Any]
Parameter: TypeAlias = bool | int | float | str
Buffer: TypeAlias = bytes | bytearray | memoryview

JSON_LENGTH_HEADER = "Inference-Header-Content-Length"
BINARY_EXTENSION = "binary_tensor_data"
JSON_TYPE = "application/json"
BINARY_TYPE = "application/octet-stream"

# OIP datatype -> the numpy dtype it has on the wire. BF16 is missing on purpose: numpy has no such type, and it is an
# addition of one server, not part of the protocol.
WIRE_DTYPES: Mapping[str, np.dtype[Any]] = {
    "BOOL": np.dtype("?"),
    "UINT8": np.dtype("<u1"),
    "UINT16": np.dtype("<u2"),
    "UINT32": np.dtype("<u4"),
    "UINT64": np.dtype("<u8"),
    "INT8": np.dtype("<i1"),
    "INT16": np.dtype("<i2"),
    "INT32": np.dtype("<i4"),
    "INT64": np.dtype("<i8"),
    "FP16": np.dtype("<f2"),
    "FP32": np.dtype("<f4"),
    "FP64": np.dtype("<f8"),
    "BYTES": np.dtype(object),
}
_NAMES = {dtype.str[1:]: name for name, dtype in WIRE_DTYPES.items()}

# Names the protocol or a server gives a meaning to; a caller's own parameter must not collide with them.
RESERVED_PARAMETERS = frozenset({"binary_data_output", "headers"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a reader of messages accepts; beyond it, the message is refused before memory is spent on it."""

    max_body_bytes: int = 64 * 2**20
    """Whole body, JSON and tensors."""
    max_json_bytes: int = 8 * 2**20
    """JSON alone: a number of two characters becomes about 40 bytes of Python objects, so 8 MiB may cost 160 MiB."""
    max_tensors: int = 64
    max_dims: int = 8
    max_name_chars: int = 256
    """Of a tensor name, a request id, a model name."""


DEFAULT_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """Name, OIP datatype and shape of a tensor; -1 is a dimension of any size, the first one is usually the batch.

    Raises:
        InputError: the datatype is not one of `WIRE_DTYPES`, or the shape holds something else than -1 and sizes.
    """

    name: str
    datatype: str
    shape: tuple[int, ...]

    def __post_init__(self) -> None:
        if self.datatype not in WIRE_DTYPES:
            raise InputError(
                "datatype",
                f"tensor {self.name!r} has datatype {self.datatype[:20]!r}; known are {', '.join(WIRE_DTYPES)}",
            )
        if any(size < -1 for size in self.shape):
            raise InputError(
                "shape", f"tensor {self.name!r} has shape {list(self.shape)}; sizes are >= 0, or -1 for any"
            )

    @property
    def dtype(self) -> np.dtype[Any]:
        """The numpy dtype, in the machine's own byte order."""
        return WIRE_DTYPES[self.datatype].newbyteorder("=")

    def accepts(self, shape: Sequence[int]) -> bool:
        """Whether an array (or another spec) of this shape fits; -1 fits anything on either side."""
        return len(shape) == len(self.shape) and all(
            -1 in (mine, theirs) or mine == theirs for mine, theirs in zip(self.shape, shape, strict=True)
        )

    def __str__(self) -> str:
        return f"{self.name!r} {self.datatype} {list(self.shape)}"


@dataclass(frozen=True, slots=True)
class RequestedOutput:
    """One entry of a request's `outputs`; `binary` is None where the request does not say."""

    name: str
    binary: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class InferRequest:
    """A decoded inference request. `outputs` is empty when the caller wants all of them."""

    inputs: dict[str, Array]
    id: str | None = None
    outputs: tuple[RequestedOutput, ...] = ()
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def wants_binary(self, output: str) -> bool:
        """Whether this output is to be answered as bytes: its own flag first, then the request's."""
        for requested in self.outputs:
            if requested.name == output and requested.binary is not None:
                return requested.binary
        return self.parameters.get("binary_data_output") is True


@dataclass(frozen=True, slots=True, kw_only=True)
class InferResponse:
    """A decoded inference answer."""

    outputs: dict[str, Array]
    id: str | None = None
    model_name: str | None = None
    model_version: str | None = None


@dataclass(frozen=True, slots=True)
class Body:
    """An encoded message: `parts` go out one after the other.

    Attributes:
        json_bytes: length of the JSON in front, for the header `JSON_LENGTH_HEADER`; None when all of it is JSON.
    """

    parts: tuple[Buffer, ...]
    json_bytes: int | None = None

    @property
    def content_type(self) -> str:
        """The media type to send it with."""
        return JSON_TYPE if self.json_bytes is None else BINARY_TYPE

    def joined(self) -> bytes:
        """All parts as one piece."""
        return self.parts[0] if len(self.parts) == 1 and isinstance(self.parts[0], bytes) else b"".join(self.parts)


def datatype_of(dtype: np.dtype[Any]) -> str:
    """The OIP datatype of a numpy dtype.

    Raises:
        InputError: OIP has none, for instance for complex numbers.
    """
    name = "BYTES" if dtype.kind in "OSU" else _NAMES.get(dtype.str[1:])
    if name is None:
        raise InputError("datatype", f"numpy dtype {dtype} has no OIP datatype; convert it, for instance to float32")
    return name


def json_length(header: str | None) -> int | None:
    """The value of `JSON_LENGTH_HEADER`; None where the header is missing, and all of the body is JSON.

    Raises:
        InputError: it is not a number.
    """
    if header is None:
        return None
    if not (header.isascii() and header.isdigit() and len(header) < 16):
        raise InputError("size", f"{JSON_LENGTH_HEADER} is {header[:40]!r}, which is not a number of bytes")
    return int(header)


# -- encoding ----------------------------------------------------------------------------------------------------------


def encode_request(
    inputs: Mapping[str, Array],
    *,
    request_id: str,
    outputs: Sequence[str] = (),
    parameters: Mapping[str, Parameter] | None = None,
    binary: bool,
) -> Body:
    """Encode an inference request.

    Args:
        inputs: arrays by input name; the shape is that of the whole batch.
        request_id: echoed by the server; not a key against duplicates.
        outputs: names wanted back, all when empty.
        parameters: request parameters, such as Triton's ``priority`` or ``timeout`` (microseconds).
        binary: send bytes and ask for bytes. Asked for on the request *and* on each listed output, since KServe
            overlooks the request's flag once outputs are listed (kserve/kserve#5907).

    Raises:
        InputError: an array cannot be expressed: no OIP datatype, or NaN or infinity in JSON.
    """
    taken = RESERVED_PARAMETERS.intersection(parameters or ())
    if taken:
        raise InputError("parameter", f"parameter {min(taken)!r} is set by the protocol itself; use another name")
    document: dict[str, Any] = {"id": request_id}
    sent = dict(parameters or {})
    if binary:
        sent["binary_data_output"] = True
    if sent:
        document["parameters"] = sent
    document["inputs"], blobs = _encode_tensors(inputs, inputs.keys() if binary else ())
    if outputs:
        flag = {"parameters": {"binary_data": True}} if binary else {}
        document["outputs"] = [{"name": name, **flag} for name in outputs]
    return _body(document, blobs)


def encode_response(
    outputs: Mapping[str, Array],
    *,
    model_name: str,
    model_version: str,
    request_id: str | None,
    binary: Collection[str],
) -> Body:
    """Encode an inference answer; outputs named in `binary` go as bytes, the others as JSON.

    Raises:
        InputError: as `encode_request`.
    """
    document: dict[str, Any] = {"model_name": model_name, "model_version": model_version}
    if request_id is not None:
        document["id"] = request_id
    document["outputs"], blobs = _encode_tensors(outputs, binary)
    return _body(document, blobs)


def tensor_bytes(array: Array) -> Buffer:
    """The bytes of an array as OIP sends them; BYTES elements each follow their length (4 bytes, little-endian)."""
    datatype = datatype_of(array.dtype)
    if datatype == "BYTES":
        elements = [_element_bytes(element) for element in array.ravel()]
        return b"".join(piece for data in elements for piece in (struct.pack("<I", len(data)), data))
    flat = np.ascontiguousarray(array, dtype=WIRE_DTYPES[datatype]).reshape(-1)
    return flat.view(np.uint8).data


def _body(document: dict[str, Any], blobs: list[Buffer]) -> Body:
    head = orjson.dumps(document, option=orjson.OPT_SERIALIZE_NUMPY)
    return Body((head, *blobs), len(head)) if blobs else Body((head,))


def _encode_tensors(tensors: Mapping[str, Array], binary: Collection[str]) -> tuple[list[dict[str, Any]], list[Buffer]]:
    entries: list[dict[str, Any]] = []
    blobs: list[Buffer] = []
    for name, array in tensors.items():
        entry: dict[str, Any] = {"name": name, "datatype": datatype_of(array.dtype), "shape": list(array.shape)}
        if name in binary:
            blob = tensor_bytes(array)
            entry["parameters"] = {"binary_data_size": len(blob)}
            blobs.append(blob)
        else:
            entry["data"] = _json_data(name, array)
        entries.append(entry)
    return entries, blobs


def _json_data(name: str, array: Array) -> Any:
    """What the JSON encoder writes for an array: flat, row-major."""
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


# -- decoding ----------------------------------------------------------------------------------------------------------


def decode_request(data: Buffer, json_bytes: int | None, limits: Limits = DEFAULT_LIMITS) -> InferRequest:
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


def decode_response(data: Buffer, json_bytes: int | None, limits: Limits = DEFAULT_LIMITS) -> InferResponse:
    """Decode an inference answer; arguments, arrays and errors as in `decode_request`."""
    document, blob = _split(data, json_bytes, limits)
    return InferResponse(
        outputs=_decode_tensors(document, "outputs", blob, limits),
        id=_optional_text(document, "id", limits),
        model_name=_optional_text(document, "model_name", limits),
        model_version=_optional_text(document, "model_version", limits),
    )


def decode_specs(document: Mapping[str, Any], key: str, limits: Limits = DEFAULT_LIMITS) -> tuple[TensorSpec, ...]:
    """The tensor specs under `key` ("inputs", "outputs") of a model's metadata; empty where the server states none.

    Raises:
        InputError: they are malformed.
    """
    if document.get(key) is None:
        return ()
    return tuple(
        TensorSpec(_name(entry, "tensor", limits), str(entry.get("datatype")), _shape(entry, limits, wildcard=True))
        for entry in _list_of_objects(document, key, limits)
    )


def decode_object(data: Buffer, limits: Limits = DEFAULT_LIMITS) -> dict[str, Any]:
    """A JSON object.

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
    """The first bytes of something unreadable, printable and on one line, for an error message."""
    text = " ".join(bytes(data[: 4 * limit]).decode("ascii", "replace").split())
    shown = "".join(character if character.isprintable() else "?" for character in text)
    return repr(shown[:limit] + ("..." if len(shown) > limit else ""))


def array_from_bytes(spec: TensorSpec, blob: Buffer) -> Array:
    """The array that `blob` holds; `spec` has no -1 in its shape.

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


def array_from_json(spec: TensorSpec, data: Any) -> Array:
    """The array that a JSON list holds, flat or nested as the shape says; `spec` has no -1 in its shape.

    Raises:
        InputError: the number of elements, their kind or their range does not fit.
    """
    if not isinstance(data, list):
        raise InputError("value", f"tensor {spec} needs a list under 'data'")
    if spec.datatype == "BYTES":
        texts = _flatten(data)
        if not all(isinstance(text, str) for text in texts):
            raise InputError("value", f"tensor {spec} needs strings under 'data'")
        raw: Array = np.empty(len(texts), dtype=object)
        raw[:] = [text.encode() for text in texts]
    else:
        try:
            raw = np.asarray(data)
            if spec.datatype == "UINT64" and raw.dtype.kind == "f":
                raw = np.asarray(data, dtype=object)  # numpy makes floats of small and huge integers in one list
        except (ValueError, OverflowError):
            raise InputError("shape", f"tensor {spec} has a ragged list under 'data'") from None
        if raw.ndim != 1 and raw.shape != spec.shape:
            raise InputError("shape", f"tensor {spec} has lists of shape {list(raw.shape)} under 'data'")
    if raw.size != math.prod(spec.shape):
        raise InputError("shape", f"tensor {spec} needs {math.prod(spec.shape)} elements, {raw.size} came")
    return raw.reshape(spec.shape) if spec.datatype == "BYTES" else _cast(spec, raw).reshape(spec.shape)


def _cast(spec: TensorSpec, raw: Array) -> Array:
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


def _split_elements(spec: TensorSpec, blob: Buffer, count: int) -> list[bytes]:
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


def _split(data: Buffer, json_bytes: int | None, limits: Limits) -> tuple[dict[str, Any], memoryview]:
    """The JSON document and the bytes after it."""
    view = memoryview(data)
    if len(view) > limits.max_body_bytes:
        raise InputError("too_large", f"a body of {len(view)} bytes is over the limit of {limits.max_body_bytes}")
    length = len(view) if json_bytes is None else json_bytes
    if not 0 <= length <= len(view):
        raise InputError("size", f"{JSON_LENGTH_HEADER} says {length} bytes, the body has {len(view)}")
    return decode_object(view[:length], limits), view[length:]


def _decode_tensors(document: Mapping[str, Any], key: str, blob: memoryview, limits: Limits) -> dict[str, Array]:
    arrays: dict[str, Array] = {}
    at = 0
    for entry in _list_of_objects(document, key, limits):
        spec = TensorSpec(_name(entry, "tensor", limits), str(entry.get("datatype")), _shape(entry, limits))
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


def _list_of_objects(document: Mapping[str, Any], key: str, limits: Limits) -> list[dict[str, Any]]:
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


def _name(entry: Mapping[str, Any], what: str, limits: Limits) -> str:
    name = entry.get("name")
    if not isinstance(name, str) or not 0 < len(name) <= limits.max_name_chars:
        raise InputError("name", f"a {what} needs a 'name' of 1 to {limits.max_name_chars} characters")
    return name


def _optional_text(document: Mapping[str, Any], key: str, limits: Limits) -> str | None:
    text = document.get(key)
    if text is None:
        return None
    if not isinstance(text, str) or len(text) > limits.max_name_chars:
        raise InputError("json", f"{key!r} must be text of at most {limits.max_name_chars} characters")
    return text


def _shape(entry: Mapping[str, Any], limits: Limits, *, wildcard: bool = False) -> tuple[int, ...]:
    return check_shape(str(entry.get("name")), entry.get("shape"), limits, wildcard=wildcard)


def check_shape(
    name: str, shape: object, limits: Limits = DEFAULT_LIMITS, *, wildcard: bool = False
) -> tuple[int, ...]:
    """The shape of tensor `name`, small enough that its element count can be trusted with an allocation.

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
