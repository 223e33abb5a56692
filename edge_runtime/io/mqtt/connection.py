"""Connection to a broker: paho's client, and the messages that pass it by.

`Connection` is what `BrokerClient` sees: connect (in a thread of its own, it blocks), then read, send, acknowledge and
close on the loop's thread. `edge_runtime.io.mqtt.batched` parses messages itself; `edge_runtime.io.mqtt.fallback` is
paho's.

paho's callbacks run while paho holds a lock, so they only take notes; the notes are acted upon when the call into paho
has returned.
"""

from __future__ import annotations

import ssl
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final, NamedTuple, Protocol

import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties
from paho.mqtt.reasoncodes import ReasonCode
from paho.mqtt.subscribeoptions import SubscribeOptions

from edge_runtime.io.mqtt.config import BrokerConfig, Secrets
from edge_runtime.io.mqtt.inbound_acks import Acks
from edge_runtime.io.mqtt.outbound_queue import WINDOW_311, BrokerLimits, Message, OutboundQueue
from edge_runtime.io.mqtt.packets import (
    V5,
    Publish,
)
from edge_runtime.io.mqtt.wire import MAX_VARIABLE_INTEGER

_UNSUPPORTED_VERSION: Final = 0x84
_KEEP_ALIVE_TIMEOUT: Final = 0x8D
_WITH_WILL: Final = 0x04
_SESSION_TAKEN_OVER: Final = 0x8E


class Accepted(NamedTuple):
    """CONNACK said yes."""

    session_present: bool
    limits: BrokerLimits
    keepalive_s: int


class ConnackRefusal(NamedTuple):
    """CONNACK said no."""

    reason: str
    unsupported_version: bool
    credentials: bool


class Granted(NamedTuple):
    """SUBACK."""

    packet_id: int
    codes: list[tuple[int, str]]
    """Per filter: granted QoS, or 0x80 and above for a refusal; and the same in words."""


_BAD_CREDENTIALS: Final = frozenset({0x86, 0x87, 0x8A, 0x8C})  # user or password, not authorised, banned, bad method


class ConnectionListener(Protocol):
    """Receiver of what a connection reads; `BrokerClient` is one."""

    def on_accepted(self, accepted: Accepted) -> None:
        """Hear that the broker accepted the connection."""

    def on_refused(self, refused: ConnackRefusal) -> None:
        """Hear that the broker refused it."""

    def on_granted(self, granted: Granted) -> None:
        """Hear the broker's answer to SUBSCRIBE."""

    def on_unsubscribed(self, packet_id: int) -> None:
        """Hear the broker's answer to UNSUBSCRIBE."""

    def on_publishes(self, publishes: list[Publish]) -> None:
        """Messages, in the order of the wire."""

    def on_oversize(self, publish: Publish) -> None:
        """Hear that a message larger than the limit was skipped; its payload is missing."""

    def on_ack(self, kind: int, packet_id: int, reason_code: int) -> None:
        """PUBACK, PUBREC, PUBREL or PUBCOMP."""

    def on_socket_close(self, fd: int) -> None:
        """Hear that the socket is about to be closed."""


class Identity(NamedTuple):
    """Identity of this client towards the broker, for one connection."""

    client_id: str
    version: int
    clean_start: bool
    will: Callable[[], Message] | None
    """Asked for on the thread that connects, once for each CONNECT: it may differ from one to the next."""


def make_client(cls: type[paho.Client], config: BrokerConfig, identity: Identity) -> paho.Client:
    """Make a paho client that is set up and connected to nothing."""
    address = config.address()
    version5 = identity.version == V5
    client = cls(
        CallbackAPIVersion.VERSION2,
        client_id=identity.client_id,
        clean_session=None if version5 else identity.clean_start,
        protocol=paho.MQTTv5 if version5 else paho.MQTTv311,
        transport="tcp" if address.websocket_path is None else "websockets",
        reconnect_on_failure=False,  # True lets paho block in reconnect() to try MQTT 3.1
        manual_ack=True,
    )
    client.connect_timeout = config.connect_timeout_s
    client.max_inflight_messages_set(0)  # no limit: the window is kept by `OutboundQueue`
    if address.websocket_path is not None:
        client.ws_set_options(address.websocket_path)
    if (make_will := identity.will) is not None:

        def set_will(*_: object) -> None:
            will = make_will()
            client.will_set(will.topic.decode(), will.payload, will.qos, will.retain)

        client.on_socket_open = set_will  # TCP and TLS stand, CONNECT comes next
    if version5:
        properties: Any = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
        properties.SessionExpiryInterval = 0 if identity.clean_start else config.session_expiry_s
        properties.ReceiveMaximum = config.receive_maximum
        properties.MaximumPacketSize = config.max_packet_bytes
        client.connect_async(
            address.host, address.port, config.keepalive_s, clean_start=identity.clean_start, properties=properties
        )
    else:
        client.connect_async(address.host, address.port, config.keepalive_s)
    return client


