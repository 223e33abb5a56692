"""Settings of a broker: one frozen value per broker, shared by the sources and sinks that use it.

Nothing here imports paho or opens a connection, so ``run --check`` can validate all of it offline.
"""

from __future__ import annotations

import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple
from urllib.parse import urlsplit

from edge_runtime.base.system.secrets import ClientTls, SecretFile
from edge_runtime.io.mqtt.topics import validate_topic_name
from edge_runtime.io.mqtt.wire import MalformedPacket

_PORTS: Final = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
_MAX_CLIENT_ID_BYTES: Final = 65_535


class Address(NamedTuple):
    """Address of a broker, from its URL."""

    host: str
    port: int
    tls: bool
    websocket_path: str | None
    """None: plain TCP."""

    @property
    def loopback(self) -> bool:
        """It never leaves this machine."""
        return self.host in {"localhost", "::1"} or self.host.startswith("127.")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"


class Secrets(NamedTuple):
    """Contents of the files of a `BrokerConfig`, read again when they change. Its repr shows no secret."""

    username: SecretFile | None
    password: SecretFile | None
    tls: ClientTls | None


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerConfig:
    """One MQTT broker. Secrets are files, read again at each connect, so that they can be rotated while running.

    1. A setting that would be left unused for want of another, or contradicts it, is refused.
    2. Numbers stay within what their fields of MQTT hold, or what can be meant.
    3. Texts that a broker would refuse at each connect are refused here.

    Raises:
        ValueError: values that contradict each other or make no sense.
    """

    url: str
    """``mqtt://``, ``mqtts://`` (TLS), ``ws://`` or ``wss://``, host, and a port where it is not the usual one."""
    client_id: str = ""
    """Names the session that the broker keeps for us. Empty: made of the host's name at the first start, the
    application's name and this table's name. Two programs with the same one throw each other out."""
    protocol: Literal["auto", "5", "3.1.1"] = "auto"
    """``auto`` begins with MQTT 5 and goes back to 3.1.1 for good when the broker does not speak it."""
    receive: Literal["batched", "paho"] = "batched"
    """``paho`` takes every message through paho-mqtt's own callbacks: slower by an order of magnitude, kept as the
    fallback for a paho that changed inside, for websockets, and as the oracle of the tests."""
    username: str = ""
    username_file: Path | None = None
    password_file: Path | None = None
    ca_file: Path | None = None
    """Certificate authorities to trust instead of the system's."""
    cert_file: Path | None = None
    """Our own certificate (chain), where the broker asks for one (mTLS)."""
    key_file: Path | None = None
    """Its private key, not encrypted; None where it stands in `cert_file`."""
    keepalive_s: int = 60
    session_expiry_s: int = 86_400
    """How long the broker keeps what arrives while we are away (MQTT 5; with 3.1.1 the broker decides)."""
    clean_start: bool | None = None
    """Begin each connection without what the broker has kept. None: only where nothing is subscribed with QoS 1 or 2
    and nothing published with QoS 2. True makes QoS 2 at least once: a message whose acknowledgement was lost with the
    connection is sent again as a new one."""
    receive_maximum: int = 1000
    """Readings of QoS 1 and 2 that the broker may send before we acknowledge one (MQTT 5). With any version, this many
    are handled at a time; more wait, and the socket is read no further when `max_held_bytes` wait."""
    max_held_bytes: int = 8 * 2**20
    max_inflight: int = 1000
    """Our own QoS 1 and 2 messages on the way at a time; the broker's receive maximum lowers it (MQTT 5), and with
    3.1.1, where a broker cannot say what it takes, it is at most 20."""
    status_topic: str = ""
    """Where ``{"status": "online"}`` is kept retained while we are connected, and ``offline`` otherwise (Last Will)."""
    max_packet_bytes: int = 2**20
    """Largest message taken in. MQTT 5 brokers are told, and keep larger ones to themselves."""
    connect_timeout_s: float = 10.0
    """Longest time for each of: TCP connect, TLS handshake, the broker's answer."""
    queue_messages: int = 10_000
    """Own messages that wait while the broker is away or slow."""
    queue_bytes: int = 16 * 2**20
    """The same in bytes of topic and payload."""
    when_full: Literal["drop_oldest", "reject"] = "drop_oldest"
    """Which one leaves when the queue is full, the oldest or the new one. Counted either way."""

    def __post_init__(self) -> None:
        address = self.address()
        if not address.tls and (self.ca_file or self.cert_file or self.key_file):  # rule 1
            raise ValueError("ca_file, cert_file and key_file need TLS: write the url as mqtts:// or wss://")
        if self.key_file and not self.cert_file:  # rule 1
            raise ValueError("key_file needs cert_file")
        if self.username and self.username_file:  # rule 1
            raise ValueError("set username or username_file, not both")
        if self.password_file and not (self.username or self.username_file):  # rule 1
            raise ValueError("password_file needs username or username_file")
        for name, low, high in (
            ("keepalive_s", 1, 65_535),
            ("session_expiry_s", 0, 0xFFFF_FFFF),
            ("receive_maximum", 1, 65_535),
            ("max_inflight", 1, 60_000),
            ("max_packet_bytes", 128, 268_435_460),
            ("max_held_bytes", 1, 2**40),
            ("queue_messages", 1, 10**9),
            ("queue_bytes", 1, 2**40),
        ):
            if not low <= getattr(self, name) <= high:  # rule 2
                raise ValueError(f"{name} must be from {low:,} to {high:,}, got {getattr(self, name):,}")
        if not 0 < self.connect_timeout_s <= 600:  # rule 2
            raise ValueError(f"connect_timeout_s must be above 0 and at most 600, got {self.connect_timeout_s}")
        if len(self.client_id.encode()) > _MAX_CLIENT_ID_BYTES or "\0" in self.client_id:  # rule 3
            raise ValueError("client_id is too long or holds a NUL character")
        if self.status_topic:  # rule 3
            try:
                validate_topic_name(self.status_topic)
            except MalformedPacket as error:
                raise ValueError(f"status_topic cannot be published to: {error}") from error

    def address(self) -> Address:
        """Take the URL apart.

        Raises:
            ValueError: not a broker's URL, or it carries credentials, which belong into files.
        """
        parts = urlsplit(self.url)
        if parts.scheme not in _PORTS or not parts.hostname:
            raise ValueError("url must look like mqtt://HOST:PORT, mqtts://HOST, ws://HOST/PATH or wss://HOST/PATH")
        if "@" in parts.netloc:
            raise ValueError("url carries credentials; use username and password_file instead")
        websocket = parts.scheme.startswith("ws")
        if parts.query or parts.fragment or (not websocket and parts.path not in {"", "/"}):
            raise ValueError("url of a broker ends after the port (only ws:// and wss:// have a path)")
        try:
            port = parts.port
        except ValueError as error:
            raise ValueError("url has a port that is not a number from 1 to 65535") from error
        if port == 0:
            raise ValueError("url has port 0")
        return Address(
            parts.hostname,
            port or _PORTS[parts.scheme],
            parts.scheme in {"mqtts", "wss"},
            (parts.path or "/mqtt") if websocket else None,
        )

    def session_name(self, name: str, application: str = "", host: str = "") -> str:
        """Return the client id: as configured, or one that is the same after a restart on this host.

        Args:
            name: the name of this broker's table.
            application: `AppConfig.name`, which tells several applications on one host apart.
            host: name of this host that was kept (`edge_runtime.app.composition.names`); empty: its name of today.
        """
        return self.client_id or "-".join(filter(None, ("edge", host or socket.gethostname(), application, name)))

    def secrets(self) -> Secrets:
        """Open what the files hold.

        Raises:
            ConfigError: one of them is missing or unusable.
        """
        tls = ClientTls(self.ca_file, self.cert_file, self.key_file) if self.address().tls else None
        return Secrets(
            SecretFile(self.username_file, "username_file", any_letter=True) if self.username_file else None,
            SecretFile(self.password_file, "password_file", any_letter=True) if self.password_file else None,
            tls,
        )

    def check(self) -> None:
        """Read every file that connecting needs, and connect to nothing.

        Raises:
            ConfigError: one of them is missing or unusable.
        """
        self.secrets()
