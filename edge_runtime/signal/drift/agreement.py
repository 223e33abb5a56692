"""Agreement of device and cloud: how good the answers are where there are no labels.

1. Audits are a random share of the answers that the gate trusts, corrections are of those that it does not; the last
   `KEPT` of each count. What the cloud upholds is agreed.
2. All answers together are both shares, weighted by how many answers were hard. Of the hard ones only those that were
   sent are known; it is taken that they are like the others.
3. Each share has Wilson's 95 % interval (J. Am. Stat. Assoc. 22, 1927). Their weighted sum has the one that Newcombe
   makes of two of them for a difference (Statistics in Medicine 17, 1998, method 10).

It is an estimate of the accuracy as far as the cloud is right: where both are wrong in the same way, they agree.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from edge_runtime.metrics import Metrics

KEPT: Final = 500
"""Answers of each kind; 500 of which .9 are agreed give an interval of +-.026."""

FEWEST: Final = 20
"""Answers of a kind before which nothing is said."""

_Z: Final = 1.959963984540054
"""Of a 95 % interval."""


def wilson(successes: int, trials: int) -> tuple[float, float]:
    """Compute Wilson's 95 % interval of a share.

    >>> low, high = wilson(95, 100)
    >>> round(low, 4), round(high, 4)
    (0.8882, 0.9785)
    """
    share, z2 = successes / trials, _Z * _Z
    middle = (share + z2 / (2 * trials)) / (1 + z2 / trials)
    half = _Z / (1 + z2 / trials) * math.sqrt(share * (1 - share) / trials + z2 / (4 * trials * trials))
    # At 0 and 1 the two sides meet the share but for the last bit.
    return max(0.0, min(middle - half, share)), min(1.0, max(middle + half, share))


class ShareInterval(NamedTuple):
    """A share with its interval."""

    share: float
    low: float
    high: float


def weighted(parts: Iterable[tuple[float, ShareInterval]]) -> ShareInterval:
    """Add shares, each with a weight; the weights add up to 1 (rule 3)."""
    known = list(parts)
    share = sum(weight * part.share for weight, part in known)
    below = math.sqrt(sum((weight * (part.share - part.low)) ** 2 for weight, part in known))
    above = math.sqrt(sum((weight * (part.high - part.share)) ** 2 for weight, part in known))
    return ShareInterval(share, max(0.0, share - below), min(1.0, share + above))


class Agreement:
    """Estimate of the accuracy, as gauges.

    Args:
        metrics: receives ``agreement_ratio``, ``agreement_low_ratio`` and ``agreement_high_ratio``, each with
            ``{answers="trusted"}``, ``hard`` and ``all``.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._outcomes: dict[str, deque[bool]] = {kind: deque(maxlen=KEPT) for kind in ("trusted", "hard")}

    def learn(self, answers: Iterable[tuple[bool, bool]]) -> None:
        """Learn from the cloud's answers: whether the device's was hard, and whether it was upheld."""
        for hard, upheld in answers:
            self._outcomes["hard" if hard else "trusted"].append(upheld)
        shares: dict[str, ShareInterval] = {}
        for kind, outcomes in self._outcomes.items():
            if len(outcomes) >= FEWEST:
                agreed = sum(outcomes)
                shares[kind] = ShareInterval(agreed / len(outcomes), *wilson(agreed, len(outcomes)))
        counts = self._metrics.counts
        hard_share = counts["hard_total"] / max(1, counts["predictions_total"])
        weights = {"trusted": 1 - hard_share, "hard": hard_share}
        if all(kind in shares or not weight for kind, weight in weights.items()):
            shares["all"] = weighted((weights[kind], share) for kind, share in shares.items())
        for kind, one in shares.items():
            for name, value in zip(("", "_low", "_high"), one, strict=True):
                self._metrics.gauges[f'agreement{name}_ratio{{answers="{kind}"}}'] = round(value, 4)
