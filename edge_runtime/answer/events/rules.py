"""Rules by which the answers of one key become events: pure functions of its windows, in the order of their time.

The rules, in full, for one `EventRule` and one key. A *step* is an answered window. Nothing else is looked at: not when
a window was answered, nor together with which others, nor what the cloud says of it later. So the same windows give the
same events, with the same ids, in any batches and after any restart.

1. Steps count in the order of their windows' starts. One that is not later than the step before it is left out, unless
   it is of a later epoch, or more than `max_jump_s` earlier: then the key's clock was set back, and it begins again.
2. Where a window begins more than a window's length after the end of the one before, there is a *gap*: scores and
   counts from before it are forgotten, and an open event ends at the last step before it.
3. The score of a step is the label's probability over its last `smooth_windows` steps since the gap, smoothed: their
   mean, median or largest, or the exponential mean with the factor 2 / (`smooth_windows` + 1).
4. A step *counts*, while no event is open, if its score is at least `on`, its window ends at least `refractory_s`
   after the end of the last event, and, with `after`, an event of that rule was open after the step before, or has
   ended at most `within_s` before the end of the step's window.
5. An event begins with the step that is the n-th to count of the last m. Its start is that of the first of these n
   windows, its id that of the step's window and the rule's name.
6. It is open while the score is at least `off`. The first lower score ends it, at the end of the window before, if the
   event has then lasted `hold_s`; otherwise it stays open.
7. Its peak is the highest score of its steps, those that counted included. Its evidence are the windows that counted,
   the newest if there are many, and the one with the peak: at most `EVIDENCE`.

Times are compared in whole microseconds, since sums of seconds in floating point fall on either side of a bound.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from edge_runtime.event_rule import EventRule

EVIDENCE: Final = 16
"""Most window ids of an event."""

_CLOSE_S: Final = 1e-6


@dataclass(slots=True)
class Step:
    """One answered window, as far as events look at it."""

    id: str
    start: float
    end: float
    scores: Sequence[float]
    """The probability of each rule's label, in the order of the rules."""
    epoch: int = 0
    """Of the window's id."""


@dataclass(slots=True)
class Counted:
    """A step that counts (rule 4)."""

    step: int
    """Number of the step since the gap."""
    id: str
    start: float
    score: float


@dataclass(frozen=True, slots=True)
class Occurrence:
    """An event, open or ended."""

    id: str
    start: float
    end: float
    """Of its last window so far."""
    windows: int
    """Steps from the first that counted to the last."""
    peak: float
    peak_id: str
    """Window of the peak."""
    began: tuple[str, ...]
    """Windows that counted: the newest, and the one with their peak."""

    @property
    def evidence(self) -> list[str]:
        """Windows that show it, in order of time: rule 7."""
        return [*self.began] if self.peak_id in self.began else [*self.began, self.peak_id]


@dataclass(slots=True)
class RuleState:
    """Memory of a rule for a key."""

    scores: tuple[float, ...] = ()
    """Rule 3: those of the last steps, unsmoothed, the newest last; of ``exponential`` the smoothed one alone."""
    counted: tuple[Counted, ...] = ()
    open: Occurrence | None = None
    ended: float | None = None
    """End of the last event, seconds."""


@dataclass(slots=True)
class EventState:
    """Memory of all rules for a key."""

    start: float
    end: float
    step: int
    """Number of the last step since the gap."""
    rules: tuple[RuleState, ...]
    """In the order of the rules."""
    epoch: int = 0
    """Of the last step."""


@dataclass(frozen=True, slots=True)
class Change:
    """An event that begins or ends with a step."""

    rule: EventRule
    event: Occurrence
    reason: str
    """Empty where it begins. Ended by ``off``, a ``gap``, or ``clock``: the key's clock was set back."""


def advance(
    rules: Sequence[EventRule], state: EventState | None, step: Step, *, gap_s: float, max_jump_s: float
) -> tuple[EventState, list[Change]]:
    """Take the next step of a key.

    Args:
        rules: the application's rules, as `edge_runtime.event_rule.check_rules` lets them through.
        state: after the step before; None for a key's first.
        step: the window's answer.
        gap_s: rule 2: length of a window, seconds.
        max_jump_s: rule 1.

    Returns:
        The state after it, and the events that end or begin with it, in the order of the rules.
    """
    changes: list[Change] = []
    if state is not None and step.start <= state.start:  # rule 1
        if step.epoch <= state.epoch and _us(state.start - step.start) <= _us(max_jump_s):
            return state, []
        changes = ended(rules, state, "clock")
        state = None
    # Rounded only where it may matter: nearly every window begins before the end of the one before, or with it.
    if state is not None and step.start - state.end > gap_s - _CLOSE_S and _us(step.start - state.end) > _us(gap_s):
        # rule 2
        changes = ended(rules, state, "gap")
        state = _after_gap(state)
    if state is None:
        state = EventState(step.start, step.end, -1, (RuleState(),) * len(rules))
    now: list[RuleState] = []
    for rule, before, score in zip(rules, state.rules, step.scores, strict=True):
        leader = _leader(rules, state, rule.after) if rule.after else None
        after, change = _follow(rule, before, leader, step, score, state.step + 1)
        now.append(after)
        if change is not None:
            changes.append(change)
    return EventState(step.start, step.end, state.step + 1, tuple(now), step.epoch), changes


