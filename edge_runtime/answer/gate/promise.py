"""Promise on the errors of trusted answers: more windows are hard where audits find more errors than were promised.

An audit is a trusted answer that the cloud was asked about all the same; it is wrong where the cloud gives another one.
The share of hard windows follows the audits, in its logarithm: each wrong one raises it by ``GAIN * (1 - aim)``, any
other lowers it by ``GAIN * aim``, between the share that was asked and `LARGEST`. The aim is `AIM` of the promise, so
that the error rate does not lie above it half of the time.

So of n audits, whatever the answers, not more are wrong than ``aim * n + log(LARGEST / asked) / GAIN``, as long as the
share has not reached `LARGEST`. For a share of 8 % that was asked, the second part is 18 audits. It takes patience:
for a promise of 5 %, an error rate of 10 % doubles the share in about 115 audits, which are some 6,000 windows at
``audit_share = 0.02``. Audits of all keys count together; one key hardly has enough of its own. Errors that the cloud
makes as well are not seen, and its own errors count as the device's.

Source: Gibbs and Candes 2021 (arXiv:2106.00170), with errors in place of misses; Feldman et al. 2022
(arXiv:2205.09095), for risks other than coverage.
"""

from __future__ import annotations

import math
from typing import Final

GAIN: Final = 0.1
AIM: Final = 0.8
LARGEST: Final = 0.5
"""Share of hard windows that is never exceeded."""


class Promise:
    """Share of hard windows that keeps an error rate of the others.

    Args:
        max_error: error rate that is promised, above 0 and below 1.
        asked: share that is hard at least, at most `LARGEST`.
    """

    def __init__(self, max_error: float, asked: float) -> None:
        self._aim = AIM * max_error
        self._asked = self.share = asked

    def audit(self, *, wrong: bool) -> None:
        """Count an audit."""
        self.restore(self.share * math.exp(GAIN * (wrong - self._aim)))

    def restore(self, share: float) -> None:
        """Go on from a share, within the bounds."""
        self.share = min(max(share, self._asked), LARGEST)
