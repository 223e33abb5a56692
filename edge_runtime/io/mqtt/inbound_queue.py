"""Inbound queue: messages between a connection and their subscriptions, counted, held back and paced. No sockets."""

from __future__ import annotations

from collections import deque
from typing import Final

from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.io.mqtt.fair_queue import FairQueue, weight
from edge_runtime.io.mqtt.inbound_acks import InboundAcks
from edge_runtime.io.mqtt.linger_policy import LingerPolicy
from edge_runtime.io.mqtt.packets import Publish
from edge_runtime.io.mqtt.routing import Router
from edge_runtime.metrics import Metrics

AT_ONCE: Final = 64
"""Messages of a backlog that one iteration answers, where nothing is known of their cost: two batches of the model."""
_MOST_AT_ONCE: Final = 1024
_ITERATION_S: Final = 0.008
"""Time that an iteration may take with a backlog: what comes meanwhile waits for it, and each costs some 0.2 ms."""


class InboundQueue:
    """Bounded queue of what has come from one broker and is not acknowledged yet.

    At most `BrokerConfig.receive_maximum` messages are out for acknowledgement; further ones are held here. Beyond
    `BrokerConfig.max_held_bytes` of them nothing more should be read: the rest stays in the network.

    Of a backlog of QoS 0, as many messages are handed over in an iteration as take some 8 ms, in fair order
    (`FairQueue`); so a key waits for what it sent itself, not for another's flood. QoS 1 and 2 keep the order in which
    they are to be acknowledged, and a key that sends some of both keeps the order in which they came.

    Args:
        config: the bounds.
        name: the broker's name, for the log.
        router: the subscriptions that messages go to.
        metrics: counts drops.

    Attributes:
        inbound_acks: what the broker waits to see acknowledged.
        received_at: monotonic time of the last read, seconds.
        held_bytes: what is held back, roughly; 0 where nothing is.
    """

    def __init__(self, config: BrokerConfig, name: str, router: Router, metrics: Metrics) -> None:
        self.inbound_acks = InboundAcks()
        self.received_at = 0.0
        self.held_bytes = 0
        self._config = config
        self._name = name
        self._router = router
        self._metrics = metrics
        self._most_unacked = config.receive_maximum
        self._linger_policy = LingerPolicy(0.0, config.receive_maximum)
        self._held: deque[list[Publish]] = deque()
        self._fair = FairQueue(router.place_of, config.max_held_bytes)
        self._part = AT_ONCE
        self._part_began = 0.0
        self._paused = False

    @property
    def can_release(self) -> bool:
        """Return whether something is held back that need not be any more."""
        return self._fair.waiting > 0 or (bool(self._held) and self.inbound_acks.unacked < self._most_unacked)

    @property
    def broker_waits(self) -> bool:
        """Return whether the broker, as far as is known of it, sends nothing more before it gets an acknowledgement."""
        unacked = self.inbound_acks.unacked
        return unacked > 0 and self._linger_policy.full(unacked)

    def begin(self, *, session_present: bool, linger_s: float) -> None:
        """Begin a connection that stands.

        Args:
            session_present: the broker kept the session.
            linger_s: the loop's latency budget.
        """
        self.inbound_acks.begin(session_present=session_present)
        self._linger_policy = LingerPolicy(linger_s, self._most_unacked)

    def put(self, publishes: list[Publish]) -> bool:
        """Hand over messages that came together, or hold them back.

        Returns:
            Whether the next iteration should not wait for the latency budget.
        """
        if self._paused:
            self._metrics.dropped.update("paused" for one in publishes if not one[3])
            return False
        if len(publishes) > AT_ONCE or self._fair.waiting:
            publishes = self._queue_fairly(publishes)
            if not publishes:
                return False
        if self._held or self.inbound_acks.unacked >= self._most_unacked:
            self._held.append(publishes)
            self.held_bytes += weight(publishes)
            return False
        return self._deliver(publishes)

    def skip(self, publish: Publish) -> None:
        """Acknowledge a message over the limit that was skipped, or the broker would send it for ever."""
        self._metrics.dropped["too_large"] += 1
        topic = publish[0].decode(errors="replace")[:200]
        self._metrics.examples["too_large"] = (
            f"message on {topic!r} from broker {self._name}: over max_packet_bytes ({self._config.max_packet_bytes})"
        )
        _, ack_group = self.inbound_acks.receive([publish])
        if ack_group is not None:
            ack_group.wait_for(0)

    def release(self) -> bool:
        """Hand over what was held, as far as acknowledgements allow, and a part of a backlog; returns as `put`."""
        skip_linger = False
        if self._fair.waiting:
            self._release_fairly(self._next_part())
        while self._held and self.inbound_acks.unacked < self._most_unacked:
            publishes = self._held.popleft()
            self.held_bytes -= weight(publishes)
            skip_linger |= self._deliver(publishes)
        return skip_linger

    def pause(self) -> None:
        """Hand over what needs no acknowledgement, then no more: the rest stays with the broker."""
        self._release_fairly(self._fair.waiting)
        self._paused = True
        self.forget("paused")

    def forget(self, reason: str) -> None:
        """Forget what waits to be acknowledged: the broker has it, but for QoS 0 among it, which is counted."""
        for held in self._held:
            self._metrics.dropped.update(reason for one in held if not one[3])
            self.held_bytes -= weight(held)
        self._held.clear()

    def _deliver(self, publishes: list[Publish]) -> bool:
        inbound_acks, skip_linger = self.inbound_acks, False
        if len(publishes) == 1 and not publishes[0][3]:  # a lone message that asks for no acknowledgement
            self._router.deliver(publishes, self.received_at, None)
            return False
        publishes, ack_group = inbound_acks.receive(publishes)
        if ack_group is not None:
            count = len(ack_group.pubacks) + len(ack_group.pubrecs)
            skip_linger = self._linger_policy.received(count, inbound_acks.unacked, self.received_at)
        self._router.deliver(publishes, self.received_at, ack_group)
        return skip_linger

    def _next_part(self) -> int:
        """Return how many messages the next iteration takes, by the time that the last part took."""
        took, self._part_began = self.received_at - self._part_began, self.received_at
        if took > 0:
            self._part = max(AT_ONCE, min(_MOST_AT_ONCE, int(self._part * _ITERATION_S / took)))
        return self._part

    def _release_fairly(self, most: int) -> None:
        publishes, received = self._fair.pop(most)
        self.held_bytes -= weight(publishes)
        if publishes:
            self._router.deliver(publishes, received, None)

    def _queue_fairly(self, publishes: list[Publish]) -> list[Publish]:
        """Queue those of QoS 0, unless their key also sends some to be acknowledged; returns the others, in order."""
        if not self._fair.waiting and all(one[3] for one in publishes):
            return publishes
        place_of = self._router.place_of
        acked = [one for one in publishes if one[3]]
        acked_keys = {place_of(one[0])[1] for some in (acked, *self._held) for one in some}
        rest, free = self._fair.take_keys(acked_keys), list[Publish]()
        self.held_bytes -= weight(rest)
        for one in publishes:
            (rest if one[3] or place_of(one[0])[1] in acked_keys else free).append(one)
        refused = self._fair.put(free, self.received_at)
        self.held_bytes += weight(free) - weight(refused)
        if refused:
            self._metrics.dropped["new_topic"] += len(refused)
            topic = refused[-1][0].decode(errors="replace")[:200]
            self._metrics.examples["new_topic"] = f"message on {topic!r} from broker {self._name}: too many wait"
        return rest
