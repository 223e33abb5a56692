"""The oracle: what went in, what was promised, what came out; and whether the books balance.

The sets are those of Jepsen's queue checker (``jepsen.checker/total-queue``), the law is the runtime's own promise. The
oracle believes nobody: it counts ids itself, compares bodies by digest, and adds the ledger up again.
"""

from __future__ import annotations

import hashlib
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, fields

from edge_runtime.store.durable.outbox import OutboxCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Jepsen's seven sets, each with how often."""

    attempts: Counter[str]
    """Somebody tried to put these in."""
    acknowledged: Counter[str]
    """The system under test said that these are safe."""
    ok: Counter[str]
    """Came out, and had been put in."""
    lost: Counter[str]
    """Acknowledged, and neither out nor accounted for: **always a defect**."""
    unexpected: Counter[str]
    """Came out, and never went in, or with another body: **always a defect**."""
    duplicated: Counter[str]
    """Came out more often than they went in: a repeat with the same id, allowed at least once, bounded by the test."""
    recovered: Counter[str]
    """Came out though nobody had acknowledged them: a crash between commit and acknowledgement."""

    @property
    def valid(self) -> bool:
        """Nothing acknowledged was lost, and nothing was made up."""
        return not self.lost and not self.unexpected

    def __str__(self) -> str:
        counted = ", ".join(f"{getattr(self, one.name).total()} {one.name}" for one in fields(self))
        return f"{counted}; lost {sorted(self.lost)[:5]}, unexpected {sorted(self.unexpected)[:5]}"


class History:
    """What the producer and the consumer have seen. Used by several threads, and never killed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._bodies: dict[str, bytes] = {}
        self._attempts: Counter[str] = Counter()
        self._acknowledged: Counter[str] = Counter()
        self._delivered: Counter[str] = Counter()

    def attempt(self, id_: str, body: bytes) -> None:
        """Somebody is about to put this in. Doing it again (a retransmission) is the same attempt."""
        with self._lock:
            self._bodies[id_] = _digest(body)
            self._attempts[id_] = 1

    def acknowledge(self, id_: str) -> None:
        """It is safe, says the system under test."""
        with self._lock:
            self._acknowledged[id_] = 1

    def deliver(self, id_: str, body: bytes) -> None:
        """It came out."""
        with self._lock:
            right = self._bodies.get(id_) in {None, _digest(body)}
            self._delivered[id_ if right else f"{id_} with another body"] += 1

    @property
    def acknowledged(self) -> set[str]:
        with self._lock:
            return set(self._acknowledged)

    @property
    def delivered(self) -> set[str]:
        with self._lock:
            return set(self._delivered)

    def verdict(self, elsewhere: Iterable[str] = ()) -> Verdict:
        """Judge.

        Args:
            elsewhere: ids that are accounted for without having come out: queued, dropped by a policy, dead letters.
        """
        with self._lock:
            attempts, acknowledged, out = +self._attempts, +self._acknowledged, +self._delivered
        ok = out & attempts
        unexpected = Counter({id_: n for id_, n in out.items() if id_ not in attempts})
        accounted = out | Counter(set(elsewhere))
        return Verdict(
            attempts=attempts,
            acknowledged=acknowledged,
            ok=ok,
            lost=acknowledged - accounted,
            unexpected=unexpected,
            duplicated=out - attempts - unexpected,
            recovered=ok - acknowledged,
        )


def _digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=16).digest()


def missing(counts: OutboxCounts) -> int:
    """How many cases the law misses: accepted - (delivered + queued + dropped + dead). 0, or a defect."""
    return counts.accepted - (counts.delivered + counts.queued + sum(counts.dropped.values()) + counts.dead)
