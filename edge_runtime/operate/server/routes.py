"""Routes of the server: the paths of the Open Inference Protocol v2, from a request that was read to a reply.

No socket is touched and no model run here: `edge_runtime.operate.serving.connection` reads requests, waits for
inferences and sends replies.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from edge_runtime._version import __version__
from edge_runtime.base.http.parser import Head
from edge_runtime.base.oip import (
    BINARY_EXTENSION,
    JSON_LENGTH_HEADER,
    Array,
    Buffer,
    InferRequest,
    Limits,
    TensorSpec,
    decode_request,
    encode_response,
    json_length,
)
from edge_runtime.base.system.secrets import SecretFile
from edge_runtime.errors import InputError
from edge_runtime.operate.server.batcher import Batcher, Call, InSequence, ServedModel
from edge_runtime.operate.server.sequences import EXTENSIONS, sequence_of
from edge_runtime.operate.serving.site import (
    SMALL_BODY_BYTES,
    Refused,
    RenderMetrics,
    Reply,
    Site,
    json_reply,
    metrics_reply,
    only,
    segments,
)

_JSON_BYTES_PER_NUMBER = 32  # "-1.2345678901234567e-308, " has 26


class Inference:
    """A request that a model has to answer: a `Pending` in the queue of that model.

    Args:
        batcher: the queue of the model.
        inputs: what to run.
        finish: makes the answer from the model's outputs; raises `Refused` where they cannot be expressed.
        sequence: the request's place in a sequence, for a model with states.
    """

    __slots__ = ("_call", "batcher", "finish", "inputs", "sequence")

    def __init__(
        self,
        batcher: Batcher,
        inputs: dict[str, Array],
        finish: Callable[[dict[str, Array]], Reply],
        sequence: InSequence | None = None,
    ) -> None:
        self.batcher = batcher
        self.inputs = inputs
        self.finish = finish
        self.sequence = sequence
        self._call: Call | None = None

    def start(self, done: Callable[[], None]) -> None:
        """Queue it (see `Pending`)."""
        self._call = self.batcher.submit(self.inputs, done, self.sequence)

    def withdraw(self) -> Refused:
        """Take it out of the queue."""
        call = self._call
        if call is not None and call.outputs is None and call.error is None:
            self.batcher.withdraw(call)
        return Refused(503, f"model {self.batcher.model.name!r} did not answer in time", retry=True)

    def reply(self) -> Reply:
        """Make the answer of the model's outputs."""
        call = self._call
        assert call is not None
        if call.error is not None:
            raise call.error
        assert call.outputs is not None
        return self.finish(call.outputs)


class Routes(Site):
    """The models of a server, by path.

    Args:
        batchers: queues in front of the models, by the name that they are served under.
        token: what callers must send; None lets everybody in.
        max_request_bytes: longest body, as received and as decompressed, where a model's own inputs set no lower limit.
        retry_after_s: seconds after which a caller who was turned away for want of room may come back.
        metrics: renders the metrics for ``/metrics``; None has no such path.
    """

    def __init__(
        self,
        batchers: Mapping[str, Batcher],
        *,
        token: SecretFile | None,
        max_request_bytes: int,
        retry_after_s: int,
        metrics: RenderMetrics | None = None,
    ) -> None:
        super().__init__(
            "inference",
            token=token,
            small_bytes=min(max_request_bytes, SMALL_BODY_BYTES),
            retry_after_s=retry_after_s,
        )
        self._batchers = batchers
        self._metrics = metrics
        self._limits = {
            name: _limits(min(max_request_bytes, _largest_request(batcher.model))) for name, batcher in batchers.items()
        }
        stateful = any(batcher.model.step is not None for batcher in batchers.values())
        self._extensions = (BINARY_EXTENSION, *(EXTENSIONS if stateful else ()))

    def body_limit(self, head: Head) -> int:
        """Return the longest body of a request: all that the model takes, as JSON with a margin; little elsewhere."""
        try:
            match segments(head):
                case ["v2", "models", name, *_, "infer"] if name in self._limits:
                    return self._limits[name].max_body_bytes
        except Refused:
            pass  # `answer` says so
        return self._small

    def open_to_all(self, head: Head) -> bool:
        """Return whether a request needs no token: health checks of the server."""
        return segments(head)[:2] == ("v2", "health")

    def answer(self, head: Head, body: Buffer, *, ready: bool, peer: str = "") -> Reply | Inference:
        """Answer by the Open Inference Protocol (see `Site.answer`)."""
        match segments(head):
            case ["v2"]:
                only(head, "GET")
                return json_reply(
                    200, {"name": "edge-runtime", "version": __version__, "extensions": list(self._extensions)}
                )
            case ["v2", "health", "live" as what] | ["v2", "health", "ready" as what]:
                only(head, "GET")
                good = what == "live" or ready
                return json_reply(200 if good else 503, {what: good})
            case ["metrics"] if self._metrics is not None:
                only(head, "GET")
                return metrics_reply(head, self._metrics)
            case ["v2", "models", name, *rest]:
                return self._model(head, body, name, rest, ready=ready, peer=peer)
            case _:
                raise Refused(404, "no such path; see the Open Inference Protocol, version 2")

    def _model(
        self, head: Head, body: Buffer, name: str, rest: list[str], *, ready: bool, peer: str
    ) -> Reply | Inference:
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
                only(head, "GET")
                return json_reply(200, _metadata(name, model))
            case ["ready"]:
                only(head, "GET")
                return json_reply(200 if ready else 503, {"name": name, "ready": ready})
            case ["infer"]:
                only(head, "POST")
                return self._infer(head, body, name, batcher, peer)
            case _:
                raise Refused(404, f"model {name!r} has no {'/'.join(rest)[:60]!r}")

    def _infer(self, head: Head, body: Buffer, name: str, batcher: Batcher, peer: str) -> Inference:
        request = decode_request(body, json_length(head.headers.get(JSON_LENGTH_HEADER.lower())), self._limits[name])
        model = batcher.model
        known = {spec.name for spec in model.outputs}
        for output in request.outputs:
            if output.name not in known:
                raise InputError("name", f"model {name!r} has no output {output.name!r}")
        _check_inputs(model, request)
        sequence = None if model.step is None else sequence_of(request.parameters, name)._replace(peer=peer)
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
    return SMALL_BODY_BYTES + _JSON_BYTES_PER_NUMBER * model.max_batch * numbers


def _limits(max_bytes: float) -> Limits:
    return Limits(max_body_bytes=int(max_bytes), max_json_bytes=min(int(max_bytes), Limits().max_json_bytes))


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
