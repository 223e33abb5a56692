"""Inbound acknowledgements: what the broker waits for, in the order of receipt, and QoS 2 messages that come twice.

The state outlives the connection: `InboundAcks.begin` marks where one starts. No sockets, no time.

Source: MQTT 5 sections 4.3 (QoS), 4.4 (redelivery), 4.6 (order); 3.1.1 agrees where it has them.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from edge_runtime.io.mqtt.packets import PUBACK, PUBCOMP, PUBREC, Publish, encode_ack


class AckGroup:
    """Acknowledgement group: messages of QoS 1 and 2 that arrived together and are acknowledged together.

    Args:
        inbound_acks: told when all have finished.
        pubacks: packet ids of the QoS 1 messages, in order of receipt.
        pubrecs: the same of QoS 2.
    """

    __slots__ = ("_followers", "_inbound_acks", "_waiting", "finished", "pubacks", "pubrecs")

    def __init__(self, inbound_acks: InboundAcks, pubacks: list[int], pubrecs: list[int]) -> None:
        self._inbound_acks = inbound_acks
        self.pubacks = pubacks
        self.pubrecs = pubrecs
        self._waiting = 0
        self._followers: list[AckGroup] = []
        self.finished = False

    def wait_for(self, parties: int) -> None:
        """Wait for that many calls of `done`; with 0 it may finish now."""
        self._waiting += parties
        if not self._waiting:
            self._finish()

    def finish_after(self, earlier: AckGroup) -> None:
        """Finish after another one: it holds the first copy of a message that came again."""
        if not earlier.finished and self not in earlier._followers:
            earlier._followers.append(self)
            self._waiting += 1

    def done(self) -> None:
        """Report that one party has made its messages safe."""
        self._waiting -= 1
        if not self._waiting:
            self._finish()

    def _finish(self) -> None:
        self.finished = True
        self._inbound_acks.advance()
        for follower in self._followers:
            follower.done()


class Acks(NamedTuple):
    """Packet ids to acknowledge, each list in the order of receipt."""

    pubacks: list[int]
    pubrecs: list[int]
    pubcomps: list[int]

    def encode(self) -> bytes:
        """Return all of them in one piece."""
        puback, pubrec, pubcomp = self
        out = encode_ack(PUBACK, puback) if puback else b""
        if pubrec:
            out += encode_ack(PUBREC, pubrec)
        if pubcomp:
            out += encode_ack(PUBCOMP, pubcomp)
        return out


class InboundAcks:
    """Acknowledgement state of received messages: what the broker waits for, in the order of receipt.

    QoS 2 goes by method B of MQTT 5 figure 4.3: a message is delivered when its PUBLISH comes, and its packet id is
    remembered until PUBREL, so that a second copy is not delivered. This survives a reconnection to the same session,
    not a restart of the program.

    Args:
        keeps_ids: False where paho does that part; acknowledgements of QoS 2 are then owed over a reconnection too,
            because paho never shows such a message twice.

    Attributes:
        unacked: QoS 1 and 2 messages received and not yet acknowledged.
    """

    def __init__(self, *, keeps_ids: bool = True) -> None:
        self._keeps_ids = keeps_ids
        self._ack_groups: deque[AckGroup] = deque()
        self._first_copy: dict[int, AckGroup] = {}
        self._acks = Acks([], [], [])
        self.unacked = 0

    def begin(self, *, session_present: bool) -> None:
        """Begin a connection. What the last one left unacknowledged, the broker sends again."""
        kept = self._ack_groups if session_present and not self._keeps_ids else deque[AckGroup]()
        self._ack_groups = deque(one for one in kept if one.pubrecs)
        for one in self._ack_groups:
            one.pubacks = []
        self.unacked = sum(len(one.pubrecs) for one in self._ack_groups)
        self._acks = Acks([], [], [])
        if not session_present:
            self._first_copy.clear()
        self.advance()

    def receive(self, publishes: list[Publish]) -> tuple[list[Publish], AckGroup | None]:
        """Note messages that arrived together.

        Returns:
            Those to deliver (without the second copies of QoS 2), and what to call when they are safe; None where
            nothing among them asks for an acknowledgement.
        """
        pubacks = [publish[2] for publish in publishes if publish[3] == 1]
        if len(pubacks) == len(publishes):
            return publishes, self._note(pubacks, [])
        pubrecs = [publish[2] for publish in publishes if publish[3] == 2]
        if not pubrecs:
            return publishes, self._note(pubacks, []) if pubacks else None
        ack_group = self._note(pubacks, pubrecs)
        if not self._keeps_ids:
            return publishes, ack_group
        fresh = []
        for publish in publishes:
            if publish[3] == 2:
                earlier = self._first_copy.setdefault(publish[2], ack_group)
                if earlier is not ack_group:
                    ack_group.finish_after(earlier)
                    continue
            fresh.append(publish)
        return fresh, ack_group

    def _note(self, pubacks: list[int], pubrecs: list[int]) -> AckGroup:
        ack_group = AckGroup(self, pubacks, pubrecs)
        self._ack_groups.append(ack_group)
        self.unacked += len(pubacks) + len(pubrecs)
        return ack_group

    def released(self, packet_id: int) -> None:
        """Take a PUBREL: the packet id is free again, and PUBCOMP says so."""
        self._first_copy.pop(packet_id, None)
        self._acks.pubcomps.append(packet_id)

    def advance(self) -> None:
        """Acknowledge in the order of receipt (section 4.6), as far as everything up to there is safe."""
        ack_groups = self._ack_groups
        acks = self._acks
        while ack_groups and ack_groups[0].finished:
            first = ack_groups.popleft()
            acks.pubacks.extend(first.pubacks)
            acks.pubrecs.extend(first.pubrecs)
            self.unacked -= len(first.pubacks) + len(first.pubrecs)

    @property
    def ready(self) -> bool:
        """Something may be acknowledged now."""
        return any(self._acks)

    def take_acks(self) -> Acks | None:
        """Take what may be acknowledged now, once; None if nothing."""
        acks = self._acks
        if not (acks.pubacks or acks.pubrecs or acks.pubcomps):
            return None
        self._acks = Acks([], [], [])
        return acks
