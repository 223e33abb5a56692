"""Fair queue of a backlog: which message is handed over next, when more wait than can be answered at once.

1. Messages of a topic keep their order.
2. A topic is known once a message of it has come before, as far as is remembered (`_KNOWN` topics). Of what is taken,
   new topics get every fourth place at the most while messages of known ones wait.
3. Within both kinds, prefixes take turns: the levels of a topic before the last wildcard of its filter. Within a
   prefix, topics take turns. So who sends much waits for himself.
4. New topics may fill half of the room. What comes for them beyond it is refused, if known ones are there to protect.
   Messages of known topics are never refused.

The shares are of messages, which is what answering costs. Source of the turns: round robin as in J. Nagle, "On packet
switches with infinite storage", RFC 970 (1985).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Final

from edge_runtime.mqtt.parser import Publish

NEW_EVERY: Final = 4
"""Rule 2."""
_KNOWN: Final = 65_536
_OVERHEAD_BYTES: Final = 200
"""What a held message costs besides its payload, roughly."""

Waiting = tuple[Publish, float]
"""A message, and the monotonic time at which it was read."""


def weight(publishes: Iterable[Publish]) -> int:
    """Estimate what messages take of memory, bytes."""
    return sum([len(one[1]) + _OVERHEAD_BYTES for one in publishes])


class _Turns:
    """Topics that take turns within their prefix, and prefixes that take turns."""

    __slots__ = ("_prefixes", "topics")

    def __init__(self) -> None:
        self.topics: dict[bytes, deque[Waiting]] = {}
        self._prefixes: OrderedDict[bytes, deque[bytes]] = OrderedDict()

    def put(self, prefix: bytes, one: Waiting) -> None:
        """Queue the first message of a topic that has none here."""
        topic = one[0][0]
        self.topics[topic] = deque((one,))
        turns = self._prefixes.get(prefix)
        if turns is None:
            turns = self._prefixes[prefix] = deque()
        turns.append(topic)

    def take(self) -> Waiting:
        """Take the message whose turn it is; there is one."""
        prefixes, topics = self._prefixes, self.topics
        prefix, turns = next(iter(prefixes.items()))
        topic = turns.popleft()
        messages = topics[topic]
        one = messages.popleft()
        if messages:
            turns.append(topic)
        else:
            del topics[topic]
        if turns:
            prefixes.move_to_end(prefix)
        else:
            del prefixes[prefix]
        return one


class FairQueue:
    """Messages that wait, by topic.

    Args:
        prefix_of: from a topic to its prefix.
        max_bytes: the room, as `weight` counts.

    Attributes:
        waiting: how many wait.
    """

    def __init__(self, prefix_of: Callable[[bytes], bytes], max_bytes: int) -> None:
        self._prefix_of = prefix_of
        self._room_for_new = max_bytes // 2
        self._known = _Turns()
        self._new = _Turns()
        self._new_bytes = 0
        self._seen: dict[bytes, None] = {}
        self._met = False  # a known topic, since the queue was last empty
        self._taken = 0
        self.waiting = 0

    def put(self, publishes: Iterable[Publish], received: float) -> list[Publish]:
        """Queue messages in the order of arrival; returns those that are refused (rule 4)."""
        refused: list[Publish] = []
        known, new, seen = self._known.topics, self._new.topics, self._seen
        for publish in publishes:
            topic = publish[0]
            if (messages := known.get(topic)) is not None:
                messages.append((publish, received))
            elif (messages := new.get(topic)) is not None:  # rule 1: behind those that wait
                self._new_bytes += len(publish[1]) + _OVERHEAD_BYTES
                messages.append((publish, received))
            elif topic in seen:
                self._met = True
                self._known.put(self._prefix_of(topic), (publish, received))
            elif self._met and self._new_bytes > self._room_for_new:
                refused.append(publish)
                continue
            else:
                self._new_bytes += len(publish[1]) + _OVERHEAD_BYTES
                self._new.put(self._prefix_of(topic), (publish, received))
                self._remember(topic)
            self.waiting += 1
        return refused

    def take(self, most: int) -> tuple[list[Publish], float]:
        """Take messages whose turn it is, and the time at which the first of them was read."""
        known, new = self._known, self._new
        taken: list[Publish] = []
        oldest = float("inf")
        for _ in range(min(most, self.waiting)):
            self._taken += 1
            if new.topics and (not known.topics or self._taken % NEW_EVERY == 0):  # rule 2
                publish, received = new.take()
                self._new_bytes -= len(publish[1]) + _OVERHEAD_BYTES
            else:
                publish, received = known.take()
            taken.append(publish)
            oldest = min(oldest, received)
        self.waiting -= len(taken)
        if not self.waiting:
            self._met = False
        return taken, oldest

    def _remember(self, topic: bytes) -> None:
        seen = self._seen
        seen[topic] = None
        if len(seen) > _KNOWN:
            del seen[next(iter(seen))]
