from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from edge_runtime.clock import SimulatedClock
from edge_runtime.store.durable.outbox import HardCase
from tests.edge_runtime.store.durable.outbox.outboxes import (
    EVERYTHING,
    case,
    cases,
    crash_image,
    drain,
    ids,
    make,
    names,
)


def test_accepted_cases_survive_a_crash(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(1, 2, 3))
        crashed = crash_image(tmp_path, tmp_path / "after")
    with make(crashed, clock) as outbox:
        assert ids(drain(outbox)) == [1, 2, 3]
        assert outbox.damage == []


def digested(number: int, digest: int | None) -> HardCase:
    return replace(case(number), meta=b"{}" if digest is None else b'{"hard":true,"digest":%d}' % digest)


@pytest.mark.parametrize("stage", ["queued", "in flight", "dead", "answered"])
@pytest.mark.parametrize("policy", ["reject", "drop_oldest"])
def test_another_digest_is_another_case_and_gets_no_answer_of_the_first(
    tmp_path: Path, clock: SimulatedClock, stage: str, policy: str
) -> None:
    with make(tmp_path, clock, when_full=policy) as outbox:
        outbox.put([digested(1, 7)])
        if stage != "queued":
            outbox.lease(1, EVERYTHING)
        if stage == "dead":
            outbox.move_to_dead_letters(names(1), "rejected", "no")
        elif stage == "answered":
            outbox.ack(names(1), {"watch@1": b'{"id":"watch@1"}'})
        crashed = crash_image(tmp_path, tmp_path / "after")
    with make(crashed, clock, when_full=policy) as outbox:
        assert ("watch@1", 7) in outbox.claims()
        unpublished = outbox.unpublished
        result = outbox.put([digested(1, 8), digested(2, 8)])
        assert (result.refused, result.accepted) == ({"watch@1": "taken"}, names(2))
        assert not result.duplicates
        assert not result.repeated
        assert outbox.unpublished == unpublished
        assert outbox.counts().repeated == 0
        for digest in (7, None):  # the same window, and one of an earlier release
            again = outbox.put([digested(1, digest)])
            assert names(1) == again.duplicates + again.repeated
            assert not again.refused


def test_an_id_that_is_queued_in_flight_or_dead_is_the_same_case(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(1, 2, 3))
        outbox.lease(2, EVERYTHING)
        outbox.move_to_dead_letters(names(1), "rejected", "no")
        again = outbox.put([*cases(1, 2, 3), case(4), case(4)])
        assert again.accepted == names(4)
        assert again.duplicates == names(2, 3, 4)
        assert again.repeated == names(1), "how it ended is said again"
        counts = outbox.counts()
        assert (counts.accepted, counts.duplicates, counts.repeated) == (4, 3, 4)
        outbox.ack(names(2))
        assert outbox.put(cases(2)).repeated == names(2)
        assert outbox.counts().balances()
    with make(tmp_path, clock) as outbox:  # and after a restart
        assert outbox.put(cases(2)).repeated == names(2)
        assert (outbox.counts().accepted, outbox.counts().repeated) == (4, 6)


def test_a_case_that_comes_again_is_told_how_it_ended_and_is_not_counted_twice(
    tmp_path: Path, clock: SimulatedClock
) -> None:
    """Mutation that this finds: forgetting a case when it is delivered."""
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(1, 2, 3))
        outbox.lease(3, EVERYTHING)
        outbox.ack(names(1, 2), {"watch@1": b"the answer"})
        outbox.move_to_dead_letters(names(3), "rejected", "no")
        assert [(one.id, one.reason, one.meta) for one in outbox.closings(9)] == [("watch@3", "rejected", b"{}")]
        outbox.published([one.seq for one in outbox.closings(9)])
        assert outbox.closings(9) == []
    with make(tmp_path, clock) as outbox:
        assert outbox.put(cases(1, 2, 3, 4)).repeated == names(1, 2, 3)
        told = [(one.id, one.reason, one.meta) for one in outbox.closings(9)]
        assert told == [("watch@1", "delivered", b"the answer"), ("watch@3", "rejected", b"{}")]
        counts = outbox.counts()
        assert (counts.accepted, counts.delivered, counts.dead, counts.queued) == (4, 2, 1, 1)


def test_every_case_that_leaves_without_an_answer_is_closed_once_and_survives_a_crash(
    tmp_path: Path, clock: SimulatedClock
) -> None:
    """Mutation that this finds: a closing that is written in a transaction of its own."""
    with make(tmp_path, clock, max_age_s=10.0, max_attempts=1) as outbox:
        outbox.put(cases(1, 2))
        outbox.lease(1, EVERYTHING)
        outbox.retry(names(1), 0.0, "no answer")
        clock.advance(20.0)
        assert outbox.lease(9, EVERYTHING) == []
        outbox.discard(names(1))
        crashed = crash_image(tmp_path, tmp_path / "crashed")
    with make(crashed, clock) as outbox:
        assert [(one.id, one.reason, one.key) for one in outbox.closings(9)] == [
            ("watch@1", "attempts", "watch"),
            ("watch@2", "expired", "watch"),
        ]
        assert outbox.counts().unpublished == 2


