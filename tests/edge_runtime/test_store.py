from __future__ import annotations

import os
import random
import sqlite3
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pytest

from edge_runtime.clock import SimulatedClock
from edge_runtime.errors import StoreCorrupt, StoreError, StoreFull
from edge_runtime.store import Damage, HardCase, Outbox, OutboxConfig, WhenFull
from edge_runtime.store import opening as store_opening
from edge_runtime.store import schema as store_schema
from edge_runtime.store.schema import Connection, connect_sqlite

EVERYTHING = 2**30


def case(number: int, *, priority: int = 0, value: float = 0.5, size: int = 600) -> HardCase:
    """A case whose body can be told from every other's."""
    body = random.Random(number).randbytes(size)
    return HardCase(f"watch@{number}", "watch", 1_000.0 + number, 30.0, priority, value, body, b"{}")


def cases(*numbers: int) -> list[HardCase]:
    return [case(number) for number in numbers]


def ids(taken: Iterable[HardCase]) -> list[int]:
    return [int(one.id.rpartition("@")[2]) for one in taken]


def names(*numbers: int) -> list[str]:
    return [f"watch@{number}" for number in numbers]


@pytest.fixture
def clock() -> SimulatedClock:
    return SimulatedClock()


def make(folder: Path, clock: SimulatedClock, **limits: Any) -> Outbox:
    return Outbox(OutboxConfig(path=folder / "outbox.db", **limits), clock)


def drain(outbox: Outbox) -> list[HardCase]:
    """Everything that is due, settled as delivered."""
    drained: list[HardCase] = []
    while taken := outbox.take(64, EVERYTHING):
        assert outbox.delivered(one.id for one in taken) == len(taken)
        drained += taken
    return drained


# Accepting and settling -----------------------------------------------------------------------------------------------


def test_what_was_put_comes_out_unchanged_and_in_order(tmp_path: Path, clock: SimulatedClock) -> None:
    given = [case(n, priority=n % 3, value=n / 7, size=n * 500) for n in range(40)]
    with make(tmp_path, clock) as outbox:
        result = outbox.put(given)
        assert result.accepted == [one.id for one in given]
        assert not result.refused
        assert drain(outbox) == sorted(given, key=lambda one: one.priority)
        counts = outbox.counts()
    assert (counts.accepted, counts.delivered, counts.queued) == (40, 40, 0)
    assert counts.balances()


def test_accepted_cases_survive_a_crash(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(1, 2, 3))
        crashed = crash_image(tmp_path, tmp_path / "after")
    with make(crashed, clock) as outbox:
        assert ids(drain(outbox)) == [1, 2, 3]
        assert outbox.damage == []


def crash_image(folder: Path, to: Path) -> Path:
    """What a process killed now would leave behind."""
    to.mkdir()
    for file in folder.glob("outbox.db*"):
        (to / file.name).write_bytes(file.read_bytes())
    return to


def test_an_id_that_is_queued_in_flight_or_dead_is_the_same_case(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(1, 2, 3))
        outbox.take(2, EVERYTHING)
        outbox.bury(names(1), "rejected", "no")
        again = outbox.put([*cases(1, 2, 3), case(4), case(4)])
        assert again.accepted == names(4)
        assert again.duplicates == names(1, 2, 3, 4)
        counts = outbox.counts()
        assert (counts.accepted, counts.duplicates) == (4, 4)
        outbox.delivered(names(2))
        assert outbox.put(cases(2)).accepted == names(2)  # delivered means forgotten: repeats carry the same id
        assert outbox.counts().balances()


def test_two_takers_never_get_the_same_case(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock, live_share=0) as outbox:
        outbox.put(cases(*range(6)))
        assert ids(outbox.take(3, EVERYTHING)) == [0, 1, 2]
        assert ids(outbox.take(9, EVERYTHING)) == [3, 4, 5]
        assert outbox.take(9, EVERYTHING) == []
        assert outbox.counts().in_flight == 6
        assert outbox.release(names(1, 4, 77)) == 2
        assert ids(outbox.take(9, EVERYTHING)) == [1, 4]


def test_leases_end_with_the_process(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(1, 2))
        assert len(outbox.take(2, EVERYTHING)) == 2
    with make(tmp_path, clock) as outbox:
        assert ids(outbox.take(2, EVERYTHING)) == [1, 2]


def test_settling_twice_counts_once_and_strangers_are_ignored(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(1, 2))
        outbox.take(1, EVERYTHING)
        assert outbox.delivered(names(1, 1, 99)) == 1
        assert outbox.delivered(names(1)) == 0
        assert outbox.retry(names(2), 0, "not in flight") == 0
        assert outbox.counts().delivered == 1


def test_a_failed_case_waits_its_delay_on_the_monotonic_clock(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(1))
        outbox.take(1, EVERYTHING)
        outbox.retry(names(1), 10.0, "timeout")
        clock.jump(86_400)
        assert outbox.take(1, EVERYTHING) == []
        clock.advance(9.9)
        assert outbox.take(1, EVERYTHING) == []
        clock.advance(0.2)
        (again,) = outbox.take(1, EVERYTHING)
        assert again.attempts == 1


def test_a_delay_and_the_attempts_survive_a_restart(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(1))
        clock.advance(1_000)
        outbox.take(1, EVERYTHING)
        outbox.retry(names(1), 10.0, "timeout")
    restarted = SimulatedClock(wall=0.0)
    with make(tmp_path, restarted) as outbox:
        assert outbox.take(1, EVERYTHING) == []
        restarted.advance(10.1)
        assert outbox.take(1, EVERYTHING)[0].attempts == 1


