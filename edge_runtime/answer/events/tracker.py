"""Tracker of events: the states of all keys, from predictions to event messages, and over a restart."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from edge_runtime import schema
from edge_runtime.answer.events.rules import Change, EventState, RuleState, Step, advance, ended
from edge_runtime.errors import ConfigError
from edge_runtime.event_rule import EventRule, check_rules
from edge_runtime.key_table import KeyTable
from edge_runtime.manifest import Manifest
from edge_runtime.metrics import Metrics
from edge_runtime.signal.stage import Stage, WindowBatch
from edge_runtime.types import Event, Prediction, SuspectPrediction

Changed = Mapping[str, EventState | None]
"""States of keys that changed; None where the key is not held any more."""


class EventTracker(Stage):
    """Events of all keys. `edge_runtime.answer.events.rules` has the rules; all methods belong to the loop's thread.

    Args:
        rules: the application's own; None takes those of each bundle that answers.
        max_keys: keys held at a time; the one silent longest leaves first, and its events end.
        max_jump_s: see rule 1.
        metrics: receives ``events_total``, and ``event_keys_evicted_total``.
    """

    def __init__(
        self,
        rules: Sequence[EventRule] | None,
        *,
        max_keys: int = 10_000,
        max_jump_s: float = 60.0,
        metrics: Metrics | None = None,
    ) -> None:
        self._own = rules
        self._max_jump_s = max_jump_s
        self._metrics = metrics or Metrics()
        self.rules: tuple[EventRule, ...] = ()
        self._columns: list[int] = []
        self._gap_s = 0.0
        self._model = ""
        self._keys: KeyTable[str, EventState] = KeyTable(max_keys, self._evicted)
        self._changed: dict[str, EventState | None] = {}
        self._waiting: list[Event] = []

    def use(self, manifest: Manifest) -> None:
        """Follow the answers of this bundle from now on.

        A rule that it shares with the one before goes on; events of the other rules end, with the next answers.

        Raises:
            ConfigError: a rule of the application names a label that the bundle does not have, or the rules contradict
                each other.
        """
        rules = tuple(manifest.events if self._own is None else self._own)
        try:
            check_rules(rules, manifest.output.labels)
        except ValueError as error:
            raise ConfigError(f"events: {error}") from error
        before = self.rules
        if rules != before:
            self.rules = rules
        self._columns = [manifest.output.labels.index(rule.label) for rule in rules]
        self._gap_s = manifest.input.window / manifest.input.rate_hz
        self._model = manifest.model
        if rules != before:
            self._adopt(before, list(self._keys.items()))

    def run(self, batch: WindowBatch) -> None:
        """Put behind each answer the events that begin or end with it."""
        if not self.rules and not self._waiting:
            return
        out: list[Prediction | Event] = [*self._take_waiting()]
        for answer in batch.answers:
            out.append(answer)
            # No step without scores, where nothing on the device could answer, nor with readings that are suspect.
            if isinstance(answer, Prediction) and answer.scores and not isinstance(answer, SuspectPrediction):
                self._step(answer, out)
        batch.answers = out

    def _step(self, answer: Prediction, out: list[Prediction | Event]) -> None:
        key = answer.key
        scores = [answer.scores[column] for column in self._columns]
        step = Step(answer.id, answer.start, answer.end, scores, int(answer.id[len(key) + 1 :].partition("~")[2] or 0))
        state, changes = advance(self.rules, self._keys.get(key), step, gap_s=self._gap_s, max_jump_s=self._max_jump_s)
        self._keys[key] = self._changed[key] = state
        if self._waiting:  # of a key that left for this one
            out += self._take_waiting()
        if changes:
            out += self._events(key, changes, answer.model)

    def _evicted(self, key: str, state: EventState) -> None:
        self._changed[key] = None
        self._metrics.counts["event_keys_evicted_total"] += 1
        self._waiting += self._events(key, ended(self.rules, state, "evicted"), self._model)

    def _take_waiting(self) -> list[Event]:
        waiting, self._waiting = self._waiting, []
        return waiting

    def _events(self, key: str, changes: Sequence[Change], model: str) -> list[Event]:
        self._metrics.counts["events_total"] += sum(not change.reason for change in changes)
        return [_message(key, change, model) for change in changes]

    def finish(self) -> list[Event]:
        """End all events that are open, and forget all keys."""
        out = self._take_waiting()
        for key, state in self._keys.items():
            out += self._events(key, ended(self.rules, state, "stopped"), self._model)
            self._changed[key] = None
        self._keys.clear()
        return out

    # -- over a restart ----------------------------------------------------------------------------------------------

    @property
    def backlog(self) -> int:
        """Keys that `changed` would return."""
        return len(self._changed)

    def changed(self) -> Changed:
        """Return the states of the keys that changed since this was asked last."""
        changed, self._changed = self._changed, {}
        return changed

    def restore(self, rules: Any, keys: Mapping[str, Any]) -> None:
        """Go on where the run before was.

        Args:
            rules: `rules` of then, as JSON gives them back.
            keys: `EventState` by key, likewise; the key silent longest first.

        Raises:
            SchemaError: they are something else.
        """
        before = [schema.load(EventRule, rule) for rule in rules]
        self._adopt(before, [(key, schema.load(EventState, state)) for key, state in keys.items()])

    def _adopt(self, before: Sequence[EventRule], states: Sequence[tuple[str, EventState]]) -> None:
        """Take over states of the rules of before: those of a rule that is still there go on, events of others end."""
        places = [_place(rule, before) for rule in self.rules]
        self._keys.clear()
        for key, state in states:
            left = [None if i in places else one.open for i, one in enumerate(state.rules)]
            lost = [Change(rule, one, "rules") for rule, one in zip(before, left, strict=True) if one is not None]
            self._waiting += self._events(key, lost, self._model)
            rules = tuple(RuleState() if i is None else state.rules[i] for i in places)
            self._keys[key] = self._changed[key] = replace(state, rules=rules)


def _place(rule: EventRule, among: Sequence[EventRule]) -> int | None:
    """Find the same rule; figures measured with it say nothing of its meaning."""
    plain = replace(rule, expected={})
    return next((i for i, one in enumerate(among) if replace(one, expected={}) == plain), None)


def _message(key: str, change: Change, model: str) -> Event:
    one = change.event
    return Event(
        id=one.id,
        key=key,
        event=change.rule.name,
        kind="end" if change.reason else "start",
        label=change.rule.label,
        start=one.start,
        end=one.end if change.reason else None,
        peak=round(one.peak, 7),
        windows=one.windows,
        evidence=one.evidence,
        reason=change.reason,
        route="local",
        model=model,
    )
