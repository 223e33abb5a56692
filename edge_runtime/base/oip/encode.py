"""From requests and answers to the bytes that go out."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import orjson

from edge_runtime.base.oip.messages import RESERVED_PARAMETERS, Array, Body, Buffer, Parameter, datatype_of
from edge_runtime.base.oip.tensors import tensor_bytes, tensor_json
from edge_runtime.errors import InputError


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
            entry["data"] = tensor_json(name, array)
        entries.append(entry)
    return entries, blobs
