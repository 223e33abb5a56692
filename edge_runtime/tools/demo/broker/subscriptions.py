"""Subscription tree: finds the subscribers of a topic, shared groups included, with a memo of recent topics.

Source: MQTT 5 sections 4.7 (filters), 4.8.2 (shared subscriptions) and 3.3.4 (overlapping subscriptions):

1. Wildcards match no first level that begins with ``$`` (MQTT-4.7.2-1).
2. The filter ``a/#`` covers ``a`` too (section 4.7.1.2).
3. Filters of a subscriber that overlap give it a message once; each shared group gets it besides.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, NamedTuple, TypeVar

from edge_runtime.io.mqtt.topics import parse_shared_subscription

S = TypeVar("S", bound=Hashable)

_MAX_MEMO: Final = 16_384


class Grant(NamedTuple):
    """Grant of one subscription."""

    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    identifiers: tuple[int, ...] = ()


class SharedGroup(Generic[S]):
    """The subscribers that share one filter, asked in turn."""

    def __init__(self) -> None:
        self.members: dict[S, Grant] = {}
        self._turn = 0

    def in_turn(self) -> Iterator[tuple[S, Grant]]:
        """Yield all members once, beginning behind the one that began last time."""
        members = list(self.members.items())
        self._turn = (self._turn + 1) % len(members)
        yield from members[self._turn :]
        yield from members[: self._turn]


@dataclass(frozen=True, slots=True)
class Matches(Generic[S]):
    """Matches of a topic: each subscriber once, and the groups, of which one member gets it."""

    direct: tuple[tuple[S, Grant], ...]
    groups: tuple[SharedGroup[S], ...]


class _Node(Generic[S]):
    """One level of the filters that begin alike."""

    __slots__ = ("children", "groups", "members")

    def __init__(self) -> None:
        self.children: dict[bytes, _Node[S]] = {}
        self.members: dict[S, Grant] = {}
        self.groups: dict[bytes, SharedGroup[S]] = {}

    def is_empty(self) -> bool:
        return not (self.children or self.members or self.groups)


class SubscriptionTree(Generic[S]):
    """Filters and their subscribers. Not safe for use by several threads."""

    def __init__(self) -> None:
        self._root: _Node[S] = _Node()
        self._memo: dict[bytes, Matches[S]] = {}

    def add(self, subscriber: S, topic_filter: bytes, grant: Grant) -> bool:
        """Add or replace a subscription; the filter may be ``$share/group/filter`` and must be valid.

        Returns:
            Whether it is new.
        """
        self._memo.clear()
        shared = parse_shared_subscription(topic_filter)
        node = self._root
        for level in (shared[1] if shared else topic_filter).split(b"/"):
            node = node.children.setdefault(level, _Node())
        members = node.groups.setdefault(shared[0], SharedGroup()).members if shared else node.members
        is_new = subscriber not in members
        members[subscriber] = grant
        return is_new

    def remove(self, subscriber: S, topic_filter: bytes) -> bool:
        """Remove a subscription and every empty node; return whether it was there."""
        self._memo.clear()
        shared = parse_shared_subscription(topic_filter)
        levels = (shared[1] if shared else topic_filter).split(b"/")
        path = [self._root]
        for level in levels:
            child = path[-1].children.get(level)
            if child is None:
                return False
            path.append(child)
        node = path[-1]
        if shared:
            group = node.groups.get(shared[0])
            was_there = group is not None and group.members.pop(subscriber, None) is not None
            if group is not None and not group.members:
                del node.groups[shared[0]]
        else:
            was_there = node.members.pop(subscriber, None) is not None
        for parent, level in zip(reversed(path[:-1]), reversed(levels), strict=True):
            if not parent.children[level].is_empty():
                break
            del parent.children[level]
        return was_there

    def match(self, topic: bytes) -> Matches[S]:
        """Find who gets a message on this topic.

        Where several filters of one subscriber match, it is named once, with the highest QoS among them and all their
        identifiers (sections 3.3.4 and MQTT-3.3.5-1).
        """
        found = self._memo.get(topic)
        if found is None:
            found = self._search(topic)
            if len(self._memo) >= _MAX_MEMO:
                self._memo.clear()
            self._memo[topic] = found
        return found

    def _search(self, topic: bytes) -> Matches[S]:
        nodes = [self._root]
        ends: list[_Node[S]] = []
        wildcards = not topic.startswith(b"$")  # rule 1, for the first level only
        for level in topic.split(b"/"):
            following = []
            for node in nodes:
                children = node.children
                if wildcards and b"#" in children:
                    ends.append(children[b"#"])
                if wildcards and b"+" in children:
                    following.append(children[b"+"])
                if level in children:
                    following.append(children[level])
            nodes = following
            wildcards = True
        for node in nodes:
            ends.append(node)
            if b"#" in node.children:  # rule 2
                ends.append(node.children[b"#"])
        direct: dict[S, Grant] = {}
        groups: list[SharedGroup[S]] = []
        for node in ends:  # rule 3
            groups += node.groups.values()
            for subscriber, grant in node.members.items():
                other = direct.get(subscriber)
                direct[subscriber] = grant if other is None else _merge(other, grant)
        return Matches(tuple(direct.items()), tuple(groups))


def _merge(one: Grant, other: Grant) -> Grant:
    return Grant(
        max(one.qos, other.qos),
        one.no_local and other.no_local,
        one.retain_as_published or other.retain_as_published,
        one.identifiers + other.identifiers,
    )
