"""Topic names, topic filters and shared subscriptions (MQTT 5 section 4.7 and 4.8.2, the same in 3.1.1)."""

from __future__ import annotations

from edge_runtime.io.mqtt.wire import TOPIC_FILTER_INVALID, TOPIC_NAME_INVALID, MalformedPacket

MAX_TOPIC_BYTES = 65_535


def validate_topic_name(topic: str | bytes) -> bytes:
    """Check a topic to publish to.

    Returns:
        The topic as UTF-8.

    Raises:
        MalformedPacket: empty, too long, not UTF-8, with a NUL or a wildcard.
    """
    raw = _checked(topic, "topic", TOPIC_NAME_INVALID)
    if b"+" in raw or b"#" in raw:
        raise MalformedPacket("topic holds a wildcard (+ or #), which only a filter may", TOPIC_NAME_INVALID)
    return raw


def validate_topic_filter(topic_filter: str | bytes) -> bytes:
    """Check a filter to subscribe to, ``$share/group/filter`` included.

    Returns:
        The filter as UTF-8, as it was given.

    Raises:
        MalformedPacket: empty, too long, not UTF-8, with a NUL, a misplaced wildcard or a bad shared subscription.
    """
    raw = _checked(topic_filter, "topic filter", TOPIC_FILTER_INVALID)
    shared = _split_shared(raw)
    levels = (raw if shared is None else shared[1]).split(b"/")
    for level in levels[:-1]:
        if b"#" in level:
            raise MalformedPacket("topic filter has # before its last level", TOPIC_FILTER_INVALID)
    for level in levels:
        if len(level) > 1 and (b"+" in level or b"#" in level):
            raise MalformedPacket("topic filter has a wildcard beside other characters", TOPIC_FILTER_INVALID)
    return raw


def parse_shared_subscription(topic_filter: str | bytes) -> tuple[bytes, bytes] | None:
    """Split ``$share/group/filter``.

    Returns:
        The group and the filter within it, or None for a filter that is not shared.

    Raises:
        MalformedPacket: as `validate_topic_filter`.
    """
    return _split_shared(validate_topic_filter(topic_filter))


class TopicFilter:
    """A topic filter, checked and parsed once; a shared subscription matches by the filter within it.

    Raises:
        MalformedPacket: as `validate_topic_filter`.
    """

    __slots__ = ("_any_rest", "_levels", "_prefix", "_starts_wild")

    def __init__(self, topic_filter: str | bytes) -> None:
        raw = validate_topic_filter(topic_filter)
        shared = _split_shared(raw)
        levels = (raw if shared is None else shared[1]).split(b"/")
        self._starts_wild = levels[0] in {b"+", b"#"}
        self._any_rest = levels[-1] == b"#"
        self._levels = levels[:-1] if self._any_rest else levels
        self._prefix = max((at for at, level in enumerate(levels) if level in {b"+", b"#"}), default=len(levels))

    def matches(self, topic: bytes) -> bool:
        """Return whether it covers a topic. Raises nothing, whatever the topic is."""
        if self._starts_wild and topic[:1] == b"$":
            return False  # MQTT-4.7.2-1: a wildcard in front does not reach the server's own topics
        levels, wanted = topic.split(b"/"), self._levels
        if len(levels) < len(wanted) or (len(levels) > len(wanted) and not self._any_rest):
            return False
        return all(p in {b"+", level} for p, level in zip(wanted, levels, strict=False))

    def prefix_of(self, topic: bytes) -> bytes:
        """Return the levels of a topic before the filter's last wildcard, which say who shares a source of keys."""
        return b"/".join(topic.split(b"/")[: self._prefix])


def topic_matches(topic_filter: str | bytes, topic: str | bytes) -> bool:
    """Say whether a valid filter covers a valid topic; `TopicFilter` does it many times for less.

    >>> topic_matches("watch/+/imu", "watch/7/imu"), topic_matches("watch/#", "watch"), topic_matches("#", "$SYS/x")
    (True, True, False)
    """
    return TopicFilter(topic_filter).matches(topic.encode() if isinstance(topic, str) else topic)


def filters_overlap(a: str, b: str) -> bool:
    """Return whether a topic exists that two valid filters cover.

    >>> filters_overlap("dev/+/ax", "dev/3/#"), filters_overlap("dev/+/ax", "dev/+/ay")
    (True, False)
    """
    one, other = a.split("/"), b.split("/")
    if {one[0], other[0]} & {"+", "#"} and (one[0][:1] == "$" or other[0][:1] == "$"):
        return False  # MQTT-4.7.2-1
    for left, right in zip(one, other, strict=False):
        if "#" in (left, right):
            return True
        if left != right and "+" not in (left, right):
            return False
    longer = one if len(one) > len(other) else other
    return len(one) == len(other) or longer[min(len(one), len(other))] == "#"


def _checked(value: str | bytes, what: str, reason_code: int) -> bytes:
    try:
        raw = value.encode() if isinstance(value, str) else value
        if isinstance(value, bytes):
            value.decode()
    except UnicodeError as error:
        raise MalformedPacket(f"{what} is not valid UTF-8") from error
    if not raw:
        raise MalformedPacket(f"{what} is empty", reason_code)
    if len(raw) > MAX_TOPIC_BYTES:
        raise MalformedPacket(f"{what} is longer than {MAX_TOPIC_BYTES:,} bytes", reason_code)
    if b"\0" in raw:
        raise MalformedPacket(f"{what} holds a NUL character", reason_code)
    return raw


def _split_shared(raw: bytes) -> tuple[bytes, bytes] | None:
    if not raw.startswith(b"$share/"):
        return None
    group, slash, inner = raw[7:].partition(b"/")
    if not group or not slash or not inner:
        raise MalformedPacket("shared subscription is not $share/GROUP/FILTER", TOPIC_FILTER_INVALID)
    if b"+" in group or b"#" in group:
        raise MalformedPacket("shared subscription has a wildcard in its group name", TOPIC_FILTER_INVALID)
    return group, inner
