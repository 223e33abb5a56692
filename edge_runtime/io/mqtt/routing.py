"""Message router of a client: picks each message's subscription, and guards the loop from side channels."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import partial
from itertools import groupby
from typing import Final

from edge_runtime.base.system.barrier import Barrier
from edge_runtime.io.mqtt.inbound_acks import AckGroup
from edge_runtime.io.mqtt.packets import Publish, TopicFilter
from edge_runtime.io.mqtt.recent import Recent
from edge_runtime.key_table import KeyTable
from edge_runtime.metrics import Metrics
from edge_runtime.types import Done

Receive = Callable[[list[Publish], float, Done | None], None]
"""Takes messages that arrived together, the monotonic time of arrival, and what to call when they are safe."""
KeyOf = Callable[[bytes], str | None]
"""Names the key whose messages a topic brings; None: not known, and the topic counts as one."""
Take = Callable[[Publish], None]
"""Takes one message of a side channel; it is acknowledged whatever becomes of it."""

_ROUTES: Final = 16_384
_QUARANTINED: Final = 1024
"""Digests of messages that made a side channel fail: the same message is not processed again."""
MAX_STRANGERS: Final = 64
"""Topics without a subscription, to be unsubscribed from, in the life of a process."""


class Subscription:
    """Topic filters, checked and parsed once, and the receiver of their messages.

    Args:
        filters: topic filters and their QoS.
        receive: receiver of the messages.
        key_of: names a topic's key; None: each topic is a key.
        guarded: `receive` is a side channel's: it gets no message that its filters do not cover.

    Raises:
        MalformedPacket: a filter is malformed.
    """

    __slots__ = ("_key_of", "_parsed", "filters", "guarded", "receive")

    def __init__(
        self,
        filters: Sequence[tuple[str, int]],
        receive: Receive,
        key_of: KeyOf | None = None,
        *,
        guarded: bool = False,
    ) -> None:
        self._parsed = [TopicFilter(one) for one, _ in filters]
        self._key_of = key_of
        self.filters = list(filters)
        self.receive = receive
        self.guarded = guarded

    def wants(self, topic: bytes) -> bool:
        """One of the filters covers this topic."""
        return any(one.matches(topic) for one in self._parsed)

    def place_of(self, topic: bytes) -> tuple[bytes, bytes]:
        """Return the levels before the last wildcard of the filter that covers a topic, and the topic's key."""
        prefix = next((one.prefix_of(topic) for one in self._parsed if one.matches(topic)), topic)
        key = None if self._key_of is None else self._key_of(topic)
        return prefix, topic if key is None else b"key " + key.encode()


class SideChannel:
    """Receiver of a side channel: one message at a time, behind a barrier, and never again one that made it fail.

    Args:
        take: takes a message.
        barrier: catches what it raises.
        metrics: counts ``quarantined``.
        failed: called, behind the barrier too, when a message made `take` fail.
    """

    def __init__(
        self, take: Take, barrier: Barrier, metrics: Metrics, failed: Callable[[], None] | None = None
    ) -> None:
        self._take = take
        self._barrier = barrier
        self._metrics = metrics
        self._failed = failed
        self._quarantine: KeyTable[bytes, None] = KeyTable(_QUARANTINED)

    def __call__(self, publishes: list[Publish], _received: float, done: Done | None) -> None:
        for publish in publishes:
            if self._quarantine and _digest(publish) in self._quarantine:
                self._metrics.dropped["quarantined"] += 1
            elif not self._barrier.call(partial(self._take, publish)):
                self._quarantine[_digest(publish)] = None
                if self._failed is not None:
                    self._barrier.call(self._failed)
        if done is not None:
            done()


class Router:
    """Hands messages to the first subscription that asked for them.

    1. A single subscription of a source gets everything at once, and looks at the topics itself; so the usual case
       costs nothing here.
    2. Several get their messages in runs, in the order of arrival: a key that two sources feed is joined by stamps, and
       a source whose messages were all handed over first would be ahead of the other by the length of a backlog.

    Args:
        metrics: counts messages without a subscription, such as those of a subscription that an earlier run left.
        stranger: called with the topic of such a message, once for each of the first `MAX_STRANGERS` topics.
    """

    def __init__(self, metrics: Metrics, stranger: Callable[[bytes], None] = lambda _: None) -> None:
        self._metrics = metrics
        self._stranger = stranger
        self._strangers: set[bytes] = set()
        self._subscriptions: list[Subscription] = []
        self._routes: Recent[bytes, Subscription | None] = Recent(self._route, _ROUTES)
        self._places: Recent[bytes, tuple[bytes, bytes]] = Recent(self._place, _ROUTES)

    def add(self, subscription: Subscription) -> None:
        """One more subscription, behind those that are there."""
        self._subscriptions.append(subscription)
        self._forget()

    def remove(self, subscription: Subscription) -> list[str]:
        """End a subscription, if it is there; returns those of its filters that no other subscription has."""
        if subscription not in self._subscriptions:
            return []
        self._subscriptions.remove(subscription)
        self._forget()
        kept = {one for one, _ in self.filters()}
        return [one for one, _ in subscription.filters if one not in kept]

    def filters(self) -> list[tuple[str, int]]:
        """All topic filters and their QoS."""
        return [one for subscription in self._subscriptions for one in subscription.filters]

    def deliver(self, publishes: list[Publish], received: float, ack_group: AckGroup | None) -> None:
        """Hand over messages that arrived together; the group finishes when all who got some have finished."""
        if len(self._subscriptions) == 1 and not self._subscriptions[0].guarded:  # rule 1
            runs = [(self._subscriptions[0], publishes)] if publishes else []
        else:
            runs = self._runs(publishes)
        done = None
        if ack_group is not None:
            ack_group.wait_for(len(runs))
            done = ack_group.done
        for subscription, run in runs:
            subscription.receive(run, received, done)

    def _runs(self, publishes: list[Publish]) -> list[tuple[Subscription, list[Publish]]]:
        """Cut messages into runs of one subscription each (rule 2)."""
        runs: list[tuple[Subscription, list[Publish]]] = []
        for subscription, run in groupby(publishes, lambda one: self._routes[one[0]]):
            if subscription is not None:
                runs.append((subscription, list(run)))
                continue
            for publish in run:
                self._unexpected(publish[0])
        return runs

    def place_of(self, topic: bytes) -> tuple[bytes, bytes]:
        """Return the prefix and the key of a topic, as `edge_runtime.io.mqtt.fair_queue` has them."""
        return self._places[topic]

    def _place(self, topic: bytes) -> tuple[bytes, bytes]:
        subscription = self._routes[topic]
        return (topic, topic) if subscription is None else subscription.place_of(topic)

    def _forget(self) -> None:
        self._routes.clear()
        self._places.clear()

    def _route(self, topic: bytes) -> Subscription | None:
        return next((one for one in self._subscriptions if one.wants(topic)), None)

    def _unexpected(self, topic: bytes) -> None:
        self._metrics.dropped["unexpected_topic"] += 1
        if topic not in self._strangers and len(self._strangers) < MAX_STRANGERS:
            self._strangers.add(topic)
            self._stranger(topic)


def _digest(publish: Publish) -> bytes:
    return hashlib.sha256(len(publish[0]).to_bytes(2, "big") + publish[0] + publish[1]).digest()
