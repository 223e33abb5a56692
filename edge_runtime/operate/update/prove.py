"""Proof that a new model is better: rules over labels of the windows on which it and the old one differ.

A window on which both say the same cannot tell them apart, so people are not asked about it. Of a window on which they
differ, a person's label is *for* the new model (it alone was right), *against* it (the old one alone was right), or
*neither*. If both are equally good, for and against are throws of a fair coin.

Rules of `verdict`:

1. Labels count in the order in which their windows were drawn (`edge_runtime.store.cases.draw`), up to the first window
   without one. So neither the order in which readings came nor the one in which people label has a say.
2. They are looked at four times: when a quarter, a half, three quarters and all of those that may be asked for are
   there; and once more when no other can come, which is the last look.
3. At a look the new model is accepted if it has as many for it as a fair coin reaches, at this look or an earlier
   one, with a chance of at most `ERROR` times the share of the labels that are used. The chance is computed exactly:
   the walk of the coin from look to look, without the walks that have ended (group sequential test with a linear error
   spending function: Lan and DeMets, Biometrika 70, 1983; Kim and DeMets, Biometrika 74, 1987).
4. It is rejected by the same rule with the sides exchanged and `HARM`. Wrong here costs an improvement, and no harm.
5. It is rejected where not even if every label that is left were for it could it be accepted.
6. At the last look it is rejected if nothing else was decided: the old model stays.
7. The first look that decides, decides; until then more labels are needed.

Rule of `reversed_by`, for a change that was accepted:

8. Labels of windows that had none then are a walk of their own, by rules 1 to 4: where they are against it with a
   chance of at most `REVERSE`, the old model answers again.

The windows are drawn without replacement, which makes a count stray less than a coin does.
``python -m benchmarks.accuracy.prove`` prints the chances.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, comb
from typing import Final, Literal

ERROR: Final = 0.01
HARM: Final = 0.1
REVERSE: Final = 0.05
LOOKS: Final = 4
FEWEST: Final = 11
"""Labels that `edge_runtime.operate.update.config.UpdateConfig.prove_labels` must allow for."""
MOST: Final = 200
"""Labels that count, however many may be asked for: of the windows that are kept, some are skipped."""

Outcome = Literal["accept", "reject", "go on"]
Said = Literal["for", "against", "neither"]
"""Meaning of one label: for the new model, against it, or neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DisputedLabels:
    """Counts of labels of windows on which two models differ."""

    wins: int = 0
    """The new model alone was right."""
    losses: int = 0
    """The old model alone was right."""
    neither: int = 0
    """Both were wrong: it tells nothing, and yet it was a person's work."""

    @property
    def given(self) -> int:
        """All of them."""
        return self.wins + self.losses + self.neither

    @classmethod
    def of(cls, said: Iterable[Said]) -> DisputedLabels:
        """Count them."""
        counts = Counter(said)
        return cls(wins=counts["for"], losses=counts["against"], neither=counts["neither"])

    def __str__(self) -> str:
        """Say it to people."""
        return f"{self.wins} for it, {self.losses} against, {self.neither} neither"


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """Decision by the labels so far."""

    outcome: Outcome
    reason: str = ""
    """One line, where it is rejected."""


def looks(most: int) -> list[int]:
    """Return after how many labels is looked, where `most` may be asked for (rule 2)."""
    return [ceil(min(most, MOST) * part / LOOKS) for part in range(1, LOOKS + 1)]


@lru_cache(maxsize=64)
def bounds(throws: tuple[int, ...], spent: tuple[float, ...]) -> tuple[int, ...]:
    """Return how many heads a fair coin must show at each look (rule 3); more than there are throws: none suffice.

    Args:
        throws: so far, at each look.
        spent: chance that it may have got there, at each look or before.
    """
    found: list[int] = []
    walk, before, ended = [1.0], 0, 0.0
    for n, most in zip(throws, spent, strict=True):
        for _ in range(n - before):
            walk = [(here + left) / 2 for here, left in zip([*walk, 0.0], [0.0, *walk], strict=True)]
        bound = n + 1
        while bound and ended + walk[bound - 1] <= most:
            bound -= 1
            ended += walk[bound]
            walk[bound] = 0.0
        found.append(bound)
        before = n
    return tuple(found)


def verdict(said: Sequence[Said], most: int, *, is_last: bool = False) -> Verdict:
    """Decide by the labels so far.

    Args:
        said: labels in the order in which their windows were drawn, up to the first window without one (rule 1).
        most: labels that may be asked for.
        is_last: no more labels can come: the time is over, or each window that was drawn has one.
    """
    so_far, shares = _looked_at(said, most, is_last=is_last)
    accept = _bounds(so_far, shares, ERROR)
    reject = _bounds(so_far, shares, HARM)
    for labels, share, enough, too_many in zip(so_far, shares, accept, reject, strict=True):
        if labels.wins >= enough:  # rule 3
            return Verdict(outcome="accept")
        if labels.losses >= too_many:  # rule 4
            return Verdict(outcome="reject", reason=f"labels speak against it: {labels}")
        left = 0 if share >= 1 else looks(most)[-1] - labels.given
        if _chance(labels.wins + left, labels.wins + labels.losses + left) > ERROR and left:  # rule 5
            return Verdict(outcome="reject", reason=f"{labels.given} of {most} labels cannot prove it: {labels}")
        if share >= 1:  # rule 6
            return Verdict(outcome="reject", reason=f"it was not proved by its labels in time: {labels}")
    return Verdict(outcome="go on")  # rule 7


def reversed_by(later: Sequence[Said], most: int) -> str | None:
    """Explain why an accepted change goes back, one line, or None if it stays (rule 8).

    Args:
        later: labels of windows that had none when it was accepted, as in `verdict`.
        most: labels that may be asked for, as in `verdict`.
    """
    so_far, shares = _looked_at(later, most, is_last=False)
    for labels, enough in zip(so_far, _bounds(so_far, shares, REVERSE), strict=True):
        if labels.losses >= enough:
            return f"labels that came after its proof speak against it: {labels}"
    return None


def _looked_at(said: Sequence[Said], most: int, *, is_last: bool) -> tuple[list[DisputedLabels], list[float]]:
    """Return the labels at each look that has come, and the share of the error that may be spent by then (rule 2)."""
    last = looks(most)[-1]
    ends = sorted({n for n in looks(most) if n <= len(said)})
    shares = [n / last for n in ends]
    if is_last and (not shares or shares[-1] < 1):
        if ends and ends[-1] == len(said):
            ends.pop(), shares.pop()
        ends.append(len(said))
        shares.append(1.0)
    return [DisputedLabels.of(said[:n]) for n in ends], shares


def _bounds(so_far: Sequence[DisputedLabels], shares: Sequence[float], error: float) -> tuple[int, ...]:
    throws = tuple(labels.wins + labels.losses for labels in so_far)
    return bounds(throws, tuple(error * share for share in shares))


def _chance(heads: int, throws: int) -> float:
    """Return the chance that a fair coin shows this many heads or more."""
    return float(sum(comb(throws, j) for j in range(heads, throws + 1)) / 2**throws)
