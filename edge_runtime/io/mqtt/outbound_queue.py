"""Outbound queue: our own messages, bounded, until the broker has acknowledged them.

The state outlives the connection: `OutboundQueue.begin` and `OutboundQueue.end` mark its span. No sockets, no time.

Source: MQTT 5 sections 4.3 (QoS), 4.4 (redelivery), 4.9 (flow control); 3.1.1 agrees where it has them.
"""

from __future__ import annotations

import random
import sys
from collections import Counter, deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from edge_runtime.io.mqtt.packets import PUBACK, PUBCOMP, PUBREC, PUBREL, V5, encode_ack, encode_publish
from edge_runtime.types import Done

FIRST_PACKET_ID: Final = 256
"""Ours begin here: paho numbers its SUBSCRIBE packets from 1, afresh for each connection, and never gets this far."""
_MOST_PACKET_IDS: Final = 65_536 - FIRST_PACKET_ID
_FEWEST_PACKET_IDS: Final = 2_048
WINDOW_311: Final = 20
"""MQTT 3.1.1 has no receive maximum; this is mosquitto's and paho's default for the same thing."""


class Message(NamedTuple):
    """Something to publish."""

    topic: bytes
    payload: bytes
    properties: bytes = b""
    """Encoded, without length; left out where the connection speaks 3.1.1."""
    qos: int = 0
    retain: bool = False


class _Countdown:
    """Counts down the messages that were offered together."""

    __slots__ = ("done", "dropped", "waiting")

    def __init__(self, waiting: int, done: Done | None, dropped: Counter[str] | None) -> None:
        self.waiting = waiting
        self.done = done
        self.dropped = dropped


class BrokerLimits(NamedTuple):
    """Limits of the broker: from its CONNACK (MQTT 5), or what 3.1.1 leaves us to assume."""

    version: int
    window: int
    """Messages of QoS 1 and 2 on the way at a time."""
    max_packet_bytes: int
    max_qos: int
    retain: bool


Entry = tuple[Message, _Countdown]

STRIKES: Final = 10
"""Connections that must end with one and the same message on the way before it counts as what ended them."""
STRIKES_OF_A_KIND: Final = 3
"""The same for a message at least as large as one that was found out."""


def _size(message: Message) -> int:
    """Bytes of topic and payload, which is what differs between packets of one kind."""
    return len(message.topic) + len(message.payload)


class _Unwritten:
    """Messages of QoS 0 of one batch that follow each other, and where the last of them ends in the stream."""

    __slots__ = ("batch", "count", "end")

    def __init__(self, batch: _Countdown, end: int) -> None:
        self.batch = batch
        self.count = 1
        self.end = end


