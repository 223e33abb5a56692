"""What goes into the outbox, what comes out of it, and its limits. Plain data; `outbox` does the work."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal, NamedTuple

from edge_runtime.durable.outbox.schema import CHECKPOINT_PAGES, PAGE_BYTES

WhenFull = Literal["reject", "drop_oldest", "drop_least_valuable"]

GROUP_CASES = 256
GROUP_BYTES = 2**20
"""What one transaction may hold; a longer `put` or settlement becomes several, which bounds the log."""

LAST_PRIORITY = 9


TRUSTED_ATTEMPTS = 3
"""After so many failures a case may itself be their cause: it gives way to the others, and is asked alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxConfig:
    """How much to keep, for how long, and what to do at the limit.

    Raises:
        ValueError: a limit that cannot work.
    """

    path: Path
    """The database file; its folder must exist."""
    max_bytes: int = 256 * 2**20
    """The file never exceeds this; at least 256 KiB. The log beside it has a limit of its own, `log_limit`."""
    max_age_s: float = 7 * 86400.0
    """Powered seconds after which a queued case is dropped as ``expired``."""
    when_full: WhenFull = "reject"
    """``reject`` refuses new cases; ``drop_oldest`` and ``drop_least_valuable`` drop queued ones as ``evicted``."""
    live_share: float = 0.25
    """Part of each `Outbox.take` that goes to the newest cases, so that a backlog does not delay them; 0 for none."""
    max_attempts: int = 0
    """Failed attempts after which a case becomes a dead letter; 0 never."""
    max_dead_bytes: int = 16 * 2**20
    """Dead letters kept, in bytes of their bodies; the oldest beyond are dropped as ``dead_letters_full``."""
    max_case_bytes: int = 2**20
    """A case whose body and meta are larger is refused as ``too_large``; never above a quarter of `max_bytes`."""

    def __post_init__(self) -> None:
        if self.max_bytes < 256 * 1024:
            raise ValueError("outbox max_bytes must be at least 262144 (256 KiB)")
        if not 0 < self.max_age_s < math.inf:
            raise ValueError("outbox max_age_s must be above 0 and finite")
        if self.when_full not in {"reject", "drop_oldest", "drop_least_valuable"}:
            raise ValueError("outbox when_full must be reject, drop_oldest or drop_least_valuable")
        if not 0 <= self.live_share < 1:
            raise ValueError("outbox live_share must be at least 0 and below 1")
        if self.max_attempts < 0 or self.max_dead_bytes < 0 or self.max_case_bytes < 1:
            raise ValueError("outbox max_attempts and max_dead_bytes must not be negative, max_case_bytes at least 1")

    @property
    def case_limit(self) -> int:
        """Bytes of body and meta that one case may have."""
        return min(self.max_case_bytes, self.max_bytes // 4)

    @property
    def remembered(self) -> int:
        """Closings kept for repeats: 4,096, fewer in a small outbox (some 400 bytes each, a tenth of the file)."""
        return min(4096, self.max_bytes // PAGE_BYTES)

    @property
    def checkpoint_pages(self) -> int:
        """Log pages after which SQLite copies the log into the database."""
        return min(CHECKPOINT_PAGES, self.max_bytes // 4 // PAGE_BYTES)

    @property
    def log_limit(self) -> int:
        """Bytes that the log beside the database stays below: one checkpoint's worth and one transaction.

        A transaction holds its bodies twice (written, and the ones evicted for them) and touches at most four pages
        for each case (its own, two indexes, the free list); no transaction touches more pages than there are.
        """
        transaction = 2 * max(GROUP_BYTES, self.case_limit) + 4 * GROUP_CASES * PAGE_BYTES
        pages = self.checkpoint_pages + 1 + min(transaction, self.max_bytes) // PAGE_BYTES
        return 32 + pages * (24 + PAGE_BYTES)  # https://www.sqlite.org/fileformat.html section 4.1: header, frames


@dataclass(slots=True)
class HardCase:
    """One case for the cloud. The outbox does not look into `body` and `meta`."""

    id: str
    """The prediction's id. A second case with an id that is still in the outbox is the same case."""
    key: str
    created: float
    """Wall clock, for people and for the deadline; the outbox orders by acceptance instead."""
    deadline_s: float
    """Seconds after `created` from which the answer counts as late; the case is sent all the same."""
    priority: int
    """0 goes first, 9 last."""
    value: float
    """How much an answer is worth; ``drop_least_valuable`` drops the smallest of the last priority first."""
    body: bytes
    meta: bytes
    attempts: int = 0
    """Failed attempts so far; filled by `Outbox.take`, ignored by `Outbox.put`."""


DELIVERED: Final = "delivered"
"""The `Closing.reason` of a case that was answered."""


class Closing(NamedTuple):
    """How a case ended: what its consumers are told of it."""

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
    """What became of the cases of one `Outbox.put`."""

    accepted: list[str] = field(default_factory=list)
    duplicates: list[str] = field(default_factory=list)
    """Ids that were in the outbox already: durable too, not counted again."""
    repeated: list[str] = field(default_factory=list)
    """Ids of cases that have left already, not counted again: their closings are published again."""
    refused: dict[str, str] = field(default_factory=dict)
    """Reason by id: ``full``, ``too_large``, ``invalid``. These were never accepted."""
    evicted: list[str] = field(default_factory=list)
    """Queued cases that were dropped to make room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """The ledger, and levels."""

    accepted: int
    delivered: int
    queued: int
    """Neither settled nor dead; cases in flight included."""
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
        """Whether nothing has vanished: accepted = delivered + queued + dropped + dead."""
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
