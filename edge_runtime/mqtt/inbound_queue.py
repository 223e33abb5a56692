"""Inbound queue: messages between a connection and their subscriptions, counted, held back and paced. No sockets."""

from __future__ import annotations

from collections import deque

from edge_runtime.metrics import Metrics
from edge_runtime.mqtt.config import BrokerConfig
from edge_runtime.mqtt.inbound_acks import InboundAcks
from edge_runtime.mqtt.linger_policy import LingerPolicy
from edge_runtime.mqtt.packets import Publish
from edge_runtime.mqtt.routing import Router

_OVERHEAD_BYTES = 200
"""What a held message costs besides its payload, roughly."""


class InboundQueue:
    """Bounded queue of what has come from one broker and is not acknowledged yet.

    At most `BrokerConfig.receive_maximum` messages are out for acknowledgement; further ones are held here. Beyond
    `BrokerConfig.max_held_bytes` of them nothing more should be read: the rest stays in the network.

    Args:
        config: the bounds.
        name: of the broker, for the log.
        router: who gets what.
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
        self._paused = False

    @property
    def can_release(self) -> bool:
        """Return whether something is held back that need not be any more."""
        return bool(self._held) and self.inbound_acks.unacked < self._most_unacked

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

    def take(self, publishes: list[Publish]) -> bool:
        """Hand over messages that came together, or hold them back.

        Returns:
            Whether the next iteration should not wait for the latency budget.
        """
        if self._paused:
            self._metrics.dropped["paused"] += sum(not one[3] for one in publishes)
            return False
        if self._held or self.inbound_acks.unacked >= self._most_unacked:
            self._held.append(publishes)
            self.held_bytes += _weight(publishes)
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
        """Hand over what was held, as far as acknowledgements allow; returns as `take`."""
        skip_linger = False
        while self.can_release:
            publishes = self._held.popleft()
            self.held_bytes -= _weight(publishes)
            skip_linger |= self._deliver(publishes)
        return skip_linger

    def pause(self) -> None:
        """Hand over no more: what comes now stays unacknowledged, for the broker to keep."""
        self._paused = True
        self.forget("paused")

    def forget(self, reason: str) -> None:
        """Forget messages that were not handed over: the broker has those of QoS 1 and 2, the others are counted."""
        if self._held:
            self._metrics.dropped[reason] += sum(not one[3] for held in self._held for one in held)
            self._held.clear()
            self.held_bytes = 0

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


def _weight(publishes: list[Publish]) -> int:
    return sum([len(one[1]) + _OVERHEAD_BYTES for one in publishes])
