"""The table ``[observe]``: where a running application can be looked into."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass
from pathlib import Path


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
    """File with what callers must send (``Authorization: Bearer``, or once as ``?token=`` in a browser). Needed where
    `listen` is no loopback address. A new token counts as soon as it is in the file."""
    hosts: tuple[str, ...] = ()
    """Names under which browsers may ask for the page, besides the address itself and ``localhost``."""
    max_clients: int = 32
    textfile: Path | None = None
    """File for Prometheus' node exporter (text-file collector), ending in ``.prom``; written every `textfile_s`."""
    textfile_s: float = 15.0
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