def ended(rules: Sequence[EventRule], state: EventState, reason: str) -> list[Change]:
    """Return the end of each event that is open."""
    return [
        Change(rule, one.open, reason) for rule, one in zip(rules, state.rules, strict=True) if one.open is not None
    ]


def _after_gap(state: EventState) -> EventState:
    rules = tuple(RuleState(ended=one.ended if one.open is None else one.open.end) for one in state.rules)
    return EventState(state.start, state.end, -1, rules)


def _leader(rules: Sequence[EventRule], state: EventState, name: str) -> RuleState:
    return next(one for rule, one in zip(rules, state.rules, strict=True) if rule.name == name)


def _follow(
    rule: EventRule, before: RuleState, leader: RuleState | None, step: Step, raw: float, number: int
) -> tuple[RuleState, Change | None]:
    """Take a step for one rule; `number` is the step's since the gap."""
    scores, score = smoothed(rule, before.scores, raw)
    if before.open is not None:
        return _follow_open(rule, before.open, before.ended, step, scores, score)
    counted = before.counted
    if counted:
        counted = tuple(one for one in counted if number - one.step < rule.of[1])
    if score >= rule.on and _may_count(rule, before.ended, leader, step):  # rule 4
        counted = (*counted, Counted(number, step.id, step.start, score))
        if len(counted) >= rule.of[0]:  # rule 5
            event = _begun(rule, counted, step)
            return RuleState(scores, (), event, before.ended), Change(rule, event, "")
    return RuleState(scores, counted, None, before.ended), None


def smoothed(rule: EventRule, scores: tuple[float, ...], raw: float) -> tuple[tuple[float, ...], float]:
    """Smooth by rule 3.

    Args:
        rule: how.
        scores: what was returned for the step before; empty after a gap.
        raw: the label's probability.

    Returns:
        What is remembered for the next step, and the score.
    """
    if rule.smooth == "exponential":
        score = raw if not scores else scores[0] + 2 / (rule.smooth_windows + 1) * (raw - scores[0])
        return (score,), score
    windows = rule.smooth_windows
    if windows == 1:
        return (raw,), raw
    scores = (*scores[1:], raw) if len(scores) == windows else (*scores, raw)[-windows:]
    if rule.smooth == "max":
        return scores, max(scores)
    if rule.smooth == "median":
        return scores, statistics.median(scores)
    return scores, sum(scores) / len(scores)


def _may_count(rule: EventRule, last_end: float | None, leader: RuleState | None, step: Step) -> bool:
    if last_end is not None and _us(step.end - last_end) < _us(rule.refractory_s):
        return False
    if leader is None or leader.open is not None:
        return True
    return leader.ended is not None and _us(step.end - leader.ended) <= _us(rule.within_s)


def _begun(rule: EventRule, counted: Sequence[Counted], step: Step) -> Occurrence:
    top = max(counted, key=lambda one: one.score)
    began = tuple(one.id for one in counted)[1 - EVIDENCE :]
    return Occurrence(
        id=f"{step.id}/{rule.name}",
        start=counted[0].start,
        end=step.end,
        windows=counted[-1].step - counted[0].step + 1,
        peak=top.score,
        peak_id=top.id,
        began=began if top.id in began else (top.id, *began[1:]),
    )


def _follow_open(
    rule: EventRule,
    event: Occurrence,
    last_end: float | None,
    step: Step,
    scores: tuple[float, ...],
    score: float,
) -> tuple[RuleState, Change | None]:
    """Go on with an open event, or end it (rules 6 and 7)."""
    off = rule.on if rule.off is None else rule.off
    if score < off and _us(event.end - event.start) >= _us(rule.hold_s):
        return RuleState(scores, (), None, event.end), Change(rule, event, "off")
    peak, peak_id = (score, step.id) if score > event.peak else (event.peak, event.peak_id)
    event = replace(event, end=step.end, windows=event.windows + 1, peak=peak, peak_id=peak_id)
    return RuleState(scores, (), event, last_end), None


def _us(seconds: float) -> int:
    return round(seconds * 1e6)
