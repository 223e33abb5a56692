"""Routes of the server: the paths of the Open Inference Protocol v2, from a request that was read to a reply.

No socket is touched and no model run here: `edge_runtime.server.connection` reads requests, runs inferences and sends
replies.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from http import HTTPStatus
from typing import Any
from urllib.parse import unquote

import orjson

from edge_runtime._version import __version__
from edge_runtime.errors import InputError
from edge_runtime.http.parser import Head
from edge_runtime.oip import (
    BINARY_EXTENSION,
    JSON_LENGTH_HEADER,
    Array,
    Body,
    Buffer,
    InferRequest,
    Limits,
    TensorSpec,
    decode_request,
    encode_response,
    json_length,
)
from edge_runtime.server.batcher import Batcher, InSequence, Refused, ServedModel
from edge_runtime.server.sequences import EXTENSIONS, sequence_of
from edge_runtime.system.secrets import SecretFile

_SMALL_BODY_BYTES = 64 * 1024  # of a request that takes none; and names, shapes and parameters of one that does
_JSON_BYTES_PER_NUMBER = 32  # "-1.2345678901234567e-308, " has 26
_ABSOLUTE = re.compile(r"https?://([A-Za-z0-9\-._~!$&'()*+,;=%:\[\]]+)((?:[/?].*)?)", re.IGNORECASE)
# What the parser and `decompress` say of a request, as a status (RFC 9110, section 15; RFC 6585 for 431).
_STATUS_OF = {
    "coding": 501,
    "encoding": 415,
    "expectation": 417,
    "fields_too_large": 431,
    "target_too_long": 414,
    "too_large": 413,
    "version": 505,
}


@dataclass(frozen=True, slots=True)
class Reply:
    """An answer that has not been sent."""

    status: int
    body: Body
    headers: str = ""
    """Whole lines, besides those that every answer has."""

    def head(self, option: str = "") -> bytes:
        """Status line and headers.

        Args:
            option: the ``Connection`` line; empty for none.
        """
        body = self.body
        length = "" if body.json_bytes is None else f"{JSON_LENGTH_HEADER}: {body.json_bytes}\r\n"
        return (
            f"HTTP/1.1 {self.status} {HTTPStatus(self.status).phrase}\r\n"
            f"Content-Type: {body.content_type}\r\n{length}{self.headers}{option}"
            f"Content-Length: {sum(map(len, body.parts))}\r\n\r\n"
        ).encode("latin-1")


@dataclass(frozen=True, slots=True)
class Inference:
    """A request that a model has to answer.

    Attributes:
        batcher: the queue of the model.
        inputs: what to run.
        reply: makes the answer from the model's outputs; raises `Refused` where they cannot be expressed.
        sequence: of a model with states.
    """

    batcher: Batcher
    inputs: dict[str, Array]
    reply: Callable[[dict[str, Array]], Reply]
    sequence: InSequence | None = None


class Routes:
    """The models of a server, by path.

    Args:
        batchers: queues in front of the models, by the name that they are served under.
        token: what callers must send; None lets everybody in.
        max_request_bytes: longest body, as received and as decompressed, where a model's own inputs set no lower limit.
        retry_after_s: seconds after which a caller who was turned away for want of room may come back.
    """

    def __init__(
        self,
        batchers: Mapping[str, Batcher],
        *,
        token: SecretFile | None,
        max_request_bytes: int,
        retry_after_s: int,
    ) -> None:
        self._batchers = batchers
        self._token = token
        self._limits = {
            name: _limits(min(max_request_bytes, _largest_request(batcher.model))) for name, batcher in batchers.items()
        }
        self._small = min(max_request_bytes, _SMALL_BODY_BYTES)
        self._retry_after_s = retry_after_s
        stateful = any(batcher.model.step is not None for batcher in batchers.values())
        self._extensions = (BINARY_EXTENSION, *(EXTENSIONS if stateful else ()))

    def error(self, status: int, message: str, *, retry: bool = False) -> Reply:
        """Build an answer that says what is wrong.

        Args:
            status: HTTP status.
            message: one line.
            retry: whether to invite the caller to come back.
        """
        reply = _json(status, {"error": message})
        headers = f"Retry-After: {self._retry_after_s}\r\n" if retry else ""
        return Reply(status, reply.body, headers)

    def refusal(self, error: Exception) -> Reply:
        """Build the answer to a request that the parser, `answer` or an `Inference` raised this error for."""
        if isinstance(error, Refused):
            reply = self.error(error.status, str(error), retry=error.retry)
            return Reply(reply.status, reply.body, reply.headers + error.headers)
        status = _STATUS_OF.get(error.reason, 400) if isinstance(error, InputError) else 500
        return self.error(status, str(error))

    def body_limit(self, head: Head) -> int:
        """Return the longest body of a request: all that the model takes, as JSON with a margin; little elsewhere."""
        try:
            match _segments(head):
                case ["v2", "models", name, *_, "infer"] if name in self._limits:
                    return self._limits[name].max_body_bytes
        except Refused:
            pass  # `answer` says so
        return self._small

    def unauthorized(self, head: Head) -> Reply | None:
        """Refuse a caller without the token; None where all is well. Health checks of the server are open.

        Raises:
            Refused: the request target is none.
        """
        if self._token is None or _segments(head)[:2] == ("v2", "health"):
            return None
        scheme, _, credentials = head.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self._token.matches(credentials.strip()):
            return None
        reply = self.error(401, "a bearer token is needed, or the one sent is not right")
        return Reply(reply.status, reply.body, 'WWW-Authenticate: Bearer realm="inference"\r\n')

    def answer(self, head: Head, body: Buffer, *, ready: bool) -> Reply | Inference:
        """Do what a request asks for.

        Args:
            head: its request line and headers.
            body: all of its body, decompressed.
            ready: whether new requests are welcome, for those who ask.

        Raises:
            Refused: it cannot be done.
            InputError: its body is wrong.
        """
        match _segments(head):
            case ["v2"]:
                _only(head, "GET")
                return _json(
                    200, {"name": "edge-runtime", "version": __version__, "extensions": list(self._extensions)}
                )
            case ["v2", "health", "live" as what] | ["v2", "health", "ready" as what]:
                _only(head, "GET")
                good = what == "live" or ready
                return _json(200 if good else 503, {what: good})
            case ["v2", "models", name, *rest]:
                return self._model(head, body, name, rest, ready=ready)
            case _:
                raise Refused(404, "no such path; see the Open Inference Protocol, version 2")

    def _model(self, head: Head, body: Buffer, name: str, rest: list[str], *, ready: bool) -> Reply | Inference:
        batcher = self._batchers.get(name)
        if batcher is None:
            raise Refused(404, f"model {name[:60]!r} is not served here; there is {', '.join(self._batchers)}")
        model = batcher.model
        if rest[:1] == ["versions"] and len(rest) >= 2:
            if rest[1] != model.version:
                raise Refused(404, f"model {name!r} has version {model.version}, not {rest[1][:60]!r}")
            rest = rest[2:]
        match rest:
            case []:
                _only(head, "GET")
                return _json(200, _metadata(name, model))
            case ["ready"]:
                _only(head, "GET")
                return _json(200 if ready else 503, {"name": name, "ready": ready})
            case ["infer"]:
                _only(head, "POST")
                return self._infer(head, body, name, batcher)
            case _:
                raise Refused(404, f"model {name!r} has no {'/'.join(rest)[:60]!r}")

    def _infer(self, head: Head, body: Buffer, name: str, batcher: Batcher) -> Inference:
        request = decode_request(body, json_length(head.headers.get(JSON_LENGTH_HEADER.lower())), self._limits[name])
        model = batcher.model
        known = {spec.name for spec in model.outputs}
        for output in request.outputs:
            if output.name not in known:
                raise InputError("name", f"model {name!r} has no output {output.name!r}")
        _check_inputs(model, request)
        sequence = None if model.step is None else sequence_of(request.parameters, name)
        return Inference(batcher, request.inputs, lambda outputs: _inferred(name, model, request, outputs), sequence)


def _inferred(name: str, model: ServedModel, request: InferRequest, outputs: Mapping[str, Array]) -> Reply:
    wanted = [output.name for output in request.outputs] or [spec.name for spec in model.outputs]
    try:
        answer = encode_response(
            {output: outputs[output] for output in wanted},
            model_name=name,
            model_version=model.version,
            request_id=request.id,
            binary={output for output in wanted if request.wants_binary(output)},
        )
    except InputError as error:  # not the caller's fault: the model's output cannot be put into JSON
        raise Refused(500, f"{error}; ask for binary data") from None
    return Reply(200, answer)


def _largest_request(model: ServedModel) -> float:
    """Return the bytes of the longest JSON request that the model's inputs allow; infinite where it is not known."""
    numbers: float | None = model.max_numbers
    if numbers is None:
        is_open = any(spec.datatype == "BYTES" or -1 in spec.shape[1:] for spec in model.inputs)
        numbers = math.inf if is_open else sum(math.prod(spec.shape[1:]) for spec in model.inputs)
    return _SMALL_BODY_BYTES + _JSON_BYTES_PER_NUMBER * model.max_batch * numbers