def test_too_many_attempts_make_a_dead_letter(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock, max_attempts=2) as outbox:
        outbox.put(cases(1))
        for _ in range(2):
            outbox.take(1, EVERYTHING)
            outbox.retry(names(1), 0, "timeout")
        (letter,) = outbox.dead_letters()
        assert (letter.case.id, letter.case.attempts, letter.reason, letter.detail) == (
            "watch@1", 2, "attempts", "timeout",
        )  # fmt: skip
        assert outbox.take(1, EVERYTHING) == []


# Order ----------------------------------------------------------------------------------------------------------------


def test_a_share_of_each_take_goes_to_the_newest_cases(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock, live_share=0.25) as outbox:
        outbox.put(cases(*range(100)))
        assert ids(outbox.take(8, EVERYTHING)) == [0, 1, 2, 3, 4, 5, 98, 99]
        outbox.put(cases(100))
        assert ids(outbox.take(8, EVERYTHING)) == [6, 7, 8, 9, 10, 11, 97, 100]


def test_a_fresh_case_is_not_delayed_by_a_backlog_of_failed_ones(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(*range(100)))
        outbox.retry([one.id for one in outbox.take(100, EVERYTHING)], 5.0, "cloud away")
        clock.advance(6)
        outbox.put(cases(500))
        assert ids(outbox.take(4, EVERYTHING)) == [0, 1, 2, 500]


def test_an_urgent_case_goes_before_all_others_fresh_or_failed(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock) as outbox:
        outbox.put([case(n, priority=5) for n in range(10)])
        outbox.retry([one.id for one in outbox.take(5, EVERYTHING)], 0, "again")
        outbox.put([case(20, priority=0), case(21, priority=9)])
        assert ids(outbox.take(1, EVERYTHING)) == [20]
        assert ids(outbox.take(100, EVERYTHING))[-1] == 21


def test_bytes_limit_a_take_but_never_block_it(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock) as outbox:
        outbox.put([case(1, size=9_000), *(case(n, size=998) for n in range(2, 12))])
        assert ids(outbox.take(10, 3_000)) == [1]  # larger than the limit: alone
        assert ids(outbox.take(10, 3_000)) == [2, 3, 4]
        assert ids(outbox.take(10, 8_000)) == [5, 6, 7, 8, 9, 10, 11]
        assert outbox.take(0, 8_000) == []


# Limits ---------------------------------------------------------------------------------------------------------------


def check_size(config: OutboxConfig) -> None:
    log = config.path.with_name(config.path.name + "-wal")
    assert config.path.stat().st_size <= config.max_bytes
    assert not log.exists() or log.stat().st_size <= config.log_limit


@pytest.mark.slow
@pytest.mark.parametrize(
    ("policy", "offers"), [("reject", 100_000), ("drop_oldest", 100_000), ("drop_least_valuable", 20_000)]
)
def test_nothing_vanishes_and_the_file_keeps_its_limit(
    tmp_path: Path, clock: SimulatedClock, policy: WhenFull, offers: int
) -> None:
    rng = random.Random(11)
    config = OutboxConfig(path=tmp_path / "outbox.db", max_bytes=2**20, when_full=policy, max_dead_bytes=90_000)
    bodies = [rng.randbytes(size) for size in (0, 10, 300, 300, 1_200, 1_200, 1_200, 6_000, 40_000)]
    offered = accepted = refused = evicted = 0
    with Outbox(config, clock, connect=without_flushing) as outbox:
        while offered < offers:
            group = [
                HardCase(f"k@{offered + i}", "k", 0.0, 1.0, rng.randrange(2), rng.random(), rng.choice(bodies), b"{}")
                for i in range(rng.choice((1, 32, 120, 300)))
            ]
            offered += len(group)
            result = outbox.put(group)
            accepted += len(result.accepted)
            refused += len(result.refused)
            evicted += len(result.evicted)
            taken = [one.id for one in outbox.take(rng.randrange(300), EVERYTHING)]
            rng.shuffle(taken)
            part = len(taken) // 4
            outbox.delivered(taken[: 2 * part])
            outbox.retry(taken[2 * part : 3 * part], rng.choice((0, 5)), "again")
            outbox.bury(taken[3 * part : 3 * part + 3], "rejected", "no")
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


def without_flushing(path: Path) -> Connection:
    """The same database without the waiting: these tests do not cut the power."""
    return Rewritten(connect_sqlite(path), {"PRAGMA synchronous = FULL": "PRAGMA synchronous = OFF"})


class Rewritten:
    """A connection that runs other statements than it was given."""

    def __init__(self, db: Connection, instead: dict[str, str]) -> None:
        self._db = db
        self._instead = instead

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Any:
        return self._db.execute(self._instead.get(sql, sql), parameters)

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> Any:
        return self._db.executemany(sql, parameters)

    def close(self) -> None:
        self._db.close()


def fill(outbox: Outbox, **kind: Any) -> list[int]:
    """Put cases one by one until the outbox no longer simply accepts them."""
    numbers: list[int] = []
    while True:
        result = outbox.put([case(len(numbers), **kind)])
        if result.refused or result.evicted:
            return numbers
        numbers.append(len(numbers))


def test_reject_refuses_new_cases_and_keeps_the_old(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock, max_bytes=256 * 1024) as outbox:
        kept = fill(outbox, size=1_200)
        assert len(kept) > 50
        assert outbox.put([case(9_999, size=1_200)]).refused == {"watch@9999": "full"}
        assert outbox.put(cases(0)).duplicates == names(0)  # full or not, it is there already
        assert sorted(ids(drain(outbox))) == kept
        assert outbox.put(cases(9_999)).accepted == names(9_999)


