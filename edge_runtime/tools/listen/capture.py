"""Bounded capture of messages: whole messages of the first topics, counts of what goes beyond.

A broker may have a million topics and send messages of a megabyte. What is kept is bounded by `MAX_TOPICS`,
`PER_TOPIC` and `MAX_BYTES`; the rest is counted, and the number of other topics is estimated in 128 kB.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from edge_runtime.io.codecs.numbers import MAX_BYTES as MAX_PAYLOAD
from edge_runtime.io.recordings.capture import Captured

MAX_TOPICS: Final = 500
"""Topics whose messages are kept."""
PER_TOPIC: Final = 1000
"""Messages kept of each topic: the first ones, of one that no codec takes the start."""
TOPIC_BYTES: Final = 2**20
"""Bytes kept of each topic, but one message in any case."""
MAX_BYTES: Final = 64 * 2**20
"""Bytes kept of all topics together."""
_BITS: Final = 2**20


@dataclass(slots=True)
class Heard:
    """Messages of one topic."""

    topic: str
    count: int = 0
    """Messages that were not retained."""
    retained: int = 0
    total_bytes: int = 0
    first: float = math.nan
    last: float = math.nan
    kept: list[Captured] = field(default_factory=list)
    kept_bytes: int = 0

    @property
    def rate_hz(self) -> float:
        """Messages per second between the first and the last; NaN where that cannot be told."""
        span = self.last - self.first
        return (self.count - 1) / span if self.count > 1 and span > 0 else math.nan

    @property
    def live(self) -> list[Captured]:
        """Messages kept that were not retained; all of them where there are no others."""
        return [message for message in self.kept if not message.retained] or self.kept


class Capture:
    """Messages heard, in bounded memory.

    Args:
        messages: messages to begin with.

    Attributes:
        topics: by name, in order of appearance; at most `MAX_TOPICS`.
        count: of all messages.
        listened_s: seconds of listening; NaN where the messages were not heard live.
    """

    def __init__(self, messages: Iterable[Captured] = ()) -> None:
        self.topics: dict[str, Heard] = {}
        self.count = 0
        self.listened_s = math.nan
        self._bytes = 0
        self._strangers = bytearray(_BITS // 8)
        for message in messages:
            self.add(message)

    def add(self, message: Captured) -> None:
        """Keep one message, or count it."""
        self.count += 1
        heard = self.topics.get(message.topic)
        if heard is None:
            if len(self.topics) >= MAX_TOPICS:
                bit = hash(message.topic) % _BITS
                self._strangers[bit >> 3] |= 1 << (bit & 7)
                return
            heard = self.topics[message.topic] = Heard(message.topic)
        heard.total_bytes += len(message.payload)
        if len(message.payload) > MAX_PAYLOAD:  # its start and its length still tell what it is
            message = message._replace(payload=message.payload[: MAX_PAYLOAD + 1])
        size = len(message.payload)
        if message.retained:
            heard.retained += 1
        else:
            heard.count += 1
            heard.last = message.received
            if heard.count == 1:
                heard.first = message.received
        if (
            len(heard.kept) < PER_TOPIC
            and (not heard.kept or heard.kept_bytes + size <= TOPIC_BYTES)
            and self._bytes + size <= MAX_BYTES
        ):
            heard.kept.append(message)
            heard.kept_bytes += size
            self._bytes += size

    @property
    def more_topics(self) -> int:
        """Number of topics beyond those kept, estimated: within one percent up to some millions.

        Linear counting (Whang et al. 1990, "A Linear-Time Probabilistic Counting Algorithm", ACM TODS 15(2)).
        """
        ones = int.from_bytes(self._strangers, "little").bit_count()
        return round(-_BITS * math.log1p(-min(ones, _BITS - 1) / _BITS))

    @property
    def seconds(self) -> float:
        """Seconds of listening, else from the first to the last arrival; NaN where no time of arrival is known."""
        if not math.isnan(self.listened_s):
            return self.listened_s
        known = [heard for heard in self.topics.values() if not math.isnan(heard.first)]
        return max(heard.last for heard in known) - min(heard.first for heard in known) if known else math.nan

    def messages(self) -> list[Captured]:
        """All messages kept, in order of arrival; without times of arrival, topic after topic."""
        kept = [message for heard in self.topics.values() for message in heard.kept]
        return sorted(kept, key=lambda message: -math.inf if math.isnan(message.received) else message.received)