def _limits(max_bytes: float) -> Limits:
    return Limits(max_body_bytes=int(max_bytes), max_json_bytes=min(int(max_bytes), Limits().max_json_bytes))


def _only(head: Head, method: str) -> None:
    if head.start[0] != method and not (method == "GET" and head.start[0] == "HEAD"):
        allowed = "GET, HEAD" if method == "GET" else method
        raise Refused(405, f"use {method} here", headers=f"Allow: {allowed}\r\n")


def _segments(head: Head) -> Sequence[str]:
    """Split the path of a request, by its four forms (RFC 9112, section 3.2).

    1. ``/path?query``. 2. ``http://host/path?query``, as to a proxy: the path counts. 3. ``host:port`` with CONNECT and
    4. ``*`` with OPTIONS ask for what no server of ours does.

    Raises:
        Refused: 501 for forms 3 and 4; 400 for what is none of them.
    """
    method, target, _ = head.start
    return _split(method, target)


@lru_cache(maxsize=256)  # a caller asks for the same path over and over
def _split(method: str, target: str) -> Sequence[str]:
    if not target.startswith("/"):
        absolute = _ABSOLUTE.fullmatch(target)
        if absolute is not None:  # form 2
            target = absolute[2]
        elif method == "CONNECT" or (method == "OPTIONS" and target == "*"):  # forms 3 and 4
            raise Refused(501, f"{method} {target[:60]} is not implemented; use GET or POST with a path")
        else:
            raise Refused(400, f"the request target {target[:60]!r} is not a path")
    if "#" in target:
        raise Refused(400, "a request target has no fragment")
    return tuple(unquote(part) for part in target.partition("?")[0].strip("/").split("/"))


