"""Batch that costs a variant the least: some networks gain eight-fold by 32 windows in a call, some lose a quarter.

1. One window in a call and eight take turns; where eight cost more each, one is the most.
2. Else eight and 32 take turns; where that many cost more each, eight are the most.
3. "More" is beyond `edge_runtime.model.tuning.results.EQUAL`: of equal ones, the larger batch is taken, as it has fewer
   calls.

A network that fills the processor's cache with a few windows is one that loses. Steps are few and rounds too: a batch
of a large network takes a second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Final

from edge_runtime.errors import EngineError
from edge_runtime.model.tuning.results import EQUAL, MOST_IN_A_CALL
from edge_runtime.model.tuning.timing.interleaved import TimedModel, Timing, TimingPlan

log = logging.getLogger(__name__)

STEPS: Final = (1, 8, MOST_IN_A_CALL)
PLAN: Final = TimingPlan(rounds=9, warm_up=1)

Timed = Callable[[Sequence[TimedModel], TimingPlan], Sequence[Timing]]
"""Times candidates together."""


def cheapest(candidate: TimedModel, timed: Timed) -> int:
    """Return how many windows in a call cost the least each; 0 where it cannot be timed.

    Args:
        candidate: a candidate on the processor, without states.
        timed: see `Timed`.
    """
    for fewer, more in pairwise(STEPS):
        both = [replace(candidate, name=str(batch), batch=batch) for batch in (fewer, more)]
        try:
            one, other = timed(both, PLAN)
        except EngineError as error:
            log.warning("tuning: batches of %s could not be timed: %s", candidate.name, error)
            return 0
        if other.p50_us / more > one.p50_us / fewer * EQUAL:
            return fewer
    return MOST_IN_A_CALL
