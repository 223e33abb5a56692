"""Routes of the server: the paths of the Open Inference Protocol v2, from a request that was read to a reply."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from edge_runtime._version import __version__
from edge_runtime.base.oip import (
    BINARY_EXTENSION,
    JSON_LENGTH_HEADER,
    Array,
    InferRequest,
    OipLimits,
    OipTensor,
    decode_request,
    encode_response,
    json_length,
)
from edge_runtime.base.system.secrets import SecretFile
from edge_runtime.errors import InputError
from edge_runtime.operate.server.batcher import Batcher, Call, InSequence, ServedModel
from edge_runtime.operate.server.sequences import EXTENSIONS, sequence_of
from edge_runtime.operate.serving.answers import Refused, RenderMetrics, Reply, json_reply, metrics_reply
from edge_runtime.operate.serving.router import ANY, SMALL_BODY_BYTES, AccessTerms, HttpRequest, HttpRouter, Path, Route

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


def router_of(
    batchers: Mapping[str, Batcher],
    *,
    token: SecretFile | None,
    max_request_bytes: int,
    retry_after_s: int,
    metrics: RenderMetrics | None = None,
) -> HttpRouter:
    """Make the models of a server a table of routes.

    Args:
        batchers: queues in front of the models, by the name that they are served under.
        token: what callers must send; None lets everybody in.
        max_request_bytes: longest body, as received and as decompressed, where a model's own inputs set no lower limit.
        retry_after_s: seconds after which a caller who was turned away for want of room may come back.
        metrics: renders the metrics for ``/metrics``; None has no such path.
    """
    stateful = any(batcher.model.step is not None for batcher in batchers.values())
    about = {
        "name": "edge-runtime",
        "version": __version__,
        "extensions": [BINARY_EXTENSION, *(EXTENSIONS if stateful else ())],
    }
    table: dict[Path, Route] = {
        ("v2",): Route("GET", lambda _: json_reply(200, about)),
        ("v2", "health", "live"): Route("GET", lambda _: json_reply(200, {"live": True}), open=True),
        ("v2", "health", "ready"): Route("GET", lambda request: _ready(request, {}), open=True),
    }
    if metrics is not None:
        table["metrics",] = Route("GET", lambda request: metrics_reply(request.head, metrics))
    for name, batcher in batchers.items():
        served = _Served(name, batcher, _limits(min(max_request_bytes, _largest_request(batcher.model))))
        for under in (("v2", "models", name), ("v2", "models", name, "versions", ANY)):
            table[under] = Route("GET", served.metadata)
            table[(*under, "ready")] = Route("GET", served.ready)
            table[(*under, "infer")] = Route("POST", served.infer, max_body=served.limits.max_body_bytes)

    def unknown(path: Path) -> str:
        match path:
            case ("v2", "models", name, *rest) if name in batchers:
                return f"model {name!r} has no {'/'.join(rest)[:60]!r}"
            case ("v2", "models", name, *_):
                return f"model {name[:60]!r} is not served here; there is {', '.join(batchers)}"
        return "no such path; see the Open Inference Protocol, version 2"

    return HttpRouter(
        table,
        AccessTerms(realm="inference", token=token),
        unknown=unknown,
        small_bytes=min(max_request_bytes, SMALL_BODY_BYTES),
        retry_after_s=retry_after_s,
    )


def _ready(request: HttpRequest, about: Mapping[str, Any]) -> Reply:
    return json_reply(200 if request.ready else 503, {**about, "ready": request.ready})


class _Served:
    """Routes of one model.

    Args:
        name: the name that it is served under.
        batcher: the queue of the model.
        limits: bounds of a request to it.
    """

    def __init__(self, name: str, batcher: Batcher, limits: OipLimits) -> None:
        self._name = name
        self._batcher = batcher
        self.limits = limits

    def metadata(self, request: HttpRequest) -> Reply:
        """Describe the model's tensors."""
        self._check_version(request)
        return json_reply(200, _metadata(self._name, self._batcher.model))

    def ready(self, request: HttpRequest) -> Reply:
        """Say whether it takes requests."""
        self._check_version(request)
        return _ready(request, {"name": self._name})

    def infer(self, request: HttpRequest) -> Inference:
        """Queue a request (see `Inference`)."""
        self._check_version(request)
        name, batcher, model = self._name, self._batcher, self._batcher.model
        json_bytes = json_length(request.head.headers.get(JSON_LENGTH_HEADER.lower()))
        asked = decode_request(request.body, json_bytes, self.limits)
        known = {spec.name for spec in model.outputs}
        for output in asked.outputs:
            if output.name not in known:
                raise InputError("name", f"model {name!r} has no output {output.name!r}")
        _check_inputs(model, asked)
        sequence = None if model.step is None else sequence_of(asked.parameters, name)._replace(peer=request.peer)
        return Inference(batcher, asked.inputs, lambda outputs: _inferred(name, model, asked, outputs), sequence)

    def _check_version(self, request: HttpRequest) -> None:
        version = self._batcher.model.version
        if request.path[3:4] == ("versions",) and request.path[4] != version:
            raise Refused(404, f"model {self._name!r} has version {version}, not {request.path[4][:60]!r}")


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


def _limits(max_bytes: float) -> OipLimits:
    return OipLimits(max_body_bytes=int(max_bytes), max_json_bytes=min(int(max_bytes), OipLimits().max_json_bytes))


def _metadata(name: str, model: ServedModel) -> dict[str, Any]:
    return {
        "name": name,
        "versions": [model.version],
        "platform": model.platform,
        "inputs": [_spec(spec) for spec in model.inputs],
        "outputs": [_spec(spec) for spec in model.outputs],
    }


def _spec(spec: OipTensor) -> dict[str, Any]:
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
