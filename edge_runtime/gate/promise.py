"""Promise on the errors of trusted answers: more windows are hard where audits say that it is broken.

An audit is a trusted answer that the cloud was asked about all the same; it counts as wrong where the cloud's answer is
another one. Rules, for a promised error rate p:

1. Two likelihood ratios follow the audits: of an error rate of ``2 * p`` against p, and of ``p / 2`` against p.
2. Where the first reaches `EVIDENCE`, the promise is broken: the share of hard windows becomes `FACTOR` times as much,
   and both begin again.
3. Where the second does, there is room: the share becomes as much smaller, down to what was asked. Both begin again.
4. A ratio that has fallen below ``1 / EVIDENCE`` begins again, so that a good past hides no bad present.

Each ratio is the capital of a bet against p (Wald 1945, Shafer 2021). From a beginning on, while the promise is kept,
the first ever reaches `EVIDENCE` with a probability of at most ``1 / EVIDENCE``, however often one looks (Ville 1939).
The price is patience. For a promise of 5 %, an error rate of 10 % takes about 145 audits to be found, one of 20 % about
31, and a step back at 2.5 % takes 375: with ``audit_share = 0.02`` these are 7,300, 1,600 and 19,000 windows. Audits of
all keys count together; one key hardly has enough of its own.
"""

from __future__ import annotations

import math
from typing import Final

EVIDENCE: Final = 20.0
FACTOR: Final = 1.25
LARGEST: Final = 0.5
"""Share of hard windows that is never exceeded."""


class Promise:
    """Share of hard windows that keeps an error rate of the others.

    Args:
        max_error: error rate that is promised, above 0 and at most 0.4.
        share: that was asked, the smallest.
    """

    def __init__(self, max_error: float, share: float) -> None:
        self._asked = self.share = share
        p = max_error
        self._worse = math.log(2), math.log((1 - 2 * p) / (1 - p))
        self._better = math.log(0.5), math.log((1 - p / 2) / (1 - p))
        self.logs = [0.0, 0.0]
        """Of both ratios (rule 1)."""

    def take(self, *, wrong: bool) -> bool:
        """Take an audit; return whether the share has changed."""
        which = 0 if wrong else 1
        self.logs[0] += self._worse[which]
        self.logs[1] += self._better[which]
        enough = math.log(EVIDENCE)
        if self.logs[0] >= enough:  # rule 2
            factor = FACTOR
        elif self.logs[1] >= enough:  # rule 3
            factor = 1 / FACTOR
        else:
            self.logs = [0.0 if one < -enough else one for one in self.logs]  # rule 4
            return False
        self.logs = [0.0, 0.0]
        before = self.share
        self.share = min(max(before * factor, self._asked), LARGEST)
        return self.share != before

    def restore(self, share: float, logs: list[float]) -> None:
        """Go on where a run before was."""
        self.share = min(max(share, self._asked), LARGEST)
        self.logs = logs
