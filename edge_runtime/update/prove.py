"""Proof that a new model is better: rules over labels of the windows on which it and the old one differ.

A window on which both say the same cannot tell them apart, so people are not asked about it. Of a window on which they
differ, a person's label is *for* the new model (it alone was right), *against* it (the old one alone was right), or
*neither*. If both are equally good, for and against are throws of a fair coin.

`evidence` is an e-value: the likelihood of what came, averaged over coins that favour one side, by that of the fair
coin. It is a supermartingale wherever the favoured side wins half of the throws or less, so one may look after every
label and stop at any time (Ville's inequality; Ramdas et al., arXiv:2210.01948). Labels are bounded, so the chance to
pass by luck is known exactly, and lies below Ville's bound of 1 / `ACCEPT_AT`: ``python -m benchmarks.accuracy.prove``
prints it.

Rules of `verdict`, in this order:

1. `ACCEPT_AT` times more likely if the new model is better: accepted.
2. `REJECT_AT` times more likely if the old one is: rejected. Being wrong here costs an improvement, and no harm.
3. Not even if every label that is left were for it could it be accepted: rejected. So is a proof with no label left.
4. Its time is over: the old model stays.
5. Otherwise more labels are needed.

Rule of `reversed_by`, for a change that was accepted:

6. Labels of windows that had none then are, alone, `REVERSE_AT` times more likely if the old model is better: it
   answers again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from math import comb
from typing import Final, Literal

ACCEPT_AT: Final = 100.0
REJECT_AT: Final = 4.0
REVERSE_AT: Final = 11.0
FEWEST: Final = 11
"""Labels without which nothing is proved, if all are for it."""

Outcome = Literal["accept", "reject", "go on"]
Said = Literal["for", "against", "neither"]
"""Meaning of one label: for the new model, against it, or neither."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Labels:
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
    def of(cls, said: Iterable[Said]) -> Labels:
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


def evidence(wins: int, losses: int) -> float:
    """Return how many times more likely the labels are if the first side is better than if both are equal.

    The mean of ``(2 p)^wins (2 (1 - p))^losses`` over p > 1/2 with density proportional to ``p (1 - p)``. The tail of a
    Beta distribution with whole parameters at 1/2 is that of a binomial one, so it is a ratio of whole numbers.
    """
    n = wins + losses
    return 1.5 * sum(comb(n + 3, j) for j in range(wins + 2)) / ((n + 3) * comb(n + 2, wins + 1))


def verdict(labels: Labels, most: int, *, is_over: bool = False) -> Verdict:
    """Decide by the labels so far.

    Args:
        labels: all of them.
        most: labels that may be asked for.
        is_over: no more time is left.
    """
    if evidence(labels.wins, labels.losses) >= ACCEPT_AT:  # rule 1
        return Verdict(outcome="accept")
    if evidence(labels.losses, labels.wins) >= REJECT_AT:  # rule 2
        return Verdict(outcome="reject", reason=f"labels speak against it: {labels}")
    left = max(0, most - labels.given)
    if evidence(labels.wins + left, labels.losses) < ACCEPT_AT:  # rule 3
        return Verdict(outcome="reject", reason=f"{labels.given} of {most} labels cannot prove it: {labels}")
    if is_over:  # rule 4
        return Verdict(outcome="reject", reason=f"it was not proved in time (prove_s): {labels}")
    return Verdict(outcome="go on")  # rule 5


def reversed_by(later: Labels) -> str | None:
    """Explain why an accepted change goes back, one line, or None if it stays.

    Args:
        later: labels of windows that had none when it was accepted.
    """
    if evidence(later.losses, later.wins) < REVERSE_AT:
        return None
    return f"labels that came after its proof speak against it: {later}"  # rule 6
