"""The cloud client over gRPC; needs the extra ``[grpc]`` (grpcio and protobuf).

The protocol's messages are described below as a table and built into a descriptor pool of their own. A generated file
would be four times as long, tie us to one major version of protobuf (generated code refuses to run on an older one),
and register its names in the process-wide pool, where another package's copy of the same .proto (tritonclient and
kserve each bring one) is an error at import.

Source: kserve/open-inference-protocol, ``specification/protocol/open_inference_grpc.proto``; field numbers as there.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np

from edge_runtime._version import __version__
from edge_runtime.clock import Clock
from edge_runtime.cloud.client import CloudClient, ModelMetadata
from edge_runtime.cloud.config import CloudConfig
from edge_runtime.errors import CloudError, CloudRejected, CloudUnavailable, ConfigError, InputError
from edge_runtime.oip import (
    WIRE_DTYPES,
    Array,
    InferResponse,
    Limits,
    Parameter,
    TensorSpec,
    array_from_bytes,
    check_shape,
    datatype_of,
    tensor_bytes,
)
from edge_runtime.system.secrets import SecretFile, read_pem

SERVICE = "inference.GRPCInferenceService"

# message -> {field: (number, type)}; "[]" repeats, "{}" is a map from string, "|" puts it into the message's one oneof.
_MESSAGES: Mapping[str, Mapping[str, tuple[int, str]]] = {
    "InferParameter": {"bool_param": (1, "|bool"), "int64_param": (2, "|int64"), "string_param": (3, "|string"),
                       "double_param": (4, "|double"), "uint64_param": (5, "|uint64")},
    "InferTensorContents": {"bool_contents": (1, "[]bool"), "int_contents": (2, "[]int32"),
                            "int64_contents": (3, "[]int64"), "uint_contents": (4, "[]uint32"),
                            "uint64_contents": (5, "[]uint64"), "fp32_contents": (6, "[]float"),
                            "fp64_contents": (7, "[]double"), "bytes_contents": (8, "[]bytes")},
    "InferTensor": {"name": (1, "string"), "datatype": (2, "string"), "shape": (3, "[]int64"),
                    "parameters": (4, "{}InferParameter"), "contents": (5, "InferTensorContents")},
    "InferRequestedOutput": {"name": (1, "string"), "parameters": (2, "{}InferParameter")},
    "ModelInferRequest": {"model_name": (1, "string"), "model_version": (2, "string"), "id": (3, "string"),
                          "parameters": (4, "{}InferParameter"), "inputs": (5, "[]InferTensor"),
                          "outputs": (6, "[]InferRequestedOutput"), "raw_input_contents": (7, "[]bytes")},
    "ModelInferResponse": {"model_name": (1, "string"), "model_version": (2, "string"), "id": (3, "string"),
                           "parameters": (4, "{}InferParameter"), "outputs": (5, "[]InferTensor"),
                           "raw_output_contents": (6, "[]bytes")},
    "ModelReadyRequest": {"name": (1, "string"), "version": (2, "string")},
    "ModelReadyResponse": {"ready": (1, "bool")},
    "ModelMetadataRequest": {"name": (1, "string"), "version": (2, "string")},
    "TensorMetadata": {"name": (1, "string"), "datatype": (2, "string"), "shape": (3, "[]int64")},
    "ModelMetadataResponse": {"name": (1, "string"), "versions": (2, "[]string"), "platform": (3, "string"),
                              "inputs": (4, "[]TensorMetadata"), "outputs": (5, "[]TensorMetadata")},
}  # fmt: skip

# The typed list that carries a datatype when a server does not answer in raw bytes. FP16 has none.
_CONTENTS = {
    "BOOL": "bool_contents",
    "INT8": "int_contents",
    "INT16": "int_contents",
    "INT32": "int_contents",
    "INT64": "int64_contents",
    "UINT8": "uint_contents",
    "UINT16": "uint_contents",
    "UINT32": "uint_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}

# Codes that no repetition heals. All others are like HTTP 5xx or 429; UNAUTHENTICATED and PERMISSION_DENIED are
# healed by an operator who renews the token.
_REJECTED = frozenset({"INVALID_ARGUMENT", "NOT_FOUND", "ALREADY_EXISTS", "FAILED_PRECONDITION", "OUT_OF_RANGE",
                       "UNIMPLEMENTED", "DATA_LOSS"})  # fmt: skip
_CREDENTIALS = frozenset({"UNAUTHENTICATED", "PERMISSION_DENIED"})
# What gRPC says of a handshake that failed: the reason is the last part of a long line.
_TLS_REASON = re.compile(
    r"OPENSSL_internal:CERTIFICATE_VERIFY_FAILED: ([^:]+)|(Hostname Verification Check failed)|OPENSSL_internal:(\w+)"
)
_PUSHBACK = "grpc-retry-pushback-ms"  # how a server says Retry-After in gRPC (gRFC A6)


@functools.cache
def messages() -> SimpleNamespace:
    """Make the message classes of the protocol, by name.

    Raises:
        ConfigError: protobuf is not installed.
    """
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory  # noqa: PLC0415 - an extra
    except ImportError:
        raise ConfigError('gRPC needs protobuf: pip install "edge-runtime[grpc]"') from None
    file = descriptor_pb2.FileDescriptorProto(name="open_inference_grpc.proto", package="inference", syntax="proto3")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for key, (number, text) in fields.items():
            _add_field(descriptor_pb2.FieldDescriptorProto, message, key, number, text)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return SimpleNamespace(
        **{name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"inference.{name}")) for name in _MESSAGES}
    )


def _add_field(kinds: Any, message: Any, key: str, number: int, text: str) -> None:
    """Add a field to a message's descriptor; `text` is its type as `_MESSAGES` has it."""
    field = message.field.add(name=key, number=number, label=kinds.LABEL_OPTIONAL)
    kind = text.lstrip("[]{}|")
    if text.startswith("|"):
        if not message.oneof_decl:
            message.oneof_decl.add(name="parameter_choice")
        field.oneof_index = 0
    if text.startswith(("[]", "{}")):
        field.label = kinds.LABEL_REPEATED
    if text.startswith("{}"):
        entry = message.nested_type.add(name="".join(map(str.title, key.split("_"))) + "Entry")
        entry.options.map_entry = True
        entry.field.add(name="key", number=1, label=kinds.LABEL_OPTIONAL, type=kinds.TYPE_STRING)
        value = entry.field.add(name="value", number=2, label=kinds.LABEL_OPTIONAL, type=kinds.TYPE_MESSAGE)
        value.type_name = f".inference.{kind}"
        field.type, field.type_name = kinds.TYPE_MESSAGE, f".inference.{message.name}.{entry.name}"
    elif kind in _MESSAGES:
        field.type, field.type_name = kinds.TYPE_MESSAGE, f".inference.{kind}"
    else:
        field.type = kinds.Type.Value(f"TYPE_{kind.upper()}")


