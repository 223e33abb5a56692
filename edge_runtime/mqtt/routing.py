"""Which subscriber of a link gets a message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from edge_runtime.metrics import Metrics
from edge_runtime.mqtt.packets import Publish, topic_matches
from edge_runtime.mqtt.recent import Recent
from edge_runtime.mqtt.session import Delivery, Done

Receive = Callable[[list[Publish], float, Done | None], None]
"""Takes messages that arrived together, the monotonic time of arrival, and what to call when they are safe."""

_ROUTES: Final = 16_384


class Subscriber:
    """Who gets the messages of some topic filters."""

    __slots__ = ("_plain", "filters", "receive")

    def __init__(self, filters: Sequence[tuple[str, int]], receive: Receive) -> None:
        self.filters = list(filters)
        self._plain = [one.encode() for one, _ in filters]
        self.receive = receive

    def wants(self, topic: bytes) -> bool:
        """One of the filters covers this topic."""
        return any(topic_matches(one, topic) for one in self._plain)


class Router:
    """Hands messages to the first subscriber that asked for them.

    A single subscriber gets everything, and looks at the topics itself; so the usual case costs nothing here.

    Args:
        metrics: counts messages that nobody asked for, such as those of a subscription that an earlier run left.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._subscribers: list[Subscriber] = []
        self._routes: Recent[bytes, Subscriber | None] = Recent(self._route, _ROUTES)

    def add(self, filters: Sequence[tuple[str, int]], receive: Receive) -> None:
        """One more subscriber, behind those that are there."""
        self._subscribers.append(Subscriber(filters, receive))
        self._routes.clear()

    def filters(self) -> list[tuple[str, int]]:
        """All topic filters and their QoS."""
        return [one for subscriber in self._subscribers for one in subscriber.filters]

    def deliver(self, publishes: list[Publish], received: float, delivery: Delivery | None) -> None:
        """Hand over messages that arrived together; the delivery finishes when all who got some have finished."""
        if len(self._subscribers) == 1:
            parts = {self._subscribers[0]: publishes} if publishes else {}
        else:
            parts = self._sort(publishes)
        done = None
        if delivery is not None:
            delivery.wait_for(len(parts))
            done = delivery.done
        for subscriber, part in parts.items():
            subscriber.receive(part, received, done)

    def _sort(self, publishes: list[Publish]) -> dict[Subscriber, list[Publish]]:
        parts: dict[Subscriber, list[Publish]] = {}
        for publish in publishes:
            subscriber = self._routes[publish[0]]
            if subscriber is None:
                self._metrics.dropped["unexpected_topic"] += 1
            else:
                parts.setdefault(subscriber, []).append(publish)
        return parts

    def _route(self, topic: bytes) -> Subscriber | None:
        return next((subscriber for subscriber in self._subscribers if subscriber.wants(topic)), None)
