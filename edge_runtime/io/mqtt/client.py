"""MQTT broker client: one lasting connection, shared by the sources and sinks that use this broker.

::

    waiting ─► connecting (a thread: names, TCP, TLS) ─► greeting (CONNECT sent) ─► connected ─┐
       ▲                  └────────────── failed ──────────────┴────────── lost ───────────────┤
       └──────────────────────────────────────────────────────────────────────────────────────┘

All of it but the connecting thread runs on the loop. What arrived together is handed over together; acknowledgements
and own messages leave joined, at the end of the iteration (`BrokerClient._flush_iteration`):

1. A connection may be gone before sending, or be found gone by it; no event would tell, its descriptor is closed.
2. What the callbacks of finished batches make ready leaves in this iteration, too.
3. The loop does not linger while the broker waits for our acknowledgements, or messages of ours are queued.
"""

from __future__ import annotations

import json
import logging
import random
import selectors
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from edge_runtime._version import __version__
from edge_runtime.base.system.barrier import Barrier
from edge_runtime.base.system.loop import Loop, Timer
from edge_runtime.base.system.retry import RECONNECT, Retry
from edge_runtime.io.mqtt.attempts import SUSPICIOUS, VERSION_NAMES, Attempts
from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.io.mqtt.connector import Connector
from edge_runtime.io.mqtt.inbound_acks import InboundAcks
from edge_runtime.io.mqtt.inbound_queue import InboundQueue
from edge_runtime.io.mqtt.outbound_queue import Message, OutboundQueue
from edge_runtime.io.mqtt.packets import PUBREL, Publish
from edge_runtime.io.mqtt.presence import Presence
from edge_runtime.io.mqtt.routing import KeyOf, Receive, Router, SideChannel, Subscription, Take
from edge_runtime.metrics import Metrics
from edge_runtime.types import Done

if TYPE_CHECKING:
    from edge_runtime.io.mqtt.connection import Accepted, ConnackRefusal, Connection, Granted

logger = logging.getLogger(__name__)

_FILTERS_A_PACKET = 64
"""Filters in one UNSUBSCRIBE."""
_MOST_HELD = 4
"""Held at most while our own messages wait for acknowledgements, as a multiple of `BrokerConfig.max_held_bytes`."""


