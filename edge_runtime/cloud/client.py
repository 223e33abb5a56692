"""The cloud as the device sees it: a model behind an Open Inference Protocol v2 endpoint.

`connect` picks the transport by the scheme of the URL: ``http``/``https`` (`cloud_http`, standard library only) or
``grpc``/``grpcs`` (`cloud_grpc`, extra ``[grpc]``). Both pass the same tests. This module holds what they share: the
configuration, the model's metadata, and the checks that an answer must pass before anybody acts on it.

Whatever an endpoint does, a client raises one of two errors: `CloudUnavailable` (time may heal it: keep the hard case)
or `CloudRejected` (it will not: dead-letter it).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from types import TracebackType
from typing import Literal, TypeVar
from urllib.parse import quote, urlsplit

import numpy as np
from typing_extensions import Self

from edge_runtime.clock import Clock, SystemClock
from edge_runtime.errors import CloudError, CloudRejected, ConfigError
from edge_runtime.oip import Array, InferResponse, Parameter, TensorSpec
from edge_runtime.system.secrets import SecretFile

_PORTS = {"http": 80, "https": 443, "grpc": 8001, "grpcs": 8001}  # 8001: the port Triton, MLServer and KServe use
_ENCRYPTED = ("https", "grpcs")
# Set by the client itself, or secret: the first group would break the framing, the second belongs into a file.
_OWN_HEADERS = frozenset(
    {
        "connection",
        "content-encoding",
        "content-length",
        "content-type",
        "expect",
        "inference-header-content-length",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
_SECRET_HEADERS = frozenset({"authorization", "cookie", "proxy-authorization"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudConfig:
    """Where the cloud model is and how long to wait for it.

    Raises:
        ValueError: a value makes no sense, or would send a secret in clear text.
    """

    url: str
    """``http://``, ``https://``, ``grpc://`` or ``grpcs://`` (gRPC over TLS), with a path where a proxy adds one."""
    model: str
    version: str | None = None
    """A version of the model; None lets the server choose."""
    connect_timeout_s: float = 5.0
    """For TCP and TLS together. Looking up the name is the system's business and not covered."""
    timeout_s: float = 10.0
    """Longest exchange: from connecting to the last byte of the answer, however steadily it drips (HTTP only)."""
    deadline_s: float = 30.0
    """Longest time for a request as a whole, from the call to the decoded answer, repeats included."""
    token_file: Path | None = None
    """File with a bearer token; read again when it changes, and when the server says 401."""
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    """More headers, for instance ``Host`` for an ingress that routes by it."""
    header_files: dict[str, Path] = field(default_factory=dict)
    """Headers whose values are secret: name -> file."""
    ca_file: Path | None = None
    """Certificate authorities to trust instead of the system's."""
    client_cert_file: Path | None = None
    client_key_file: Path | None = None
    binary: Literal["auto", "always", "never"] = "auto"
    """Tensors as bytes (HTTP only; gRPC always does): ``auto`` tries, and stays with JSON where bytes are refused."""
    gzip: bool = False
    """Compress requests and accept compressed answers (HTTP only). Raw sensor windows gain 10 to 30 %, for much CPU."""
    max_response_bytes: int = 16 * 2**20
    max_idle_connections: int = 4
    """Connections kept open between requests (HTTP only); as many as threads that use the client at a time."""
    warm_up_s: float = 0.0
    """How long `CloudClient.warm_up` waits for the model, for servers that scale to zero. 0: ask once."""
    clear_text_credentials: bool = False
    """Allow secrets over ``http`` or ``grpc`` to other machines. On a network you do not own, do not."""

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.username is not None or parts.password is not None:
            raise ValueError("url: credentials do not belong into the URL; use token_file or header_files")
        if parts.query or parts.fragment:
            raise ValueError("url: write it without query and fragment; secrets belong into token_file or header_files")
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError(f"url: {self.url!r} must look like http://host:port; schemes are {', '.join(_PORTS)}")
        if not self.url.isascii() or not self.url.isprintable() or " " in self.url:
            raise ValueError(f"url: {self.url!r} must be plain ASCII without spaces")
        try:
            _ = parts.port, parts.hostname.encode("idna")
        except ValueError:
            raise ValueError(f"url: {self.url!r} has a port outside 0 to 65535, or no valid host name") from None
        if parts.path.strip("/") and parts.scheme in ("grpc", "grpcs"):
            raise ValueError(f"url: {self.url!r}: gRPC has no path")
        if not self.model or self.version == "":
            raise ValueError("model and version must not be empty; leave version out to let the server choose")
        waits = (self.connect_timeout_s, self.timeout_s, self.deadline_s)
        if min(waits) <= 0 or self.warm_up_s < 0:
            raise ValueError("connect_timeout_s, timeout_s and deadline_s must be above 0, warm_up_s at least 0")
        if self.max_response_bytes < 1 or self.max_idle_connections < 0:
            raise ValueError("max_response_bytes must be at least 1, max_idle_connections at least 0")
        if self.client_key_file is not None and self.client_cert_file is None:
            raise ValueError("client_key_file is of no use without client_cert_file")
        if not self.encrypted and (self.ca_file or self.client_cert_file):
            raise ValueError(
                f"url: {self.url!r} is not encrypted, so the certificates are of no use; use https or grpcs"
            )
        self._check_headers()
        secret = self.token_file is not None or bool(self.header_files)
        if secret and not (self.encrypted or self.clear_text_credentials or _is_loopback(self.host)):
            raise ValueError(
                f"url: {self.url!r} would send a secret in clear text; use https or grpcs, or set "
                "clear_text_credentials = true on a network you trust"
            )

    def _check_headers(self) -> None:
        for name in (*self.headers, *self.header_files):
            if not name or not all(c.isascii() and (c.isalnum() or c in "-_") for c in name):
                raise ValueError(f"headers: {name!r} is not a header name")
            if name.lower() in _OWN_HEADERS:
                raise ValueError(f"headers: {name!r} is set by the client itself")
        for name, value in self.headers.items():
            if name.lower() in _SECRET_HEADERS:
                raise ValueError(f"headers: {name!r} is a secret; use token_file or header_files")
            if not (value.isascii() and value.isprintable()):
                raise ValueError(f"headers: the value of {name!r} must be printable ASCII")

    @property
    def scheme(self) -> str:
        """``http``, ``https``, ``grpc`` or ``grpcs``."""
        return urlsplit(self.url).scheme

    @property
    def encrypted(self) -> bool:
        """Whether TLS is used; decided by the scheme alone."""
        return self.scheme in _ENCRYPTED

    @property
    def host(self) -> str:
        """Host name or address, without brackets."""
        return urlsplit(self.url).hostname or ""

    @property
    def port(self) -> int:
        """As in the URL, or the scheme's own."""
        return urlsplit(self.url).port or _PORTS[self.scheme]

    @property
    def model_path(self) -> str:
        """The path of the model over HTTP, for example ``/v2/models/teacher/versions/3``."""
        path = f"{urlsplit(self.url).path.rstrip('/')}/v2/models/{quote(self.model, safe='')}"
        return path if self.version is None else f"{path}/versions/{quote(self.version, safe='')}"


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelMetadata:
    """What a server says of a model; `inputs` and `outputs` are empty where it says nothing (MLServer may)."""

    name: str
    versions: tuple[str, ...] = ()
    platform: str = ""
    inputs: tuple[TensorSpec, ...] = ()
    outputs: tuple[TensorSpec, ...] = ()

    @property
    def batched(self) -> bool:
        """Whether every tensor leaves its first dimension open, which is then the batch."""
        tensors = (*self.inputs, *self.outputs)
        return bool(tensors) and all(spec.shape[:1] == (-1,) for spec in tensors)


