"""An oracle that cannot say no proves nothing: each fault that it is for is shown to it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from edge_runtime.store.durable.outbox import OutboxCounts
from tests.faults.oracle import History, missing


@pytest.fixture
def history() -> History:
    """Three go in, two are acknowledged and come out."""
    history = History()
    for name in ("a", "b", "c"):
        history.attempt(name, name.encode())
    for name in ("a", "b"):
        history.acknowledge(name)
        history.deliver(name, name.encode())
    return history


def test_what_went_in_and_came_out_is_fine(history: History) -> None:
    verdict = history.verdict()
    assert verdict.valid
    assert set(verdict.attempts) == {"a", "b", "c"}
    assert set(verdict.acknowledged) == set(verdict.ok) == {"a", "b"}
    assert not verdict.duplicated
    assert not verdict.recovered


def test_a_loss_is_seen(history: History) -> None:
    history.acknowledge("c")
    verdict = history.verdict()
    assert not verdict.valid
    assert set(verdict.lost) == {"c"}
    assert "lost ['c']" in str(verdict)


def test_what_waits_or_was_dropped_by_a_policy_is_no_loss(history: History) -> None:
    history.acknowledge("c")
    assert history.verdict(elsewhere=["c"]).valid
    assert not history.verdict(elsewhere=["d"]).valid


def test_an_unexpected_one_is_seen(history: History) -> None:
    history.deliver("from nowhere", b"")
    verdict = history.verdict()
    assert not verdict.valid
    assert set(verdict.unexpected) == {"from nowhere"}


def test_another_body_is_seen_and_does_not_count_as_the_right_one(history: History) -> None:
    history.acknowledge("c")
    history.deliver("c", b"C")
    verdict = history.verdict()
    assert set(verdict.unexpected) == {"c with another body"}
    assert set(verdict.lost) == {"c"}


def test_a_duplicate_is_seen_and_allowed(history: History) -> None:
    history.deliver("a", b"a")
    history.deliver("a", b"a")
    verdict = history.verdict()
    assert verdict.valid
    assert verdict.duplicated == {"a": 2}


def test_a_retransmission_is_one_attempt_and_its_second_coming_a_duplicate(history: History) -> None:
    history.attempt("a", b"a")
    history.deliver("a", b"a")
    assert history.verdict().duplicated == {"a": 1}


def test_a_recovered_one_is_seen(history: History) -> None:
    history.deliver("c", b"c")
    verdict = history.verdict()
    assert verdict.valid
    assert set(verdict.recovered) == {"c"}


def test_the_law_is_added_up_again() -> None:
    counts = OutboxCounts(
        accepted=10, delivered=4, queued=2, dead=1, dropped={"evicted": 1, "expired": 2}, in_flight=0, refused={},
        duplicates=0, repeated=0, unpublished=0, used_bytes=0, oldest_age_s=0.0,
    )  # fmt: skip
    assert missing(counts) == 0
    assert missing(replace(counts, delivered=3)) == 1
    assert missing(replace(counts, dead=2)) == -1
