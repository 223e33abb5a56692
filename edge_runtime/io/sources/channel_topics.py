"""Topics of an MQTT source: which filter a topic belongs to, and filters that bring one channel each.

::

    channels = {temperature = "+/sensor/temperature/state", humidity = "+/sensor/humidity/state"}

The parts that the wildcards stand for are the key, so that ``attic/sensor/temperature/state`` and
``attic/sensor/humidity/state`` meet in the windows of ``attic``. What cannot work is refused before anything connects.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations, product
from typing import Final, NamedTuple

from edge_runtime.errors import ConfigError
from edge_runtime.io.mqtt.topics import TopicFilter, filters_overlap, parse_shared_subscription

LEVEL: Final = re.compile(r"\{(-?\d{1,4})\}")
"""A level of the topic in a template of a key."""

ANY_KEY: Final = "#"
"""Keys that only the messages tell."""


class ChannelOrigin(NamedTuple):
    """Something that brings channels: the topics of a filter, or a source without topics."""

    pattern: str
    """Topic filter, without its shared group; empty where there are no topics."""
    keys: str
    """Filter that covers all keys which its readings may have, as `keys_of` says."""
    channels: frozenset[str]
    """Channels that its readings may bring."""


def filter_of(patterns: Sequence[str]) -> Callable[[bytes], bytes | None]:
    """Make the function from topic to the first filter that covers it, without its shared group; None if none does."""
    filters = [(one, TopicFilter(one)) for one in (without_group(pattern).encode() for pattern in patterns)]
    return lambda topic: next((one for one, parsed in filters if parsed.matches(topic)), None)


def without_group(pattern: str) -> str:
    """Return the topic filter within a shared subscription; any other as it is."""
    shared = parse_shared_subscription(pattern)
    return pattern if shared is None else shared[1].decode()


def wildcards(topic_filter: bytes, topic: bytes) -> str:
    """Return the parts of a topic that the wildcards of its filter stand for; the whole topic where there are none."""
    levels = topic.decode().split("/")
    parts: list[str] = []
    for i, pattern in enumerate(topic_filter.split(b"/")):
        if pattern == b"#":
            parts += levels[i:]
        elif pattern == b"+":
            parts.append(levels[i])
    return "/".join(parts) or topic.decode()


def check_levels(patterns: Sequence[str], key: str) -> None:
    """Refuse a template of a key that names a level which no topic of a filter has.

    Raises:
        ValueError: says which.
    """
    for pattern in patterns:
        levels = without_group(pattern).split("/")
        for found in LEVEL.findall(key):
            if levels[-1] != "#" and not -len(levels) <= int(found) < len(levels):
                raise ValueError(
                    f"key '{key}' cannot be taken from '{pattern}', whose levels are {{0}} to {{{len(levels) - 1}}}"
                )


def check_channels(channels: Mapping[str, str], key: str) -> None:
    """Refuse filters of channels that would never meet in a key, or that claim the same messages.

    Raises:
        ValueError: says which, and the line to write.
    """
    by_filter: dict[str, list[str]] = {}
    for name, pattern in channels.items():
        by_filter.setdefault(pattern, []).append(name)
    for a, b in combinations(by_filter, 2):
        if filters_overlap(a, b):
            raise ValueError(
                f"channels: '{a}' ({', '.join(by_filter[a])}) and '{b}' ({', '.join(by_filter[b])}) cover the same "
                "topics, so a message would belong to both; give each a topic of its own, or all of them the same one"
            )
    if len(by_filter) > 1 and key in ("topic", "wildcards"):
        _check_same_key(list(by_filter), key)


def check_sources(sources: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Refuse sources that ask one broker for the same messages, of which only the first would get them.

    Args:
        sources: broker and topic filters of each.

    Raises:
        ValueError: says which.
    """
    for (broker, some), (other, others) in combinations(sources, 2):
        for a, b in product(some, others):
            if broker == other and filters_overlap(a, b):
                raise ValueError(
                    f"two sources ask broker {broker} for '{a}' and '{b}', which cover the same topics, so only the "
                    "first gets them; write one [[source]] whose channels share a topic, or narrower topics"
                )


