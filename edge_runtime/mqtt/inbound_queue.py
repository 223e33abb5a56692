"""Messages on their way from a connection to those who asked for them: taken note of, held back, paced. No sockets."""

from __future__ import annotations

from collections import deque

from edge_runtime.metrics import Metrics
from edge_runtime.mqtt.broker_window import Pace
from edge_runtime.mqtt.config import BrokerConfig
from edge_runtime.mqtt.packets import Publish
from edge_runtime.mqtt.routing import Router
from edge_runtime.mqtt.session import Incoming

_OVERHEAD_BYTES = 200
"""What a held message costs besides its payload, roughly."""


class Reception:
    """What has come from one broker and is not answered for yet.

    At most `BrokerConfig.receive_maximum` messages are out for acknowledgement; further ones are held here. Beyond
    `BrokerConfig.max_held_bytes` of them nothing more should be read: the rest stays in the network.

    Args:
        config: the bounds.
        name: of the broker, for the log.
        router: who gets what.
        metrics: counts drops.

    Attributes:
        incoming: what the broker waits to see acknowledged.
        received_at: monotonic time of the last read, seconds.
        held_bytes: what is held back, roughly; 0 where nothing is.
    """

    def __init__(self, config: BrokerConfig, name: str, router: Router, metrics: Metrics) -> None:
        self.incoming = Incoming()
        self.received_at = 0.0
        self.held_bytes = 0
        self._config = config
        self._name = name
        self._router = router
        self._metrics = metrics
        self._most_unacked = config.receive_maximum
        self._pace = Pace(0.0, config.receive_maximum)
        self._held: deque[list[Publish]] = deque()
        self._paused = False

    @property
    def can_release(self) -> bool:
        """Whether something is held back that need not be any more."""
        return bool(self._held) and self.incoming.unacked < self._most_unacked

    @property
    def broker_waits(self) -> bool:
        """Whether the broker, as far as is known of it, sends nothing more before it gets an acknowledgement."""
        unacked = self.incoming.unacked
        return unacked > 0 and self._pace.full(unacked)

    def begin(self, *, session_present: bool, linger_s: float) -> None:
        """A connection stands.

        Args:
            session_present: the broker kept the session.
            linger_s: the loop's latency budget.
        """
        self.incoming.begin(session_present=session_present)
        self._pace = Pace(linger_s, self._most_unacked)

    def take(self, publishes: list[Publish]) -> bool:
        """Hand over messages that came together, or hold them back.

        Returns:
            Whether the next turn should not wait for the latency budget.
        """
        if self._paused:
            self._metrics.dropped["paused"] += sum(not one[3] for one in publishes)
            return False
        if self._held or self.incoming.unacked >= self._most_unacked:
            self._held.append(publishes)
            self.held_bytes += _weight(publishes)
            return False
        return self._deliver(publishes)

    def skip(self, publish: Publish) -> None:
        """A message over the limit was skipped; it is acknowledged, or the broker would send it for ever."""
        self._metrics.dropped["too_large"] += 1
        topic = publish[0].decode(errors="replace")[:200]
        self._metrics.examples["too_large"] = (
            f"message on {topic!r} from broker {self._name}: over max_packet_bytes ({self._config.max_packet_bytes})"
        )
        _, delivery = self.incoming.receive([publish])
        if delivery is not None:
            delivery.wait_for(0)

    def release(self) -> bool:
        """Hand over what was held, as far as acknowledgements allow; returns as `take`."""
        hurry = False
        while self.can_release:
            publishes = self._held.popleft()
            self.held_bytes -= _weight(publishes)
            hurry |= self._deliver(publishes)
        return hurry

    def pause(self) -> None:
        """Hand over no more: what comes now stays unacknowledged, for the broker to keep."""
        self._paused = True
        self.forget("paused")

    def forget(self, reason: str) -> None:
        """Let go of messages that were not handed over: the broker has those of QoS 1 and 2, the others are counted."""
        if self._held:
            self._metrics.dropped[reason] += sum(not one[3] for held in self._held for one in held)
            self._held.clear()
            self.held_bytes = 0

    def _deliver(self, publishes: list[Publish]) -> bool:
        incoming, hurry = self.incoming, False
        publishes, delivery = incoming.receive(publishes)
        if delivery is not None:
            count = len(delivery.pubacks) + len(delivery.pubrecs)
            hurry = self._pace.received(count, incoming.unacked, self.received_at)
        self._router.deliver(publishes, self.received_at, delivery)
        return hurry


def _weight(publishes: list[Publish]) -> int:
    return sum([len(one[1]) + _OVERHEAD_BYTES for one in publishes])
