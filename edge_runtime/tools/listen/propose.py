"""Proposal of a ``[[source]]`` table for a model, from what was observed."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from edge_runtime import units
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.tools.listen.capture import Capture
from edge_runtime.tools.listen.codec_settings import decimal_lines, time_lines, unit_line, unit_lines
from edge_runtime.tools.listen.draft import TopicDraft, draft_codec
from edge_runtime.tools.listen.fields import TopicFields, observe
from edge_runtime.tools.listen.match import Match, match, sensor_level
from edge_runtime.tools.listen.per_topic import TopicChannels, channels_by_topic
from edge_runtime.tools.listen.senders import sender_of
from edge_runtime.tools.listen.sparkplug import EdgeNodeMetrics, nodes_of
from edge_runtime.tools.listen.stamps import duration, find_stamps
from edge_runtime.tools.listen.table import Line, SourceTable
from edge_runtime.tools.listen.topics import TopicFilters, topics_of
from edge_runtime.tools.listen.units import UnitGuess, guess_units

_OBSERVED: Final = 5_000
"""Messages that are looked at, of all topics together."""
_LEAST: Final = 10
"""Messages of each topic that are looked at, however many topics there are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A table, and what it rests on."""

    table: SourceTable
    topics: tuple[str, ...]
    """Topics that it reads, of those that were heard."""
    matches: tuple[Match, ...] = ()
    units: Mapping[str, UnitGuess] = field(default_factory=dict)
    missing: tuple[str, ...] = ()
    """Channels that nothing was found for."""
    others: tuple[SourceTable, ...] = ()
    """Further tables, which bring the other channels of the same keys."""

    @property
    def tables(self) -> tuple[SourceTable, ...]:
        """All of its tables."""
        return self.table, *self.others


def observations_of(capture: Capture) -> dict[str, TopicFields]:
    """Observe every topic of which messages were kept, by as many as take some seconds for all topics."""
    most = max(_LEAST, _OBSERVED // max(1, len(capture.topics)))
    return {topic: observe(topic, heard.live[:most]) for topic, heard in capture.topics.items() if heard.kept}


def propose(
    capture: Capture,
    seen: Mapping[str, TopicFields],
    contract: InputContract,
    filters: Sequence[str] = (),
    broker: str = "local",
) -> list[Proposal]:
    """Propose tables, the best first; none where nothing fits any channel.

    1. A topic that brings all channels in its messages is read alone, or with others of the same shape.
    2. Else, channels that come on topics of their own are read together.
    3. Else, topics whose levels name different sensors of one device, each of which brings some channels, are read by a
       table each.
    4. Else, the topic that brings most channels, for what it brings.

    Args:
        capture: what was heard.
        seen: its topics, observed.
        contract: channels and rate of the model.
        filters: topic filters that were subscribed to.
        broker: name of the ``[broker.NAME]`` table.
    """
    drafts = [
        draft
        for topic, observation in seen.items()
        if (draft := draft_codec(observation, capture.topics[topic], contract)) is not None
    ]
    whole = [draft for draft in drafts if not draft.missing]
    found = [_of_drafts(group, capture, filters, broker) for group in _alike(whole)]  # rule 1
    found += [_of_sparkplug(node, contract.channels, broker) for node in nodes_of(seen)]
    found = [proposal for proposal in found if proposal.matches or not proposal.missing]
    by_topic = channels_by_topic(seen, contract.channels)
    found += [_of_topics(topics, seen, capture, contract.channels, broker) for topics in by_topic]  # rule 2
    found += _of_sensors([draft for draft in drafts if draft.missing], capture, contract.channels, broker)  # rule 3
    if not any(not proposal.missing for proposal in found):  # rule 4
        found += [_of_drafts(group, capture, filters, broker) for group in _alike(drafts)]
    return sorted(found, key=lambda one: (len(one.missing), -_strength(one), -len(one.topics)))


def _strength(proposal: Proposal) -> float:
    return sum(one.score for one in proposal.matches) if proposal.matches else 4.0 * len(proposal.topics)


def _alike(drafts: Sequence[TopicDraft]) -> list[list[TopicDraft]]:
    groups: dict[tuple[object, ...], list[TopicDraft]] = {}
    for draft in drafts:
        groups.setdefault(draft.identity, []).append(draft)
    return list(groups.values())


def _of_drafts(group: Sequence[TopicDraft], capture: Capture, filters: Sequence[str], broker: str) -> Proposal:
    """One table for topics of the same shape."""
    first = max(group, key=lambda draft: capture.topics[draft.seen.topic].count)
    own = [draft.seen.topic for draft in group]
    topics = topics_of(own, list(capture.topics), filters)
    table = SourceTable(source=_source_lines(topics, first, broker), codec=list(first.codec))
    if first.channels:
        table.below["codec.channels"] = list(first.channels)
    if stated := unit_lines(str(first.codec[0].value), first.matches, first.units):
        table.below["codec.units"] = stated
    table.notes = _notes(first, capture)
    return Proposal(
        table=table,
        topics=tuple(own),
        matches=tuple(first.matches),
        units=first.units,
        missing=first.missing,
    )


def _of_sensors(
    drafts: Sequence[TopicDraft], capture: Capture, channels: Sequence[Channel], broker: str
) -> list[Proposal]:
    """Propose a table for each sensor of the same devices: ``body/acc`` and ``body/gyro``; none where there is one."""
    groups: dict[tuple[int, frozenset[tuple[str, ...]]], list[list[TopicDraft]]] = {}
    for group in _alike([draft for draft in drafts if any(line.key == "partial" for line in draft.codec)]):
        place, devices = _devices(group)
        if place >= 0 and devices != {()}:
            groups.setdefault((place, devices), []).append(group)
    return [
        _joined([_of_sensor(group, capture, broker) for group in parts], channels)
        for parts in groups.values()
        if len(parts) > 1 and _disjoint(parts)
    ]


def _devices(group: Sequence[TopicDraft]) -> tuple[int, frozenset[tuple[str, ...]]]:
    """Find the level that names the sensor, -1 where there is no one such level, and the other levels of each topic."""
    topics = [draft.seen.topic for draft in group]
    places = {sensor_level(topic)[0] for topic in topics}
    place = places.pop() if len(places) == 1 else -1
    return place, frozenset(_without_level(topic, place) for topic in topics)


def _without_level(topic: str, place: int) -> tuple[str, ...]:
    levels = topic.split("/")
    return (*levels[:place], *levels[place + 1 :])


def _disjoint(parts: Sequence[Sequence[TopicDraft]]) -> bool:
    names = [one.channel.name for group in parts for one in group[0].matches]
    return len(set(names)) == len(names)


def _of_sensor(group: Sequence[TopicDraft], capture: Capture, broker: str) -> Proposal:
    """One table for one sensor, with the key that the device's other sensors have, too."""
    proposal = _of_drafts([dataclasses.replace(draft, missing=()) for draft in group], capture, (), broker)
    if not group[0].payload_key:
        place, _ = sensor_level(group[0].seen.topic)
        levels = [i for i in range(len(group[0].seen.topic.split("/"))) if i != place]
        source = [
            dataclasses.replace(line, comment="") if line.key == "topics" else line
            for line in proposal.table.source
            if line.key != "key"
        ]
        key = "/".join(f"{{{i}}}" for i in levels)
        proposal.table.source = [*source, Line("key", key, "the levels that do not name the sensor")]
    return proposal


