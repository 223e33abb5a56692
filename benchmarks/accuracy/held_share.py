"""Judgement of gates on groups that they were not fitted to: the share of hard windows, and a promise on errors.

1. Every group is a stream of its own: its recordings one after the other, in the order of time. The stream is repeated
   until it has `STREAM` windows; a repeated window has an id of its own. Groups of fewer than `LEAST` are left out: a
   few words, said a hundred times over, are no stream.
2. Threshold and spread are fitted to the groups of all other folds (`fit_hold`), as a bundle would have them.
3. The gate of the device (`edge_runtime.answer.gate.adaptive`) decides, as for a key that it has never met. Beside it
   stands the threshold that stays where it is.
4. What is sent has to be wrong more often than what random forwarding of the same share would send: than all answers.
5. A promise on the errors of trusted answers (`edge_runtime.answer.gate.promise`) is judged over `AUDITED` windows, the
   stream repeated as before: of all trusted answers in the second half of them, since audits take their time. An audit
   knows the cloud's answer; what is counted is the truth.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
from edge_export.choose.surround.hold import KeySlot, decide, fit_hold
from edge_export.data.dataset import Float32, Int64, Windows

from edge_runtime.answer.gate.adaptive import AdaptiveGate
from edge_runtime.answer.gate.audit import audited
from edge_runtime.answer.gate.config import GateConfig

Bools = npt.NDArray[np.bool_]

STREAM: Final = 1000
"""Windows of a stream at least (rule 1)."""
LEAST: Final = 100
AUDITED: Final = 20_000
NEAR: Final = 0.1
"""A share is held that lies within this part of what was asked."""
_NORMAL_95: Final = 1.959963984540054


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldShare:
    """Share of hard windows of one group, with the threshold that stays and with the one that moves.

    Attributes:
        group: left out of the fit.
        windows: that it has.
        stream: windows of its stream, repetitions included.
        asked: share.
        fixed: share, by the threshold that stays.
        held: share, by the threshold that moves.
        first: share of the first time through, by the threshold that moves.
        error: share of all answers that are wrong.
        fixed_error: of the hard ones by the threshold that stays; NaN where there are none.
        held_error: of the hard ones by the one that moves.
    """

    group: str
    windows: int
    stream: int
    asked: float
    fixed: float
    held: float
    first: float
    error: float
    fixed_error: float
    held_error: float

    @property
    def near(self) -> bool:
        """The share held lies within a tenth of what was asked."""
        return abs(self.held - self.asked) <= NEAR * self.asked + 1e-12

    @property
    def likely(self) -> bool:
        """The share of the first time through lies within the 95 % band of as many independent windows."""
        half = _NORMAL_95 * math.sqrt(self.asked * (1 - self.asked) / self.windows) + 0.5 / self.windows
        return abs(self.first - self.asked) <= half

    @property
    def margin(self) -> float:
        """Error rate of what is sent, less that of what random forwarding sends."""
        return self.held_error - self.error


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredAnswers:
    """Answers that gates are judged on.

    Attributes:
        trust: (n,) the gate's score of each answer, by models that have not seen its group.
        wrong: (n,) whether the answer is.
        disputed: (n,) whether the cloud gives another one.
        windows: of the answers, in the order of recording and time.
        fold: (n,) of each window.
    """

    trust: Float32
    wrong: Bools
    disputed: Bools
    windows: Windows
    fold: Int64

    def groups(self, folds: Collection[int] | None) -> Iterator[tuple[str, Bools, Float32]]:
        """Yield each group, its windows, and the scores of windows in other folds, which gates are fitted to."""
        for group in np.unique(self.windows.group).tolist():
            of = self.windows.group == group
            held = self.fold[of]
            if len(held) >= LEAST and (folds is None or held[0] in folds):
                yield group, of, self.trust[~np.isin(self.fold, held)]


def judge_hold(given: ScoredAnswers, share: float, folds: Collection[int] | None = None) -> list[HeldShare]:
    """Judge thresholds on groups that they were not fitted to.

    Args:
        given: answers of all groups.
        share: of the windows that is to be hard.
        folds: whose groups are judged; None: all.
    """
    return [_held(given, group, of, rest, share) for group, of, rest in given.groups(folds)]


def _held(given: ScoredAnswers, group: str, of: Bools, rest: Float32, share: float) -> HeldShare:
    fitted = fit_hold(rest, share)
    scores, errors = given.trust[of], given.wrong[of]
    times = math.ceil(STREAM / len(scores))
    stays = scores < np.float32(fitted.threshold)
    moves = decide(np.tile(scores, times), fitted, share, group)
    return HeldShare(
        group=group,
        windows=len(scores),
        stream=len(moves),
        asked=share,
        fixed=float(stays.mean()),
        held=float(moves.mean()),
        first=float(moves[: len(scores)].mean()),
        error=float(errors.mean()),
        fixed_error=_rate(errors[stays]),
        held_error=_rate(np.tile(errors, times)[moves]),
    )


class KeptError(NamedTuple):
    """Error rate of the trusted answers to a group, by a share that stays and by one that audits move (rule 5)."""

    group: str
    limit: float
    without: float
    kept: float
    share: float
    """Of its windows that was hard, in the second half, where audits move it."""
    audits: int


def judge_promise(
    given: ScoredAnswers, share: float, limit: float, audit_share: float, folds: Collection[int] | None = None
) -> list[KeptError]:
    """Judge a promise on groups that nothing was fitted to.

    Args:
        given: answers of all groups.
        share: of the windows that is to be hard at least.
        limit: ``max_local_error``.
        audit_share: of the trusted answers that the cloud is asked about.
        folds: whose groups are judged; None: all.
    """
    return [_kept(given, group, of, rest, share, limit, audit_share) for group, of, rest in given.groups(folds)]


def _kept(
    given: ScoredAnswers, group: str, of: Bools, rest: Float32, share: float, limit: float, audit_share: float
) -> KeptError:
    fitted = fit_hold(rest, share)
    stream = np.resize(given.trust[of], AUDITED)
    wrong, disputed = np.resize(given.wrong[of], AUDITED), np.resize(given.disputed[of], AUDITED).tolist()
    gate = AdaptiveGate(GateConfig(max_local_error=limit, audit_share=audit_share))
    gate.begin("", threshold=fitted.threshold, share=share, spread=fitted.spread)
    hard, audits = np.zeros(AUDITED, np.bool_), 0
    for slot, score in enumerate(stream.tolist()):
        place = KeySlot(group, slot)
        hard[slot] = gate.hard([place], [score])[0]
        if not hard[slot] and audited(place.id, audit_share):
            gate.learn([(False, not disputed[slot])])
            audits += 1
    late = slice(AUDITED // 2, None)
    without = ~decide(stream, fitted, share, group)[late]
    return KeptError(
        group=group,
        limit=limit,
        without=_rate(wrong[late][without]),
        kept=_rate(wrong[late][~hard[late]]),
        share=float(hard[late].mean()),
        audits=audits,
    )


def _rate(wrong: Bools) -> float:
    return float(wrong.mean()) if len(wrong) else math.nan
