"""Topic filters and keys for topics that one table reads."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from edge_runtime.io.mqtt.packets import topic_matches

_LISTED: Final = 8
"""Topics that are listed by name, where a wildcard would cover others, too."""


@dataclass(frozen=True, slots=True)
class TopicFilters:
    """Topic filters, and the rule for the key."""

    filters: tuple[str, ...]
    reason: str = ""
    key: str = "wildcards"
    """As `MqttSourceConfig.key`."""
    key_reason: str = ""


def topics_of(own: Sequence[str], heard: Sequence[str], filters: Sequence[str] = ()) -> TopicFilters:
    """Choose filters for topics.

    1. A filter with ``+`` that was subscribed to, and covers these topics and no other that was heard, stays.
    2. One topic stands for itself; it is the key.
    3. Topics that differ in some levels are read by a wildcard in each of these, which makes the key; where that
       covers other topics that were heard, up to `_LISTED` are listed, and the differing levels make the key.

    Args:
        own: topics to read, at least one.
        heard: all topics.
        filters: filters that were subscribed to.
    """
    others = [topic for topic in heard if topic not in set(own)]
    for one in filters:  # rule 1
        if _wild(one) and covers(one, own) == len(own) and not covers(one, others):
            return TopicFilters((one,), "what the wildcard stands for is the key")
    if len(own) == 1:  # rule 2
        return TopicFilters((own[0],), "with + for a level, more devices: what it stands for is the key")
    pattern = pattern_of(own)
    if pattern is None:
        return TopicFilters(tuple(own), "the whole topic is the key")
    extra = covers(pattern, others)  # rule 3
    if not extra:
        return TopicFilters((pattern,), f"{len(own)} topics were heard; what + stands for is the key")
    if len(own) > _LISTED:
        return TopicFilters((pattern,), f"it also covers topics that are no such sensor ({extra}): counted as refused")
    differing = [i for i, level in enumerate(pattern.split("/")) if level == "+"]
    key = "-".join(f"{{{i}}}" for i in differing)
    return TopicFilters(
        tuple(own),
        f"{pattern} would also cover topics that are no such sensor ({extra})",
        key,
        "the level that differs",
    )


def covers(topic_filter: str, topics: Sequence[str]) -> int:
    """Count the topics that a filter covers."""
    encoded = topic_filter.encode()
    return sum(topic_matches(encoded, topic.encode()) for topic in topics)


def pattern_of(topics: Sequence[str]) -> str | None:
    """Make one filter of topics: ``+`` where levels differ; None where they have different numbers of levels."""
    split = [topic.split("/") for topic in topics]
    if len({len(levels) for levels in split}) != 1:
        return None
    merged = [levels[0] if len(set(levels)) == 1 else "+" for levels in zip(*split, strict=True)]
    return None if set(merged) == {"+"} and len(merged) > 1 else "/".join(merged)


def _wild(topic_filter: str) -> bool:
    return "+" in topic_filter and "#" not in topic_filter
