"""Sparkplug B nodes and devices among the topics: births and data belong together."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edge_runtime.tools.listen.fields import TopicFields
from edge_runtime.tools.listen.match import Candidate, candidates_in

_ALIAS = "alias "


@dataclass(frozen=True, slots=True)
class EdgeNodeMetrics:
    """Metrics of one group's edge nodes, or of their devices."""

    filters: tuple[str, ...]
    key: str
    """Template of topic levels."""
    topics: tuple[str, ...]
    candidates: Sequence[Candidate]
    """Metrics that births, or data messages, name."""
    born: bool
    """A name was heard for the metrics."""
    partial: bool
    """A data message may lack metrics."""


def nodes_of(seen: Mapping[str, TopicFields]) -> list[EdgeNodeMetrics]:
    """Group Sparkplug topics: ``spBv1.0/GROUP/NBIRTH/NODE`` and so on, and those of devices with a level more."""
    groups: dict[tuple[str, int], list[TopicFields]] = {}
    for topic, one in seen.items():
        levels = topic.split("/")
        if one.format == "sparkplug" and len(levels) in (4, 5) and levels[2][1:] in ("BIRTH", "DATA"):
            groups.setdefault((levels[1], len(levels)), []).append(one)
    return [_node(group, levels, members) for (group, levels), members in groups.items()]


def _node(group: str, levels: int, members: Sequence[TopicFields]) -> EdgeNodeMetrics:
    kind, wild, key = ("D", "+/+", "{1}/{3}/{4}") if levels == 5 else ("N", "+", "{1}/{3}")
    named = {one.path: one for member in members for one in candidates_in(member) if not one.path.startswith(_ALIAS)}
    data = [member for member in members if member.topic.split("/")[2] == f"{kind}DATA"]
    return EdgeNodeMetrics(
        filters=tuple(f"spBv1.0/{group}/{kind}{what}/{wild}" for what in ("BIRTH", "DATA")),
        key=key,
        topics=tuple(member.topic for member in members),
        candidates=list(named.values()),
        born=bool(named),
        partial=any(field.count < member.documents for member in data for field in member.fields.values()),
    )
