"""Refusal policy: what becomes of cases that the cloud did not answer well. `decide` is a pure function.

One refusal looks the same whether a case can never be answered or the server refuses everything (a proxy in the way, a
wrong deployment). A good answer to another case in between tells them apart, so no case goes to the dead letters before
the server has refused it, answered another one well, and refused it again. Nothing of this outlives a restart: the next
run believes no server before it has seen it answer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from http import HTTPStatus
from typing import Final

from edge_runtime.errors import CloudError, CloudRejected, CloudUnavailable, ConfigError
from edge_runtime.key_table import KeyTable

FINAL_STATUS: Final = frozenset({400, 413, 415, 422})
"""Refusals of the request's content: the same bytes would be refused again."""

_MAX_CASES: Final = 10_000


class UnaskableCase(CloudRejected):
    """A case that does not fit this bundle's window, or the cloud's; found by the device, which sends no request.

    Attributes:
        reason: of the dead letter: ``rejected``, or ``context_short`` where the cloud takes longer cases only.
    """

    def __init__(self, message: str, reason: str = "rejected") -> None:
        super().__init__(message)
        self.reason = reason


class RefusalAction(Enum):
    """Action on the cases of a request that failed."""

    WAIT = "wait"
    """Ask for all of them later, and for nothing else before: the cloud is unavailable."""
    MISFIT = "misfit"
    """Keep the cases and ask rarely: the model is missing or does not fit, which only people can mend."""
    SPLIT = "split"
    """Ask for each of them alone: one bad case must not take the others with it."""
    DEAD_LETTER = "dead_letter"
    """Move the case to the dead letters: the fault is its own."""
    RETRY = "retry"
    """Ask for it later; the others go on."""
    HOLD = "hold"
    """Hold the queue and probe with one case: the server has answered nothing well since its last refusal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureContext:
    """State of knowledge when a request failed."""

    cases: int
    """In the request."""
    checked: bool
    """The cloud's model was seen to take what this device sends."""
    counted: int = 1
    """Refusals of the case, this one included, with a good answer to another case between each two."""
    answered_since: bool = False
    """Another case was answered well since the case was refused before; False where this is its first refusal."""
    in_a_row: int = 0
    """Single cases that were refused before this one since the last good answer."""


def decide(error: CloudError | ConfigError, history: FailureContext, *, unreadable_attempts: int) -> RefusalAction:
    """Decide what becomes of the cases of a failed request. The first rule that fits decides.

    1. The cloud is unavailable: WAIT.
    2. The request was not made because the model is missing or does not fit, or a model that has not been seen to fit
       refuses: MISFIT.
    3. Several cases were asked together: SPLIT.
    4. The device itself cannot ask for the case: DEAD_LETTER.
    5. Its content was refused before, and another case was answered well since: DEAD_LETTER.
    6. It was refused, or answered with nonsense, `unreadable_attempts` times with a good answer between each two:
       DEAD_LETTER.
    7. Another single case was refused, and none answered well since: HOLD.
    8. Otherwise: RETRY.

    Args:
        error: how the request failed.
        history: what is known of the cases and of the server.
        unreadable_attempts: see rule 6, at least 1.
    """
    if isinstance(error, CloudUnavailable):
        return RefusalAction.WAIT  # rule 1
    if not isinstance(error, CloudRejected) or not history.checked or error.status == HTTPStatus.NOT_FOUND:
        return RefusalAction.MISFIT  # rule 2
    if history.cases > 1:
        return RefusalAction.SPLIT  # rule 3
    if isinstance(error, UnaskableCase):
        return RefusalAction.DEAD_LETTER  # rule 4
    if history.answered_since and (error.status in FINAL_STATUS or history.counted >= unreadable_attempts):
        return RefusalAction.DEAD_LETTER  # rules 5 and 6
    return RefusalAction.HOLD if history.in_a_row else RefusalAction.RETRY  # rules 7 and 8


class RefusalHistory:
    """History of refusals in this run, by case, and of good answers. Belongs to one thread.

    It holds at most 10,000 cases; one that was evicted is refused, and noted, again.
    """

    def __init__(self) -> None:
        self._good_answers = 0
        self._in_a_row = 0
        self._cases: KeyTable[str, tuple[int, int]] = KeyTable(_MAX_CASES)
        """Refusals that count, and good answers before the last one."""

    def __contains__(self, case_id: str) -> bool:
        """Return whether the case was refused, or was part of a request that was: it is asked for alone."""
        return case_id in self._cases

    def answered(self, ids: Iterable[str]) -> None:
        """Note that the cloud has answered these well."""
        self._good_answers += 1
        self._in_a_row = 0
        self.forget(ids)

    def history(self, ids: Sequence[str], *, checked: bool) -> FailureContext:
        """Build the history for `decide`, of a request for these cases that has just failed."""
        counted, good_answers = self._cases.get(ids[0], (0, -1)) if len(ids) == 1 else (0, -1)
        since = good_answers >= 0 and self._good_answers > good_answers
        return FailureContext(
            cases=len(ids),
            checked=checked,
            counted=counted + (since or good_answers < 0),
            answered_since=since,
            in_a_row=self._in_a_row,
        )

    def split(self, ids: Iterable[str]) -> None:
        """Note that a request for these together was refused."""
        for id_ in ids:
            self._note(id_, self._cases.get(id_, (0, -1)))

    def refused(self, case_id: str, history: FailureContext) -> None:
        """Note that this one was refused alone."""
        self._in_a_row += 1
        self._note(case_id, (history.counted, self._good_answers))

    def forget(self, ids: Iterable[str]) -> None:
        """Drop what is known of cases that have left."""
        for id_ in ids:
            self._cases.pop(id_, None)

    def _note(self, case_id: str, what: tuple[int, int]) -> None:
        self._cases[case_id] = what
