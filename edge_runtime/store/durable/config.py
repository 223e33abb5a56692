"""Settings of the tables ``[outbox]`` and ``[reading_log]``, and the limits that follow from them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

PAGE_BYTES = 4096
"""Measured best of 4, 8 and 16 KiB for records of 1.2 KB (benchmarks/bench_outbox.py); also what flash erases well."""

CHECKPOINT_PAGES = 1000
"""Most log pages after which SQLite copies the log into the database; fewer for a small outbox."""

GROUP_CASES = 256
GROUP_BYTES = 2**20
"""Limits of one transaction; a longer `put` or `ack` becomes several, which bounds the log."""

WhenFull = Literal["reject", "drop_oldest", "drop_least_valuable"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OutboxConfig:
    """Limits of the outbox: how much is kept, for how long, and what happens at the limit.

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
    """Part of each `Outbox.lease` that goes to the newest cases, so that a backlog does not delay them; 0 for none."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingLogConfig:
    """Settings of the reading log: where readings are written, and how much of them."""

    path: Path
    """A file beside which SQLite keeps its log; its folder must exist."""
    max_bytes: int = 64 * 2**20
    """Most bytes of the file: about twice the windows that all keys have begun, and a megabyte."""
    commit_wait_ms: float = 0.0
    """Milliseconds that a commit waits for further iterations. 0: as long as the commit before it takes. More writes
    less, and lets the broker wait for its acknowledgements."""

    def __post_init__(self) -> None:
        if self.max_bytes < 2**20:
            raise ValueError("reading_log max_bytes must be at least 1048576 (1 MiB)")
        if not 0 <= self.commit_wait_ms <= 1000:
            raise ValueError("reading_log commit_wait_ms must be 0 to 1,000")