class Connection:
    """Base of both kinds of connection.

    Args:
        client: made by `make_client`.
        config: timeouts and limits.
        identity: the one that `client` was made with.
        listener: hears what is read.

    Attributes:
        failure: why the connection is lost, in words; empty while it stands.
        is_open: there is a socket. Kept here, since it is asked for several times with each message.
    """

    def __init__(
        self, client: paho.Client, config: BrokerConfig, identity: Identity, listener: ConnectionListener
    ) -> None:
        self._client = client
        self._config = config
        self.identity = identity
        self._listener = listener
        self._notes: list[Callable[[], None]] = []
        self.failure = ""
        self.is_open = False
        self._silent = False
        client.on_connect = self._on_connect
        client.on_subscribe = self._on_subscribe
        client.on_unsubscribe = self._on_unsubscribe
        client.on_disconnect = self._on_disconnect
        client.on_socket_close = self._on_socket_close

    # -- for the thread that connects ----------------------------------------------------------------------------

    def connect(self, secrets: Secrets) -> None:
        """Resolve, connect, shake hands. Blocks; nothing else may be called meanwhile.

        Raises:
            OSError: not reached, or TLS failed.
            ValueError: the host name is none, or the certificate is not the host's.
        """
        client = self._client
        self.failure = ""
        password = secrets.password.value() if secrets.password else None
        username = secrets.username.value() if secrets.username else self._config.username or None
        client.username_pw_set(username, password)
        if secrets.tls is not None:
            self._use_tls(secrets.tls.context())
        try:
            client.reconnect()
        finally:
            self.is_open = client.socket() is not None

    def _use_tls(self, context: ssl.SSLContext) -> None:
        self._client.tls_set_context(context)

    # -- for the loop --------------------------------------------------------------------------------------------

    def fileno(self) -> int:
        """Return the socket's descriptor."""
        sock = self._client.socket()
        if sock is None:
            raise OSError("the connection is closed")
        return sock.fileno()

    def subscribe(self, filters: Sequence[tuple[str, int]]) -> int:
        """Send SUBSCRIBE for filters and their QoS; returns its packet id."""
        if self.identity.version == V5:
            # 1: what is retained comes once, not again with each connection that finds its session gone.
            wanted: Any = [(one, SubscribeOptions(qos=qos, retainHandling=1)) for one, qos in filters]
        else:
            wanted = list(filters)
        _, packet_id = self._client.subscribe(wanted)
        return packet_id or 0

    def unsubscribe(self, filters: Sequence[str]) -> int:
        """Send UNSUBSCRIBE; returns its packet id."""
        _, packet_id = self._client.unsubscribe(list(filters))
        return packet_id or 0

    def keep_alive(self) -> None:
        """Ping when it is due, give up when the last ping was not answered. To be called a few times per period."""
        self._client.loop_misc()
        self._after_paho()

    def disconnect(self, *, with_will: bool = False) -> None:
        """Say good-bye and close; the broker drops the will, or publishes it if asked to (MQTT 5)."""
        asks = with_will and self.identity.version == V5
        self._client.disconnect(ReasonCode(PacketTypes.DISCONNECT, identifier=_WITH_WILL) if asks else None)
        if self.is_open:
            self._client.loop_write()

    def silence(self) -> None:
        """Tell the listener nothing any more."""
        self._silent = True

    def abort(self, failure: str) -> None:
        """Close without good-bye; the broker publishes the will."""
        raise NotImplementedError

    def read(self) -> bool:
        """Read what is there and tell the listener; returns whether more may be waiting already."""
        raise NotImplementedError

    @property
    def hides(self) -> bool:
        """Bytes may wait inside (decrypted, unframed), where no selector sees them."""
        raise NotImplementedError

    def send(self, acks: Acks | None, outbound_queue: OutboundQueue) -> bool:
        """Send acknowledgements and what is outgoing, as far as broker and kernel take it; report what was written.

        Returns:
            Whether nothing is left that waits for the kernel. A failure shows as `failure`.
        """
        raise NotImplementedError

    def _let_paho_read(self) -> None:
        """Have paho read what is there. A packet that it cannot make sense of ends the connection, and nothing else."""
        try:
            self._client.loop_read()
        except Exception as error:  # noqa: BLE001 - struct.error, IndexError, ...: its decoders check little
            self.failure = self.failure or f"the broker sent what MQTT forbids ({type(error).__name__}: {error})"
            # What paho does itself for a packet that it refuses; with its half-read one `loop_read` would fail again.
            self._client._loop_rc_handle(MQTTErrorCode.MQTT_ERR_PROTOCOL)  # noqa: SLF001

    def _after_paho(self) -> None:
        """Act on what the callbacks noted."""
        while self._notes:
            self._notes.pop(0)()
        if not self.is_open and not self.failure:
            self.failure = "the connection was lost"

    # -- paho's callbacks ----------------------------------------------------------------------------------------

    def _on_connect(self, _client: Any, _userdata: Any, flags: Any, code: ReasonCode, properties: Any) -> None:
        if code.is_failure:
            said = _words(code, properties)
            refused = ConnackRefusal(said, code.value == _UNSUPPORTED_VERSION, code.value in _BAD_CREDENTIALS)
            self.failure = f"it refuses us: {said}"
            self._notes.append(partial(self._listener.on_refused, refused))
            return
        config = self._config
        version5 = self.identity.version == V5
        limits = BrokerLimits(
            version=self.identity.version,
            window=min(config.max_inflight, getattr(properties, "ReceiveMaximum", 65_535) if version5 else WINDOW_311),
            max_packet_bytes=getattr(properties, "MaximumPacketSize", MAX_VARIABLE_INTEGER + 5),
            max_qos=getattr(properties, "MaximumQoS", 2),
            retain=bool(getattr(properties, "RetainAvailable", 1)),
        )
        keepalive_s = getattr(properties, "ServerKeepAlive", config.keepalive_s)
        accepted = Accepted(flags.session_present, limits, keepalive_s)
        self._notes.append(partial(self._listener.on_accepted, accepted))

    def _on_subscribe(
        self, _client: Any, _userdata: Any, packet_id: int, codes: list[ReasonCode], _properties: Any
    ) -> None:
        granted = Granted(packet_id, [(code.value, code.getName().lower()) for code in codes])
        self._notes.append(partial(self._listener.on_granted, granted))

    def _on_unsubscribe(self, _client: Any, _userdata: Any, packet_id: int, _codes: Any, _properties: Any) -> None:
        self._notes.append(partial(self._listener.on_unsubscribed, packet_id))

    def _on_disconnect(self, _client: Any, _userdata: Any, flags: Any, code: ReasonCode, properties: Any) -> None:
        if self.failure:
            return
        if flags.is_disconnect_packet_from_server:
            self.failure = f"the broker ended it: {_words(code, properties)}"
            if code.value == _SESSION_TAKEN_OVER:
                mine = self.identity.client_id
                self.failure += f"; another client has the client id {mine!r}: give each its own under [broker.NAME]"
        elif code.value == _KEEP_ALIVE_TIMEOUT:
            self.failure = "the broker has not answered for a whole keep-alive period"
        elif code.is_failure:
            self.failure = "the connection was lost"

    def _on_socket_close(self, _client: Any, _userdata: Any, sock: Any) -> None:
        self.is_open = False
        if not self._silent:
            self._listener.on_socket_close(sock.fileno())


def _words(code: ReasonCode, properties: Any) -> str:
    said = getattr(properties, "ReasonString", "")
    return code.getName().lower() + (f" ({said[:200]!r})" if said else "")


def describe(error: Exception, config: BrokerConfig) -> str:
    """Explain why a connection failed, in words a user can act on."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not trusted: {error.verify_message.rstrip('.')}; see ca_file"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        return f"TLS failed: {reason}"
    if isinstance(error, TimeoutError):
        return f"no answer within {config.connect_timeout_s:g} s"
    if isinstance(error, ConnectionRefusedError):
        return "nothing listens there"
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return str(error)
