"""An outbox that sends what others left: every case once, wherever it lies, over restarts and failures."""

from __future__ import annotations

from pathlib import Path

import pytest

from edge_runtime.clock import SimulatedClock
from edge_runtime.store.durable.outbox import Outbox, OutboxConfig
from edge_runtime.store.durable.outbox.adopting import AdoptingOutbox
from tests.edge_runtime.store.durable.outbox.outboxes import EVERYTHING, cases, drain, ids, names


def left(path: Path, *numbers: int, dead: tuple[int, ...] = ()) -> Path:
    """An outbox that a worker left with these cases."""
    with Outbox(OutboxConfig(path=path), SimulatedClock()) as outbox:
        outbox.put(cases(*numbers, *dead))
        for name in names(*dead):
            taken = outbox.lease(100, EVERYTHING)
            outbox.release(one.id for one in taken if one.id != name)
            outbox.move_to_dead_letters([name], "rejected", "no")
    return path


def adopting(folder: Path, *paths: Path) -> AdoptingOutbox:
    outbox = AdoptingOutbox(OutboxConfig(path=folder / "own.db"), SimulatedClock())
    outbox.adopt(paths)
    return outbox


def counts(path: Path) -> tuple[int, int]:
    with Outbox(OutboxConfig(path=path), SimulatedClock()) as outbox:
        found = outbox.counts()
        assert found.balances()
        return found.queued, found.delivered


def test_cases_of_all_files_go_out_once_in_turns_and_each_file_counts_its_own(tmp_path: Path) -> None:
    one, other = left(tmp_path / "1.db", 1, 2, 3), left(tmp_path / "2.db", 4, 5)
    with adopting(tmp_path, one, other) as outbox:
        outbox.put(cases(6, 7))
        assert (outbox.counts().queued, outbox.counts().accepted) == (7, 7)
        first = outbox.lease(2, EVERYTHING)
        outbox.release(case.id for case in first)
        second = outbox.lease(2, EVERYTHING)
        outbox.release(case.id for case in second)
        assert sorted([*ids(first), *ids(second)]) == [1, 2, 6, 7]  # own ones, then adopted ones
        assert sorted(ids(drain(outbox))) == [1, 2, 3, 4, 5, 6, 7]
        assert not outbox.lease(2, EVERYTHING)
    assert [counts(path) for path in (one, other, tmp_path / "own.db")] == [(0, 3), (0, 2), (0, 2)]


def test_what_was_not_acknowledged_is_there_for_the_next_start(tmp_path: Path) -> None:
    one = left(tmp_path / "1.db", 1, 2)
    with adopting(tmp_path, one) as outbox:
        assert len(outbox.lease(10, EVERYTHING)) == 2
        assert outbox.ack(names(2)) == 1
    with adopting(tmp_path, one) as outbox:
        assert ids(drain(outbox)) == [1]


def test_retries_and_dead_letters_stay_in_their_file(tmp_path: Path) -> None:
    one = left(tmp_path / "1.db", 1, 2, 3)
    with adopting(tmp_path, one) as outbox:
        outbox.lease(10, EVERYTHING)
        assert outbox.retry(names(1), 3600.0, "busy") == 1
        assert outbox.move_to_dead_letters(names(2), "rejected", "no") == 1
        assert outbox.release(names(3)) == 1
        assert ids(outbox.lease(10, EVERYTHING)) == [3]
        assert (outbox.counts().queued, outbox.counts().dead) == (2, 1)
    with Outbox(OutboxConfig(path=one), SimulatedClock()) as outbox:
        assert [letter.case.id for letter in outbox.dead_letters()] == names(2)


def test_final_messages_of_all_files_are_published_once(tmp_path: Path) -> None:
    one = left(tmp_path / "1.db", 1, dead=(8, 9))
    with adopting(tmp_path, one) as outbox:
        outbox.put(cases(5))
        outbox.lease(10, EVERYTHING)
        outbox.move_to_dead_letters(names(5), "rejected", "no")
        published: list[str] = []
        while outbox.unpublished:
            found = outbox.closings(10)
            published += [closing.id for closing in found]
            outbox.published([closing.seq for closing in found])
        assert sorted(published) == names(5, 8, 9)


def test_a_drained_file_is_given_back_so_that_its_worker_may_return(tmp_path: Path) -> None:
    one, empty = left(tmp_path / "1.db", 1), left(tmp_path / "2.db")
    with adopting(tmp_path, one, empty) as outbox:
        assert counts(empty) == (0, 0)  # it could not be opened while another process has it
        drain(outbox)
        outbox.lease(10, EVERYTHING)
        assert counts(one) == (0, 1)


def test_files_that_cannot_be_used_are_left_alone_and_the_own_one_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    used = left(tmp_path / "1.db", 1)
    foreign = tmp_path / "2.db"
    foreign.write_bytes(b"")
    foreign.chmod(0o666)
    with Outbox(OutboxConfig(path=used), SimulatedClock()) as owner:
        owner.open()
        with adopting(tmp_path, used, tmp_path / "missing" / "3.db") as outbox:
            outbox.put(cases(6))
            assert ids(drain(outbox)) == [6]
    assert caplog.text.count("left the outbox of a worker that is gone until the next start") == 2
    assert counts(used) == (1, 0)