def keys_of(pattern: str, key: str) -> str:
    """Return a filter that covers every key which the topics of a filter may give.

    >>> keys_of("body/acc", "wildcards"), keys_of("+/acc", "wildcards"), keys_of("body/+/acc", "{0}-{1}")
    ('body/acc', '+', '+')
    >>> keys_of("body/acc", "{0}"), keys_of("body/acc", "payload")
    ('body', '#')
    """
    levels = pattern.split("/")
    if key == "wildcards":
        wild = [level for level in levels if level in ("+", "#")]
        return ANY_KEY if "#" in wild else "/".join(wild) or pattern
    if key == "topic":
        return pattern
    if key == "payload":
        return ANY_KEY

    return "/".join([_level_keys(levels, part) for part in key.split("/")]) or ANY_KEY  # empty: the payload's counts


def _level_keys(levels: Sequence[str], part: str) -> str:
    """Return what one level of a key may be: a wildcard, or the template's text with the topic's levels in it."""

    def level(match: re.Match[str]) -> str:
        place = int(match[1])
        return "+" if levels[-1] == "#" and not 0 <= place < len(levels) - 1 else levels[place]

    return "+" if any(level(found) == "+" for found in LEVEL.finditer(part)) else LEVEL.sub(level, part)


def check_meeting(origins: Sequence[ChannelOrigin], needed: frozenset[str]) -> None:
    """Refuse origins of which no key can get all channels: no window would ever be whole.

    Args:
        origins: all of an application; each needed channel is brought by one of them at least.
        needed: channels without which there is no window.

    Raises:
        ConfigError: names two that never meet, and the line to write.
    """
    if any(needed <= origin.channels for origin in origins):
        return
    lacking: dict[ChannelOrigin, frozenset[str]] = {}
    for origin in origins:
        # A key that several can have, each two of them can have: so this passes all that can work.
        met = [one.channels for one in origins if filters_overlap(f"key/{one.keys}", f"key/{origin.keys}")]
        lacking[origin] = needed.difference(*met)
        if not lacking[origin]:
            return
    one = next(origin for origin in origins if origin.channels & needed)
    other = next(origin for origin in origins if origin.channels & lacking[one])
    raise ConfigError(_apart(one, other))


def _apart(one: ChannelOrigin, other: ChannelOrigin) -> str:
    """Say that two origins never meet, and what line to write."""
    alone = next((origin.pattern for origin in (one, other) if origin.keys == origin.pattern), "")
    why = f"topic '{alone}' would be a key of its own" if alone else "their keys are never the same"
    brought = " and ".join(f"'{topic}' ({', '.join(sorted(channels))})" for topic, _, channels in (one, other))
    return (
        f"the channels of {brought} never meet: {why}, and no window would get all of them; "
        f"{_common_advice(one.pattern, other.pattern)}"
    )


def _common_advice(a: str, b: str) -> str:
    """Return the line that takes one key from two filters: from a level that is open in both, or the same."""
    pairs = list(zip(a.split("/"), b.split("/"), strict=False))
    both_open = [i for i, pair in enumerate(pairs) if pair == ("+", "+")]
    may_equal = [i for i, (x, y) in enumerate(pairs) if x and "#" not in (x, y) and (x == y or "+" in (x, y))]
    if places := both_open or may_equal:
        return f'write key = "{{{places[0]}}}" under each [[source]], or the level that names the device'
    return 'name the device in a level of each topic, or in the messages with key = "payload" under each [[source]]'


def _check_same_key(patterns: Sequence[str], key: str) -> None:
    """Refuse filters whose topics can have no key in common."""
    first = patterns[0]
    shapes = [[level for level in pattern.split("/") if level in ("+", "#")] for pattern in patterns]
    for pattern, shape in zip(patterns, shapes, strict=True):
        if key == "topic" or not shape:
            raise ValueError(
                f"channels: topic '{pattern}' would be a key of its own, and no window would get all of them; "
                f"{_advice(pattern)}"
            )
        if shape != shapes[0] or "#" in shape:
            raise ValueError(
                f"channels: the wildcards of '{first}' and '{pattern}' give different keys, and no window would "
                f"get all of them; {_advice(first)}"
            )


def _advice(pattern: str) -> str:
    """Return the line that takes the key from a level: the one of a wildcard, or else the first."""
    levels = pattern.split("/")
    level = levels.index("+") if "+" in levels else 0
    return f'write key = "{{{level}}}" under [[source]], or the level that names the device'