C = TypeVar("C", bound="CloudClient")


class CloudClient(ABC):
    """A model on a server. Safe to share between threads: each request has a connection (or call) of its own.

    Args:
        config: where and how.
        clock: what deadlines are measured with.
    """

    def __init__(self, config: CloudConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._known: ModelMetadata | None = None
        self._bearer: list[SecretFile] = []  # what a request carries, and an answer may repeat
        self._where = f"{config.url} (model {config.model!r})"

    @abstractmethod
    def ready(self) -> bool:
        """Whether the model can answer now, by the server's own word (``/v2/models/<m>/ready``). Never raises."""

    @abstractmethod
    def close(self) -> None:
        """Close idle connections. May be called twice."""

    @abstractmethod
    def _fetch_metadata(self, deadline: float) -> ModelMetadata:
        """Ask for the metadata; CloudUnavailable or CloudRejected."""

    @abstractmethod
    def _infer(
        self,
        inputs: Mapping[str, Array],
        request_id: str,
        outputs: Sequence[str],
        parameters: Mapping[str, Parameter],
        deadline: float,
    ) -> InferResponse:
        """Send one request until `deadline` (monotonic); CloudUnavailable or CloudRejected."""

    def infer(
        self,
        inputs: Mapping[str, Array],
        *,
        request_id: str,
        deadline_s: float | None = None,
        outputs: Sequence[str] = (),
        parameters: Mapping[str, Parameter] | None = None,
    ) -> dict[str, Array]:
        """Run the model on a batch.

        A request may reach the server twice (a kept-alive connection that turns out to be closed is replaced once), so
        the model must not keep state between requests; it could not anyway, since hard cases come now and then.

        Args:
            inputs: arrays by input name, first axis the batch: B windows are (B, channels, samples), in one request.
            request_id: the hard case's id; the answer must echo it if it has one.
            deadline_s: for this request; None is `CloudConfig.deadline_s`.
            outputs: names wanted; all when empty.
            parameters: request parameters, such as Triton's ``priority`` or ``timeout`` (microseconds).

        Returns:
            Arrays by output name, first axis as long as the inputs', finite where they are floats.

        Raises:
            CloudUnavailable: network, time-out, overload, credentials, a server that fails: keep the case and back off.
            CloudRejected: the request is refused, cannot be expressed, or the answer cannot be used.
        """
        deadline = self._clock.monotonic() + (self._config.deadline_s if deadline_s is None else deadline_s)
        with self._hiding():
            response = self._infer(inputs, request_id, outputs, parameters or {}, deadline)
            self._verify(response, inputs, request_id, outputs)
        return {name: response.outputs[name] for name in outputs} if outputs else response.outputs

    def metadata(self) -> ModelMetadata:
        """Ask the server what the model takes and gives. From then on, answers are held against it.

        Raises:
            CloudUnavailable: as `infer`.
            CloudRejected: the model is unknown, or what the server says is unreadable.
        """
        with self._hiding():
            self._known = self._fetch_metadata(self._clock.monotonic() + self._config.deadline_s)
        return self._known

    def check(self, inputs: Sequence[TensorSpec], outputs: Sequence[str] = ()) -> None:
        """Make sure that the model takes what this device will send, before the first hard case.

        Args:
            inputs: what will be sent; -1 for the batch.
            outputs: names that will be used.

        Raises:
            ConfigError: it does not; the message names the first difference. A server that states no inputs passes.
            CloudUnavailable, CloudRejected: as `metadata`.
        """
        model = self.metadata()
        theirs = {spec.name: spec for spec in model.inputs}
        for spec in inputs if model.inputs else ():
            other = theirs.pop(spec.name, None)
            if other is None:
                raise ConfigError(
                    f"{self._where} has no input {spec.name!r}; it takes {', '.join(map(str, model.inputs))}"
                )
            if other.datatype != spec.datatype or not other.accepts(spec.shape):
                raise ConfigError(f"{self._where} takes {other}, but {spec} would be sent; the models do not fit")
        if theirs:
            raise ConfigError(f"{self._where} also needs input {next(iter(theirs.values()))}, which is not sent")
        known = {spec.name for spec in model.outputs}
        missing = [name for name in outputs if known and name not in known]
        if missing:
            raise ConfigError(f"{self._where} has no output {missing[0]!r}; it gives {', '.join(sorted(known))}")

    def warm_up(self) -> bool:
        """Ask for readiness until the model is there or `CloudConfig.warm_up_s` are over; the last answer."""
        give_up = self._clock.monotonic() + self._config.warm_up_s
        while not self.ready():
            left = give_up - self._clock.monotonic()
            if left <= 0:
                return False
            self._clock.sleep(min(1.0, left))
        return True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @contextmanager
    def _hiding(self) -> Iterator[None]:
        """Keep secrets out of what errors quote: some proxies print the request into their error page."""
        try:
            yield
        except CloudError as error:
            text = str(error)
            for secret in self._bearer:
                text = secret.hide(text)
            error.args = (text,)
            raise

    def _verify(
        self, response: InferResponse, inputs: Mapping[str, Array], request_id: str, outputs: Sequence[str]
    ) -> None:
        """Refuse an answer that belongs to another request, lacks an output, or holds what nobody can act on."""
        if response.id and response.id != request_id:
            raise CloudRejected(f"{self._where} answered request {request_id!r} with id {response.id[:60]!r}", 200)
        for name in outputs:
            if name not in response.outputs:
                raise CloudRejected(f"{self._where} answered without output {name!r}", 200)
        if not response.outputs:
            raise CloudRejected(f"{self._where} answered without any output", 200)
        specs = {} if self._known is None else {spec.name: spec for spec in self._known.outputs}
        rows = {array.shape[:1] for array in inputs.values()} - {()}
        for name, array in response.outputs.items():
            spec = specs.get(name)
            if spec is not None and not (spec.accepts(array.shape) and spec.dtype == array.dtype):
                raise CloudRejected(
                    f"{self._where} answered {name!r} as {array.dtype} {array.shape}, not as {spec}", 200
                )
            batched = spec is None or spec.shape[:1] == (-1,)
            if batched and len(rows) == 1 and array.shape[:1] not in rows:
                raise CloudRejected(
                    f"{self._where} answered {name!r} of shape {array.shape} to {next(iter(rows))[0]} windows", 200
                )
            if array.dtype.kind == "f" and not np.isfinite(array).all():
                raise CloudRejected(f"{self._where} answered NaN or infinity in {name!r}", 200)


def connect(config: CloudConfig, clock: Clock | None = None) -> CloudClient:
    """The client for a configuration. Opens no connection yet.

    Raises:
        ConfigError: a file is unreadable, or the extra for gRPC is not installed.
    """
    clock = clock or SystemClock()
    if config.scheme in ("grpc", "grpcs"):
        from edge_runtime.cloud.grpc import GrpcClient  # noqa: PLC0415 - heavy, and an extra

        return GrpcClient(config, clock)
    from edge_runtime.cloud.http import HttpClient  # noqa: PLC0415 - keeps ssl and zlib out of `import edge_runtime`

    return HttpClient(config, clock)
