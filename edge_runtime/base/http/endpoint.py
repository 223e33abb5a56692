"""Endpoint: the URL of a server, taken apart and checked; one value for every client and every table of settings.

Errors never quote path and query: those of a webhook are often all that protects it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

HTTP_PORTS: Final = {"http": 80, "https": 443}
"""Default port by scheme."""
_ENCRYPTED: Final = frozenset({"https"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoint:
    """Scheme, host and port of a server, and what is asked there."""

    scheme: str
    host: str
    """Name or address, without brackets."""
    port: int
    """As in the URL, or the scheme's own."""
    netloc: str
    """Host and port as written, for the header ``Host``."""
    path: str
    """As written; may be empty."""
    query: str

    @classmethod
    def parse(cls, url: str, ports: Mapping[str, int] = HTTP_PORTS) -> Endpoint:
        """Take a URL apart.

        Args:
            url: without credentials and fragment.
            ports: schemes that are allowed, with their default ports.

        Raises:
            ValueError: it is no such URL; the message begins with ``url:``.
        """
        try:
            parts = urlsplit(url)
            host = parts.hostname or ""
        except ValueError:
            raise ValueError("url: has no valid host name") from None
        if "@" in parts.netloc:
            raise ValueError("url: credentials do not belong into the URL; use token_file")
        shown = f"{parts.scheme}://{host}/..."
        if parts.scheme not in ports or not host:
            raise ValueError(f"url: must look like http://host:port; schemes are {', '.join(ports)}")
        if parts.fragment or not url.isascii() or not url.isprintable() or " " in url:
            raise ValueError(f"url: {shown} must be plain ASCII without spaces and fragment")
        try:
            port = parts.port
            host.encode("idna")
        except ValueError:
            raise ValueError(f"url: {shown} has a port outside 0 to 65535, or no valid host name") from None
        return cls(
            scheme=parts.scheme,
            host=host,
            port=port or ports[parts.scheme],
            netloc=parts.netloc,
            path=parts.path,
            query=parts.query,
        )

    @property
    def encrypted(self) -> bool:
        """Return whether TLS is used; decided by the scheme alone."""
        return self.scheme in _ENCRYPTED

    @property
    def clear_text(self) -> bool:
        """Return whether others on the network can read what is sent: neither encrypted nor to this machine."""
        return not self.encrypted and not is_loopback(self.host)

    @property
    def origin(self) -> str:
        """``scheme://host:port``, for messages."""
        return f"{self.scheme}://{self.netloc}"

    @property
    def target(self) -> str:
        """Path and query of a request to the URL itself."""
        return (self.path or "/") + (f"?{self.query}" if self.query else "")

    def check_certificates(self, ca_file: Path | None, cert_file: Path | None, key_file: Path | None) -> None:
        """Refuse certificates that would not be used.

        Raises:
            ValueError: the connection is not encrypted, or a key has no certificate.
        """
        if not self.encrypted and (ca_file or cert_file):
            raise ValueError(f"url: {self.origin} is not encrypted, so certificates are of no use; use TLS")
        if key_file is not None and cert_file is None:
            raise ValueError("client_key_file is of no use without client_cert_file")


def is_loopback(host: str) -> bool:
    """Return whether a host name or address is this machine's own, without asking a name server."""
    from ipaddress import ip_address  # noqa: PLC0415 - 3 ms, for settings that name a server

    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def check_headers(headers: Mapping[str, str], own: Collection[str]) -> None:
    """Refuse headers that would break a request.

    Args:
        headers: values by name, from the settings.
        own: names in lower case that the client sets itself.

    Raises:
        ValueError: a name or a value cannot be sent.
    """
    for name, value in headers.items():
        if not name or not all(c.isascii() and (c.isalnum() or c in "-_") for c in name):
            raise ValueError(f"headers: {name!r} is not a header name")
        if name.lower() in own:
            raise ValueError(f"headers: {name!r} is set by the client itself")
        if not (value.isascii() and value.isprintable()):
            raise ValueError(f"headers: the value of {name!r} must be printable ASCII")
