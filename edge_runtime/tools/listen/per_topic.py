"""Channels that come on topics of their own: a topic per axis or per quantity, as ESPHome and many gateways send."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from edge_runtime.manifest import Channel
from edge_runtime.tools.listen.fields import TopicFields
from edge_runtime.tools.listen.match import Candidate, Match, candidates_in, match
from edge_runtime.tools.listen.names import Name, name_of


@dataclass(frozen=True, slots=True)
class TopicChannels:
    """Topics of one device or of several alike, each with one channel."""

    matches: tuple[Match, ...]
    filters: Mapping[str, str]
    """Topic or topic filter by channel name."""
    topics: tuple[str, ...]
    """All that were heard."""
    path: str
    """Field of the number in each message; empty where the message is the number."""
    devices: int


def channels_by_topic(seen: Mapping[str, TopicFields], channels: Sequence[Channel]) -> list[TopicChannels]:
    """Find topics that have one number each and together make the channels.

    1. A level that names a quantity, an axis or a channel is the channel's; the other levels, and other words in that
       level, say which device.
    2. Topics of one device that match two channels or more belong together.
    3. Devices whose topics differ in the same levels are one: ``+`` stands there.
    """
    wanted = {channel.name.lower() for channel in channels}
    words = frozenset().union(*(name_of(channel.name, channel.unit).words for channel in channels))
    devices: dict[tuple[object, ...], list[Candidate]] = {}
    for topic, observation in seen.items():
        candidates = candidates_in(observation)
        if len(candidates) != 1 or observation.format not in ("number", "json"):
            continue
        (candidate,) = candidates
        device, name = _device(topic, wanted, words)  # rule 1
        if device is not None:
            own = Candidate(topic, candidate.path, name, candidate.series)
            devices.setdefault((candidate.path, *device), []).append(own)
    found: dict[tuple[object, ...], list[list[Match]]] = {}
    for (path, *_), candidates in devices.items():
        matches = match(channels, candidates)
        if len(matches) > 1 or (matches and len(channels) == 1):  # rule 2
            found.setdefault((path, tuple(_shape(one) for one in matches)), []).append(matches)
    return [_together(group) for group in found.values()]  # rule 3


def _device(topic: str, wanted: set[str], words: frozenset[str]) -> tuple[tuple[object, ...] | None, Name]:
    """Return what says whose a topic is, and the name of its channel; None where no level names one."""
    device: list[object] = []
    name = Name(frozenset())
    for level in topic.split("/"):
        own = name_of(level)
        if level.lower() in wanted or own.quantity or own.axis:
            name = Name(
                name.words | own.words, own.quantity or name.quantity, own.axis or name.axis, own.unit or name.unit
            )
            device.append(("channel", own.words - words))
        else:
            device.append(level)
    named = any(isinstance(level, tuple) for level in device)
    return (tuple(device) if named else None), name


def _shape(one: Match) -> tuple[object, ...]:
    """Reduce a topic to what is the same for all devices: the channel's levels, in their places."""
    levels = one.candidate.topic.split("/")
    kept = tuple(level if name_of(level).quantity or name_of(level).axis else "+" for level in levels)
    return one.channel.name, kept


def _together(devices: Sequence[Sequence[Match]]) -> TopicChannels:
    filters = {}
    for matches in zip(*devices, strict=True):
        split = [one.candidate.topic.split("/") for one in matches]
        filters[matches[0].channel.name] = "/".join(
            levels[0] if len(set(levels)) == 1 else "+" for levels in zip(*split, strict=True)
        )
    first = devices[0]
    return TopicChannels(
        matches=tuple(first),
        filters=filters,
        topics=tuple(one.candidate.topic for matches in devices for one in matches),
        path=first[0].candidate.path,
        devices=len(devices),
    )