class OutboundQueue:
    """Our own messages: a bounded queue, then in flight until the broker has acknowledged them.

    Args:
        max_messages: the queue's bound; what is in flight is bounded by the window.
        max_bytes: the same in bytes of topic and payload.
        drop_oldest: what leaves when it is full: the oldest, or else the newest.
        dropped: reasons are counted here.
        rng: source of the first packet id, so that acknowledgements to an earlier run seldom meet ours.
        max_inflight: the most that `BrokerLimits.window` will be. Twice as many packet ids are used, at least 2,048.
    """

    def __init__(
        self,
        max_messages: int,
        max_bytes: int,
        *,
        drop_oldest: bool,
        dropped: Counter[str],
        rng: random.Random,
        max_inflight: int = 1000,
    ) -> None:
        self._max_messages = max_messages
        self._max_bytes = max_bytes
        self._drop_oldest = drop_oldest
        self._dropped = dropped
        count = min(max(_FEWEST_PACKET_IDS, 2 * max_inflight), _MOST_PACKET_IDS)
        self._ids = range(FIRST_PACKET_ID, FIRST_PACKET_ID + count)
        self._next_id = rng.choice(self._ids)
        self._queue: deque[Entry] = deque()
        self._queue_bytes = 0
        self._inflight: dict[int, Entry] = {}  # in order of sending; PUBLISH is to be acknowledged
        self._released: dict[int, Entry] = {}  # QoS 2, PUBREC came; PUBCOMP is to come
        self._again: deque[int] = deque()  # ids in `_inflight` that this connection has not sent yet
        self._pubrels: list[int] = []
        self._unwritten: deque[_Unwritten] = deque()
        self._finished: list[Done] = []
        self._limits: BrokerLimits | None = None
        self._alone = False  # one message at a time, to find out which one ends the connections
        self._suspect: Entry | None = None
        self._strikes = 0
        self._largest_taken = 0  # bytes of a message that the broker has acknowledged: the limit is not below
        self._smallest_refused = sys.maxsize
        # Packet ids that a session from before this run may remember as half received.
        self._inherited: Sequence[int] = self._ids

    @property
    def waiting(self) -> int:
        """Messages that are queued or not yet acknowledged."""
        return len(self._queue) + self.inflight + sum(run.count for run in self._unwritten)

    @property
    def inflight(self) -> int:
        """Messages of QoS 1 and 2 that are not yet acknowledged."""
        return len(self._inflight) + len(self._released)

    @property
    def queued(self) -> int:
        """Messages that are not yet sent for the first time."""
        return len(self._queue)

    @property
    def ready(self) -> bool:
        """Something waits to be put onto the wire, or to be called back."""
        return bool(self._queue or self._finished or self._pubrels or self._again)

    def enqueue(self, messages: Sequence[Message], done: Done | None, dropped: Counter[str] | None = None) -> None:
        """Queue messages; `done` is among `take_finished` when all are handed over, or dropped and counted.

        Args:
            messages: the messages in order.
            done: called once.
            dropped: counter of their sender's own for their drops; None: the queue's.
        """
        if not messages:
            if done is not None:
                self._finished.append(done)
            return
        batch = _Countdown(len(messages), done, dropped)
        size = 0
        for message in messages:
            size += len(message.topic) + len(message.payload)
        if len(self._queue) + len(messages) <= self._max_messages and self._queue_bytes + size <= self._max_bytes:
            for message in messages:
                self._queue.append((message, batch))
            self._queue_bytes += size
            return
        for message in messages:
            self._queue.append((message, batch))
            self._queue_bytes += len(message.topic) + len(message.payload)
            while len(self._queue) > self._max_messages or self._queue_bytes > self._max_bytes:
                entry = self._queue.popleft() if self._drop_oldest else self._queue.pop()
                self._queue_bytes -= len(entry[0].topic) + len(entry[0].payload)
                self._drop(entry, "publish_queue_full")

    def enqueue_first(self, message: Message) -> None:
        """Queue a message before all others, beyond the bound."""
        self._put_back((message, _Countdown(1, None, None)))

    def begin(
        self, limits: BrokerLimits, *, session_present: bool, suspicious: bool = False, publishes_qos_2: bool = False
    ) -> None:
        """Begin a connection: send again what the last one left open (section 4.4).

        With `suspicious`, the broker has just closed several connections as soon as it had accepted them. A message
        over its limit, which MQTT 3.1.1 lets it refuse in no other way, would come first again, for ever. So messages
        go one at a time until `trust`, and `_strike` looks for it.

        The same session gets the same packet ids, marked as duplicates. A new session has never seen them, so they go
        out as new messages, before everything else. That repeats what the broker had received already, yet nothing else
        is safe: a broker may pass on a QoS 2 message only when it is released.

        With `publishes_qos_2`, a session that an earlier run left may hold messages that were not released. Ours with
        the same packet id would be taken for their repetition, or they would come after answers to later windows. They
        are released now, before anything else, in the order of their ids, in which they were sent (`_free_id`); and in
        the next connection again, where this one ends before the broker has taken a message of ours.
        """
        self._limits = limits
        self._alone = suspicious
        entries = [*self._released.values(), *self._inflight.values()]
        if session_present and all(message.qos <= limits.max_qos for message, _ in entries):
            self._again = deque(self._inflight)
            self._pubrels = list(self._released)
        else:
            self.requeue()
        if not session_present:
            self._inherited = ()
        elif publishes_qos_2 and limits.max_qos == 2 and not suspicious:
            ours = self._released.keys() | self._inflight.keys()
            self._pubrels[:0] = [packet_id for packet_id in self._inherited if packet_id not in ours]

    def requeue(self) -> None:
        """Queue again, before everything else, what is in flight: the broker knows nothing of it any more."""
        for entry in reversed([*self._released.values(), *self._inflight.values()]):
            self._put_back(entry)
        self._released.clear()
        self._inflight.clear()
        self._again.clear()
        self._pubrels.clear()

    def end(self) -> None:
        """End the connection, and drop what of QoS 0 had not reached the kernel."""
        if self._limits is not None and self._alone:
            self._strike()
        self._limits = None
        while self._unwritten:
            run = self._unwritten.popleft()
            dropped = self._counter_of(run.batch)
            dropped["publish_connection_lost"] += run.count
            self._through(run.batch, run.count)

    def trust(self) -> None:
        """Trust the connection: send as much at a time as the broker takes."""
        self._alone = False

    def largest_inflight(self) -> int:
        """Bytes of topic and payload of the largest message that is not acknowledged; 0 where there is none."""
        return max((_size(message) for message, _ in self._inflight.values()), default=0)

    def _strike(self) -> None:
        """Drop a message that ends every connection. A network that flaps ends them as well, and must cost nothing.

        1. With MQTT 5 the broker has stated its limit: no message is suspected.
        2. One that was not alone on the way is not, nor is one no larger than another that was acknowledged.
        3. After `STRIKES` connections in a row it is dropped; after `STRIKES_OF_A_KIND` if one as large has been.
        """
        sent = [packet_id for packet_id in self._inflight if packet_id not in self._again]
        if self._limits is None or self._limits.version == V5 or len(sent) != 1:
            return  # rules 1 and 2
        entry = self._inflight[sent[0]]
        size = _size(entry[0])
        if size <= self._largest_taken:
            return  # rule 2
        self._strikes = self._strikes + 1 if entry is self._suspect else 1
        self._suspect = entry
        if self._strikes >= (STRIKES_OF_A_KIND if size >= self._smallest_refused else STRIKES):  # rule 3
            self._suspect = None
            self._smallest_refused = min(self._smallest_refused, size)
            del self._inflight[sent[0]]
            self._drop(entry, "publish_closes_connection")

    def pump(self, offered: int, room: int) -> list[bytes]:
        """Move messages onto the wire, as far as the window and the room allow.

        1. What the connection before left unfinished goes first: releases, then messages that are sent again.
        2. One that needs an acknowledgement waits for the window and a packet id, and all behind it wait, in order.
        3. One that is larger than the broker takes is dropped: it would cost the connection.

        Args:
            offered: the place in the stream where the packets will begin; `written` compares against it.
            room: bytes that the connection is willing to buffer; the last packet may exceed it.

        Returns:
            Packets in the order in which they must be sent.
        """
        limits = self._limits
        if limits is None:
            return []
        out: list[bytes] = []
        start = offered
        if self._pubrels:  # rule 1
            out.append(encode_ack(PUBREL, self._pubrels))
            offered += len(out[0])
            self._pubrels.clear()
        inflight = self._inflight
        free = (1 if self._alone else limits.window) - len(inflight) - len(self._released) + len(self._again)
        while self._again and free > 0 and offered - start < room:  # rule 1
            packet_id = self._again.popleft()
            entry = inflight[packet_id]
            packet = self._encode(entry[0], limits, packet_id, dup=True)
            if len(packet) > limits.max_packet_bytes:  # rule 3
                del inflight[packet_id]
                self._drop(entry, "publish_too_large")
                continue
            out.append(packet)
            offered += len(packet)
            free -= 1
        queue = self._queue
        version5 = limits.version == V5
        while queue and offered - start < room and not self._again:  # rule 1
            entry = queue[0]
            message, batch = entry
            topic, payload, _properties, qos, retain = message
            packet_id = 0
            if qos and limits.max_qos and (free <= 0 or not (packet_id := self._free_id())):  # rule 2
                break
            queue.popleft()
            self._queue_bytes -= len(topic) + len(payload)
            if packet_id or version5 or retain:
                packet = self._encode(message, limits, packet_id, dup=False)
            else:
                packet = encode_publish(topic, payload)
            if len(packet) > limits.max_packet_bytes:  # rule 3
                self._drop(entry, "publish_too_large")
                continue
            out.append(packet)
            offered += len(packet)
            if packet_id:
                inflight[packet_id] = entry
                free -= 1
            elif self._unwritten and self._unwritten[-1].batch is batch:
                self._unwritten[-1].count += 1
                self._unwritten[-1].end = offered
            else:
                self._unwritten.append(_Unwritten(batch, offered))
        return out

    def written(self, position: int) -> None:
        """Note that the kernel has the stream up to there: QoS 0 is handed over."""
        unwritten = self._unwritten
        while unwritten and unwritten[0].end <= position:
            run = unwritten.popleft()
            self._through(run.batch, run.count)

    def acknowledged(self, kind: int, packet_id: int, reason_code: int) -> None:
        """Take a PUBACK, PUBREC or PUBCOMP; one that we do not know (an earlier run's) is ignored."""
        if packet_id in self._again:  # empty but for the moments after a reconnection
            self._again.remove(packet_id)
        if kind == PUBREC and reason_code < 0x80:
            entry = self._inflight.pop(packet_id, None)
            if entry is not None:
                self._released[packet_id] = entry
                self._inherited = ()  # the broker has our message, and had the releases before it
            self._pubrels.append(packet_id)
            return
        entry = (self._inflight if kind in {PUBACK, PUBREC} else self._released).pop(packet_id, None)
        if entry is None:
            return
        if reason_code >= 0x80 and kind != PUBCOMP:  # PUBCOMP: "not found", a PUBREL repeated after a reconnection
            self._drop(entry, "publish_refused")
        else:
            if (size := _size(entry[0])) > self._largest_taken:
                self._largest_taken = size
            self._complete(entry)

    def take_finished(self) -> list[Done]:
        """Take the callbacks of batches that are through, once."""
        finished = self._finished
        if finished:
            self._finished = []
        return finished

    def abandon(self) -> int:
        """Forget everything without calling back; returns how many messages that were.

        For the end of the program, and for a `Presence`, whose messages belong to one connection.
        """
        count = self.waiting
        self._queue.clear()
        self._queue_bytes = 0
        self._again.clear()
        self._pubrels.clear()
        self._inflight.clear()
        self._released.clear()
        self._unwritten.clear()
        self._finished.clear()
        return count

    def _encode(self, message: Message, limits: BrokerLimits, packet_id: int, *, dup: bool) -> bytes:
        version5 = limits.version == V5
        return encode_publish(
            message.topic,
            message.payload,
            min(message.qos, limits.max_qos),
            packet_id,
            message.retain and limits.retain,
            dup,
            limits.version,
            message.properties if version5 else b"",
        )

    def _free_id(self) -> int:
        """Return the next packet id that nothing on the way has; 0 while there is none.

        After the last id comes the first one again, but not while a QoS 2 message is on the way: so the ids of such
        messages always rise, and the run after this one can tell in which order they were sent.
        """
        while True:
            packet_id = self._next_id
            if packet_id not in self._ids:
                if self._released or any(message.qos == 2 for message, _ in self._inflight.values()):
                    return 0
                packet_id = FIRST_PACKET_ID
            self._next_id = packet_id + 1
            if packet_id not in self._inflight and packet_id not in self._released:
                return packet_id

    def _put_back(self, entry: Entry) -> None:
        self._queue.appendleft(entry)
        self._queue_bytes += len(entry[0].topic) + len(entry[0].payload)

    def _drop(self, entry: Entry, reason: str) -> None:
        dropped = self._counter_of(entry[1])
        dropped[reason] += 1
        self._complete(entry)

    def _counter_of(self, batch: _Countdown) -> Counter[str]:
        return self._dropped if batch.dropped is None else batch.dropped

    def _complete(self, entry: Entry) -> None:
        self._through(entry[1], 1)

    def _through(self, batch: _Countdown, count: int) -> None:
        batch.waiting -= count
        if not batch.waiting and batch.done is not None:
            self._finished.append(batch.done)
