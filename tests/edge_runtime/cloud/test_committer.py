"""What becomes of hard cases while the disk under the outbox fails, from the start or later, and when it works again.

Each failure is injected under the outbox, by the factory that its connections come from. Mutations that were seen to
fail here: `Committer.retry` that never tries again; one that tries at every call; one that tries by reading only;
`Committer.put` that tries on while it fails; `Committer.ack` that forgets what could not be removed; `load_state` that
gives up.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from edge_runtime.clock import SimulatedClock
from edge_runtime.cloud.committer import AGAIN_S, Committer
from edge_runtime.errors import StoreError
from edge_runtime.metrics import Metrics
from edge_runtime.store.durable.outbox import Outbox, OutboxConfig
from edge_runtime.store.durable.outbox.schema import Database, connect_sqlite
from edge_runtime.store.durable.sqlite_errors import Code
from tests.edge_runtime.store.durable.outbox.outboxes import EVERYTHING, READ_FAILED, Failing, cases, ids, names

FULL: dict[str, int] = {"COMMIT": Code.FULL}
"""It can be opened and read."""
DEAD = {"": READ_FAILED}
"""Every statement fails."""


class Bench:
    """A committer over an outbox on a disk that the test breaks and mends."""

    def __init__(self, path: Path) -> None:
        self.faults: dict[str, int] = {}
        self.opened = 0
        self.clock, self.metrics = SimulatedClock(), Metrics()
        self.said: list[str] = []
        self.outbox = Outbox(OutboxConfig(path=path), self.clock, connect=self._connect)
        stopping = threading.Event()
        stopping.set()  # its waits between attempts end at once
        self.committer = Committer(
            self.outbox,
            attempts=3,
            metrics=self.metrics,
            clock=self.clock,
            stopping=stopping,
            on_status=self.said.append,
        )

    def _connect(self, path: Path) -> Database:
        self.opened += 1
        return Failing(connect_sqlite(path), self.faults)

    def start(self) -> None:
        """As the application does."""
        try:
            self.outbox.open()
        except StoreError as error:
            self.committer.begin_failing(error)

    def break_it(self, faults: dict[str, int]) -> None:
        self.faults.clear()
        self.faults.update(faults)

    def wait(self) -> None:
        """Until the next try is due, and have it."""
        self.clock.advance(AGAIN_S[1])
        self.committer.retry()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    made = Bench(tmp_path / "outbox.db")
    yield made
    made.faults.clear()
    made.outbox.close()


def test_a_start_without_a_disk_drops_what_comes_and_takes_up_the_backlog_when_it_is_back(bench: Bench) -> None:
    bench.outbox.put(cases(1, 2, 3))
    bench.outbox.put_state("budget", b"17")
    path = bench.outbox.path
    bench.outbox.close()
    again = Bench(path)
    again.break_it(DEAD)
    again.start()
    told: list[bytes | None] = []
    again.committer.load_state("budget", told.append)
    assert again.metrics.gauges["outbox_accepting"] == 0.0
    assert again.committer.put(cases(4, 5)).keys() == set(names(4, 5))
    for _ in range(3):
        again.wait()
    assert told == []
    assert [bool(why) for why in again.said] == [True], "said once"
    again.faults.clear()
    again.wait()
    assert told == [b"17"]
    assert again.said[1:] == [""]
    assert again.metrics.gauges["outbox_accepting"] == 1.0
    assert again.committer.put(cases(6)) == {}
    assert ids(again.outbox.lease(9, EVERYTHING)) == [1, 2, 3, 6]
    again.outbox.close()


@pytest.mark.parametrize("faults", [FULL, DEAD], ids=["full", "dead"])
def test_a_disk_that_fails_later_costs_what_comes_meanwhile_and_nothing_else(
    bench: Bench, faults: dict[str, int]
) -> None:
    bench.start()
    assert bench.committer.put(cases(1)) == {}
    bench.break_it(faults)
    assert bench.committer.put(cases(2, 3)) == dict.fromkeys(names(2, 3), "outbox_error")
    assert bench.committer.failure_reason
    bench.wait()
    assert bench.committer.failure_reason, "it does not work yet, though some of it can be read"
    bench.faults.clear()
    bench.wait()
    assert bench.committer.put(cases(4)) == {}
    assert ids(bench.outbox.lease(9, EVERYTHING)) == [1, 4]


def test_a_moments_trouble_costs_nothing(bench: Bench) -> None:
    """A group is tried again before it is dropped."""
    bench.start()
    bench.break_it(FULL)
    put = bench.outbox.put

    def once(group: object) -> object:
        try:
            return put(group)  # type: ignore[arg-type]
        finally:
            bench.faults.clear()

    bench.outbox.put = once  # type: ignore[method-assign, assignment]
    assert bench.committer.put(cases(1)) == {}
    assert bench.committer.failure_reason == ""


def test_a_disk_that_fails_is_tried_ever_more_seldom_and_at_least_every_five_seconds(bench: Bench) -> None:
    bench.break_it(DEAD)
    bench.start()
    tried: list[float] = []
    before = bench.opened
    for _ in range(60 * 16):
        bench.clock.advance(1 / 16)
        bench.committer.retry()
        assert bench.committer.put(cases(1)), "never waited for, and never tried, while it fails"
        if bench.opened > before:
            tried.append(bench.clock.monotonic())
            before = bench.opened
    gaps = [after - earlier for earlier, after in itertools.pairwise(tried)]
    assert all(abs(gap - due) <= 1 / 16 for gap, due in zip(gaps, (0.2, 0.4, 0.8, 1.6, 3.2), strict=False)), gaps
    assert set(gaps[5:]) == {AGAIN_S[1]}


def test_what_was_answered_leaves_when_the_disk_takes_it(bench: Bench) -> None:
    bench.start()
    bench.committer.put(cases(1, 2, 3))
    assert ids(bench.outbox.lease(9, EVERYTHING)) == [1, 2, 3]
    bench.break_it(FULL)
    bench.committer.ack({"watch@1": b"one"}, ())
    assert bench.committer.put(cases(4)).keys() == set(names(4))
    bench.committer.ack({"watch@2": b"two"}, ())
    bench.faults.clear()
    assert bench.outbox.counts().in_flight == 3
    bench.wait()
    bench.committer.ack({}, ())
    assert bench.outbox.counts().in_flight == 1
    assert bench.outbox.put(cases(1, 2, 3)).repeated == names(1, 2)
    assert [closing.meta for closing in bench.committer.closings(9)] == [b"one", b"two"]


def test_final_messages_that_were_published_are_not_published_again_while_the_disk_fails(bench: Bench) -> None:
    """Mutation that this finds: `Committer.closings` that reads while `published` could not be written down."""
    bench.start()
    bench.committer.put(cases(1, 2))
    bench.outbox.move_to_dead_letters([one.id for one in bench.outbox.lease(9, EVERYTHING)], "rejected", "no")
    (first, second) = bench.committer.closings(9)
    assert [first.id, second.id] == names(1, 2)
    bench.break_it(FULL)
    bench.committer.ack({}, [first.seq, second.seq])
    assert bench.committer.closings(9) == []
    bench.faults.clear()
    bench.wait()
    assert bench.committer.closings(9) == []
    bench.committer.ack({}, ())
    assert bench.outbox.unpublished == 0


def test_a_value_that_cannot_be_kept_costs_no_more_than_the_value(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.start()
    bench.break_it(FULL)
    bench.committer.save_state("budget", b"1")
    assert "could not save state: name=budget" in caplog.text
    assert bench.committer.failure_reason == ""
    bench.faults.clear()
    bench.committer.save_state("budget", b"2")
    assert bench.outbox.get_state("budget") == b"2"


def test_a_value_that_cannot_be_read_now_is_read_when_it_can(bench: Bench) -> None:
    bench.start()
    bench.committer.save_state("budget", b"3")
    told: list[bytes | None] = []
    bench.committer.load_state("budget", told.append)
    bench.break_it(DEAD)
    bench.committer.retry()
    assert told == []
    bench.faults.clear()
    bench.committer.retry()
    bench.committer.retry()
    assert told == [b"3"]
