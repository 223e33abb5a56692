"""Protocol of the embedded broker: packets in and out, without sockets, so that a test can drive it byte by byte.

Known limits, all of them stated in `edge_runtime.tools.demo.broker.broker`.

Source: OASIS MQTT 3.1.1 and 5.0, sections 3 and 4.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Final

from edge_runtime.io.mqtt.packets import (
    CONNECT,
    DISCONNECT,
    PINGREQ,
    PUBACK,
    PUBCOMP,
    PUBLISH,
    PUBREC,
    PUBREL,
    RETAIN,
    SUBSCRIBE,
    UNSUBSCRIBE,
    V5,
    Connack,
    Connect,
    Disconnect,
    Item,
    MalformedPacket,
    PacketParser,
    Properties,
    Suback,
    TopicFilter,
    Unsuback,
    Will,
    decode_ack,
    decode_connect,
    decode_disconnect,
    decode_properties,
    decode_subscribe,
    decode_unsubscribe,
    encode_ack,
    encode_connack,
    encode_disconnect,
    encode_pingresp,
    encode_properties,
    encode_publish,
    encode_suback,
    encode_unsuback,
    parse_shared_subscription,
)
from edge_runtime.io.mqtt.wire import MAX_VARIABLE_INTEGER, PROTOCOL_ERROR
from edge_runtime.tools.demo.broker.session import ClientSession, Counters, Outlet, PublishedMessage
from edge_runtime.tools.demo.broker.subscriptions import Grant, SubscriptionTree

# Reason codes of MQTT 5 (table 2-6).
NO_SUBSCRIPTION_EXISTED: Final = 0x11
DISCONNECT_WITH_WILL: Final = 0x04
NOT_AUTHORIZED: Final = 0x87
CLIENT_ID_NOT_VALID: Final = 0x85
BAD_AUTHENTICATION_METHOD: Final = 0x8C
SERVER_SHUTTING_DOWN: Final = 0x8B
KEEP_ALIVE_TIMEOUT: Final = 0x8D
SESSION_TAKEN_OVER: Final = 0x8E
QUOTA_EXCEEDED: Final = 0x97
UNSUPPORTED_VERSION: Final = 0x84
# Their counterparts in a CONNACK of MQTT 3.1.1 (table 3.1); anything else is "server unavailable".
_RETURN_CODES: Final = {UNSUPPORTED_VERSION: 1, CLIENT_ID_NOT_VALID: 2, NOT_AUTHORIZED: 5}
_SERVER_UNAVAILABLE: Final = 3

_NEVER: Final = 0xFFFFFFFF  # a session expiry interval that does not end (section 3.1.2.11.2)
_TOPIC_ALIASES: Final = 10  # as mosquitto
_CONNECT_WITHIN_S: Final = 10.0
_KEEP_ALIVE_GRACE: Final = 1.5  # MQTT-3.1.2-22


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedBrokerConfig:
    """Settings of the embedded broker: address and limits.

    Raises:
        ValueError: a value makes no sense.
    """

    host: str = "127.0.0.1"
    port: int = 0
    """0 picks a free one."""
    max_inflight: int = 20
    """Messages above QoS 0 on the way to one client at a time; a lower receive maximum of the client wins."""
    max_queued: int = 1000
    """Messages above QoS 0 that wait for one client, connected or not; newer ones are dropped and counted."""
    max_packet_bytes: int = 16 * 1024 * 1024
    """Larger packets end the connection that they come from."""
    max_buffered_bytes: int = 16 * 1024 * 1024
    """Unsent bytes beyond which a client gets no QoS 0 messages and is not read from."""
    max_retained: int = 10_000
    max_sessions: int = 20_000
    username: str | None = None
    password: str | None = field(default=None, repr=False)
    """With a user name, each client must give both."""

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65_535:
            raise ValueError(f"port: {self.port} is not from 0 to 65535")
        if not 1 <= self.max_inflight <= 65_535:
            raise ValueError(f"max_inflight: {self.max_inflight} is not from 1 to 65535")
        for name in ("max_queued", "max_retained", "max_sessions", "max_buffered_bytes"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name}: {getattr(self, name)} is negative")
        if not 16 <= self.max_packet_bytes <= MAX_VARIABLE_INTEGER:
            raise ValueError(f"max_packet_bytes: {self.max_packet_bytes} is not from 16 to {MAX_VARIABLE_INTEGER:,}")
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password: give both or neither")


class Client:
    """One connection, as far as the protocol sees it.

    Attributes:
        outgoing: encoded packets to write next.
        closing: nothing more is read, and the connection ends when `outgoing` is written.
        unsent_bytes: what the connection could not take yet; kept by the owner of the socket.
    """

    def __init__(self, max_packet_bytes: int, now: float, wake: Callable[[Client], None]) -> None:
        self.parser = PacketParser(None, max_packet_bytes, topic_alias_maximum=_TOPIC_ALIASES)
        self.outgoing: list[bytes] = []
        self.closing = False
        self.unsent_bytes = 0
        self.session: ClientSession | None = None
        self.will: Will | None = None
        self.session_expiry_s = 0
        self.heard_at = now
        self.silence_s = _CONNECT_WITHIN_S
        self._wake = wake

    @property
    def version(self) -> int:
        """Protocol level; 3.1.1 until the CONNECT has told."""
        return self.parser.version or 4

    def send(self, packet: bytes) -> None:
        """Have a packet written at the end of this tick."""
        if not self.outgoing:
            self._wake(self)
        self.outgoing.append(packet)

    def close(self) -> None:
        """End the connection once everything before is written."""
        if not self.closing:
            self.closing = True
            self._wake(self)


class BrokerProtocol:
    """Sessions, subscriptions and retained messages of all clients.

    1. All acknowledgements of a kind for the packets of one recv go out together.
    2. A message of QoS 2 that is sent again has been published already (section 4.3.3).
    3. A retained message replaces that of its topic, an empty one removes it; topics above a bound are not kept.
    4. At QoS 0 all clients of a version get the same bytes; one that is slow, or takes none so large, goes without.
    5. A shared subscription serves its members in turn; one who is away only where all are.

    Args:
        config: limits and credentials.
    """

    def __init__(self, config: EmbeddedBrokerConfig) -> None:
        self.counters = Counters()
        self.sessions: dict[str, ClientSession] = {}
        self.retained: dict[bytes, PublishedMessage] = {}
        self._config = config
        self._online: dict[ClientSession, Client] = {}
        self._tree: SubscriptionTree[ClientSession] = SubscriptionTree()

    def received(self, client: Client, data: bytes, now: float) -> None:
        """Act on bytes from a client; whatever it did wrong ends its own connection only."""
        client.heard_at = now
        try:
            try:
                items = client.parser.feed(data)
            except MalformedPacket as error:
                self._handle(client, error.parsed, now)
                raise
            self._handle(client, items, now)
        except MalformedPacket as error:
            self.counters.malformed += 1
            self._refuse(client, error.reason_code)

    def lost(self, client: Client, now: float) -> None:
        """Forget a lost connection; publish the will unless the client said goodbye."""
        client.closing = True
        session, client.session = client.session, None
        if session is not None and self._online.get(session) is client:
            del self._online[session]
            session.detach()
            if client.session_expiry_s == 0:
                self._forget(session)
            elif client.session_expiry_s != _NEVER:
                session.expires_at = now + client.session_expiry_s
        will, client.will = client.will, None
        if will is not None:
            self._publish(
                PublishedMessage(will.topic, will.payload, will.qos, will.retain, _will_properties(will)), session
            )

    def sweep(self, clients: Iterable[Client], now: float) -> None:
        """End connections that have been silent for too long, and sessions that have expired."""
        for client in clients:
            if client.silence_s and now - client.heard_at > client.silence_s and not client.closing:
                self.counters.kept_alive_too_late += 1
                self._refuse(client, KEEP_ALIVE_TIMEOUT)
        for session in [s for s in self.sessions.values() if s.expires_at is not None and s.expires_at <= now]:
            self._forget(session)

    def shut_down(self, clients: Iterable[Client]) -> None:
        """Say goodbye to all clients. Their wills are not published, since it is not they who leave."""
        for client in clients:
            client.will = None
            self._refuse(client, SERVER_SHUTTING_DOWN)

    def _handle(self, client: Client, items: list[Item], now: float) -> None:
        """Act on the packets of one recv."""
        pubacks: list[int] = []
        pubrecs: list[int] = []
        for item in items:
            if client.closing:
                break
            if len(item) == 6:
                topic, payload, packet_id, qos, flags, raw = item
                self.counters.received += 1
                session = client.session
                assert session is not None  # the parser lets nothing through before CONNECT
                if qos == 1:
                    pubacks.append(packet_id)
                elif qos == 2:
                    pubrecs.append(packet_id)
                    if packet_id in session.received:  # rule 2
                        continue
                    session.received.add(packet_id)
                properties = b"" if raw is None else _forwarded(raw)
                self._publish(PublishedMessage(topic, payload, qos, bool(flags & RETAIN), properties), session)
            else:
                self._control(client, item[0], item[1], now)
        if pubacks:  # rule 1
            client.send(encode_ack(PUBACK, pubacks))
        if pubrecs:  # rule 1
            client.send(encode_ack(PUBREC, pubrecs))

    def _control(self, client: Client, first: int, body: bytes, now: float) -> None:
        session = client.session
        if first == CONNECT and session is None:
            self._connect(client, decode_connect(body), now)
        elif session is None:
            raise MalformedPacket("packet before CONNECT", PROTOCOL_ERROR)
        elif first in {PUBACK, PUBREC, PUBCOMP}:
            session.acknowledged(*decode_ack(first, body, client.version))
        elif first == PUBREL:
            client.send(session.released(decode_ack(first, body, client.version)[1]))
        elif first == PINGREQ:
            client.send(encode_pingresp())
        elif first == SUBSCRIBE:
            self._subscribe(client, session, body)
        elif first == UNSUBSCRIBE:
            request = decode_unsubscribe(body, client.version)
            codes = []
            for topic_filter in request.topic_filters:
                known = session.subscriptions.pop(topic_filter, None) is not None
                self._tree.remove(session, topic_filter)
                codes.append(0 if known else NO_SUBSCRIPTION_EXISTED)
            client.send(encode_unsuback(Unsuback(request.packet_id, tuple(codes)), client.version))
        elif first == DISCONNECT:
            self._disconnect(client, decode_disconnect(body, client.version))
        else:
            raise MalformedPacket(f"packet 0x{first:02x} is not for a server", PROTOCOL_ERROR)

    def _connect(self, client: Client, connect: Connect, now: float) -> None:
        properties = decode_properties(connect.properties, CONNECT)
        refusal = self._refusal(connect, properties)
        if refusal:
            self._refuse(client, refusal)
            return
        answer: Properties = {}
        client_id = connect.client_id
        if not client_id:
            client_id = f"auto-{secrets.token_hex(8)}"
            answer["assigned_client_identifier"] = client_id
        session = self.sessions.get(client_id)
        if session is not None:
            former = self._online.get(session)
            if former is not None:
                self._take_over(former, now)
            if connect.clean_start:
                self._forget(session)
            session = self.sessions.get(client_id)
        present = session is not None
        if session is None:
            session = self.sessions[client_id] = ClientSession(client_id, self._config.max_queued, self.counters)
        client.session = session
        client.will = connect.will
        client.silence_s = connect.keep_alive_s * _KEEP_ALIVE_GRACE
        if connect.version == V5:
            client.session_expiry_s = properties.get("session_expiry_interval", 0)
            answer["topic_alias_maximum"] = _TOPIC_ALIASES
            answer["maximum_packet_size"] = self._config.max_packet_bytes
        else:
            client.session_expiry_s = 0 if connect.clean_start else _NEVER
        client.send(
            encode_connack(
                Connack(present, 0, encode_properties(answer) if connect.version == V5 else b""), connect.version
            )
        )
        self._online[session] = client
        limit = self._config.max_buffered_bytes
        session.attach(
            Outlet(
                client.send,
                lambda: client.unsent_bytes > limit,
                connect.version,
                min(self._config.max_inflight, properties.get("receive_maximum", 65_535)),
                properties.get("maximum_packet_size", MAX_VARIABLE_INTEGER + 5),
            )
        )

    def _refusal(self, connect: Connect, properties: Properties) -> int:
        """Find the reason code for not letting a client in, 0 to let it in."""
        expected = self._config
        if expected.username is not None and expected.password is not None:
            user_is_right = hmac.compare_digest((connect.username or "").encode(), expected.username.encode())
            if not (hmac.compare_digest(connect.password or b"", expected.password.encode()) and user_is_right):
                return NOT_AUTHORIZED
        if "authentication_method" in properties:
            return BAD_AUTHENTICATION_METHOD
        if not connect.client_id and not connect.clean_start and connect.version != V5:
            return CLIENT_ID_NOT_VALID  # MQTT-3.1.3-8 of 3.1.1
        if len(self.sessions) >= self._config.max_sessions and connect.client_id not in self.sessions:
            return QUOTA_EXCEEDED
        return 0

    def _refuse(self, client: Client, reason_code: int) -> None:
        """Tell a client why its connection ends, as far as its version can be told, and end it."""
        if client.closing:
            return
        if client.session is None:
            if client.parser.version == V5:
                client.send(encode_connack(Connack(False, reason_code), V5))
            elif client.parser.version is not None:
                code = _RETURN_CODES.get(reason_code, _SERVER_UNAVAILABLE)
                client.send(encode_connack(Connack(False, code), client.version))
        elif client.version == V5:
            client.send(encode_disconnect(Disconnect(reason_code), V5))
        client.close()

    def _take_over(self, former: Client, now: float) -> None:
        """Close the old connection of a client id that has connected again (MQTT-3.1.4-3)."""
        self._refuse(former, SESSION_TAKEN_OVER)
        self.lost(former, now)

    def _disconnect(self, client: Client, disconnect: Disconnect) -> None:
        if disconnect.reason_code != DISCONNECT_WITH_WILL:
            client.will = None
        if client.version == V5:
            properties = decode_properties(disconnect.properties, DISCONNECT)
            expiry_s = properties.get("session_expiry_interval", client.session_expiry_s)
            if expiry_s and not client.session_expiry_s:
                raise MalformedPacket("session expiry cannot be set on leaving", PROTOCOL_ERROR)  # section 3.14.2.2.2
            client.session_expiry_s = expiry_s
        client.close()

    def _forget(self, session: ClientSession) -> None:
        for topic_filter in session.subscriptions:
            self._tree.remove(session, topic_filter)
        self.sessions.pop(session.client_id, None)

    def _subscribe(self, client: Client, session: ClientSession, body: bytes) -> None:
        request = decode_subscribe(body, client.version)
        identifiers = tuple(decode_properties(request.properties, SUBSCRIBE).get("subscription_identifiers", ()))
        is_new = []
        for one in request.subscriptions:
            grant = Grant(one.qos, one.no_local, one.retain_as_published, identifiers)
            session.subscriptions[one.topic_filter] = grant
            is_new.append(self._tree.add(session, one.topic_filter, grant))
        codes = tuple(one.qos for one in request.subscriptions)
        client.send(encode_suback(Suback(request.packet_id, codes), client.version))
        for one, new in zip(request.subscriptions, is_new, strict=True):
            wanted = one.retain_handling == 0 or (one.retain_handling == 1 and new)
            if not wanted or parse_shared_subscription(one.topic_filter):
                continue  # a shared subscription gets no retained messages (section 4.8.2)
            grant = session.subscriptions[one.topic_filter]
            covered = TopicFilter(one.topic_filter)
            for message in self.retained.values():
                if covered.matches(message.topic):
                    session.deliver(message, grant, retain=True)

    def _publish(self, message: PublishedMessage, source: ClientSession | None) -> None:
        """Hand a message to everybody who wants it, and keep it if it asks for that."""
        topic, payload, qos, retain, properties = message
        if retain:  # rule 3
            if not payload:
                self.retained.pop(topic, None)
            elif topic in self.retained or len(self.retained) < self._config.max_retained:
                self.retained[topic] = message
        matches = self._tree.match(topic)
        encoded: dict[int, bytes] = {}  # of QoS 0, which is the same for all clients of a version
        for session, grant in matches.direct:
            if grant.no_local and session is source:
                continue
            outlet = session.outlet
            if (qos and grant.qos) or outlet is None or grant.identifiers or retain:  # rule 4
                session.deliver(message, grant, retain=retain and grant.retain_as_published)
            elif outlet.is_slow():  # rule 4
                self.counters.dropped_slow += 1
            else:
                version = outlet.version
                packet = encoded.get(version)
                if packet is None:  # rule 4
                    packet = encode_publish(
                        topic, payload, version=version, properties=properties if version == V5 else b""
                    )
                    encoded[version] = packet
                if len(packet) > outlet.max_packet_bytes:  # rule 4
                    self.counters.dropped_too_large += 1
                else:
                    self.counters.sent += 1
                    outlet.send(packet)
        for group in matches.groups:
            members = [*group.in_turn()]
            session, grant = next((one for one in members if one[0].outlet is not None), members[0])  # rule 5
            session.deliver(message, grant, retain=retain and grant.retain_as_published)


def _forwarded(raw: bytes) -> bytes:
    """Check a publisher's properties and take out what is between it and the server only."""
    properties = decode_properties(raw, PUBLISH)
    if "subscription_identifiers" in properties:
        raise MalformedPacket("a client sent a subscription identifier", PROTOCOL_ERROR)  # MQTT-3.3.4-6
    if properties.pop("topic_alias", None) is None:
        return raw
    return encode_properties(properties)


def _will_properties(will: Will) -> bytes:
    """Keep the properties of a will's message but for the delay, which is not waited for."""
    properties = decode_properties(will.properties, 0)
    properties.pop("will_delay_interval", None)
    return encode_properties(properties)
