"""Open Inference Protocol v2 (OIP, also "KServe v2"): tensors as JSON and as bytes, for client and server alike.

One message is a JSON document, optionally followed by the tensors' bytes ("binary tensor data extension")::

    ┌────────── JSON, `json_bytes` long ──────────┬── tensor 1 ──┬── tensor 2 ──┐
    {"id": "7", "inputs": [{"name": "x",           little-endian, row-major,
      "datatype": "FP32", "shape": [2, 3],         no padding, in JSON order
      "parameters": {"binary_data_size": 24}}]}
    └──────────────── Content-Length counts all of it ─────────────────────────┘

`json_bytes` travels as the header ``Inference-Header-Content-Length``; without that header the whole body is JSON.

::

    messages   tensors, datatypes, requests, answers, and every limit on them
    tensors    one tensor between numpy and the wire, as bytes and as JSON
    encode     what goes out
    decode     what comes in

No socket is opened here; `http1` frames the bytes, `cloud` and `serve` use them.

Everything unreadable is an `InputError`; the client turns it into `CloudRejected`, the server into status 400.

Sources: the Open Inference Protocol specification (kserve/open-inference-protocol, ``inference_rest.md``) and Triton's
``extension_binary_data.md``. Where the examples printed there contradict real servers, the servers were followed.
"""

from __future__ import annotations

from edge_runtime.base.oip.decode import (
    check_shape,
    decode_object,
    decode_request,
    decode_response,
    decode_specs,
    excerpt,
)
from edge_runtime.base.oip.encode import encode_request, encode_response
from edge_runtime.base.oip.messages import (
    BINARY_EXTENSION,
    JSON_LENGTH_HEADER,
    WIRE_DTYPES,
    Array,
    Body,
    Buffer,
    InferRequest,
    InferResponse,
    OipLimits,
    OipTensor,
    Parameter,
    datatype_of,
    json_length,
)
from edge_runtime.base.oip.tensors import array_from_bytes, tensor_bytes

__all__ = [
    "BINARY_EXTENSION",
    "JSON_LENGTH_HEADER",
    "WIRE_DTYPES",
    "Array",
    "Body",
    "Buffer",
    "InferRequest",
    "InferResponse",
    "OipLimits",
    "OipTensor",
    "Parameter",
    "array_from_bytes",
    "check_shape",
    "datatype_of",
    "decode_object",
    "decode_request",
    "decode_response",
    "decode_specs",
    "encode_request",
    "encode_response",
    "excerpt",
    "json_length",
    "tensor_bytes",
]
