"""Settings of the tables ``[cloud]`` and ``[escalation]``."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal
from urllib.parse import quote

from edge_runtime.base.http.endpoint import Endpoint, check_headers

# Set by the client itself, or secret: the first group would break the framing, the second belongs into a file.
_OWN_HEADERS: Final = frozenset(
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
_SECRET_HEADERS: Final = frozenset({"authorization", "cookie", "proxy-authorization"})


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudConfig:
    """Settings of the cloud model: address, credentials and time-outs.

    Raises:
        ValueError: a value makes no sense, or would send a secret in clear text.
    """

    url: str
    """``http://`` or ``https://``, with a path where a proxy adds one."""
    model: str
    version: str | None = None
    """A version of the model; None lets the server choose."""
    connect_timeout_s: float = 5.0
    """Longest time for TCP and TLS together, with each address of the host. Looking up its name is not covered."""
    timeout_s: float = 10.0
    """Longest exchange: from connecting to the last byte of the answer, however steadily it drips."""
    deadline_s: float = 30.0
    """Longest time for a request as a whole, from the call to the decoded answer, repeats included."""
    token_file: Path | None = None
    """File with a bearer token; read again when it changes."""
    headers: dict[str, str] = field(default_factory=dict, repr=False)
    """More headers, for instance ``Host`` for an ingress that routes by it."""
    header_files: dict[str, Path] = field(default_factory=dict)
    """Headers whose values are secret: name -> file."""
    ca_file: Path | None = None
    """Certificate authorities to trust instead of the system's."""
    client_cert_file: Path | None = None
    client_key_file: Path | None = None
    binary: Literal["auto", "always", "never"] = "auto"
    """Tensors as bytes: ``auto`` tries, and stays with JSON where bytes are refused."""
    gzip: bool = False
    """Compress requests and accept compressed answers. Raw sensor windows gain 10 to 30 %, for much CPU."""
    max_response_bytes: int = 16 * 2**20
    max_idle_connections: int = 4
    """Connections kept open between requests; as many as threads that use the client at a time."""
    warm_up_s: float = 0.0
    """Longest wait of `CloudClient.warm_up` for the model, for servers that scale to zero. 0: ask once."""
    clear_text_credentials: bool = False
    """Allow secrets over ``http`` to other machines. On a network you do not own, do not."""

    def __post_init__(self) -> None:
        if self.url.startswith(("grpc://", "grpcs://")):
            raise ValueError(
                "url: gRPC is no longer spoken; write the same server's http:// or https:// address (port 8000 of "
                "Triton, 8080 of MLServer and KServe)"
            )
        endpoint = self.endpoint
        if endpoint.query:
            raise ValueError("url: write it without query; secrets belong into token_file or header_files")
        endpoint.check_certificates(self.ca_file, self.client_cert_file, self.client_key_file)
        if not self.model or self.version == "":
            raise ValueError("model and version must not be empty; leave version out to let the server choose")
        waits = (self.connect_timeout_s, self.timeout_s, self.deadline_s)
        if min(waits) <= 0 or self.warm_up_s < 0:
            raise ValueError("connect_timeout_s, timeout_s and deadline_s must be above 0, warm_up_s at least 0")
        if self.max_response_bytes < 1 or self.max_idle_connections < 0:
            raise ValueError("max_response_bytes must be at least 1, max_idle_connections at least 0")
        check_headers(self.headers | dict.fromkeys(self.header_files, ""), _OWN_HEADERS)
        if secrets := [name for name in self.headers if name.lower() in _SECRET_HEADERS]:
            raise ValueError(f"headers: {secrets[0]!r} is a secret; use token_file or header_files")
        secret = self.token_file is not None or bool(self.header_files)
        if secret and endpoint.clear_text and not self.clear_text_credentials:
            raise ValueError(
                f"url: {self.url!r} would send a secret in clear text; use https, or set "
                "clear_text_credentials = true on a network you trust"
            )

    @property
    def endpoint(self) -> Endpoint:
        """The URL, taken apart."""
        return Endpoint.parse(self.url)

    @property
    def model_path(self) -> str:
        """The path of the model over HTTP, for example ``/v2/models/teacher/versions/3``."""
        path = f"{self.endpoint.path.rstrip('/')}/v2/models/{quote(self.model, safe='')}"
        return path if self.version is None else f"{path}/versions/{quote(self.version, safe='')}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EscalationConfig:
    """Settings of the questions to the cloud, and the meaning of its output."""

    deadline_s: float = 60.0
    """An answer after this is published all the same, marked late."""
    max_batch: int = 16
    """Hard cases in one request."""
    input: str = ""
    """Name of the cloud model's input; empty takes its only one."""
    output: str = ""
    """Name of the output that holds the answer; empty takes the first."""
    output_kind: Literal["probabilities", "logits"] = "probabilities"
    labels: tuple[str, ...] = ()
    """Labels in the order of the cloud's output; empty means the bundle's."""
    unreadable_attempts: int = 5
    """Tries of a case whose answer makes no sense, before it goes to the dead letters; at least twice.
    Only attempts with good answers to other cases in between count: a captive portal is not the case's fault."""
    commit_attempts: int = 3
    """Tries of a commit before its cases are dropped and counted: a full disk must not stop the stream."""
    max_pending: int = 4096
    """Cases that may wait for a commit; what comes on top is dropped and counted."""
    explain: float = 0.0
    """Share of the time that may go into explaining hard cases; 0 explains none. The explanation is kept with the case
    (`edge-runtime outbox show`)."""

    def __post_init__(self) -> None:
        if self.deadline_s <= 0:
            raise ValueError("deadline_s must be above 0")
        for name in ("max_batch", "unreadable_attempts", "commit_attempts", "max_pending"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} must be at least 1")
        if not 0 <= self.explain <= 0.5:
            raise ValueError("explain must be 0 to 0.5")
