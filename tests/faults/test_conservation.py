"""R5: offers without end to an outbox at its limit. accepted = delivered + queued + dropped + dead, exactly, always.

The oracle counts by itself what became of each offer, and compares; the file stays below its limit.

A million offers are for the long tier; every push makes 50,000 to each policy.

Mutations that were seen to fail here: not counting an eviction (``draft.evicted += 1`` in `Outbox._make_room`);
counting a duplicate as accepted (``draft.accepted += len(cases)`` in `rows.insert`).
"""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from edge_runtime.clock import SimulatedClock
from edge_runtime.store.durable.outbox import HardCase, Outbox, OutboxConfig, WhenFull
from tests.edge_runtime.store.durable.outbox.outboxes import check_size, without_flushing
from tests.faults.conftest import Note
from tests.faults.oracle import missing
from tests.long_tier import Tier

SIZES = (40, 200, 200, 600, 1_200, 4_000)
EVERYTHING = 2**30


class Shadow:
    """What must be in the outbox, by the answers that it gave."""

    def __init__(self) -> None:
        self.inside: set[str] = set()
        self.said: Counter[str] = Counter()

    def leave(self, ids: set[str], why: str) -> None:
        assert ids <= self.inside, f"{why}: {sorted(ids - self.inside)[:3]} were not there"
        self.inside -= ids
        self.said[why] += len(ids)


@pytest.mark.parametrize("policy", ["reject", "drop_oldest", "drop_least_valuable"])
def test_every_offer_is_accounted_for(
    memory: Path, rng: random.Random, tier: Tier, note: Note, policy: WhenFull
) -> None:
    offers = tier(50_000, 1_000_000)
    config = OutboxConfig(
        path=memory / "outbox.db", max_bytes=2**20, when_full=policy, max_dead_bytes=64 * 1024, live_share=0.0
    )
    noise = rng.randbytes(2**16)
    shadow = Shadow()
    clock = SimulatedClock()
    outbox = Outbox(config, clock, without_flushing)
    number = largest = 0
    while number < offers:
        group = []
        for _ in range(rng.choice((1, 8, 32, 64))):
            number += 1
            again = max(1, number - rng.randrange(1, 500)) if rng.random() < 0.03 else number
            id_ = f"k{again % 16}@{again}"
            size, at = rng.choice(SIZES), rng.randrange(2**15)
            group.append(HardCase(id_, "k", 0.0, 60.0, rng.randrange(2), rng.random(), noise[at : at + size], b"{}"))
        distinct = {case.id: case for case in group}
        result = outbox.put(list(distinct.values()))
        said = (result.accepted, result.duplicates, result.repeated, result.refused)
        assert sum(map(len, said)) == len(distinct)
        shadow.said["repeated"] += len(result.repeated) + len(result.duplicates)
        shadow.leave(set(result.evicted), "evicted")
        # One that is accepted though it was thought to be inside was dropped with the oldest dead letters meanwhile.
        shadow.said["dead_letters_full"] += len(shadow.inside & set(result.accepted))
        shadow.inside |= set(result.accepted)
        shadow.said["accepted"] += len(result.accepted)
        if rng.random() < 0.3:
            settle(outbox, shadow, rng)
            outbox.published([one.seq for one in outbox.closings(200)])
        clock.advance(0.05)
        if rng.random() < 0.02:
            counts = outbox.counts()
            assert missing(counts) == 0, counts
            assert (counts.accepted, counts.repeated) == (shadow.said["accepted"], shadow.said["repeated"])
            check_size(config)
            largest = max(largest, config.path.stat().st_size)
        if rng.random() < 0.002:
            outbox.close()
            outbox = Outbox(config, clock, without_flushing)
    clock.advance(60.0)  # whatever waits for another try is due
    counts = outbox.counts()
    left = {case.id for case in outbox.lease(100_000, EVERYTHING)} | {one.case.id for one in outbox.dead_letters()}
    outbox.close()
    assert missing(counts) == 0
    assert (counts.accepted, counts.delivered) == (shadow.said["accepted"], shadow.said["delivered"])
    assert counts.dropped["evicted"] == shadow.said["evicted"]
    assert left <= shadow.inside
    gone = shadow.said["dead_letters_full"] + len(shadow.inside - left)
    assert counts.dropped["dead_letters_full"] == gone  # the one reason whose ids the outbox does not name
    assert policy != "reject" or not shadow.said["evicted"]
    note(
        "R5",
        f"{policy}: {number:,} offers, {counts.accepted:,} accepted = {counts.delivered:,} delivered + "
        f"{counts.queued:,} queued + {sum(counts.dropped.values()):,} dropped + {counts.dead:,} dead; "
        f"file at most {largest:,} bytes",
    )


def settle(outbox: Outbox, shadow: Shadow, rng: random.Random) -> None:
    """Some leave: most delivered, some later, some never."""
    ids = [case.id for case in outbox.lease(rng.choice((4, 32)), EVERYTHING)]
    rng.shuffle(ids)
    buried, later, rest = ids[:1], ids[1:3], ids[3:]
    outbox.move_to_dead_letters(buried, "rejected", "no")
    outbox.retry(later, 1.0, "no answer")
    outbox.ack(rest)
    shadow.leave(set(rest), "delivered")