def _joined(parts: Sequence[Proposal], channels: Sequence[Channel]) -> Proposal:
    first, *others = parts
    matches = tuple(one for part in parts for one in part.matches)
    found = {one.channel.name for one in matches}
    return Proposal(
        table=first.table,
        topics=tuple(topic for part in parts for topic in part.topics),
        matches=matches,
        units={name: guess for part in parts for name, guess in part.units.items()},
        missing=tuple(channel.name for channel in channels if channel.name not in found),
        others=tuple(part.table for part in others),
    )


def _source_lines(topics: TopicFilters, draft: TopicDraft, broker: str) -> list[Line]:
    lines = [Line("type", "mqtt"), Line("broker", broker), Line("topics", list(topics.filters), topics.reason)]
    if draft.payload_key:
        lines.append(Line("key", "payload", f"the field {draft.payload_key!r} says whose a sample is"))
    elif topics.key != "wildcards":
        lines.append(Line("key", topics.key, topics.key_reason))
    return lines


def _notes(draft: TopicDraft, capture: Capture) -> list[str]:
    notes = []
    if draft.sender is not None:
        notes.append(f"Sent by {draft.sender.name}, as it looks ({draft.sender.page}); {draft.sender.hint}.")
    if draft.missing:
        notes.append(f"Nothing was found for {', '.join(draft.missing)}: name a field, or add a second [[source]].")
    heard = capture.topics[draft.seen.topic]
    if heard.retained:
        notes.append(
            f"{heard.retained} of the messages were retained: kept by the broker from earlier, no sample of now."
        )
    stamps = draft.stamps
    if stamps is not None and abs(stamps.offset_s) > 5 and not stamps.coarse:
        behind = "behind" if stamps.offset_s > 0 else "ahead of"
        notes.append(
            f"The sensor's clock is {duration(abs(stamps.offset_s))} {behind} this machine's; windows do not mind."
        )
    return notes


