"""The outbox against a plain dict: whatever the order of calls and crashes, both hold and give the same.

The suite runs a hundred sequences, tests/faults/test_store_model.py five hundred longer
ones. A long run, from the repository's root::

    python -m tests.edge_runtime.store.durable.outbox.test_model --sequences 2000 --steps 50
"""

from __future__ import annotations

import argparse
import random
import shutil
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from edge_runtime.clock import SimulatedClock
from edge_runtime.store.durable.outbox import TRUSTED_ATTEMPTS, HardCase, Outbox, OutboxConfig, WhenFull
from edge_runtime.store.durable.outbox.schema import Database, connect_sqlite

MEMORY = Path("/dev/shm")
"""No flush means anything here, so the files may as well lie in memory: a crash is a copy of them."""

MAX_BYTES = 256 * 1024
MAX_AGE_S = 500.0
IDS = 60

BODY = random.Random(1).randbytes(40_000)

numbers = st.integers(0, IDS - 1)
some = st.lists(numbers, max_size=20)
cases = st.builds(
    lambda number, size, priority, value: HardCase(
        f"watch@{number}", "watch", float(number), 30.0, priority, value, BODY[number : number + size], b"{}"
    ),
    numbers, st.sampled_from((0, 40, 600, 1_200, 1_200, 5_000, 30_000)), st.integers(0, 2), st.floats(0, 1),
)  # fmt: skip


def names(chosen: list[int]) -> list[str]:
    return [f"watch@{number}" for number in chosen]


def connect(path: Path) -> Database:
    db = connect_sqlite(path)
    db.execute("PRAGMA cache_size = -500")  # small, so that pages really go to the file and back
    return db


@dataclass(eq=False)
class Entry:
    case: HardCase
    seq: int
    stored: float
    due: float | None = None
    """None for never tried."""
    leased: bool = False

    @property
    def size(self) -> int:
        return len(self.case.body) + len(self.case.meta)

    @property
    def order(self) -> tuple[bool, int, float, int]:
        suspect = self.case.attempts >= TRUSTED_ATTEMPTS
        return suspect, self.case.priority, self.due or 0.0 if suspect else 0.0, self.seq


