"""Event rules: the terms under which a stream of answers becomes an event.

One type serves the application's ``[[events]]`` and the bundle, which carries the rules that were tuned with the model.
`edge_runtime.answer.events.rules` says in full what its fields mean.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class EventRule:
    """Rule for one kind of event, of one label's score."""

    name: str
    """Unique among the rules, for example ``fall``."""
    label: str
    """The label whose score begins and ends the event."""
    on: float = 0.5
    """The event begins where the smoothed score reaches it, 0..1."""
    off: float | None = None
    """It ends where the smoothed score falls below it; None means `on`."""
    of: tuple[int, int] = (1, 1)
    """n, m: begins where n of the last m windows reach `on`."""
    smooth: Literal["mean", "median", "max", "exponential"] = "mean"
    """How scores of a key are smoothed over `smooth_windows` before they are compared."""
    smooth_windows: int = 1
    """1 leaves the scores as they are."""
    hold_s: float = 0.0
    """Least duration, seconds: a lower score within it does not end the event."""
    refractory_s: float = 0.0
    """Pause after an end, seconds: windows that end in it do not count towards the next event."""
    after: str = ""
    """Name of another rule: windows count only while its event is open, and until `within_s` after it."""
    within_s: float = 0.0
    """Seconds after the end of that event; needed where `after` is set."""
    expected: dict[str, float] = field(default_factory=dict)
    """Figures measured when the rule was tuned, for example ``false_per_hour``, ``missed``."""

    def __post_init__(self) -> None:
        if not self.name:
            raise ValueError("an event needs a name")
        if not 0 < self.on <= 1:
            raise ValueError(f"event {self.name!r}: on must be above 0 and at most 1")
        if self.off is not None and not 0 <= self.off <= self.on:
            raise ValueError(f"event {self.name!r}: off must be 0 to on ({self.on:g}); leave it out to end below on")
        if len(self.of) != 2 or not 1 <= self.of[0] <= self.of[1]:
            raise ValueError(f"event {self.name!r}: of must be [n, m], n of m windows, with 1 <= n <= m")
        if self.smooth_windows < 1:
            raise ValueError(f"event {self.name!r}: smooth_windows must be 1 or more")
        if min(self.hold_s, self.refractory_s, self.within_s) < 0:
            raise ValueError(f"event {self.name!r}: hold_s, refractory_s and within_s must be 0 or more")
        if bool(self.after) != bool(self.within_s):
            raise ValueError(f"event {self.name!r}: after and within_s go together; set both or neither")


def check_rules(rules: Sequence[EventRule], labels: Sequence[str]) -> None:
    """Refuse rules that do not fit each other, or the model's labels.

    Raises:
        ValueError: a name stands twice, a label is not the model's, `after` names no other rule or closes a circle.
    """
    by_name = {rule.name: rule for rule in rules}
    if len(by_name) != len(rules):
        raise ValueError("two events have the same name; rename one")
    for rule in rules:
        if not labels:
            raise ValueError(f"event {rule.name!r}: the model's answers have no labels; take the event out")
        if rule.label not in labels:
            raise ValueError(f"event {rule.name!r}: the model has no label {rule.label!r}; it has {', '.join(labels)}")
        seen = {rule.name}
        before = rule.after
        while before:
            if before not in by_name:
                raise ValueError(
                    f"event {rule.name!r}: after names no event ({before!r}); known: {', '.join(sorted(by_name))}"
                )
            if before in seen:
                raise ValueError(f"event {rule.name!r}: after leads back to {before!r}; one of them must come first")
            seen.add(before)
            before = by_name[before].after
