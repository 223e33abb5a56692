"""The cloud client over HTTP/1.1: keep-alive, binary tensors with a JSON fallback, no dependency.

A time-out is a time-out here: connecting, each exchange (`CloudConfig.timeout_s`) and the request with its repeats
(`CloudConfig.deadline_s`) are bounded as a whole, however slowly a server drips. One connection serves one request at a
time; idle ones are kept, up to `CloudConfig.max_idle_connections`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from edge_runtime._version import __version__
from edge_runtime.base.http.client import Answer, Connections, reason_of
from edge_runtime.base.http.framing import compress, decompress
from edge_runtime.base.oip import (
    JSON_LENGTH_HEADER,
    Array,
    Body,
    Buffer,
    InferResponse,
    OipLimits,
    Parameter,
    decode_object,
    decode_response,
    decode_specs,
    encode_request,
    excerpt,
    json_length,
)
from edge_runtime.base.system.secrets import ClientTls, SecretFile
from edge_runtime.clock import Clock
from edge_runtime.cloud.client import CloudClient, ModelMetadata
from edge_runtime.cloud.config import CloudConfig
from edge_runtime.errors import CloudError, CloudRejected, CloudUnavailable, InputError, one_line

# Statuses with which servers refuse a body of bytes: 415 by the book, 400 and 422 from validating front ends, and 500
# from MLServer 1.7, whose REST side has no binary extension.
_MAY_MEAN_NO_BINARY = frozenset({400, 415, 422, 500})
_FORMATS: dict[str, Literal["undecided", "binary", "json"]] = {
    "auto": "undecided",
    "always": "binary",
    "never": "json",
}


class HttpClient(CloudClient):
    """See `CloudClient`."""

    def __init__(self, config: CloudConfig, clock: Clock) -> None:
        super().__init__(config, clock)
        endpoint = config.endpoint
        tls = ClientTls(config.ca_file, config.client_cert_file, config.client_key_file) if endpoint.encrypted else None
        self._token = None if config.token_file is None else SecretFile(config.token_file, "token_file")
        self._secrets = {name: SecretFile(path, f"header_files.{name}") for name, path in config.header_files.items()}
        self._bearer = [*filter(None, (self._token,)), *self._secrets.values()]
        self._path = config.model_path
        self._fixed_head = self._build_fixed_head()
        self._limits = OipLimits(
            max_body_bytes=config.max_response_bytes,
            max_json_bytes=min(config.max_response_bytes, OipLimits().max_json_bytes),
        )
        self._connections = Connections(
            endpoint,
            tls,
            clock,
            max_idle=config.max_idle_connections,
            connect_timeout_s=config.connect_timeout_s,
        )
        self._format = _FORMATS[config.binary]

    @property
    def format(self) -> str:
        """Return the format that the endpoint understands: ``undecided``, ``binary`` or ``json``."""
        return self._format

    def ready(self) -> bool:
        """Return whether the model can answer now, by the status code, since servers differ in the body."""
        deadline = self._clock.monotonic() + min(self._config.connect_timeout_s + self._config.timeout_s, 30.0)
        try:
            return self._call("GET", f"{self._path}/ready", deadline).status == 200
        except CloudError:
            return False

    def close(self) -> None:
        """Close idle connections."""
        self._connections.close()

    def _fetch_metadata(self, deadline: float) -> ModelMetadata:
        answer = self._call("GET", self._path, deadline)
        if answer.status != 200:
            raise self._error(answer)
        try:
            document = decode_object(answer.body, self._limits)
            versions = document.get("versions") or []
            return ModelMetadata(
                name=str(document.get("name", self._config.model)),
                versions=tuple(map(str, versions)) if isinstance(versions, list) else (),
                platform=str(document.get("platform") or ""),
                inputs=decode_specs(document, "inputs", self._limits),
                outputs=decode_specs(document, "outputs", self._limits),
            )
        except InputError as error:
            raise CloudRejected(f"{self._where}: unreadable metadata: {error}", answer.status) from None

    def _infer(
        self,
        inputs: Mapping[str, Array],
        request_id: str,
        outputs: Sequence[str],
        parameters: Mapping[str, Parameter],
        deadline: float,
    ) -> InferResponse:
        decided = self._format
        binary = decided != "json"
        answer = self._post(inputs, request_id, outputs, parameters, deadline, binary=binary)
        if decided == "undecided" and answer.status in _MAY_MEAN_NO_BINARY:
            try:
                second = self._post(inputs, request_id, outputs, parameters, deadline, binary=False)
            except CloudRejected:
                raise self._error(answer) from None
            if second.status != 200:
                raise self._error(second)
            answer, binary = second, False
        if answer.status != 200:
            raise self._error(answer)
        response = self._decode(answer)
        if decided == "undecided":
            self._format = "binary" if binary else "json"
        return response

    def _post(
        self,
        inputs: Mapping[str, Array],
        request_id: str,
        outputs: Sequence[str],
        parameters: Mapping[str, Parameter],
        deadline: float,
        *,
        binary: bool,
    ) -> Answer:
        try:
            body = encode_request(inputs, request_id=request_id, outputs=outputs, parameters=parameters, binary=binary)
        except InputError as error:
            raise CloudRejected(f"request {request_id!r} cannot be sent: {error}") from None
        return self._call("POST", f"{self._path}/infer", deadline, body)

    def _decode(self, answer: Answer) -> InferResponse:
        try:
            length = json_length(answer.head.headers.get(JSON_LENGTH_HEADER.lower()))
            return decode_response(answer.body, length, self._limits)
        except InputError as error:
            raise CloudRejected(f"{self._where}: unreadable answer: {error}", answer.status) from None

    # -- one request ---------------------------------------------------------------------------------------------------

    def _call(self, method: str, path: str, deadline: float, body: Body | None = None) -> Answer:
        """Send a request, on a kept connection where there is one; once more with a fresh token after a 401.

        Raises:
            CloudUnavailable: no answer.
            CloudRejected: something came that is not an HTTP answer, or is too long.
        """
        parts, framing = self._frame(body)
        token = None if self._token is None else self._token.value()
        answer = self._exchange(self._head(method, path, token, framing), parts, deadline)
        if answer.status == 401 and self._token is not None:
            renewed = self._token.reread()
            if renewed != token:
                answer = self._exchange(self._head(method, path, renewed, framing), parts, deadline)
        return answer

    def _exchange(self, head: bytes, parts: tuple[Buffer, ...], deadline: float) -> Answer:
        limit = min(deadline, self._clock.monotonic() + self._config.timeout_s)
        most = self._config.max_response_bytes
        try:
            answer = self._connections.exchange(head, parts, limit, max_body_bytes=most)
            if answer.flaw is not None:
                raise answer.flaw
            body = decompress(answer.body, answer.head.headers.get("content-encoding", ""), most)
        except TimeoutError:
            raise CloudUnavailable(f"{self._where} did not answer in time") from None
        except OSError as error:
            raise CloudUnavailable(f"{self._where} cannot be reached: {reason_of(error)}") from None
        except InputError as error:
            raise CloudRejected(f"{self._where}: unreadable answer: {error}") from None
        return Answer(answer.head, body)

    # -- headers -------------------------------------------------------------------------------------------------------

    def _build_fixed_head(self) -> str:
        headers = {
            "Host": self._config.endpoint.netloc,
            "User-Agent": f"edge-runtime/{__version__}",
            "Accept-Encoding": "gzip" if self._config.gzip else "identity",
        }
        for name, value in self._config.headers.items():
            headers = {key: old for key, old in headers.items() if key.lower() != name.lower()}
            headers[name] = value
        return "".join(f"{name}: {value}\r\n" for name, value in headers.items())

    def _head(self, method: str, path: str, token: str | None, framing: str) -> bytes:
        secret = "" if token is None else f"Authorization: Bearer {token}\r\n"
        for name, value in self._secrets.items():
            secret += f"{name}: {value.value()}\r\n"
        return f"{method} {path} HTTP/1.1\r\n{self._fixed_head}{secret}{framing}\r\n".encode("ascii")

    def _frame(self, body: Body | None) -> tuple[tuple[Buffer, ...], str]:
        """Return the bytes to send after the headers, and the headers that describe them."""
        if body is None:
            return (), ""
        framing = f"Content-Type: {body.content_type}\r\n"
        if body.json_bytes is not None:
            framing += f"{JSON_LENGTH_HEADER}: {body.json_bytes}\r\n"
        parts = body.parts
        if self._config.gzip:
            parts = (compress(body.joined()),)
            framing += "Content-Encoding: gzip\r\n"
        return parts, f"{framing}Content-Length: {sum(map(len, parts))}\r\n"

    # -- verdicts ------------------------------------------------------------------------------------------------------

    def _error(self, answer: Answer) -> CloudError:
        """Return the error that a status other than 200 stands for."""
        status = answer.status
        text = f"{self._where} answered {status}: {_message(answer.body)}"
        if status in (401, 403):
            # Not the fault of this hard case, and healed by an operator who renews the token: keep it.
            return CloudUnavailable(f"{text}; check token_file, header_files or the client certificate")
        if 300 <= status < 400:
            # Captive portals answer like this, and go away.
            return CloudUnavailable(f"{text}; redirects are not followed, set url to the endpoint itself")
        if answer.is_transient:
            return CloudUnavailable(text, retry_after_s=answer.retry_after_s(self._clock))
        return CloudRejected(text, status)


def _message(body: Buffer) -> str:
    """Return the text of an error answer, on one line: ``{"error": ...}``, ``{"detail": ...}``, or its first words."""
    try:
        document = decode_object(body)
    except InputError:
        return excerpt(body, 120) if body else "(no text)"
    text = document.get("error") or document.get("detail") or document
    return one_line(str(text), 200)
