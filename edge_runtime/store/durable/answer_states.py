"""States that the answers of keys leave behind: of events, and of answers over time. They are saved together.

A bundle without answers over time leaves those of events alone, as files of earlier releases have them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from edge_runtime.answer.events.rules import EventState
from edge_runtime.answer.events.tracker import EventTracker
from edge_runtime.event_rule import EventRule
from edge_runtime.manifest.surround import OverTime
from edge_runtime.model.over_time import AnswersOverTime, KeyPosterior


@dataclass(frozen=True, slots=True)
class Basis:
    """Rules and filter that states belong to."""

    rules: tuple[EventRule, ...]
    over_time: OverTime


@dataclass(frozen=True, slots=True)
class _KeyState:
    """State of a key, where answers are filtered over time."""

    event: EventState | None
    over_time: KeyPosterior | None


AnyState = EventState | _KeyState
Changed = Mapping[str, AnyState | None]
"""States of keys that changed; None where the key is not held any more."""


class AnswerStates:
    """States of events and of answers over time as one.

    Args:
        events: tracker of events, after the filter.
        over_time: the filter of answers.
    """

    def __init__(self, events: EventTracker, over_time: AnswersOverTime | None = None) -> None:
        self._events = events
        self._over_time = over_time or AnswersOverTime()
        self._basis: Basis | None = None
        self._event_of: dict[str, EventState] = {}
        self._posterior_of: dict[str, KeyPosterior] = {}

    @property
    def rules(self) -> tuple[EventRule, ...] | Basis:
        """Basis of the states: the same object as long as they go on."""
        rules, spec = self._events.rules, self._over_time.spec
        if spec is None:
            return rules
        if self._basis is None or self._basis.rules is not rules or self._basis.over_time is not spec:
            self._basis = Basis(rules, spec)
        return self._basis

    @property
    def backlog(self) -> int:
        """Keys that `changed` would return, about."""
        return max(self._events.backlog, len(self._over_time.changes))

    def changed(self) -> Changed:
        """Return the states of the keys that changed since this was asked last; all of them after a change of basis."""
        events, posteriors = self._events.changed(), self._over_time.changes
        self._over_time.changes = {}
        if self._over_time.spec is None:
            self._event_of.clear()
            self._posterior_of.clear()
            return events
        _update(self._event_of, events)
        _update(self._posterior_of, posteriors)
        changed = dict.fromkeys([*events, *posteriors])
        return {key: self._state(key) for key in changed}

    def _state(self, key: str) -> _KeyState | None:
        event, posterior = self._event_of.get(key), self._posterior_of.get(key)
        return None if event is None and posterior is None else _KeyState(event, posterior)

    def restore(self, rules: Any, keys: Mapping[str, Any]) -> None:
        """Go on where the run before was.

        Args:
            rules: `rules` of then, as JSON gives them back.
            keys: states by key, likewise; the key silent longest first.

        Raises:
            ValueError: they are something else.
        """
        if isinstance(rules, list):
            self._events.restore(rules, keys)
            return
        events = {key: state["event"] for key, state in keys.items() if state["event"] is not None}
        self._events.restore(rules["rules"], events)
        spec = self._over_time.spec
        if spec is not None and rules["over_time"] == _plain(spec):
            self._over_time.restore(
                {key: state["over_time"] for key, state in keys.items() if state["over_time"] is not None}
            )


def _update(known: dict[str, Any], changed: Mapping[str, Any]) -> None:
    for key, state in changed.items():
        if state is None:
            known.pop(key, None)
        else:
            known[key] = state


def _plain(spec: OverTime) -> dict[str, Any]:
    """Return a filter as JSON gives it back."""
    return {
        "transition": [list(row) for row in spec.transition],
        "prior": list(spec.prior),
        "weight": spec.weight,
    }
