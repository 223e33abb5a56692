"""Contents of inference messages: tensors and their datatypes, requests, answers, and the limits on all of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

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
class OipLimits:
    """Limits on messages; one beyond them is refused before memory is spent on it."""

    max_body_bytes: int = 64 * 2**20
    """Whole body, JSON and tensors."""
    max_json_bytes: int = 8 * 2**20
    """JSON alone: a number of two characters becomes about 40 bytes of Python objects, so 8 MiB may cost 160 MiB."""
    max_tensors: int = 64
    max_dims: int = 8
    max_name_chars: int = 256
    """Of a tensor name, a request id, a model name."""


DEFAULT_LIMITS = OipLimits()


@dataclass(frozen=True, slots=True)
class OipTensor:
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
        """Return whether an array (or another spec) of this shape fits; -1 fits anything on either side."""
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
        """Return whether this output is to be answered as bytes: its own flag first, then the request's."""
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
        """Join all parts into one piece."""
        return self.parts[0] if len(self.parts) == 1 and isinstance(self.parts[0], bytes) else b"".join(self.parts)


def datatype_of(dtype: np.dtype[Any]) -> str:
    """Return the OIP datatype of a numpy dtype.

    Raises:
        InputError: OIP has none, for instance for complex numbers.
    """
    name = "BYTES" if dtype.kind in "OSU" else _NAMES.get(dtype.str[1:])
    if name is None:
        raise InputError("datatype", f"numpy dtype {dtype} has no OIP datatype; convert it, for instance to float32")
    return name


def json_length(header: str | None) -> int | None:
    """Return the value of `JSON_LENGTH_HEADER`; None where the header is missing, and all of the body is JSON.

    Raises:
        InputError: it is not a number.
    """
    if header is None:
        return None
    if not (header.isascii() and header.isdigit() and len(header) < 16):
        raise InputError("size", f"{JSON_LENGTH_HEADER} is {header[:40]!r}, which is not a number of bytes")
    return int(header)
