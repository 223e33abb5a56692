from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from edge_runtime.clock import SimulatedClock
from edge_runtime.store.durable.outbox import HardCase, Outbox, OutboxConfig, WhenFull
from tests.edge_runtime.store.durable.outbox.outboxes import (
    EVERYTHING,
    case,
    check_size,
    crash_image,
    drain,
    ids,
    make,
    names,
    without_flushing,
)


def test_crashes_one_after_the_other_do_not_lengthen_the_log(tmp_path: Path, clock: SimulatedClock) -> None:
    """Mutation that this finds: no `fold_log` at opening. Each crash then left the log a transaction longer."""
    limits: dict[str, Any] = {"max_bytes": 256 * 1024, "when_full": "drop_oldest"}
    folder = tmp_path / "first"
    folder.mkdir()
    for life in range(12):
        with make(folder, clock, **limits) as outbox:
            assert len(outbox.put([case(10 * life + i, size=20_000) for i in range(3)]).accepted) == 3
            check_size(OutboxConfig(path=folder / "outbox.db", **limits))
            folder = crash_image(folder, tmp_path / f"life-{life}")
    with make(folder, clock, **limits) as outbox:
        assert outbox.counts().balances()
        assert ids(drain(outbox))[-3:] == [110, 111, 112]


@pytest.mark.slow
@pytest.mark.parametrize("policy", ["reject", "drop_oldest", "drop_least_valuable"])
def test_nothing_vanishes_and_the_file_keeps_its_limit(tmp_path: Path, clock: SimulatedClock, policy: WhenFull) -> None:
    rng = random.Random(11)
    config = OutboxConfig(path=tmp_path / "outbox.db", max_bytes=2**20, when_full=policy, max_dead_bytes=90_000)
    bodies = [rng.randbytes(size) for size in (0, 10, 300, 300, 1_200, 1_200, 1_200, 6_000, 40_000)]
    offered = accepted = refused = evicted = 0
    with Outbox(config, clock, connect=without_flushing) as outbox:
        while offered < 20_000:
            group = [
                HardCase(f"k@{offered + i}", "k", 0.0, 1.0, rng.randrange(2), rng.random(), rng.choice(bodies), b"{}")
                for i in range(rng.choice((1, 32, 120, 300)))
            ]
            offered += len(group)
            result = outbox.put(group)
            accepted += len(result.accepted)
            refused += len(result.refused)
            evicted += len(result.evicted)
            taken = [one.id for one in outbox.lease(rng.randrange(300), EVERYTHING)]
            rng.shuffle(taken)
            part = len(taken) // 4
            outbox.ack(taken[: 2 * part])
            outbox.retry(taken[2 * part : 3 * part], rng.choice((0, 5)), "again")
            outbox.move_to_dead_letters(taken[3 * part : 3 * part + 3], "rejected", "no")
            outbox.release(taken)
            clock.advance(1)
            check_size(config)
        counts = outbox.counts()
        assert offered == accepted + refused
        assert (counts.accepted, counts.dropped["evicted"]) == (accepted, evicted)
        assert counts.balances()
        assert counts.dead > 0
        assert counts.dropped["dead_letters_full"] > 0
        assert (counts.refused.get("full", 0) if policy == "reject" else evicted) > 1_000, "the limit was never met"
    with Outbox(config, clock) as outbox:  # opening counts the rows and compares them with the ledger
        assert outbox.damage == []
        clock.advance(10)
        assert len(drain(outbox)) == counts.queued


def test_drop_least_valuable_drops_audits_first_and_refuses_what_is_worth_less(
    tmp_path: Path, clock: SimulatedClock
) -> None:
    with make(tmp_path, clock, max_bytes=256 * 1024, when_full="drop_least_valuable") as outbox:
        outbox.put([case(1, priority=1, value=0.9, size=5_000), case(2, priority=0, value=0.1, size=5_000)])
        outbox.put([case(3, priority=0, value=0.7, size=5_000), case(4, priority=0, value=0.4, size=5_000)])
        more = 100
        while not (result := outbox.put([case(more, priority=0, value=0.5, size=5_000)])).evicted:
            assert not result.refused
            more += 1
        assert result.evicted == names(1)
        assert outbox.put([case(more + 1, priority=0, value=0.5, size=5_000)]).evicted == names(2)
        assert outbox.put([case(more + 2, priority=0, value=0.45, size=5_000)]).evicted == names(4)
        assert outbox.put([case(more + 3, priority=0, value=0.3, size=5_000)]).refused == {f"watch@{more + 3}": "full"}
        assert outbox.put([case(more + 4, priority=1, value=1.0, size=5_000)]).refused == {f"watch@{more + 4}": "full"}


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (case(1, size=70_000), "too_large"),
        (case(1, value=float("nan")), "invalid"),
        (case(1, priority=10), "invalid"),
        (case(1, priority=-1), "invalid"),
        (HardCase("", "k", 0, 0, 0, 0, b"", b""), "invalid"),
        (HardCase("i" * 513, "k", 0, 0, 0, 0, b"", b""), "invalid"),
        (HardCase("id", "\ud800", 0, 0, 0, 0, b"", b""), "invalid"),
        (HardCase("id", "k", float("inf"), 0, 0, 0, b"", b""), "invalid"),
    ],
)
def test_a_case_that_cannot_be_stored_is_refused_without_its_neighbours(
    tmp_path: Path, clock: SimulatedClock, bad: HardCase, reason: str
) -> None:
    with make(tmp_path, clock, max_bytes=256 * 1024) as outbox:
        result = outbox.put([case(7), bad, case(8)])
        assert result.accepted == names(7, 8)
        assert result.refused == {bad.id: reason}
        assert outbox.counts().refused == {reason: 1}


def test_limits_that_cannot_work_are_refused(tmp_path: Path) -> None:
    for wrong in (
        {"max_bytes": 1000},
        {"max_age_s": 0},
        {"max_age_s": float("inf")},
        {"when_full": "drop"},
        {"live_share": 1.0},
        {"max_attempts": -1},
        {"max_dead_bytes": -1},
        {"max_case_bytes": 0},
    ):
        with pytest.raises(ValueError, match="outbox"):
            OutboxConfig(path=tmp_path, **wrong)
