from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from edge_runtime.base.system.group_commit import GroupCommit

PATIENCE_S = 60.0


class Disk:
    """Takes groups when it may, and fails when it is told to."""

    def __init__(self) -> None:
        self.groups: list[list[int]] = []
        self.failed: list[tuple[list[int], Exception]] = []
        self.entered = threading.Event()
        self.free = threading.Event()
        self.free.set()
        self.threads: set[str] = set()

    def flush(self, jobs: Sequence[int]) -> None:
        self.entered.set()
        assert self.free.wait(PATIENCE_S)
        self.threads.add(threading.current_thread().name)
        if -1 in jobs:
            raise ZeroDivisionError
        self.groups.append(list(jobs))

    def fail(self, jobs: Sequence[int], error: Exception) -> None:
        self.failed.append((list(jobs), error))


@pytest.fixture
def disk() -> Iterator[Disk]:
    disk = Disk()
    yield disk
    disk.free.set()


def test_what_comes_during_a_flush_shares_the_next_one_in_order(disk: Disk) -> None:
    commits: GroupCommit[int] = GroupCommit("disk", disk.flush, disk.fail)
    disk.free.clear()
    commits.start()
    commits.put(0)
    assert disk.entered.wait(PATIENCE_S)
    for i in range(1, 50):
        commits.put(i)
    disk.free.set()
    assert commits.close(PATIENCE_S)
    assert disk.groups == [[0], list(range(1, 50))]
    assert disk.threads == {"disk"}
    assert not commits.running


def test_a_group_is_cut_where_one_flush_cannot_take_it(disk: Disk) -> None:
    commits: GroupCommit[int] = GroupCommit("disk", disk.flush, disk.fail, split=lambda jobs: [jobs[:2], jobs[2:]])
    for i in range(5):
        commits.put(i)
    assert commits.run_once(0.0)
    assert disk.groups == [[0, 1], [2, 3, 4]]


def test_an_unexpected_error_costs_its_group_and_not_the_thread(disk: Disk) -> None:
    """Mutation: without the `except`: the thread ends, and nothing is flushed for ever."""
    commits: GroupCommit[int] = GroupCommit("disk", disk.flush, disk.fail, split=lambda jobs: [[job] for job in jobs])
    commits.start()
    for i in (1, -1, 2):
        commits.put(i)
    assert commits.close(PATIENCE_S)
    assert disk.groups == [[1], [2]]
    assert [(jobs, type(error)) for jobs, error in disk.failed] == [([-1], ZeroDivisionError)]


def test_without_jobs_it_flushes_none_when_its_patience_ends(disk: Disk) -> None:
    commits: GroupCommit[int] = GroupCommit("disk", disk.flush, disk.fail, idle_s=lambda: 0.001)
    commits.start()
    assert disk.entered.wait(PATIENCE_S)
    assert commits.close(PATIENCE_S)
    assert disk.groups
    assert not any(disk.groups)


def test_closing_ends_pauses_and_lingering_at_once(disk: Disk) -> None:
    """Seen to fail, by the time limit of the suite, when `pause` sleeps."""
    seen: list[list[int]] = []

    def flush(jobs: Sequence[int]) -> None:
        commits.pause(3600.0)
        seen.append(list(jobs))

    commits: GroupCommit[int] = GroupCommit("disk", flush, disk.fail, linger_s=3600.0)
    commits.start()
    commits.put(1)
    assert commits.close(PATIENCE_S)
    assert seen == [[1]]
    assert commits.closing


def test_a_disk_that_hangs_does_not_hold_up_the_close(disk: Disk) -> None:
    commits: GroupCommit[int] = GroupCommit("disk", disk.flush, disk.fail)
    disk.free.clear()
    commits.start()
    commits.put(1)
    assert disk.entered.wait(PATIENCE_S)
    assert not commits.close(0.0)
    disk.free.set()
    assert commits.close(PATIENCE_S)
    assert disk.groups == [[1]]


def test_closing_twice_or_before_the_start_does_no_harm(disk: Disk) -> None:
    commits: GroupCommit[int] = GroupCommit("disk", disk.flush, disk.fail)
    assert commits.close(0.0)
    assert commits.close(0.0)
    assert disk.groups == []
