"""The refusal policy as a table: every rule, and every fact that a rule turns on."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_runtime.cloud.refusals import (
    FINAL_STATUS,
    FailureContext,
    RefusalAction,
    RefusalHistory,
    UnaskableCase,
    decide,
)
from edge_runtime.errors import CloudError, CloudRejected, CloudUnavailable, ConfigError

AWAY = CloudUnavailable("connection refused")
REFUSED = CloudRejected("no", 400)
NONSENSE = CloudRejected("not a number", None)
FORBIDDEN = CloudRejected("who are you", 403)
ONE = FailureContext(cases=1, checked=True)
AGAIN = dataclasses.replace(ONE, answered_since=True, counted=2)


@pytest.mark.parametrize(
    ("rule", "error", "history", "expected"),
    [
        (1, AWAY, ONE, RefusalAction.WAIT),
        (1, AWAY, dataclasses.replace(AGAIN, cases=9, checked=False), RefusalAction.WAIT),
        (2, ConfigError("does not fit"), ONE, RefusalAction.MISFIT),
        (2, CloudRejected("unknown model", 404), AGAIN, RefusalAction.MISFIT),
        (2, REFUSED, dataclasses.replace(AGAIN, checked=False), RefusalAction.MISFIT),
        (3, REFUSED, dataclasses.replace(ONE, cases=2), RefusalAction.SPLIT),
        (3, NONSENSE, dataclasses.replace(ONE, cases=2, in_a_row=3), RefusalAction.SPLIT),
        (3, UnaskableCase("too short"), dataclasses.replace(ONE, cases=2), RefusalAction.SPLIT),
        (4, UnaskableCase("too short"), ONE, RefusalAction.DEAD_LETTER),
        (4, UnaskableCase("too short"), dataclasses.replace(ONE, in_a_row=3), RefusalAction.DEAD_LETTER),
        *((5, CloudRejected("no", status), AGAIN, RefusalAction.DEAD_LETTER) for status in sorted(FINAL_STATUS)),
        (5, REFUSED, dataclasses.replace(AGAIN, answered_since=False), RefusalAction.RETRY),
        (6, NONSENSE, AGAIN, RefusalAction.RETRY),
        (6, FORBIDDEN, AGAIN, RefusalAction.RETRY),
        (6, NONSENSE, dataclasses.replace(AGAIN, counted=3), RefusalAction.DEAD_LETTER),
        (6, NONSENSE, dataclasses.replace(AGAIN, counted=3, answered_since=False), RefusalAction.RETRY),
        (7, REFUSED, dataclasses.replace(ONE, in_a_row=1), RefusalAction.HOLD),
        (7, NONSENSE, dataclasses.replace(ONE, in_a_row=7), RefusalAction.HOLD),
        (8, REFUSED, ONE, RefusalAction.RETRY),
        (8, NONSENSE, ONE, RefusalAction.RETRY),
    ],
)
def test_the_first_rule_that_fits_decides(
    rule: int, error: CloudError | ConfigError, history: FailureContext, expected: RefusalAction
) -> None:
    assert decide(error, history, unreadable_attempts=3) is expected, f"rule {rule}"


errors = st.sampled_from([AWAY, REFUSED, NONSENSE, FORBIDDEN, ConfigError("x")])


@given(st.lists(st.tuples(st.sampled_from("abc"), errors), max_size=60), st.integers(1, 5))
def test_without_a_good_answer_nothing_ever_becomes_a_dead_letter(
    asked: list[tuple[str, CloudError]], attempts: int
) -> None:
    """Whatever is refused, how often, and in which order. Mutation that this finds: rule 5 without `answered_since`."""
    refusals = RefusalHistory()
    for id_, error in asked:
        history = refusals.history([id_], checked=True)
        assert decide(error, history, unreadable_attempts=attempts) is not RefusalAction.DEAD_LETTER
        refusals.refused(id_, history)


@given(st.integers(0, 5), st.integers(1, 6), st.sampled_from([REFUSED, NONSENSE]))
def test_a_poison_case_among_good_ones_becomes_a_dead_letter_after_the_stated_number_of_refusals(
    good_before: int, attempts: int, error: CloudRejected
) -> None:
    refusals = RefusalHistory()
    for n in range(good_before):
        refusals.answered([f"good {n}"])
    for asked in range(1, 10):
        history = refusals.history(["poison"], checked=True)
        if decide(error, history, unreadable_attempts=attempts) is RefusalAction.DEAD_LETTER:
            break
        refusals.refused("poison", history)
        refusals.answered([f"good {asked} after"])
    assert asked == (2 if error.status in FINAL_STATUS else max(2, attempts))


def test_a_case_that_was_refused_is_asked_alone_until_it_has_left() -> None:
    refusals = RefusalHistory()
    refusals.split(["a", "b"])
    assert "a" in refusals
    assert "b" in refusals
    refusals.answered(["a"])
    assert "a" not in refusals
    refusals.forget(["b"])
    assert "b" not in refusals


def test_the_history_of_refused_cases_is_bounded() -> None:
    refusals = RefusalHistory()
    refusals.split(f"k@{n}" for n in range(20_000))
    assert "k@0" not in refusals
    assert "k@19999" in refusals
    assert len(refusals._cases) == 10_000