class Closed:
    """The model of what is remembered of cases that have left, and of what the sinks do not have yet."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.rows: dict[int, tuple[str, str]] = {}
        self.unpublished: list[int] = []
        self.places: dict[str, int] = {}
        self.last = 0

    def add(self, closed: list[str], reason: str) -> None:
        for id_ in closed:
            self.last += 1
            self.rows[self.last], self.places[id_] = (id_, reason), self.last
            if reason != "delivered":
                self.unpublished.append(self.last)
        for seq in [seq for seq in self.rows if seq <= self.last - self.size and seq not in self.unpublished]:
            del self.rows[seq]

    def again(self, id_: str) -> None:
        seq = self.places[id_]
        if self.rows[seq][1] != "delivered" and seq not in self.unpublished:
            self.unpublished = sorted([*self.unpublished, seq])

    def published(self, n: int) -> None:
        self.unpublished = self.unpublished[n:]
        self.add([], "")

    def __contains__(self, id_: str) -> bool:
        return self.places.get(id_) in self.rows

    def reopen(self) -> None:
        self.places = {id_: seq for seq, (id_, _) in sorted(self.rows.items())}


class OutboxMachine(RuleBasedStateMachine):
    """The model: `queued` and `dead` by id, `closed`, and the counters."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp(dir=MEMORY if MEMORY.is_dir() else None))
        self.folders = 0
        self.clock = SimulatedClock()
        self.powered = 0.0
        self.queued: dict[str, Entry] = {}
        self.dead: dict[str, Entry] = {}
        self.state: dict[str, bytes] = {}
        self.counted: Counter[str] = Counter()
        self.next_seq = 1
        self.closed = Closed(0)

    @initialize(
        policy=st.sampled_from(("reject", "drop_oldest", "drop_least_valuable")),
        live_share=st.sampled_from((0.0, 0.25, 0.6)),
        max_attempts=st.sampled_from((0, 2)),
        max_dead_bytes=st.sampled_from((0, 3_000, 2**20)),
    )
    def start(self, policy: WhenFull, live_share: float, max_attempts: int, max_dead_bytes: int) -> None:
        self.config = OutboxConfig(
            path=self.new_folder() / "outbox.db",
            max_bytes=MAX_BYTES,
            max_age_s=MAX_AGE_S,
            when_full=policy,
            live_share=live_share,
            max_attempts=max_attempts,
            max_dead_bytes=max_dead_bytes,
        )
        self.closed = Closed(self.config.remembered)
        self.open()

    def new_folder(self) -> Path:
        self.folders += 1
        folder = self.root / str(self.folders)
        folder.mkdir()
        return folder

    def open(self) -> None:
        self.outbox = Outbox(self.config, self.clock, connect=connect)
        self.outbox.open()
        self.closed.reopen()
        for entry in self.queued.values():
            entry.leased = False

    def teardown(self) -> None:
        if self.folders:
            self.reopen()
            while self.queued:
                self.wait(60.0)
                self.take_and_deliver(7, 20_000)
                self.balance()
            self.outbox.close()
        shutil.rmtree(self.root)

    # Time and crashes -------------------------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The outbox's own clock; that it never runs ahead of powered time is checked in `balance`."""
        return self.outbox._file.elapsed()

    @rule(seconds=st.sampled_from((0.1, 1.5, 30.0, 200.0)))
    def wait(self, seconds: float) -> None:
        self.clock.advance(seconds)
        self.powered += seconds

    @rule(seconds=st.sampled_from((-1.7e9, -3_600.0, 86_400.0, 1e9)))
    def the_wall_clock_jumps(self, seconds: float) -> None:
        self.clock.jump(seconds)

    @rule()
    def crash(self) -> None:
        folder = self.new_folder()
        for file in self.config.path.parent.iterdir():
            shutil.copyfile(file, folder / file.name)
        self.outbox.close()
        shutil.rmtree(self.config.path.parent)
        self.config = replace(self.config, path=folder / "outbox.db")
        self.clock = SimulatedClock(wall=self.powered)  # a new boot: both clocks start anew
        self.open()

    @rule()
    def reopen(self) -> None:
        self.outbox.close()
        self.open()

    # Accepting --------------------------------------------------------------------------------------------------------

    @rule(group=st.lists(cases, min_size=1, max_size=40, unique_by=lambda case: case.id))
    def put(self, group: list[HardCase]) -> None:
        self.expire()
        repeated = [case.id for case in group if case.id not in self.queued and case.id in self.closed]
        for name in repeated:
            self.closed.again(name)
        in_flight = {name for name, entry in self.queued.items() if entry.leased}
        before = dict(self.queued)
        result = self.outbox.put(group)
        stays = [entry for name, entry in before.items() if name not in in_flight]
        if self.config.when_full == "drop_oldest":
            stays.sort(key=lambda entry: entry.seq)
        else:
            stays.sort(key=lambda entry: (-entry.case.priority, entry.case.value, entry.seq))
        assert result.repeated == repeated
        group = [case for case in group if case.id not in repeated]
        self.counted["repeated"] += len(repeated) + len(result.duplicates)
        assert result.evicted == [entry.case.id for entry in stays[: len(result.evicted)]]
        if self.config.when_full == "reject":
            assert not result.evicted
        for name in result.evicted:
            del self.queued[name]
            self.closed.add([name], "evicted")
            self.counted["evicted"] += 1
        accepted, duplicates = list(result.accepted), Counter(result.duplicates)
        for case in group:
            known = case.id in self.queued or case.id in self.dead
            if accepted and accepted[0] == case.id and not known:
                accepted.pop(0)
                self.queued[case.id] = Entry(case, self.next_seq, self.now)
                self.next_seq += 1
                self.counted["accepted"] += 1
            elif duplicates[case.id]:
                duplicates[case.id] -= 1
                # Known now, or when it was looked at: a case later in the group may have pushed the old one out.
                assert known or case.id in before
            else:
                assert result.refused[case.id] == "full"
        assert not accepted
        assert not +duplicates
        if result.refused:
            used = self.outbox.counts().used_bytes + sum(len(case.body) for case in group)
            assert used > MAX_BYTES // 4, "refused with room to spare"
        if self.config.when_full == "drop_oldest" and result.refused:
            kept = [name for name, entry in before.items() if self.queued.get(name) is entry]
            assert set(kept) == in_flight, "refused before dropping all that it may"

    def expire(self) -> None:
        """What `put` and `lease` do first, once a second."""
        now = self.now
        if now >= self.outbox._next_housekeeping:
            for name, entry in list(self.queued.items()):
                if not entry.leased and entry.stored < now - MAX_AGE_S:
                    del self.queued[name]
                    self.closed.add([name], "expired")
                    self.counted["expired"] += 1

    # Forwarding -------------------------------------------------------------------------------------------------------

    @rule(limit=st.integers(0, 25), max_bytes=st.sampled_from((0, 2_000, 10_000, 10**9)))
    def take(self, limit: int, max_bytes: int) -> None:
        if limit:
            self.expire()
        expected = self.expected_take(limit, max_bytes)
        taken = self.outbox.lease(limit, max_bytes)
        assert taken == [entry.case for entry in expected]
        for entry in expected:
            entry.leased = True

    def expected_take(self, limit: int, max_bytes: int) -> list[Entry]:
        free = sorted((entry for entry in self.queued.values() if not entry.leased), key=lambda entry: entry.order)
        due = [entry for entry in free if entry.due is None or entry.due <= self.now]
        if not due or not limit:
            return []
        first = due[0]
        picked, used = [first], first.size
        live, live_bytes = int(limit * self.config.live_share), max_bytes * self.config.live_share
        newest = [e for e in reversed(free) if e.due is None and e.case.priority == first.case.priority and e != first]
        for entry in newest:
            live, live_bytes = live - 1, live_bytes - entry.size
            if live < 0 or live_bytes < 0 or len(picked) == limit or used + entry.size > max_bytes:
                break
            picked.append(entry)
            used += entry.size
        for entry in due:
            if entry not in picked:
                if len(picked) == limit or used + entry.size > max_bytes:
                    break
                picked.append(entry)
                used += entry.size
        return sorted(picked, key=lambda entry: entry.order)

    @rule(limit=st.integers(1, 25), max_bytes=st.sampled_from((2_000, 10**9)))
    def take_and_deliver(self, limit: int, max_bytes: int) -> None:
        self.take(limit, max_bytes)
        self.ack([int(name[6:]) for name, entry in self.queued.items() if entry.leased])

    def flying(self, chosen: list[int]) -> list[Entry]:
        """The model's entries for those of `chosen` that are in flight, once each, in the order given."""
        ids = dict.fromkeys(names(chosen))
        return [self.queued[name] for name in ids if name in self.queued and self.queued[name].leased]

    @rule(chosen=some)
    def ack(self, chosen: list[int]) -> None:
        flying = self.flying(chosen)
        assert self.outbox.ack(names(chosen)) == len(flying)
        for entry in flying:
            del self.queued[entry.case.id]
            self.counted["delivered"] += 1
        self.closed.add([entry.case.id for entry in flying], "delivered")

    @rule(chosen=some, delay_s=st.sampled_from((-1.0, 0.0, 1.0, 40.0)))
    def retry(self, chosen: list[int], delay_s: float) -> None:
        flying = self.flying(chosen)
        assert self.outbox.retry(names(chosen), delay_s, "no answer") == len(flying)
        spent = []
        for entry in flying:
            entry.case = replace(entry.case, attempts=entry.case.attempts + 1)
            entry.leased = False
            entry.due = self.now + max(0.0, delay_s)
            if self.config.max_attempts and entry.case.attempts >= self.config.max_attempts:
                spent.append(entry)
        self.add_dead_letters(spent, "attempts")

    @rule(chosen=some)
    def move_to_dead_letters(self, chosen: list[int]) -> None:
        flying = self.flying(chosen)
        assert self.outbox.move_to_dead_letters(names(chosen), "rejected", "no") == len(flying)
        self.add_dead_letters(flying, "rejected")

    def add_dead_letters(self, entries: list[Entry], reason: str) -> None:
        self.closed.add([entry.case.id for entry in entries], reason)
        for entry in entries:
            self.dead[entry.case.id] = self.queued.pop(entry.case.id)
        for name, entry in sorted(self.dead.items(), key=lambda item: item[1].seq):
            if sum(other.size for other in self.dead.values()) <= self.config.max_dead_bytes:
                break
            assert self.dead.pop(name) is entry
            self.counted["dead_letters_full"] += 1

    @rule(chosen=some)
    def release(self, chosen: list[int]) -> None:
        flying = self.flying(chosen)
        assert self.outbox.release(names(chosen)) == len(flying)
        for entry in flying:
            entry.leased = False

    # Dead letters and state -------------------------------------------------------------------------------------------

    @rule(chosen=some)
    def requeue(self, chosen: list[int]) -> None:
        requeued = [name for name in dict.fromkeys(names(chosen)) if name in self.dead]
        assert self.outbox.requeue(names(chosen)) == len(requeued)
        for name in requeued:
            case = replace(self.dead.pop(name).case, attempts=0)
            self.queued[name] = Entry(case, self.next_seq, self.now)
            self.next_seq += 1

    @rule(chosen=some)
    def discard(self, chosen: list[int]) -> None:
        discarded = [name for name in dict.fromkeys(names(chosen)) if name in self.dead]
        assert self.outbox.discard(names(chosen)) == len(discarded)
        for name in discarded:
            del self.dead[name]
            self.counted["discarded"] += 1

    @rule()
    def list_dead_letters(self) -> None:
        in_order = sorted(self.dead.values(), key=lambda entry: entry.seq)
        assert [letter.case for letter in self.outbox.dead_letters()] == [entry.case for entry in in_order]

    @rule(limit=st.integers(1, 200))
    def publish(self, limit: int) -> None:
        closings = self.outbox.closings(limit)
        expected = self.closed.unpublished[:limit]
        assert [(one.seq, one.id, one.reason) for one in closings] == [
            (seq, *self.closed.rows[seq]) for seq in expected
        ]
        self.outbox.published([one.seq for one in closings])
        self.closed.published(len(closings))

    @rule(name=st.sampled_from(("budget", "other")), value=st.binary(max_size=40))
    def put_state(self, name: str, value: bytes) -> None:
        self.outbox.put_state(name, value)
        self.state[name] = value

    @invariant()
    def balance(self) -> None:
        if not self.folders:
            return
        counts = self.outbox.counts()
        assert counts.balances()
        assert (counts.accepted, counts.delivered) == (self.counted["accepted"], self.counted["delivered"])
        assert (counts.queued, counts.dead) == (len(self.queued), len(self.dead))
        assert counts.in_flight == sum(entry.leased for entry in self.queued.values())
        assert counts.dropped == {reason: self.counted[reason] for reason in counts.dropped}
        assert (counts.unpublished, counts.repeated) == (len(self.closed.unpublished), self.counted["repeated"])
        assert {name: self.outbox.get_state(name) for name in self.state} == self.state
        assert self.outbox.damage == []
        assert 0 <= self.now <= self.powered + 1e-6
        assert self.config.path.stat().st_size <= MAX_BYTES
        log = self.config.path.with_name("outbox.db-wal")
        assert log.stat().st_size <= self.config.log_limit


TestOutbox = pytest.mark.slow(OutboxMachine.TestCase)
TestOutbox.settings = settings(
    max_examples=100, stateful_step_count=30, derandomize=True, deadline=None, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


def main() -> None:
    """A long run with new random sequences."""
    parser = argparse.ArgumentParser(description="The outbox against a plain dict, for longer.")
    parser.add_argument("--sequences", type=int, default=2_000)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    arguments = parser.parse_args()
    seed(arguments.seed)(OutboxMachine)
    run_state_machine_as_test(
        OutboxMachine,
        settings=settings(
            max_examples=arguments.sequences, stateful_step_count=arguments.steps, deadline=None, print_blob=True,
            database=None, suppress_health_check=list(HealthCheck),
        ),
    )  # fmt: skip
    steps = f"{arguments.sequences} sequences of up to {arguments.steps} steps"
    print(f"{steps}, seed {arguments.seed}: no divergence")


if __name__ == "__main__":
    main()
