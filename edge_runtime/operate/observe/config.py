"""The table ``[observe]``: where a running application can be looked into."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

from edge_runtime.base.http.endpoint import Endpoint, check_headers

_INSTANCE_BYTES: Final = 64
_OWN_HEADERS: Final = frozenset(
    {"connection", "content-encoding", "content-length", "content-type", "host", "transfer-encoding", "user-agent"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class OtlpConfig:
    """Settings of the table ``[observe.otlp]``: traces and metrics for an OpenTelemetry collector.

    Raises:
        ValueError: a value makes no sense, or would send a secret in clear text.
    """

    url: str
    """Collector that takes OTLP over HTTP, as in ``http://127.0.0.1:4318``; ``/v1/traces`` and ``/v1/metrics`` are put
    behind it."""
    share: float = 0.01
    """Share of the windows that are traced; 0: no traces. Chosen by the window's id, so a correction that comes hours
    later belongs to a window that was traced."""
    every_s: float = 60.0
    """Seconds between two exports of the metrics; 0: no metrics."""
    instance: str = ""
    """Tells this application from all others of the fleet (``service.instance.id``); trace ids depend on it. Empty:
    application and host name. Set it in a container, whose host name changes."""
    token_file: Path | None = None
    """File with a bearer token; read again when it changes."""
    header_files: dict[str, Path] = field(default_factory=dict)
    """Headers whose values are secret: name -> file."""
    ca_file: Path | None = None
    """Certificate authorities to trust instead of the system's."""
    timeout_s: float = 5.0
    """Longest time for one request, connecting included. A stop does not wait that long."""

    def __post_init__(self) -> None:
        endpoint = self.endpoint
        if endpoint.query:
            raise ValueError("url: write it without query; secrets belong into token_file or header_files")
        if endpoint.path.rstrip("/").endswith(("/v1/traces", "/v1/metrics")):
            raise ValueError("url: leave /v1/traces and /v1/metrics out, they are put behind it")
        endpoint.check_certificates(self.ca_file, None, None)
        check_headers(dict.fromkeys(self.header_files, ""), _OWN_HEADERS)
        if endpoint.clear_text and (self.token_file is not None or self.header_files):
            raise ValueError(f"url: {endpoint.origin} would be sent a secret in clear text; use https")
        if not 0 <= self.share <= 1:
            raise ValueError("share must be 0 to 1")
        if self.every_s and not 1 <= self.every_s <= 3600:
            raise ValueError("every_s must be 0, or 1 to 3,600")
        if not self.share and not self.every_s:
            raise ValueError("share = 0 and every_s = 0 leave nothing to send; take [observe.otlp] out")
        if not 0 < self.timeout_s <= 60:
            raise ValueError("timeout_s must be above 0 and at most 60")
        if len(self.instance.encode()) > _INSTANCE_BYTES:
            raise ValueError(f"instance must have at most {_INSTANCE_BYTES} bytes")

    @property
    def endpoint(self) -> Endpoint:
        """The URL, taken apart."""
        return Endpoint.parse(self.url)

    def named(self, application: str, host: str, worker: str = "") -> OtlpConfig:
        """Return the settings with the instance stated, made of application and host unless it is, and of a worker."""
        end = f"-{worker}" if worker else ""
        name = (self.instance or f"{application}@{host}").encode()[: _INSTANCE_BYTES - len(end)]
        return replace(self, instance=f"{name.decode('utf-8', 'ignore')}{end}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ObserveConfig:
    """Settings of what can be seen of an application, and by whom. Nothing listens on a network unless `listen` is set.

    Raises:
        ValueError: a value makes no sense, or others on the network could look in without a token.
    """

    socket: Path | None = None
    """Unix socket for ``edge-runtime watch`` and ``status``, for this user alone. None: beside the application's files
    of state, ``outbox.sock`` beside ``outbox.db``; without any, there is none."""
    listen: str = ""
    """Address and port of the metrics and the page, as in ``127.0.0.1:9464``; empty: none."""
    page: bool = True
    """Whether the page is there beside the metrics."""
    token_file: Path | None = None
    """File with what callers must send (``Authorization: Bearer``, or once behind ``#token=`` in a browser). Needed
    where `listen` is no loopback address; left out elsewhere, a token is made, and its link logged at the start
    ([who may ask for what](SECURITY.md#who-may-ask-a-running-application-for-what)). A new token counts as soon as it
    is in the file."""
    hosts: tuple[str, ...] = ()
    """Names under which browsers may ask for the page, besides the address itself and ``localhost``."""
    max_clients: int = 32
    textfile: Path | None = None
    """File for Prometheus' node exporter (text-file collector), ending in ``.prom``; written every `textfile_s`."""
    textfile_s: float = 15.0
    otlp: OtlpConfig | None = None
    """None: no collector is told anything."""
    stats_s: float = 0.0
    """Seconds between two retained messages of figures on each broker's status topic, part ``stats``; 0: none."""

    def __post_init__(self) -> None:
        if self.listen:
            host, _ = address_of(self.listen)
            if not is_loopback(host) and self.token_file is None:
                raise ValueError(
                    f"listen = '{self.listen}' lets others on the network look in: name a token_file, or listen on "
                    "127.0.0.1"
                )
        if not 1 <= self.max_clients <= 1024:
            raise ValueError("max_clients must be 1 to 1,024")
        if self.textfile is not None and self.textfile.suffix != ".prom":
            raise ValueError(f"textfile must end in .prom, got {self.textfile.name}")
        if not 1 <= self.textfile_s <= 3600:
            raise ValueError("textfile_s must be 1 to 3,600")
        if self.stats_s and not 1 <= self.stats_s <= 86_400:
            raise ValueError("stats_s must be 0, or 1 to 86,400")


def address_of(listen: str) -> tuple[str, int]:
    """Split ``host:port``; IPv6 in brackets.

    Raises:
        ValueError: it is none.
    """
    host, colon, port = listen.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdecimal() or int(port) > 65535:
        raise ValueError(f"listen must be ADDRESS:PORT, as in 127.0.0.1:9464; got '{listen}'")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches the address."""
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