def _json(status: int, document: Mapping[str, Any]) -> Reply:
    return Reply(status, Body((orjson.dumps(document),)))


def _metadata(name: str, model: ServedModel) -> dict[str, Any]:
    return {
        "name": name,
        "versions": [model.version],
        "platform": model.platform,
        "inputs": [_spec(spec) for spec in model.inputs],
        "outputs": [_spec(spec) for spec in model.outputs],
    }


def _spec(spec: TensorSpec) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": list(spec.shape)}


def _check_inputs(model: ServedModel, request: InferRequest) -> None:
    """Hold the inputs against the model's specs.

    Raises:
        InputError: one is missing, unknown, or of another type or shape; or the batch is empty, too large or uneven.
    """
    specs = {spec.name: spec for spec in model.inputs}
    for name in request.inputs:
        if name not in specs:
            raise InputError("name", f"model {model.name!r} has no input {name!r}; it takes {', '.join(specs)}")
    for name, spec in specs.items():
        array = request.inputs.get(name)
        if array is None:
            raise InputError("name", f"input {spec} is missing")
        if array.dtype != spec.dtype or not spec.accepts(array.shape):
            raise InputError("shape", f"model {model.name!r} takes {spec}, not {array.dtype} {list(array.shape)}")
    rows = {len(array) for array in request.inputs.values()}
    if len(rows) != 1:
        raise InputError("shape", f"the inputs have different batch sizes: {sorted(rows)}")
    if not 1 <= min(rows) <= model.max_batch:
        raise InputError("shape", f"model {model.name!r} takes batches of 1 to {model.max_batch}, not {min(rows)}")