def test_drop_oldest_makes_room_but_never_takes_a_case_in_flight(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock, max_bytes=256 * 1024, when_full="drop_oldest", live_share=0) as outbox:
        fill(outbox, size=1_200)
        flying = ids(outbox.take(2, EVERYTHING))
        evicted = outbox.put([case(10_000 + n, size=1_200) for n in range(6)]).evicted
        assert evicted == names(*range(flying[-1] + 1, flying[-1] + 1 + len(evicted)))
        assert outbox.delivered(names(*flying)) == 2
        assert outbox.counts().balances()


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


# Time -----------------------------------------------------------------------------------------------------------------


def test_cases_expire_by_powered_time(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock, max_age_s=100) as outbox:
        outbox.put(cases(1))
        clock.advance(60)
        outbox.put(cases(2))
        clock.advance(60)
        assert outbox.counts().oldest_age_s == 120
        assert ids(outbox.take(9, EVERYTHING)) == [2]
        counts = outbox.counts()
        assert counts.dropped["expired"] == 1
        assert counts.balances()


def test_a_case_in_flight_does_not_expire(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock, max_age_s=100) as outbox:
        outbox.put(cases(1))
        outbox.take(1, EVERYTHING)
        clock.advance(101)
        outbox.put(cases(2))
        assert outbox.delivered(names(1)) == 1


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
        assert ids(outbox.take(9, EVERYTHING)) == [1, 2]


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
        assert ids(outbox.take(9, EVERYTHING)) == [2, 3]


def test_an_idle_outbox_remembers_how_much_time_has_passed(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(1))
        outbox.take(1, EVERYTHING)
        for _ in range(100):
            clock.advance(60)
            outbox.take(1, EVERYTHING)
        crashed = crash_image(tmp_path, tmp_path / "after")
    with make(crashed, SimulatedClock()) as outbox:
        assert outbox.counts().oldest_age_s >= 6_000 - 660


# Dead letters and state -----------------------------------------------------------------------------------------------


def test_dead_letters_can_be_listed_shown_revived_and_discarded(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock, live_share=0) as outbox:
        outbox.put(cases(*range(50)))
        outbox.bury([one.id for one in outbox.take(40, EVERYTHING)], "rejected", "400 Bad\nRequest " + "x" * 900)
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
        assert outbox.revive([*names(3, 4), "nobody"]) == 2
        counts = outbox.counts()
        assert (counts.accepted, counts.dead, counts.queued, counts.dropped["discarded"]) == (50, 36, 12, 2)
        assert counts.balances()
        assert ids(drain(outbox)) == [*range(40, 50), 3, 4]  # the newest now


def test_dead_letters_are_bounded_and_the_oldest_leave_first(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock, max_dead_bytes=5 * 602, live_share=0) as outbox:
        outbox.put(cases(*range(8)))
        for one in outbox.take(8, EVERYTHING):
            outbox.bury([one.id], "rejected", "")
        assert [letter.case.id for letter in outbox.dead_letters()] == names(3, 4, 5, 6, 7)
        counts = outbox.counts()
        assert (counts.dead, counts.dropped["dead_letters_full"]) == (5, 3)
        assert counts.balances()


def test_state_survives_and_is_bounded(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock) as outbox:
        assert outbox.get_state("budget") is None
        outbox.put_state("budget", b"1")
        outbox.put_state("budget", b"2")
        with pytest.raises(ValueError, match="4096"):
            outbox.put_state("budget", bytes(5_000))
    with make(tmp_path, clock) as outbox:
        assert outbox.get_state("budget") == b"2"


# The file -------------------------------------------------------------------------------------------------------------


def test_making_an_outbox_touches_no_disk(tmp_path: Path, clock: SimulatedClock) -> None:
    make(tmp_path, clock).close()
    assert list(tmp_path.iterdir()) == []


def test_the_files_are_for_their_owner_only(tmp_path: Path, clock: SimulatedClock) -> None:
    before = os.umask(0)
    try:
        with make(tmp_path, clock) as outbox:
            outbox.put(cases(1))
            files = {file.name: file.stat().st_mode & 0o777 for file in tmp_path.iterdir()}
    finally:
        os.umask(before)
    assert files == dict.fromkeys(("outbox.db", "outbox.db-wal", "outbox.db.lock"), 0o600)


def test_a_missing_folder_is_named(tmp_path: Path, clock: SimulatedClock) -> None:
    outbox = make(tmp_path / "nowhere", clock)
    with pytest.raises(StoreError, match="nowhere does not exist; create it"):
        outbox.open()
    (tmp_path / "nowhere").mkdir()
    assert outbox.put(cases(1)).accepted  # and mended
    outbox.close()


def test_a_second_owner_is_turned_away_at_once(tmp_path: Path, clock: SimulatedClock) -> None:
    other = f"""
        from pathlib import Path
        from edge_runtime.clock import SystemClock
        from edge_runtime.store import Outbox, OutboxConfig
        Outbox(OutboxConfig(path=Path({str(tmp_path / "outbox.db")!r})), SystemClock()).open()
    """
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(1))
        with pytest.raises(StoreError, match="in use by another process"):
            make(tmp_path, clock).open()
        turned_away = python(other)
        assert turned_away.returncode == 1
        assert "in use by another process" in turned_away.stderr
        outbox.put(cases(2))
    assert python(other).returncode == 0


def python(program: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        capture_output=True, text=True, check=False, timeout=60, cwd=Path(__file__).parents[2],
    )  # fmt: skip