class GrpcClient(CloudClient):
    """See `CloudClient`. One channel, made at the first call, shared by all threads; gRPC reconnects it on its own."""

    def __init__(self, config: CloudConfig, clock: Clock) -> None:
        super().__init__(config, clock)
        try:
            import grpc  # noqa: PLC0415 - an extra, 17 MB
        except ImportError:
            raise ConfigError(f'{config.url} needs grpcio: pip install "edge-runtime[grpc]"') from None
        self._grpc: Any = grpc
        self._messages = messages()
        self._token = None if config.token_file is None else SecretFile(config.token_file, "token_file")
        self._secrets = {name: SecretFile(path, f"header_files.{name}") for name, path in config.header_files.items()}
        self._bearer = [*filter(None, (self._token,)), *self._secrets.values()]
        self._limits = Limits(max_body_bytes=config.max_response_bytes)
        self._channel: Any = self._open_channel()
        self._calls: dict[str, Any] = {}

    def ready(self) -> bool:
        """Return whether the model can answer now."""
        request = self._messages.ModelReadyRequest(name=self._config.model, version=self._config.version or "")
        deadline = self._clock.monotonic() + min(self._config.connect_timeout_s + self._config.timeout_s, 30.0)
        try:
            return bool(self._call("ModelReady", request, deadline).ready)
        except CloudError:
            return False

    def close(self) -> None:
        """Close the channel."""
        self._channel.close()

    def _fetch_metadata(self, deadline: float) -> ModelMetadata:
        request = self._messages.ModelMetadataRequest(name=self._config.model, version=self._config.version or "")
        answer = self._call("ModelMetadata", request, deadline)
        try:
            return ModelMetadata(
                name=answer.name,
                versions=tuple(answer.versions),
                platform=answer.platform,
                inputs=self._specs(answer.inputs),
                outputs=self._specs(answer.outputs),
            )
        except InputError as error:
            raise CloudRejected(f"{self._where}: unreadable metadata: {error}") from None

    def _infer(
        self,
        inputs: Mapping[str, Array],
        request_id: str,
        outputs: Sequence[str],
        parameters: Mapping[str, Parameter],
        deadline: float,
    ) -> InferResponse:
        try:
            request = self._request(inputs, request_id, outputs, parameters)
        except (InputError, ValueError) as error:  # ValueError: protobuf refuses an integer beyond 64 bits
            raise CloudRejected(f"request {request_id!r} cannot be sent: {error}") from None
        answer = self._call("ModelInfer", request, deadline)
        try:
            return InferResponse(
                outputs=self._tensors(answer),
                id=answer.id,
                model_name=answer.model_name,
                model_version=answer.model_version,
            )
        except InputError as error:
            raise CloudRejected(f"{self._where}: unreadable answer: {error}") from None

    def _request(
        self,
        inputs: Mapping[str, Array],
        request_id: str,
        outputs: Sequence[str],
        parameters: Mapping[str, Parameter],
    ) -> Any:
        request = self._messages.ModelInferRequest(
            model_name=self._config.model, model_version=self._config.version or "", id=request_id
        )
        for name, value in parameters.items():
            kind = {bool: "bool_param", int: "int64_param", str: "string_param", float: "double_param"}[type(value)]
            setattr(request.parameters[name], kind, value)
        for name, array in inputs.items():
            request.inputs.add(name=name, datatype=datatype_of(array.dtype), shape=array.shape)
            request.raw_input_contents.append(bytes(tensor_bytes(array)))  # raw for all inputs, as the protocol demands
        for name in outputs:
            request.outputs.add(name=name)
        return request

    def _specs(self, tensors: Any) -> tuple[TensorSpec, ...]:
        return tuple(
            TensorSpec(tensor.name, tensor.datatype, check_shape(tensor.name, list(tensor.shape), wildcard=True))
            for tensor in tensors
        )

    def _tensors(self, answer: Any) -> dict[str, Array]:
        """Read the outputs, from raw bytes where the server uses them, else from typed lists."""
        raw = list(answer.raw_output_contents)
        if len(answer.outputs) > self._limits.max_tensors or (raw and len(raw) != len(answer.outputs)):
            raise InputError("size", f"{len(answer.outputs)} outputs came with {len(raw)} raw contents")
        arrays: dict[str, Array] = {}
        for at, tensor in enumerate(answer.outputs):
            spec = TensorSpec(tensor.name, tensor.datatype, check_shape(tensor.name, list(tensor.shape)))
            if spec.name in arrays:
                raise InputError("name", f"tensor {spec.name!r} is there twice")
            arrays[spec.name] = array_from_bytes(spec, raw[at]) if raw else _from_contents(spec, tensor.contents)
        return arrays

    # -- calls ---------------------------------------------------------------------------------------------------------

    def _open_channel(self) -> Any:
        config = self._config
        options = [
            ("grpc.max_receive_message_length", config.max_response_bytes),
            ("grpc.max_send_message_length", -1),  # the default of 4 MB is less than a batch of long windows
            ("grpc.primary_user_agent", f"edge-runtime/{__version__}"),
            ("grpc.enable_http_proxy", 0),  # configuration comes from the configuration, not from the environment
            ("grpc.enable_retries", 0),  # the caller decides about repeats
            ("grpc.keepalive_time_ms", 60_000),  # notice a dead link; servers object to less than a minute (gRFC A8)
            ("grpc.keepalive_timeout_ms", 10_000),
            # gRPC would wait up to two minutes before it looks at a dead server again; our own back-off does that.
            ("grpc.initial_reconnect_backoff_ms", 200),
            ("grpc.min_reconnect_backoff_ms", max(200, int(config.connect_timeout_s * 1000))),
            ("grpc.max_reconnect_backoff_ms", 1000),
        ]
        endpoint = config.endpoint
        host = f"[{endpoint.host}]" if ":" in endpoint.host else endpoint.host
        target = f"{host}:{endpoint.port}"
        if not endpoint.encrypted:
            return self._grpc.insecure_channel(target, options)
        credentials = self._grpc.ssl_channel_credentials(
            root_certificates=read_pem(config.ca_file, "ca_file"),
            private_key=read_pem(config.client_key_file or config.client_cert_file, "client_key_file"),
            certificate_chain=read_pem(config.client_cert_file, "client_cert_file"),
        )
        return self._grpc.secure_channel(target, credentials, options)

    def _call(self, method: str, request: Any, deadline: float) -> Any:
        """Make one call; once more with a fresh token when the server does not know ours.

        Raises:
            CloudUnavailable, CloudRejected: by the status code.
        """
        token = None if self._token is None else self._token.value()
        try:
            return self._send(method, request, deadline, token)
        except self._grpc.RpcError as error:
            failure = error
        if self._token is not None and failure.code().name == "UNAUTHENTICATED":
            renewed = self._token.reread()
            if renewed != token:
                try:
                    return self._send(method, request, deadline, renewed)
                except self._grpc.RpcError as error:
                    failure = error
        raise self._error(failure)

    def _send(self, method: str, request: Any, deadline: float, token: str | None) -> Any:
        left = deadline - self._clock.monotonic()
        if left <= 0:
            raise CloudUnavailable(f"{self._where} did not answer in time")
        call = self._calls.get(method)
        if call is None:
            call = self._channel.unary_unary(f"/{SERVICE}/{method}")  # bytes in, bytes out: parsing is ours, see below
            self._calls[method] = call
        metadata = [(name.lower(), value) for name, value in self._config.headers.items() if name.lower() != "host"]
        metadata += [(name.lower(), secret.value()) for name, secret in self._secrets.items()]
        if token is not None:
            metadata.append(("authorization", f"Bearer {token}"))
        try:
            data = call(request.SerializeToString(), timeout=min(left, self._patience()), metadata=metadata)
        except ValueError:  # the channel was closed by another thread
            raise CloudUnavailable(f"{self._where}: the client is closed") from None
        return self._parse(f"{method}Response", data)

    def _patience(self) -> float:
        """Call, with one bound for connecting and silence: a unary call shows no sign of life before its answer."""
        return self._config.connect_timeout_s + self._config.timeout_s

    def _parse(self, name: str, data: bytes) -> Any:
        from google.protobuf.message import DecodeError  # noqa: PLC0415 - an extra, see messages()

        try:
            return getattr(self._messages, name).FromString(data)
        except DecodeError:
            raise CloudRejected(f"{self._where}: unreadable answer: not a {name}") from None

    def _error(self, failure: Any) -> CloudError:
        code = failure.code()
        details = " ".join(str(failure.details() or "").split())
        if code.name == "UNAVAILABLE" and (tls := _TLS_REASON.search(details)):
            trust, name, other = tls.groups()
            if other:
                return CloudUnavailable(f"{self._where} cannot be reached: TLS: {other}")
            return CloudUnavailable(
                f"{self._where} cannot be reached: its certificate is refused ({trust or name}); check ca_file, the "
                "host name and this clock"
            )
        details = details[:200]
        text = f"{self._where} answered {code.name}: {details or '(no text)'}"
        ours = code.name == "RESOURCE_EXHAUSTED" and "larger than max" in details  # the answer is too long for *us*
        if code.name in _REJECTED or ours:
            return CloudRejected(text, int(code.value[0]))
        if code.name in _CREDENTIALS:
            text += "; check token_file, header_files or the client certificate"
        pushback = dict(failure.trailing_metadata() or ()).get(_PUSHBACK, "")
        wait = int(pushback) / 1000 if pushback.isascii() and pushback.isdigit() and len(pushback) < 10 else None
        return CloudUnavailable(text, retry_after_s=wait)


def _from_contents(spec: TensorSpec, contents: Any) -> Array:
    key = _CONTENTS.get(spec.datatype)
    if key is None:
        raise InputError("datatype", f"tensor {spec} can only come as raw bytes")
    values = getattr(contents, key)
    count = int(np.prod(spec.shape, dtype=np.int64))
    if len(values) != count:
        raise InputError("shape", f"tensor {spec} needs {count} elements, {len(values)} came")
    wire = WIRE_DTYPES[spec.datatype]
    if wire.kind in "iu" and count and not np.iinfo(wire).min <= min(values) <= max(values) <= np.iinfo(wire).max:
        raise InputError("value", f"tensor {spec} holds integers beyond {spec.datatype}")
    array: Array = np.empty(count, dtype=spec.dtype)
    array[:] = list(values)
    return array.reshape(spec.shape)