def test_as_many_endings_are_remembered_as_stated_and_those_unpublished_are_never_forgotten(
    tmp_path: Path, clock: SimulatedClock
) -> None:
    with make(tmp_path, clock, max_bytes=256 * 1024) as outbox:
        outbox.put(cases(0))
        outbox.lease(1, EVERYTHING)
        outbox.move_to_dead_letters(names(0), "rejected", "no")
        for number in range(1, 200):
            outbox.put([case(number, size=40)])
            assert outbox.ack(one.id for one in outbox.lease(1, EVERYTHING)) == 1
        assert [one.id for one in outbox.closings(9)] == names(0)
        outbox.published([1])
        again = outbox.put([case(number, size=40) for number in range(1, 200)])
        assert len(again.repeated) == 64
        assert again.repeated[-1] == "watch@199"


def test_too_many_attempts_make_a_dead_letter(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock, max_attempts=2) as outbox:
        outbox.put(cases(1))
        for _ in range(2):
            outbox.lease(1, EVERYTHING)
            outbox.retry(names(1), 0, "timeout")
        (letter,) = outbox.dead_letters()
        assert (letter.case.id, letter.case.attempts, letter.reason, letter.detail) == (
            "watch@1", 2, "attempts", "timeout",
        )  # fmt: skip
        assert outbox.lease(1, EVERYTHING) == []


def test_cases_that_always_fail_take_turns_behind_the_others(tmp_path: Path, clock: SimulatedClock) -> None:
    """Mutation that this finds: order of acceptance alone. Twenty such cases then took every place, again and again."""
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(*range(30)))
        for _ in range(3):
            outbox.retry([one.id for one in outbox.lease(30, EVERYTHING)][:20], 0, "no")
            outbox.release(names(*range(30)))
            clock.advance(1)
        asked: list[int] = []
        for _ in range(6):
            taken = outbox.lease(5, EVERYTHING)
            asked += ids(taken)
            if taken[0].attempts:
                outbox.retry([one.id for one in taken], 0.5, "no")
            else:
                outbox.ack([one.id for one in taken])
            clock.advance(1)
        assert (sorted(asked[:10]), asked[10:]) == ([*range(20, 30)], [*range(20)])


@pytest.mark.parametrize("jump", [-3_600.0, 86_400.0, -1_700_000_000.0, 10 * 365 * 86_400.0])
def test_a_wall_clock_that_jumps_expires_nothing_and_keeps_the_order(
    tmp_path: Path, clock: SimulatedClock, jump: float
) -> None:
    with make(tmp_path, clock, max_age_s=1_000) as outbox:
        outbox.put(cases(1))
        clock.jump(jump)
        outbox.put(cases(2))
        clock.advance(5)
        assert outbox.counts().oldest_age_s == 5
        assert ids(outbox.lease(9, EVERYTHING)) == [1, 2]


@pytest.mark.parametrize("wall", [0.0, 1_700_000_000.0 - 3_600, 1_700_000_000.0 + 86_400])
def test_a_boot_at_another_time_expires_nothing_early_and_ages_go_on(
    tmp_path: Path, clock: SimulatedClock, wall: float
) -> None:
    clock.advance(50_000)  # uptime of the first boot; the second starts at zero
    with make(tmp_path, clock, max_age_s=1_000) as outbox:
        outbox.put(cases(1))
        clock.advance(600)
        outbox.put(cases(2))
    rebooted = SimulatedClock(wall=wall)
    with make(tmp_path, rebooted, max_age_s=1_000) as outbox:
        assert outbox.counts().oldest_age_s == 600
        rebooted.advance(300)
        outbox.put(cases(3))
        assert outbox.counts().queued == 3
        rebooted.advance(200)
        assert ids(outbox.lease(9, EVERYTHING)) == [2, 3]


def test_an_idle_outbox_remembers_how_much_time_has_passed(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(1))
        outbox.lease(1, EVERYTHING)
        for _ in range(100):
            clock.advance(60)
            outbox.lease(1, EVERYTHING)
        crashed = crash_image(tmp_path, tmp_path / "after")
    with make(crashed, SimulatedClock()) as outbox:
        assert outbox.counts().oldest_age_s >= 6_000 - 660


def test_dead_letters_can_be_listed_shown_requeued_and_discarded(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock, live_share=0) as outbox:
        outbox.put(cases(*range(50)))
        outbox.move_to_dead_letters(
            [one.id for one in outbox.lease(40, EVERYTHING)], "rejected", "400 Bad\nRequest " + "x" * 900
        )
    with make(tmp_path, clock) as outbox:
        letters = list(outbox.dead_letters())
        assert len(letters) == 40
        shown = outbox.dead_letter("watch@3")
        assert shown is not None
        assert shown.case == case(3)
        assert shown.reason == "rejected"
        assert shown.detail.startswith("400 Bad Request x")
        assert len(shown.detail) == 500
        assert shown.buried == clock.wall()
        assert outbox.dead_letter("watch@49") is outbox.dead_letter("nobody") is None
        assert outbox.discard(names(0, 1, 99)) == 2
        assert outbox.requeue([*names(3, 4), "nobody"]) == 2
        counts = outbox.counts()
        assert (counts.accepted, counts.dead, counts.queued, counts.dropped["discarded"]) == (50, 36, 12, 2)
        assert counts.balances()
        assert ids(drain(outbox)) == [*range(40, 50), 3, 4]  # the newest now


def test_state_survives_and_is_bounded(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock) as outbox:
        assert outbox.get_state("budget") is None
        outbox.put_state("budget", b"1")
        outbox.put_state("budget", b"2")
        with pytest.raises(ValueError, match="4096"):
            outbox.put_state("budget", bytes(5_000))
    with make(tmp_path, clock) as outbox:
        assert outbox.get_state("budget") == b"2"
