"""Fair queue of a backlog: which message is handed over next, when more wait than can be answered at once.

1. Messages of a key keep their order, whichever of its topics and subscriptions they come by: a joined key would lose
   what one of its sensors sent after another's backlog. A topic whose key only its messages tell is a key here.
2. A key is known once a message of it has come before, as far as is remembered (`_KNOWN` keys). Of what is taken, new
   keys get every fourth place at the most while messages of known ones wait.
3. Within both kinds, prefixes take turns: the levels of a topic before the last wildcard of its filter. Within a
   prefix, keys take turns. So who sends much waits for himself.
4. New keys may fill half of the room. What comes for them beyond it is refused, if known ones are there to protect.
   Messages of known keys are never refused.
5. Messages to be acknowledged do not wait here. What waits of a key goes before them (`take_keys`), for rule 1.

The shares are of messages, which is what answering costs. Source of the turns: round robin as in J. Nagle, "On packet
switches with infinite storage", RFC 970 (1985).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from typing import Final

from edge_runtime.io.mqtt.parser import Publish
from edge_runtime.key_table import KeyTable

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
    """Keys that take turns within their prefix, and prefixes that take turns."""

    __slots__ = ("_prefixes", "keys")

    def __init__(self) -> None:
        self.keys: dict[bytes, deque[Waiting]] = {}
        self._prefixes: OrderedDict[bytes, deque[bytes]] = OrderedDict()

    def put(self, prefix: bytes, key: bytes, one: Waiting) -> None:
        """Queue the first message of a key that has none here."""
        self.keys[key] = deque((one,))
        self._prefixes.setdefault(prefix, deque()).append(key)

    def pop(self) -> Waiting:
        """Pop the message whose turn it is; there is one."""
        prefixes, keys = self._prefixes, self.keys
        while True:
            prefix, turns = next(iter(prefixes.items()))
            key = turns.popleft()
            one = None
            if messages := keys.get(key):  # none where `take_keys` has taken them
                one = messages.popleft()
                if messages:
                    turns.append(key)
                else:
                    del keys[key]
            if turns:
                prefixes.move_to_end(prefix)
            else:
                del prefixes[prefix]
            if one is not None:
                return one


class FairQueue:
    """Messages that wait, by key.

    Args:
        place_of: function from a topic to its prefix and its key.
        max_bytes: the room, as `weight` counts.

    Attributes:
        waiting: how many wait.
    """

    def __init__(self, place_of: Callable[[bytes], tuple[bytes, bytes]], max_bytes: int) -> None:
        self._place_of = place_of
        self._room_for_new = max_bytes // 2
        self._known = _Turns()
        self._new = _Turns()
        self._new_bytes = 0
        self._seen: KeyTable[bytes, None] = KeyTable(_KNOWN)
        self._met = False  # a known key, since the queue was last empty
        self._taken = 0
        self.waiting = 0

    def put(self, publishes: Iterable[Publish], received: float) -> list[Publish]:
        """Queue messages in the order of arrival; returns those that are refused (rule 4)."""
        refused: list[Publish] = []
        known, new, seen = self._known.keys, self._new.keys, self._seen
        for publish in publishes:
            prefix, key = self._place_of(publish[0])
            if (messages := known.get(key)) is not None:
                messages.append((publish, received))
            elif (messages := new.get(key)) is not None:  # rule 1: behind those that wait
                self._new_bytes += len(publish[1]) + _OVERHEAD_BYTES
                messages.append((publish, received))
            elif key in seen:
                self._met = True
                self._known.put(prefix, key, (publish, received))
            elif self._met and self._new_bytes > self._room_for_new:
                refused.append(publish)
                continue
            else:
                self._new_bytes += len(publish[1]) + _OVERHEAD_BYTES
                self._new.put(prefix, key, (publish, received))
                seen[key] = None
            self.waiting += 1
        return refused

    def take_keys(self, keys: Iterable[bytes]) -> list[Publish]:
        """Take all that waits of some keys, in the order of each (rule 5)."""
        taken: list[Publish] = []
        for key in keys:
            taken += [publish for publish, _ in self._known.keys.pop(key, ())]
            fresh = [publish for publish, _ in self._new.keys.pop(key, ())]
            self._new_bytes -= weight(fresh)
            taken += fresh
        self.waiting -= len(taken)
        return taken

    def pop(self, most: int) -> tuple[list[Publish], float]:
        """Pop messages whose turn it is, and the time at which the first of them was read."""
        known, new = self._known, self._new
        taken: list[Publish] = []
        oldest = float("inf")
        for _ in range(min(most, self.waiting)):
            self._taken += 1
            if new.keys and (not known.keys or self._taken % NEW_EVERY == 0):  # rule 2
                publish, received = new.pop()
                self._new_bytes -= len(publish[1]) + _OVERHEAD_BYTES
            else:
                publish, received = known.pop()
            taken.append(publish)
            oldest = min(oldest, received)
        self.waiting -= len(taken)
        if not self.waiting:
            self._met = False
        return taken, oldest