def test_a_program_that_reads_the_file_is_reported_and_not_waited_for(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(0))
    reader = sqlite3.connect(tmp_path / "outbox.db", isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM cases").fetchall()
    outbox = make(tmp_path, clock)
    with pytest.raises(StoreError, match="in use by another"):
        outbox.open()
    reader.close()
    assert outbox.put(cases(1)).accepted
    outbox.close()


def test_somebody_elses_database_is_left_alone(tmp_path: Path, clock: SimulatedClock) -> None:
    other = sqlite3.connect(tmp_path / "outbox.db")
    other.execute("CREATE TABLE letters (text)")
    other.commit()
    other.close()
    before = (tmp_path / "outbox.db").read_bytes()
    with pytest.raises(StoreError, match="somebody else's database; give the outbox a file of its own"):
        make_and_close(tmp_path, clock)
    assert (tmp_path / "outbox.db").read_bytes() == before


def test_an_older_file_is_upgraded_and_a_newer_one_refused(
    tmp_path: Path, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(1, 2))
    newer = (*store_schema.UPGRADES, ("CREATE TABLE notes (text TEXT)", "INSERT INTO notes VALUES ('v2')"))
    with monkeypatch.context() as patch:
        patch.setattr("edge_runtime.store.opening.UPGRADES", newer)
        with make(tmp_path, clock) as outbox:
            assert outbox.counts().queued == 2
            assert outbox.damage == []
    db = sqlite3.connect(tmp_path / "outbox.db")
    assert db.execute("SELECT text FROM notes").fetchall() == [("v2",)]
    db.close()
    with pytest.raises(StoreError, match="schema 2, this version knows up to 1; install the newer"):
        make(tmp_path, clock).open()


def test_a_closed_outbox_says_so(tmp_path: Path, clock: SimulatedClock) -> None:
    outbox = make(tmp_path, clock)
    outbox.open()
    outbox.close()
    outbox.close()
    with pytest.raises(StoreError, match="closed"):
        outbox.put(cases(1))


def test_putting_and_forwarding_at_the_same_time_loses_nothing(tmp_path: Path, clock: SimulatedClock) -> None:
    done = threading.Event()
    received: list[str] = []
    with Outbox(OutboxConfig(path=tmp_path / "outbox.db"), clock, connect=without_flushing) as outbox:

        def forward() -> None:
            while not done.is_set() or outbox.counts().queued:
                taken = [one.id for one in outbox.take(50, EVERYTHING)]
                back = taken[1::7]
                assert outbox.release(back) == len(back)
                mine = [one for one in taken if one not in back]
                received.extend(mine)
                assert outbox.delivered(mine) == len(mine)

        threads = [threading.Thread(target=forward) for _ in range(2)]
        for thread in threads:
            thread.start()
        for at in range(0, 3_000, 30):
            outbox.put(cases(*range(at, at + 30)))
        done.set()
        for thread in threads:
            thread.join(30)
        assert sorted(received) == sorted(names(*range(3_000)))  # each exactly once
        assert outbox.counts().balances()


# Failing disks --------------------------------------------------------------------------------------------------------


class Failing:
    """A connection whose disk fails at a chosen statement, as long as `fault` is set."""

    def __init__(self, db: Connection, faults: dict[str, int]) -> None:
        self._db = db
        self._faults = faults

    def _fail(self, sql: str) -> None:
        for start, code in self._faults.items():
            if sql.startswith(start):
                error = sqlite3.OperationalError("injected")
                error.sqlite_errorcode = code
                raise error

    def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Any:
        self._fail(sql)
        return self._db.execute(sql, parameters)

    def executemany(self, sql: str, parameters: Iterable[Sequence[Any]], /) -> Any:
        self._fail(sql)
        return self._db.executemany(sql, parameters)

    def close(self) -> None:
        self._db.close()


@pytest.mark.parametrize("statement", ["BEGIN", "INSERT OR IGNORE INTO cases", "UPDATE ledger", "COMMIT", "PRAGMA"])
@pytest.mark.parametrize(
    ("code", "kind", "says"),
    [
        (sqlite3.SQLITE_FULL, StoreFull, "free space"),
        (sqlite3.SQLITE_IOERR_WRITE, StoreError, "check its disk"),
        (sqlite3.SQLITE_IOERR_FSYNC, StoreError, "check its disk"),
        (sqlite3.SQLITE_READONLY, StoreError, "read-only"),
        (sqlite3.SQLITE_CANTOPEN, StoreError, "check its disk"),
    ],
)
def test_a_disk_error_refuses_that_call_only_and_heals_by_itself(
    tmp_path: Path, clock: SimulatedClock, statement: str, code: int, kind: type[StoreError], says: str
) -> None:
    faults: dict[str, int] = {}
    config = OutboxConfig(path=tmp_path / "outbox.db")
    with Outbox(config, clock, connect=lambda path: Failing(connect_sqlite(path), faults)) as outbox:
        outbox.put(cases(1, 2))
        assert ids(outbox.take(1, EVERYTHING)) == [1]
        faults[statement] = code
        for _ in range(2):
            with pytest.raises(kind, match=says):
                outbox.put(cases(3))
        faults.clear()
        assert outbox.put(cases(3, 4)).accepted == names(3, 4)
        assert ids(outbox.take(9, EVERYTHING)) == [2, 3, 4]  # 1 is still in flight
        assert outbox.delivered(names(1)) == 1
        counts = outbox.counts()
        assert (counts.accepted, counts.queued) == (4, 3)
        assert counts.balances()
        assert outbox.damage == []


def test_a_commit_that_failed_late_but_happened_is_recognised(tmp_path: Path, clock: SimulatedClock) -> None:
    class FailsAfterCommit(Failing):
        def execute(self, sql: str, parameters: Sequence[Any] = (), /) -> Any:
            cursor = self._db.execute(sql, parameters)
            self._fail(sql)
            return cursor

    faults: dict[str, int] = {}
    config = OutboxConfig(path=tmp_path / "outbox.db")
    with Outbox(config, clock, connect=lambda path: FailsAfterCommit(connect_sqlite(path), faults)) as outbox:
        outbox.put(cases(1, 2, 3))
        outbox.take(3, EVERYTHING)
        faults["COMMIT"] = sqlite3.SQLITE_IOERR_FSYNC
        with pytest.raises(StoreError):
            outbox.delivered(names(1))
        with pytest.raises(StoreError):
            outbox.retry(names(2), 5, "again")
        with pytest.raises(StoreError):
            outbox.put(cases(4))
        faults.clear()
        assert outbox.delivered(names(1, 2)) == 0  # the first was delivered, the second waits: neither is in flight
        assert outbox.put(cases(4)).duplicates == names(4)
        assert outbox.delivered(names(3)) == 1
        counts = outbox.counts()
        assert (counts.accepted, counts.delivered, counts.queued, counts.in_flight) == (4, 2, 2, 0)
        assert counts.balances()


def test_a_full_disk_is_survived(tmp_path: Path) -> None:
    """A limit on file size makes real writes fail at arbitrary places; lifting it is the space coming back."""
    program = """
        import resource, signal, sys
        from pathlib import Path
        from edge_runtime.clock import SystemClock
        from edge_runtime.errors import StoreError
        from edge_runtime.store import HardCase, Outbox, OutboxConfig

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        outbox = Outbox(OutboxConfig(path=Path(sys.argv[1])), SystemClock())
        acked, failed, number = set(), 0, 0
        for limit in (None, 30_000, None, 100_000, 70_000, None, 300_000, 0, None):
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit or resource.RLIM_INFINITY, resource.RLIM_INFINITY))
            if limit == 0:
                resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
            before = failed
            for _ in range(60):
                number += 1
                try:
                    result = outbox.put([HardCase(f"k@{number}", "k", 0, 1, 0, 0.5, bytes(3000), b"{}")])
                    acked.update(result.accepted)
                except StoreError as error:
                    assert "\\n" not in str(error)
                    failed += 1
                    last = failed
            if limit is None:
                assert failed == before, "did not heal"
        assert failed > 60, failed
        outbox.close()
        with Outbox(OutboxConfig(path=Path(sys.argv[1])), SystemClock()) as outbox:
            found = {case.id for case in outbox.take(1000, 1 << 30)}
            assert acked <= found, sorted(acked - found)
            assert outbox.counts().balances() and not outbox.damage
        print(len(acked), failed)
    """
    done = python(program, str(tmp_path / "outbox.db"))
    assert done.returncode == 0, done.stderr


# Killed ---------------------------------------------------------------------------------------------------------------

_COMMITTER = """
    import sys
    from pathlib import Path
    from edge_runtime.clock import SystemClock
    from edge_runtime.store import HardCase, Outbox, OutboxConfig

    number = int(sys.argv[2])
    with Outbox(OutboxConfig(path=Path(sys.argv[1]), live_share=0), SystemClock()) as outbox:
        while True:
            group = [HardCase(f"k@{number + i}", "k", 0, 1, 0, 0.5, bytes(700), b"{}") for i in range(8)]
            number += 8
            outbox.put(group)
            print("a", *(case.id for case in group), flush=True)
            gone = [case.id for case in outbox.take(5, 1 << 30)]
            print("s", *gone, flush=True)
            outbox.delivered(gone)
            print("d", *gone, flush=True)
"""


def test_a_killed_process_loses_nothing_that_it_acknowledged(tmp_path: Path, clock: SimulatedClock) -> None:
    rng = random.Random(5)
    acked: set[str] = set()
    sent: set[str] = set()
    delivered: set[str] = set()
    told = {"a": acked, "s": sent, "d": delivered}
    for round_ in range(6):
        child = subprocess.Popen(
            [sys.executable, "-c", textwrap.dedent(_COMMITTER), str(tmp_path / "outbox.db"), str(round_ * 10**6)],
            stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
        )  # fmt: skip
        assert child.stdout is not None
        lines = [child.stdout.readline() for _ in range(rng.randrange(1, 120))]
        child.kill()
        lines += child.stdout.read().splitlines()
        child.stdout.close()
        child.wait(10)
        for line in lines:
            kind, *about = line.split()
            told[kind].update(about)
    with make(tmp_path, clock, live_share=0) as outbox:
        assert outbox.damage == []
        counts = outbox.counts()
        assert counts.balances()
        left = {one.id for one in drain(outbox)}
    assert len(acked) > 200
    assert acked - sent - left == set(), "lost"
    assert delivered & left == set(), "settled for good, and back again"
    assert counts.accepted - len(acked) <= 6 * 8, "more than one group a kill was committed without an acknowledgement"


# Damaged --------------------------------------------------------------------------------------------------------------


def damaged_files(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*.damaged-*") if not file.name.endswith("-wal"))


def prepared(folder: Path, clock: SimulatedClock) -> tuple[bytes, dict[str, HardCase]]:
    """A file with queued, waiting and dead cases and free pages, and what it holds."""
    folder.mkdir()
    content = {one.id: one for one in cases(*range(400))}
    with make(folder, clock) as outbox:
        outbox.put(list(content.values()))
        for one in outbox.take(100, EVERYTHING):
            del content[one.id]
            outbox.delivered([one.id])
        outbox.retry([one.id for one in outbox.take(30, EVERYTHING)], 50, "again")
        outbox.bury([one.id for one in outbox.take(30, EVERYTHING)], "rejected", "no")
        outbox.put_state("budget", b"7")
    return (folder / "outbox.db").read_bytes(), content


def test_with_its_first_page_gone_every_case_is_carried_over(tmp_path: Path, clock: SimulatedClock) -> None:
    image, content = prepared(tmp_path / "whole", clock)
    path = tmp_path / "outbox.db"
    path.write_bytes(b"\xff" * 4096 + image[4096:])
    with make(tmp_path, clock) as outbox:
        (damage,) = outbox.damage
        assert (damage.recovered, damage.lost) == (len(content), 0)
        assert damage.set_aside == tmp_path / "outbox.db.damaged-1"
        assert damage.set_aside.read_bytes()[4096:] == image[4096:]
        assert len(list(outbox.dead_letters())) == 30
        assert outbox.get_state("budget") == b"7"
        assert outbox.take(400, EVERYTHING)[0].attempts == 0
        clock.advance(60)
        assert {one.attempts for one in outbox.take(400, EVERYTHING)} == {1}  # those that waited still knew it
        counts = outbox.counts()
        assert (counts.accepted, counts.delivered, counts.queued) == (400, 100, 270)
        assert counts.balances()
        assert outbox.put(cases(9_999)).accepted


def test_a_wrong_bit_in_the_header_or_the_table_definitions_loses_nothing(
    tmp_path: Path, clock: SimulatedClock
) -> None:
    image, content = prepared(tmp_path / "whole", clock)
    definitions = [at for at in range(100, 4096) if image[at]]
    for at in (*range(100), *random.Random(3).sample(definitions, 40)):
        folder = tmp_path / str(at)
        folder.mkdir()
        data = bytearray(image)
        data[at] ^= 1 << at % 8
        (folder / "outbox.db").write_bytes(data)
        with Outbox(OutboxConfig(path=folder / "outbox.db"), clock, connect=without_flushing) as outbox:
            counts = outbox.counts()
            assert (counts.queued, counts.dead) == (len(content) - 30, 30), f"byte {at}"
            assert outbox.put(cases(9_999)).accepted, f"byte {at}"


@pytest.mark.parametrize("stray", ["DELETE FROM ready WHERE seq = 200", "DELETE FROM cases WHERE seq = 200"])
def test_rows_that_contradict_the_ledger_are_noticed_at_opening(
    tmp_path: Path, clock: SimulatedClock, stray: str
) -> None:
    _, content = prepared(tmp_path / "whole", clock)
    db = sqlite3.connect(tmp_path / "whole" / "outbox.db")
    db.execute(stray)
    db.commit()
    db.close()
    gone = int("cases" in stray)
    with make(tmp_path / "whole", clock) as outbox:
        assert [(damage.recovered, damage.lost) for damage in outbox.damage] == [(len(content) - gone, gone)]
        assert outbox.counts().dropped["damaged"] == gone
        assert outbox.counts().balances()


def test_without_its_ledger_the_outbox_counts_what_it_has_and_ages_go_on(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(1))
        outbox.delivered([one.id for one in outbox.take(1, EVERYTHING)])
        clock.advance(500)
        outbox.put(cases(2, 3))
    db = sqlite3.connect(tmp_path / "outbox.db")
    db.execute("UPDATE ledger SET accepted = accepted + 1")
    db.commit()
    db.close()
    with make(tmp_path, SimulatedClock()) as outbox:
        assert [(damage.recovered, damage.lost) for damage in outbox.damage] == [(2, None)]
        counts = outbox.counts()
        assert (counts.accepted, counts.queued, counts.oldest_age_s) == (2, 2, 0.0)
        assert counts.balances()
        assert outbox.put(cases(4)).accepted
        assert ids(drain(outbox)) == [2, 3, 4]


def test_a_queue_that_contradicts_itself_is_noticed_when_it_matters(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(*range(10)))
    db = sqlite3.connect(tmp_path / "outbox.db")
    db.execute("UPDATE ready SET seq = 11 WHERE seq = 5")  # the number that the next case gets
    db.commit()
    db.close()
    with make(tmp_path, clock) as outbox:
        assert outbox.damage == []
        assert outbox.put(cases(77)).accepted == names(77)
        assert [(damage.recovered, damage.lost) for damage in outbox.damage] == [(10, 0)]
        assert ids(drain(outbox)) == [*range(10), 77]
        assert outbox.counts().balances()


def test_the_log_is_flushed_anew_at_opening(
    tmp_path: Path, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed fsync the kernel takes the log for clean; only writing it again gets it to the disk."""
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(1, 2, 3))
        crashed = crash_image(tmp_path, tmp_path / "after")
    log = (crashed / "outbox.db-wal").read_bytes()
    real_write, real_fsync = os.pwrite, os.fsync
    written: list[tuple[int, bytes]] = []
    flushed: list[int] = []

    def write(descriptor: int, data: bytes, at: int) -> int:
        written.append((at, data[:10_000]))
        return real_write(descriptor, data[:10_000], at)  # short, as it may be

    def fsync(descriptor: int) -> None:
        flushed.append(len(written))
        if len(flushed) == 1:
            raise OSError(5, "Input/output error")
        real_fsync(descriptor)

    monkeypatch.setattr(os, "pwrite", write)
    monkeypatch.setattr(os, "fsync", fsync)
    outbox = make(crashed, clock)
    with pytest.raises(StoreError, match="Input/output error; check its disk"):
        outbox.open()
    first, second = flushed[:2]  # once more before the connection was given up, since closing it uses the log
    assert b"".join(data for _, data in written[:first]) == log
    assert b"".join(data for _, data in written[first:second]) == log
    assert ids(drain(outbox)) == [1, 2, 3]
    outbox.close()


def test_the_files_limit_holds_even_where_the_estimate_of_pages_is_wrong(
    tmp_path: Path, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("edge_runtime.store.rows.free_pages", lambda _db, _limit: 10**6)
    config = OutboxConfig(path=tmp_path / "outbox.db", max_bytes=256 * 1024)
    with Outbox(config, clock) as outbox:
        accepted: list[str] = []

        def put_for_ever() -> None:
            while True:
                accepted.extend(outbox.put([case(len(accepted), size=1_200)]).accepted)

        with pytest.raises(StoreFull):
            put_for_ever()
        check_size(config)
        assert {one.id for one in drain(outbox)} == set(accepted)
        assert outbox.put(cases(9_999)).accepted


def test_the_old_log_is_not_applied_to_the_new_file(tmp_path: Path, clock: SimulatedClock) -> None:
    """The state after a power cut between the decision to switch files and the switch."""
    (tmp_path / "old").mkdir()
    with make(tmp_path / "old", clock) as outbox:
        outbox.put(cases(*range(50)))
        crashed = crash_image(tmp_path / "old", tmp_path / "after")
    (tmp_path / "new").mkdir()
    with make(tmp_path / "new", clock) as outbox:
        outbox.put(cases(1, 2, 3))
    os.link(crashed / "outbox.db", crashed / "outbox.db.damaged-1")
    os.link(crashed / "outbox.db-wal", crashed / "outbox.db.damaged-1-wal")
    (tmp_path / "new" / "outbox.db").rename(crashed / "outbox.db.rebuilt")
    with make(crashed, clock) as outbox:
        assert outbox.damage == []
        assert ids(drain(outbox)) == [1, 2, 3]
    assert (crashed / "outbox.db.damaged-1-wal").stat().st_size > 50 * 600


def test_a_log_that_holds_everything_makes_up_for_the_database(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path, clock) as outbox:
        outbox.put(cases(*range(50)))
        crashed = crash_image(tmp_path, tmp_path / "after")
    (crashed / "outbox.db").write_bytes(b"\xff" * 4096)
    with make(crashed, clock) as outbox:
        assert [(damage.recovered, damage.lost) for damage in outbox.damage] == [(50, 0)]
        assert sorted(ids(drain(outbox))) == list(range(50))


def test_a_database_with_other_pages_is_somebody_elses_too(tmp_path: Path, clock: SimulatedClock) -> None:
    other = sqlite3.connect(tmp_path / "outbox.db")
    other.execute("PRAGMA page_size = 1024")
    other.execute("CREATE TABLE letters (text)")
    other.commit()
    other.close()
    with pytest.raises(StoreError, match="somebody else's database"):
        make_and_close(tmp_path, clock)
    assert damaged_files(tmp_path) == []


@pytest.mark.parametrize("content", [b"not a database at all, but a letter to a friend\n" * 300, b"SQLite format 3\0"])
def test_what_is_no_database_is_set_aside_unharmed(tmp_path: Path, clock: SimulatedClock, content: bytes) -> None:
    (tmp_path / "outbox.db").write_bytes(content)
    with make(tmp_path, clock) as outbox:
        (damage,) = outbox.damage
        assert (damage.recovered, damage.lost) == (0, None)
        assert outbox.put(cases(1)).accepted
    assert (tmp_path / "outbox.db.damaged-1").read_bytes() == content


def test_only_the_last_damaged_files_are_kept(tmp_path: Path, clock: SimulatedClock) -> None:
    for _ in range(4):
        (tmp_path / "outbox.db").write_bytes(bytes(10_000))
        make_and_close(tmp_path, clock)
    assert [file.name for file in damaged_files(tmp_path)] == ["outbox.db.damaged-3", "outbox.db.damaged-4"]


def make_and_close(folder: Path, clock: SimulatedClock) -> None:
    with make(folder, clock):
        pass


def test_damage_met_while_running_is_repaired_and_the_call_goes_on(tmp_path: Path, clock: SimulatedClock) -> None:
    faults: dict[str, int] = {}
    seen: list[Damage] = []

    def connect(path: Path) -> Connection:
        # The file that is built to replace the damaged one is on healthy ground.
        return connect_sqlite(path) if path.name.endswith(".rebuilt") or seen else Failing(connect_sqlite(path), faults)

    def report(damage: Damage) -> None:
        seen.append(damage)
        faults.clear()

    with Outbox(OutboxConfig(path=tmp_path / "outbox.db"), clock, connect=connect, on_damage=report) as outbox:
        outbox.put(cases(*range(20)))
        flying = [one.id for one in outbox.take(5, EVERYTHING)]
        outbox.retry(flying[:1], 0, "again")
        faults["INSERT OR IGNORE"] = sqlite3.SQLITE_CORRUPT_INDEX
        assert outbox.put(cases(77)).accepted == names(77)
        assert [(damage.recovered, damage.lost) for damage in seen] == [(20, 0)]
        assert outbox.counts().in_flight == 4
        assert outbox.delivered(flying[1:]) == 4
        assert len(drain(outbox)) == 17
        assert outbox.counts().balances()


def test_a_salvage_without_room_is_tried_again_later(
    tmp_path: Path, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    image, content = prepared(tmp_path / "whole", clock)
    (tmp_path / "outbox.db").write_bytes(b"\0" + image[1:])

    def no_room(*_: object) -> None:
        raise OSError(28, "No space left on device")

    outbox = make(tmp_path, clock)
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", no_room)
        with pytest.raises(StoreCorrupt, match=r"cannot be rebuilt yet .*No space left.*free space"):
            outbox.open()
    with pytest.raises(StoreCorrupt, match="waits to be rebuilt"):
        outbox.put(cases(1))
    clock.advance(31)
    assert outbox.counts().queued + outbox.counts().dead == len(content)
    outbox.close()


class PowerCut(BaseException):
    """Ends the process as far as the code under test can tell."""


@pytest.mark.parametrize("step", range(12))
def test_a_salvage_cut_short_at_any_step_is_completed_by_the_next_start(
    tmp_path: Path, clock: SimulatedClock, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    image, content = prepared(tmp_path / "whole", clock)
    (tmp_path / "outbox.db").write_bytes(b"\0" + image[1:])
    steps = 0

    def counted(call: Any) -> Any:
        def wrapper(*arguments: Any, **named: Any) -> Any:
            nonlocal steps
            if ".damaged" in str(arguments) or ".rebuilt" in str(arguments) or "outbox.db-wal" in str(arguments):
                steps += 1
                if steps == step + 1:
                    raise PowerCut
            return call(*arguments, **named)

        return wrapper

    first = make(tmp_path, clock)
    with monkeypatch.context() as patch:
        patch.setattr(os, "link", counted(os.link))
        for name in ("unlink", "replace", "open"):
            patch.setattr(Path, name, counted(getattr(Path, name)))
        patch.setattr("edge_runtime.store.salvage.close_quietly", counted(store_opening.close_quietly))
        patch.setattr("edge_runtime.store.salvage.sync_folder", counted(store_opening.sync_folder))
        try:
            first.open()
        except PowerCut:
            assert steps == step + 1
        else:
            assert steps <= step, "the cut did not happen"
            assert step > 4
    first.close()
    with make(tmp_path, clock) as outbox:
        counts = outbox.counts()
        assert (counts.queued + counts.dead, counts.dropped["damaged"]) == (len(content), 0)
        assert counts.balances()
        clock.advance(60)
        assert len(drain(outbox)) == 270
    assert not (tmp_path / "outbox.db.rebuilt").exists()


def test_damage_to_the_log_loses_its_end_and_keeps_the_order(tmp_path: Path, clock: SimulatedClock) -> None:
    with make(tmp_path / "", clock) as outbox:
        for number in range(60):
            outbox.put(cases(number))
        whole = crash_image(tmp_path, tmp_path / "after")
    log = (whole / "outbox.db-wal").read_bytes()
    lengths = set()
    for seed in range(30):
        rng = random.Random(seed)
        data = bytearray(log)
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        folder = tmp_path / str(seed)
        folder.mkdir()
        (folder / "outbox.db").write_bytes((whole / "outbox.db").read_bytes())
        (folder / "outbox.db-wal").write_bytes(data)
        with make(folder, clock) as outbox:
            found = ids(drain(outbox))
            assert found == list(range(len(found)))
            assert outbox.counts().balances()
            assert outbox.put(cases(99)).accepted
            lengths.add(len(found))
    assert len(lengths) > 10


def test_100_damaged_files_never_stop_the_outbox_and_never_yield_a_wrong_case(
    tmp_path: Path, clock: SimulatedClock
) -> None:
    image, content = prepared(tmp_path / "whole", clock)
    set_aside = 0
    for seed in range(100):
        rng = random.Random(seed)
        data = bytearray(image)
        pages_hit = 0
        if seed % 4 == 3:
            cut = rng.randrange(len(data))
            pages_hit = (len(data) - cut) // 4096 + 1
            del data[cut:]
        else:
            for _ in range(rng.choice((1, 1, 4, 16))):
                data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
                pages_hit += 1
        folder = tmp_path / str(seed)
        folder.mkdir()
        (folder / "outbox.db").write_bytes(data)
        seen: list[Damage] = []
        config = OutboxConfig(path=folder / "outbox.db")
        with Outbox(config, clock, connect=without_flushing, on_damage=seen.append) as outbox:
            listed = [letter.case for letter in outbox.dead_letters()]
            clock.advance(60)
            found = set()
            for one in [*listed, *drain(outbox)]:  # a dead letter whose burial was damaged is queued again
                one.attempts = 0
                assert one == content[one.id], f"seed {seed}"
                found.add(one.id)
            # A page holds at most six of these cases; a damaged branch takes its leaves with it, nothing else may.
            if pages_hit <= 4 and data[:4096] == image[:4096]:
                assert len(found) >= len(content) - 6 * pages_hit, f"seed {seed}: {len(found)} of {len(content)}"
            counts = outbox.counts()
            assert counts.balances(), f"seed {seed}"
            if len(found) < len(content) and counts.accepted == 400:
                assert counts.dropped["damaged"] == len(content) - len(found), f"seed {seed}"
            assert outbox.put(cases(9_999)).accepted, f"seed {seed}"
            assert seen == outbox.damage
            assert len(damaged_files(folder)) == len(seen)
        set_aside += len(seen)
        with Outbox(config, clock, connect=without_flushing) as outbox:
            assert ids(drain(outbox)) == [9_999], f"seed {seed}"
            assert outbox.damage == [], f"seed {seed}"
    assert 20 < set_aside < 100
