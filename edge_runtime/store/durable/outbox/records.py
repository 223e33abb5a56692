"""Records of the outbox: what goes in and what comes out. Plain data; `outbox` does the work."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, NamedTuple

LAST_PRIORITY = 9

TRUSTED_ATTEMPTS = 3
"""Failures after which a case may itself be their cause: it gives way to the others, and is asked alone."""


@dataclass(slots=True)
class HardCase:
    """One case for the cloud. The outbox does not look into `body`, and into `meta` for the digest alone."""

    id: str
    """The prediction's id. A second case with it is the same, unless the ``digest`` in the meta of both differs."""
    key: str
    created: float
    """Wall clock, for people and for the deadline; the outbox orders by acceptance instead."""
    deadline_s: float
    """Seconds after `created` from which the answer counts as late; the case is sent all the same."""
    priority: int
    """0 goes first, 9 last."""
    value: float
    """Worth of an answer; ``drop_least_valuable`` drops the smallest of the last priority first."""
    body: bytes
    meta: bytes
    attempts: int = 0
    """Failed attempts so far; filled by `Outbox.lease`, ignored by `Outbox.put`."""


DELIVERED: Final = "delivered"
"""The `Closing.reason` of a case that was answered."""


class Closing(NamedTuple):
    """End of a case, as its consumers are told of it."""

    seq: int
    """Order in which cases were closed."""
    id: str
    key: str
    created: float
    """Of the case."""
    reason: str
    """`DELIVERED`, or why there is no answer: ``expired``, ``evicted``, ``damaged``, ``discarded``, or the reason of a
    dead letter."""
    meta: bytes
    """Of the case, or the answer as it was published if it was delivered; empty where it could not be read."""


@dataclass(slots=True)
class PutResult:
    """Outcome of one `Outbox.put`."""

    accepted: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    """Ids that were in the outbox already: durable too, not counted again."""
    repeated: list[str] = field(default_factory=list)
    """Ids of cases that have left already, not counted again: their closings are published again."""
    refused: dict[str, str] = field(default_factory=dict)
    """Reason by id: ``full``, ``too_large``, ``invalid``, ``taken`` (by a case with another digest). These were never
    accepted."""
    evicted: list[str] = field(default_factory=list)
    """Queued cases that were dropped to make room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxCounts:
    """The ledger, and levels."""

    accepted: int
    delivered: int
    queued: int
    """Neither ended nor dead; cases in flight included."""
    dead: int
    dropped: dict[str, int]
    """Accepted and then dropped, by reason: evicted, expired, damaged, discarded, dead_letters_full."""
    in_flight: int
    refused: dict[str, int]
    """Not accepted, by reason, since this object was made."""
    duplicates: int
    """Since this object was made."""
    repeated: int
    """Cases that were offered again under an id that was accepted before; over all runs, not part of `accepted`."""
    unpublished: int
    """Closings that the sinks do not have yet."""
    used_bytes: int
    """Pages that hold something; the file itself does not shrink below the most it ever held."""
    oldest_age_s: float
    """Powered seconds that the oldest queued case has waited; 0 when there is none."""

    def balances(self) -> bool:
        """Return whether nothing has vanished: accepted = delivered + queued + dropped + dead."""
        return self.accepted == self.delivered + self.queued + sum(self.dropped.values()) + self.dead


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A case that is kept for a person to look at."""

    case: HardCase
    reason: str
    """Short word, for example ``rejected`` or ``attempts``."""
    detail: str
    buried: float
    """Wall clock."""