class BrokerClient:
    """Client of one broker, which reconnects until it is closed.

    Args:
        config: the broker's settings.
        name: its name in the configuration; for messages, metrics and the default client id.
        metrics: counts drops, and shows ``connected{broker="NAME"}``.
        application: part of the default client id (see `BrokerConfig.session_name`).
        retry: waits between attempts.
        rng: jitter, and where packet ids begin.

    Raises:
        ConfigError: a file that the configuration names is missing or unusable.
    """

    def __init__(
        self,
        config: BrokerConfig,
        name: str,
        metrics: Metrics,
        *,
        application: str = "",
        retry: Retry | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self.config = config
        self.name = name
        self._metrics = metrics
        self._client_id = config.session_name(name, application)
        self._rng = rng or random.Random()  # noqa: S311 - jitter
        self._secrets = config.secrets()
        self._address = config.address()
        self._gauge = f'connected{{broker="{name}"}}'
        self._attempts = Attempts(config, name, retry or RECONNECT, self._rng)
        self._router = Router(metrics, self._unasked)
        self._status_barrier = Barrier("status", metrics)
        self._subscribing: dict[int, list[tuple[str, int]]] = {}
        self._subscribed = False  # the session has every filter of the router
        self._leaving: dict[str, None] = {}  # filters that the session may have and no subscription wants
        self._unsubscribing: dict[int, list[str]] = {}
        self._users = 0
        self._publish_qos = 0
        self._loop: Loop | None = None
        self._outbound_queue: OutboundQueue | None = None
        self._inbound_queue = InboundQueue(config, name, self._router, metrics)
        self._batched = config.receive == "batched" and self._address.websocket_path is None
        self._kept: Connection | None = None  # the fallback's, which outlives its sockets
        self._connection: Connection | None = None  # greeting or connected
        self._connected = False
        self._keepalive_s = float(config.keepalive_s)
        self._watched = -1  # the descriptor that the loop watches for reading
        self._writing = -1  # and for writing
        self._timer: Timer | None = None
        self._connector = Connector(name)
        self._closed = False
        self._published_status: dict[str, Mapping[str, object]] = {}
        self._presence: Presence | None = None
        self._last_words: tuple[Message, Message, Callable[[], Message]] | None = None
        metrics.gauges[self._gauge] = 0.0

    # -- what sources and sinks use ------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """`V5` or `V311`: of the connection, or of the next attempt."""
        return self._attempts.version

    @property
    def connected(self) -> bool:
        """The broker has accepted us, and nothing has ended that yet."""
        return self._connected

    def subscribe(
        self, filters: Sequence[tuple[str, int]], receive: Receive, key_of: KeyOf | None = None
    ) -> Subscription:
        """Ask for messages, now and after each reconnection. A message goes to the first one that asked for it.

        Args:
            filters: topic filters and their QoS.
            receive: receiver of the messages.
            key_of: names a topic's key, whose messages keep their order; None: each topic is a key.

        Raises:
            MalformedPacket: a filter is malformed.
        """
        return self._add(Subscription(filters, receive, key_of))

    def listen(
        self,
        filters: Sequence[tuple[str, int]],
        take: Take,
        barrier: Barrier,
        failed: Callable[[], None] | None = None,
    ) -> Subscription:
        """Subscribe a side channel: message by message, acknowledged at once, behind a barrier.

        Args:
            filters: topic filters and their QoS.
            take: takes a message.
            barrier: catches what `take` raises; the same message is not handed over again.
            failed: called when that has happened.

        Raises:
            MalformedPacket: a filter is malformed.
        """
        return self._add(Subscription(filters, SideChannel(take, barrier, self._metrics, failed), guarded=True))

    def present(self, presence: Presence) -> None:
        """Show that we are there as this says, in place of the status topic; before `open`."""
        assert not self.config.status_topic, "one connection has one Will"
        assert self._presence is None, "one connection has one Will"
        assert self._last_words is None, "one connection has one Will"
        self._presence = presence

    def leave_will(self, will: Message, farewell: Message, there: Callable[[], Message]) -> bool:
        """Have the broker publish `will` once the connection is lost; before `open`.

        Args:
            will: the message that the broker publishes.
            farewell: published at the end of a connection in good order.
            there: makes what is published each time the broker accepts the connection, over the will of the one before.

        Returns:
            False where the status topic or a presence has the connection's one Will.
        """
        if self.config.status_topic or self._presence is not None:
            return False
        self._last_words = will, farewell, there
        return True

    def renew(self) -> None:
        """End the connection in good order, and begin another: what a `Presence` was shown is over."""
        connection, outbound_queue = self._connection, self._outbound_queue
        if not self._connected or connection is None or outbound_queue is None:
            return
        outbound_queue.abandon()
        self._enqueue_farewell(outbound_queue)
        self._flush_iteration()  # onto the wire; the loop does not wait for the broker's answer
        if connection is self._connection and connection.is_open:
            connection.disconnect(with_will=self._presence is not None)
            connection.abort("left it, to begin another connection")
        self._check()

    def unsubscribe(self, subscription: Subscription) -> None:
        """Hand over no more of its messages, and have the broker send none. May be called twice."""
        self.leave(self._router.remove(subscription))

    def leave(self, filters: Iterable[str]) -> None:
        """Unsubscribe from filters that the session may have from earlier, unless a subscription has them."""
        wanted = {one for one, _ in self._router.filters()}
        leaving = [one for one in filters if one not in wanted]
        self._leaving |= dict.fromkeys(leaving)
        if self._connected and leaving:
            self._send_unsubscribe(leaving)

    def publish(
        self, messages: Sequence[Message], done: Done | None = None, dropped: Counter[str] | None = None
    ) -> None:
        """Queue messages. They leave at the end of the iteration, or when the broker is back.

        Args:
            messages: the messages in order; their topics are valid.
            done: called when all are handed over (QoS 0: written to the socket; QoS 1 and 2: acknowledged), or dropped
                by the queue's policy and counted.
            dropped: see `OutboundQueue.enqueue`.
        """
        assert self._outbound_queue is not None, "open() comes first"
        self._outbound_queue.enqueue(messages, done, dropped)

    def publish_status(self, part: str, facts: Mapping[str, object]) -> None:
        """Keep facts in the retained status beside ``online``, where there is a status topic.

        Args:
            part: name under which they stand; the same one again replaces them.
            facts: what JSON can carry.
        """
        if not self._status_barrier.call(lambda: json.dumps(facts)):
            return
        self._published_status[part] = facts
        if self._connected and self._outbound_queue is not None and self.config.status_topic:
            self._outbound_queue.enqueue([self._status("online", "")], None)

    def publish_below_status(self, level: str, payload: bytes) -> None:
        """Keep a payload retained below the status topic, where there is one; only while connected.

        Args:
            level: last level of the topic.
            payload: replaces the one before.
        """
        if self._connected and self._outbound_queue is not None and self.config.status_topic:
            topic = f"{self.config.status_topic}/{level}".encode()
            self._outbound_queue.enqueue([Message(topic, payload, b"", 0, retain=True)], None)

    def open(self, loop: Loop, *, publish_qos: int = 0) -> None:
        """Begin to connect in the loop's next iteration, when all users have called it, each with its highest QoS."""
        self._users += 1
        self._publish_qos = max(self._publish_qos, publish_qos)
        if self._loop is not None:
            return
        self._loop = loop
        if self.config.password_file and not self._address.tls and not self._address.loopback:
            logger.warning("broker %s: the password crosses the network readable; use mqtts://", self.name)
        self._outbound_queue = self._make_outbound_queue()
        loop.each_iteration(self._flush_iteration)
        loop.call_soon(self._connect)

    def hold(self) -> None:
        """Stay open until `close` is called once more, and after the sources and sinks have closed."""
        self._users += 1

    def pause(self) -> None:
        """Hand over no more messages; what comes now stays unacknowledged, for the broker to keep. The rest goes on."""
        self._inbound_queue.pause()
        self._read_again()

    def close(self, timeout_s: float) -> None:
        """Hand over what is queued, say ``offline``, disconnect; when the last user calls it."""
        self._users -= 1
        if self._users > 0 or self._closed:
            return
        self.pause()
        self._closed = True
        self._cancel_timer()
        self._connector.cancel()
        if self._connected and self._loop is not None and self._outbound_queue is not None:
            until = self._loop.clock.monotonic() + timeout_s
            if self._presence is not None:  # its last message comes after all others, and these may call for more
                self._drain(self._loop, self._outbound_queue, until)
            self._enqueue_farewell(self._outbound_queue)
            self._drain(self._loop, self._outbound_queue, until)
        if self._connection is not None:
            if self._connected and self._connection.is_open:
                self._connection.disconnect(with_will=self._presence is not None)
            if self._connection.is_open:
                self._connection.abort("closed")
            self._connection = None
        if self._connected:
            self._show(connected=False)
            logger.info("broker %s: disconnected", self.name)
        lost = self._outbound_queue.abandon() if self._outbound_queue is not None else 0
        if lost:
            self._metrics.dropped["publish_not_sent"] += lost
            logger.warning("broker %s: %d messages were not handed over before the end", self.name, lost)

    def _enqueue_farewell(self, outbound_queue: OutboundQueue) -> None:
        if self._presence is not None:
            outbound_queue.enqueue([self._presence.farewell()], None)
        elif self.config.status_topic:
            outbound_queue.enqueue([self._status("offline", "stopped")], None)
        elif self._last_words is not None:
            outbound_queue.enqueue([self._last_words[1]], None)

    def _drain(self, loop: Loop, outbound_queue: OutboundQueue, until: float) -> None:
        """Wait for what is on its way; the loop may not be running any more."""
        self._flush_iteration()
        with selectors.DefaultSelector() as selector:
            connection = self._connection
            if connection is None or not connection.is_open:
                return
            fd = connection.fileno()
            selector.register(fd, selectors.EVENT_READ)
            while self._connected and (outbound_queue.waiting or self._writing >= 0):
                left = until - loop.clock.monotonic()
                if left <= 0:
                    return
                events = selectors.EVENT_READ | (selectors.EVENT_WRITE if self._writing >= 0 else 0)
                selector.modify(fd, events)
                selector.select(left)
                self._read()
                self._flush_iteration()

    # -- connecting ----------------------------------------------------------------------------------------------

    def _make_outbound_queue(self) -> OutboundQueue:
        # Here and below: paho is loaded when a connection is wanted, not when a configuration is read.
        from edge_runtime.io.mqtt import batched, fallback  # noqa: PLC0415

        if self._batched and not batched.CAN_BATCH:
            logger.warning("broker %s: this paho-mqtt cannot be batched; receiving through its callbacks", self.name)
            self._batched = False
        if not self._batched:
            self._inbound_queue.inbound_acks = InboundAcks(keeps_ids=False)
        config = self.config
        return (OutboundQueue if self._batched else fallback.PahoOutboundQueue)(
            config.queue_messages,
            config.queue_bytes,
            drop_oldest=config.when_full == "drop_oldest",
            dropped=self._metrics.dropped,
            rng=self._rng,
            max_inflight=config.max_inflight,
        )

    def _make_connection(self) -> Connection:
        from edge_runtime.io.mqtt import batched, connection, fallback  # noqa: PLC0415

        config = self.config
        # A broker knows a repeated QoS 2 message by what its session remembers; QoS 1 of ours may repeat anyway.
        keeps = self._publish_qos == 2 or any(qos for _, qos in self._router.filters())
        clean_start = not keeps if config.clean_start is None else config.clean_start
        identity = connection.Identity(
            client_id=self._client_id,
            version=self._attempts.version,
            clean_start=clean_start or self._presence is not None,
            will=self._will if config.status_topic or self._presence or self._last_words else None,
        )
        if self._batched:
            return batched.BatchedConnection(config, identity, self)
        if self._kept is None or self._kept.identity != identity:
            if self._kept is not None and self._outbound_queue is not None:
                self._outbound_queue.requeue()  # the client that goes takes its session with it
            self._kept = fallback.FallbackConnection(config, identity, self)
        return self._kept

    def _connect(self) -> None:
        if self._loop is not None and not self._closed:
            self._attempts.begin()
            self._connector.connect(self._make_connection(), self._secrets, self._loop, self._on_connected)

    def _on_connected(self, connection: Connection, error: Exception | None) -> None:
        from edge_runtime.io.mqtt.connection import describe  # noqa: PLC0415

        assert self._loop is not None
        if error is not None:
            self._lost(f"cannot connect: {describe(error, self.config)}")
            return
        self._connection = connection
        self._watch(connection)
        self._timer = self._loop.call_later(self.config.connect_timeout_s, self._no_answer)

    def _no_answer(self) -> None:
        if self._connection is not None and not self._connected:
            self._connection.abort("it does not answer as an MQTT broker")
            self._check()

    def on_accepted(self, accepted: Accepted) -> None:
        """Begin a session: the broker accepted the connection."""
        connection, loop, outbound_queue = self._connection, self._loop, self._outbound_queue
        if connection is None or loop is None or outbound_queue is None:
            return
        self._cancel_timer()
        self._attempts.accepted(loop.clock.monotonic())
        self._show(connected=True)
        self._inbound_queue.begin(session_present=accepted.session_present, linger_s=loop.linger_s)
        outbound_queue.begin(
            accepted.limits,
            session_present=accepted.session_present,
            suspicious=self._attempts.short >= SUSPICIOUS,
            publishes_qos_2=self._publish_qos == 2,
        )
        if self.config.status_topic:
            outbound_queue.enqueue_first(self._status("online", ""))
        elif self._last_words is not None:
            outbound_queue.enqueue_first(self._last_words[2]())
        # The first time always: this run may ask for other topics than the one that left the session.
        filters = self._router.filters()
        if filters and not (accepted.session_present and self._subscribed):
            self._send_subscribe(filters)
            self._subscribed = True
        if not accepted.session_present:
            self._leaving.clear()
        elif self._leaving:
            self._send_unsubscribe(list(self._leaving))
        if self._presence is not None:
            self._presence.accepted()
        self._keepalive_s = float(accepted.keepalive_s) or 60.0
        self._timer = loop.call_later(self._keepalive_s / 4, self._keep_alive)
        logger.info(
            "broker %s: connected to %s with MQTT %s as %r%s",
            self.name,
            self._address,
            VERSION_NAMES[self._attempts.version],
            connection.identity.client_id,
            ", session resumed" if accepted.session_present else "",
        )

    def on_refused(self, refused: ConnackRefusal) -> None:
        """Note that the broker refused the connection; paho closes it."""
        self._attempts.refused(refused)

    def on_granted(self, granted: Granted) -> None:
        """Take the broker's answer to SUBSCRIBE."""
        wanted = self._subscribing.pop(granted.packet_id, [])
        for (one, qos), (code, reason) in zip(wanted, granted.codes, strict=False):
            if code >= 0x80:
                self._metrics.dropped["subscription_refused"] += 1
                logger.error("broker %s: subscription to %r refused: %s", self.name, one, reason)
            elif code < qos:
                logger.warning("broker %s: subscription to %r granted with QoS %d, not %d", self.name, one, code, qos)

    def on_unsubscribed(self, packet_id: int) -> None:
        """Take the broker's answer to UNSUBSCRIBE."""
        for one in self._unsubscribing.pop(packet_id, []):
            self._leaving.pop(one, None)

    def _add(self, subscription: Subscription) -> Subscription:
        self._router.add(subscription)
        for one, _ in subscription.filters:
            self._leaving.pop(one, None)
        if self._connected:
            self._send_subscribe(subscription.filters)
        else:
            self._subscribed = False
        return subscription

    def _send_subscribe(self, filters: list[tuple[str, int]]) -> None:
        if self._connection is not None:
            self._subscribing[self._connection.subscribe(filters)] = filters

    def _send_unsubscribe(self, filters: list[str]) -> None:
        if self._connection is not None:
            for i in range(0, len(filters), _FILTERS_A_PACKET):
                some = filters[i : i + _FILTERS_A_PACKET]
                self._unsubscribing[self._connection.unsubscribe(some)] = some

    def _unasked(self, topic: bytes) -> None:
        """Leave the likely filters of a message without a subscription: an earlier run left one in the session."""
        name = topic.decode(errors="replace")
        parent, slash, _ = name.rpartition("/")
        likely = [name, f"{parent}/+"] if slash else [name]
        if not self._leaving.keys() & likely:  # else the broker knows already
            logger.info("broker %s: unsubscribed from a topic without a subscription: topic=%r", self.name, name)
            self.leave(likely)

    def _keep_alive(self) -> None:
        connection = self._connection
        if connection is not None and self._loop is not None:
            self._timer = self._loop.call_later(self._keepalive_s / 4, self._keep_alive)
            connection.keep_alive()
            self._check()
            if self._outbound_queue is not None and self._connected:
                self._outbound_queue.trust()

    # -- losing it -----------------------------------------------------------------------------------------------

    def _check(self) -> None:
        """Notice that the connection is gone; to be called after calls into it."""
        connection = self._connection
        if connection is not None and not connection.is_open:
            self._connection = None
            self._lost(connection.failure)

    def _lost(self, why: str) -> None:
        loop, outbound_queue = self._loop, self._outbound_queue
        assert loop is not None
        assert outbound_queue is not None
        self._cancel_timer()
        if self._subscribing:  # not known to be granted
            self._subscribed = False
        self._subscribing.clear()
        self._unsubscribing.clear()
        largest = outbound_queue.largest_inflight()
        if self._presence is not None:
            outbound_queue.abandon()
        outbound_queue.end()
        self._inbound_queue.forget("connection_lost")
        was_connected = self._connected
        if was_connected:
            self._show(connected=False)
            if self._presence is not None:
                self._presence.lost()
        if not self._closed:
            delay_s = self._attempts.failed(
                why, loop.clock.monotonic(), was_connected=was_connected, client_id=self._client_id, largest=largest
            )
            self._timer = loop.call_later(delay_s, self._connect)

    def _show(self, *, connected: bool) -> None:
        self._connected = connected
        self._metrics.gauges[self._gauge] = float(connected)

    def _will(self) -> Message:
        if self._presence is not None:
            return self._presence.will()
        if self._last_words is not None:
            return self._last_words[0]
        return self._status("offline", "connection lost")

    def _status(self, status: str, reason: str) -> Message:
        status_document: dict[str, object] = {"status": status, "runtime": __version__}
        status_document |= {"reason": reason} if reason else self._published_status
        return Message(self.config.status_topic.encode(), json.dumps(status_document).encode(), b"", 1, retain=True)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    # -- receiving -----------------------------------------------------------------------------------------------

    def _watch(self, connection: Connection) -> None:
        if self._loop is not None:
            self._watched = connection.fileno()
            self._loop.watch(self._watched, self._read, lingers=bool(self._router.filters()))

    def on_socket_close(self, fd: int) -> None:
        """Forget the descriptor, which is about to be closed and will soon name something else."""
        if self._loop is not None:
            self._loop.unwatch(fd)
        self._watched = self._writing = -1

    def _read(self) -> None:
        connection, loop = self._connection, self._loop
        if connection is None or loop is None or self._watched < 0:
            return
        self._inbound_queue.received_at = loop.clock.monotonic()
        if connection.read():
            loop.skip_linger()
            if connection.hides:
                loop.call_soon(self._read)
        if not connection.is_open:
            self._check()

    def on_publishes(self, publishes: list[Publish]) -> None:
        """Messages came, in this order."""
        if not self._connected:
            if self._connection is not None:
                self._connection.abort("it sent a message before it answered CONNECT")
            return
        inbound_queue = self._inbound_queue
        if self._loop is not None:
            self._loop.arrived(len(publishes))
        if inbound_queue.put(publishes) and self._loop is not None:
            self._loop.skip_linger()
        if inbound_queue.held_bytes > self.config.max_held_bytes:
            self._too_much()

    def on_oversize(self, publish: Publish) -> None:
        """Acknowledge a message over the limit, which was skipped."""
        self._inbound_queue.skip(publish)

    def on_ack(self, kind: int, packet_id: int, reason_code: int) -> None:
        """PUBACK, PUBREC, PUBREL or PUBCOMP came."""
        if kind == PUBREL:
            self._inbound_queue.inbound_acks.released(packet_id)
        elif self._outbound_queue is not None:
            self._outbound_queue.acknowledged(kind, packet_id, reason_code)

    def _release_held(self) -> None:
        if self._inbound_queue.release() and self._loop is not None:
            self._loop.skip_linger()
        if self._inbound_queue.held_bytes <= self.config.max_held_bytes // 2:
            self._read_again()

    def _go_on_with_held(self, loop: Loop, outbound_queue: OutboundQueue) -> None:
        if self._inbound_queue.can_release:
            loop.call_soon(self._release_held)
            loop.skip_linger()
        elif self._watched < 0 and outbound_queue.inflight:
            loop.call_soon(self._read_again)  # what is held may wait for answers of the broker

    def _too_much(self) -> None:
        """Leave the rest in the network; or read on while our own messages wait for acknowledgements behind it.

        What is held may wait for these: not to read them would be to wait for ever. A broker that sends so much more
        than `receive_maximum` is left, and sends again what is not acknowledged.
        """
        inbound_queue = self._inbound_queue
        if inbound_queue.can_release or self._outbound_queue is None or not self._outbound_queue.inflight:
            self._stop_reading()
        elif inbound_queue.held_bytes > _MOST_HELD * self.config.max_held_bytes and self._connection is not None:
            self._connection.abort("it sends more at a time than receive_maximum and max_held_bytes allow")

    def _stop_reading(self) -> None:
        """Leave the rest in the network."""
        if self._watched >= 0 and self._loop is not None:
            fd, self._watched = self._watched, -1
            self._loop.unwatch(fd)
            if self._writing >= 0:
                self._loop.watch_write(fd, _awake)

    def _read_again(self) -> None:
        if self._watched < 0 and self._connection is not None and self._connection.is_open:
            self._watch(self._connection)
            self._read()

    # -- sending -------------------------------------------------------------------------------------------------

    def _flush_iteration(self) -> None:
        connection, outbound_queue, loop = self._connection, self._outbound_queue, self._loop
        if outbound_queue is None or loop is None:
            return
        inbound_queue = self._inbound_queue
        inbound_acks = inbound_queue.inbound_acks
        while True:
            if connection is not None and not connection.is_open:  # rule 1
                self._check()
            if connection is not None and connection is self._connection:
                empty = connection.send(inbound_acks.take_acks() if self._connected else None, outbound_queue)
                if not connection.is_open:  # rule 1
                    self._check()
                elif empty != (self._writing < 0):
                    self._watch_for_room(connection, loop, empty=empty)
            finished = outbound_queue.take_finished()
            for done in finished:  # rule 2
                done()
            if not finished or not (outbound_queue.ready or inbound_acks.ready):  # rule 2
                break
        if inbound_queue.held_bytes:
            self._go_on_with_held(loop, outbound_queue)
        if (inbound_queue.inbound_acks.unacked and inbound_queue.broker_waits) or (  # rule 3
            self._connected and outbound_queue.queued
        ):
            loop.skip_linger()

    def _watch_for_room(self, connection: Connection, loop: Loop, *, empty: bool) -> None:
        self._writing = -1 if empty else connection.fileno()
        loop.watch_write(connection.fileno(), None if empty else _awake)


def _awake() -> None:
    """Wake the loop: the kernel takes bytes again, and the end of this iteration sends them."""