def _of_topics(
    topics: TopicChannels,
    seen: Mapping[str, TopicFields],
    capture: Capture,
    channels: Sequence[Channel],
    broker: str,
) -> Proposal:
    """One table for channels on topics of their own."""
    own = topics.topics
    first = own[0]
    stamps = find_stamps(seen[first], [message.received for message in capture.topics[first].live])
    codec = [Line("type", "json")]
    if not topics.path:
        codec.append(Line("values", ".", "the message is the number"))
    elif topics.path != "values":
        codec.append(Line("values", topics.path, "the field that holds the number"))
    codec += decimal_lines(seen[first]) + time_lines(seen[first], stamps)
    guesses = guess_units(topics.matches, sender_of(seen[first]))
    table = SourceTable(
        source=[Line("type", "mqtt"), Line("broker", broker), *_key_of_topics(topics)],
        codec=codec,
        below={
            "channels": [
                Line(one.channel.name, topics.filters[one.channel.name], _why_topic(one)) for one in topics.matches
            ]
        },
    )
    if stated := unit_lines("json", topics.matches, guesses):
        table.below["codec.units"] = stated
    found = {one.channel.name for one in topics.matches}
    return Proposal(
        table=table,
        topics=own,
        matches=topics.matches,
        units=guesses,
        missing=tuple(channel.name for channel in channels if channel.name not in found),
    )


def _of_sparkplug(node: EdgeNodeMetrics, channels: Sequence[Channel], broker: str) -> Proposal:
    """One table for the births and the data of an edge node's own metrics, or of those of its devices."""
    matches = match(channels, node.candidates)
    codec = [Line("type", "sparkplug")]
    if node.partial:
        codec.append(Line("partial", True, "data messages bring some of the metrics"))
    mapped = {one.channel.name: one.candidate.path for one in matches}
    table = SourceTable(
        source=[
            Line("type", "mqtt"),
            Line("broker", broker),
            Line("topics", list(node.filters), "births name the metrics, data may name their aliases alone"),
            Line("key", node.key, "group, edge node and device" if "{4}" in node.key else "group and edge node"),
        ],
        codec=codec,
    )
    if lines := [Line(name, path, "guess: by the name") for name, path in mapped.items() if name != path]:
        table.below["codec.channels"] = lines
    if not node.born:
        table.notes.append("No birth was heard, so metrics have no names: write true to Node Control/Rebirth.")
    return Proposal(
        table=table,
        topics=node.topics,
        matches=tuple(matches),
        units={one.channel.name: UnitGuess("", "the names of the metrics state none") for one in matches},
        missing=tuple(channel.name for channel in channels if channel.name not in mapped),
    )


def _key_of_topics(topics: TopicChannels) -> list[Line]:
    """Name the key of topics that have one channel each: what ``+`` stands for, or the levels that they share."""
    if any("+" in one for one in topics.filters.values()):
        return []
    split = [one.split("/") for one in topics.filters.values()]
    same = [len(set(levels)) == 1 for levels in zip(*split, strict=False)]
    first = same.index(False) if False in same else len(same)
    shared = list(range(first)) or [i for i, one in enumerate(same) if one]
    if not shared:
        return []
    return [Line("key", "/".join(f"{{{i}}}" for i in shared), "the levels that these topics share")]


def _why_topic(one: Match) -> str:
    if one.others:
        return f"guess by the name; it may also be {' or '.join(other.topic for other in one.others)}"
    return "guess: by the name"


def answered(proposal: Proposal, one: Match, unit: str) -> Proposal:
    """Return the proposal with a unit that a person has stated."""
    guess = UnitGuess(units.canonical(unit), "as you said", sure=True)
    first, *others = (
        _with_unit(table, own, one.channel, guess) if one in own else table
        for table, own in zip(proposal.tables, _matches_by_table(proposal), strict=True)
    )
    stated = {**proposal.units, one.channel.name: guess}
    return dataclasses.replace(proposal, table=first, others=tuple(others), units=stated)


def _matches_by_table(proposal: Proposal) -> list[Sequence[Match]]:
    """Return the matches of each table: where there are several, each reads topics of its own."""
    if not proposal.others:
        return [proposal.matches]
    topics = dict.fromkeys(one.candidate.topic for one in proposal.matches)
    return [[one for one in proposal.matches if one.candidate.topic == topic] for topic in topics]


def _with_unit(table: SourceTable, own: Sequence[Match], channel: Channel, guess: UnitGuess) -> SourceTable:
    lines = table.below.get("codec.units") or [
        Line(one.channel.name, one.channel.unit, "the model's") for one in own if units.is_real(one.channel.unit)
    ]
    stated = [unit_line(channel, guess) if line.key == channel.name else line for line in lines]
    return dataclasses.replace(table, below={**table.below, "codec.units": stated})


def unknown_units(proposal: Proposal) -> list[Match]:
    """List matches whose unit nothing tells, though the model's channel has one."""
    return [
        one for one in proposal.matches if units.is_real(one.channel.unit) and not proposal.units[one.channel.name].unit
    ]
