"""Events of one key by the same rules, the slow and obvious way: from the list of all its windows.

Times are whole milliseconds. `edge_runtime.answer.events.rules` has the numbered rules; no code is shared with it.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from edge_runtime.event_rule import EventRule

SMOOTH: Final[dict[str, Callable[[Sequence[float]], float]]] = {
    "mean": lambda raw: sum(raw) / len(raw),
    "median": statistics.median,
    "max": max,
}


class Win(NamedTuple):
    """A window: its start, and the probability of each rule's label."""

    ms: int
    scores: tuple[float, ...]


class Message(NamedTuple):
    """Rule, kind, start and end in milliseconds, peak, reason of the end, start of the window that began it."""

    rule: str
    kind: str
    start: int
    end: int | None
    peak: float
    reason: str
    began: int


@dataclass
class Happened:
    """An event, by the indices of its windows."""

    counted: list[int]
    last: int | None = None
    """Its last window; None while it is open."""
    told: int = -1
    """The window with which its end is known."""

    @property
    def begun(self) -> int:
        return self.counted[-1]


class Stretch:
    """Windows of a key between two resets of its clock."""

    def __init__(self, rules: list[EventRule], wins: list[Win], length: int) -> None:
        self.rules, self.wins, self.length = rules, wins, length
        self.since = self._since()
        self.scores = {rule.name: self._smoothed(rule, column) for column, rule in enumerate(rules)}
        self.events: dict[str, list[Happened]] = {rule.name: [] for rule in rules}
        counts: dict[str, list[int]] = {}
        for i in range(len(wins)):
            if self.since[i] == i:
                counts = {rule.name: [] for rule in rules}
                for happened in self.events.values():
                    self._end(happened, i)
            open_before = {name for name, some in self.events.items() if some and some[-1].last is None}
            ends_before = {name: [e.last for e in some if e.last is not None] for name, some in self.events.items()}
            for rule in rules:
                self._step(rule, i, counts[rule.name], open_before, ends_before)

    def end(self, i: int) -> int:
        return self.wins[i].ms + self.length

    def _since(self) -> list[int]:
        """For each window the first one since the gap before it: rule 2."""
        out: list[int] = []
        for i, win in enumerate(self.wins):
            gap = i == 0 or win.ms - self.end(i - 1) > self.length
            out.append(i if gap else out[-1])
        return out

    def _smoothed(self, rule: EventRule, column: int) -> list[float]:
        """Rule 3."""
        out = []
        for i, since in enumerate(self.since):
            raw = [win.scores[column] for win in self.wins[since : i + 1]]
            if rule.smooth == "exponential":
                score = raw[0]
                for one in raw[1:]:
                    score += 2 / (rule.smooth_windows + 1) * (one - score)
                out.append(score)
            else:
                out.append(SMOOTH[rule.smooth](raw[-rule.smooth_windows :]))
        return out

    def _end(self, happened: list[Happened], i: int) -> None:
        if happened and happened[-1].last is None:
            happened[-1].last, happened[-1].told = i - 1, i

    def _step(
        self, rule: EventRule, i: int, counts: list[int], open_before: set[str], ends: dict[str, list[int]]
    ) -> None:
        score, mine = self.scores[rule.name][i], self.events[rule.name]
        if rule.name in open_before:  # rule 6
            lasted = self.end(i - 1) - self.wins[mine[-1].counted[0]].ms
            if score < (rule.on if rule.off is None else rule.off) and lasted >= rule.hold_s * 1000:
                self._end(mine, i)
            return
        rested = not mine or self.end(i) - self.end(ends[rule.name][-1]) >= rule.refractory_s * 1000
        led = rule.after in {"", *open_before} or any(
            self.end(i) - self.end(last) <= rule.within_s * 1000 for last in ends[rule.after]
        )
        if score >= rule.on and rested and led:  # rule 4
            counts.append(i)
            recent = [one for one in counts if one > i - rule.of[1]]
            if len(recent) >= rule.of[0]:  # rule 5
                mine.append(Happened(recent))
                counts.clear()

    def messages(self, reason: str = "") -> list[Message]:
        """In order; with a reason, events that are open at the end are ended for it."""
        out: list[Message] = []
        for i in range(len(self.wins)):
            gap = self.since[i] == i
            told = [(rule, e) for rule in self.rules for e in self.events[rule.name]]
            out += [self._message(rule, e, "gap") for rule, e in told if gap and e.told == i]
            for rule, e in told:
                if e.told == i and not gap:
                    out.append(self._message(rule, e, "off"))
                if e.begun == i:
                    out.append(self._message(rule, e, ""))
        if reason:
            still = [(rule, e) for rule in self.rules for e in self.events[rule.name] if e.last is None]
            out += [self._message(rule, e, reason) for rule, e in still]
        return out

    def _message(self, rule: EventRule, e: Happened, reason: str) -> Message:
        last = len(self.wins) - 1 if e.last is None else e.last
        after = range(e.begun, last + 1) if reason else ()
        peak = max(self.scores[rule.name][i] for i in [*e.counted, *after])
        start = self.wins[e.counted[0]].ms
        end = self.end(last) if reason else None
        return Message(rule.name, "end" if reason else "start", start, end, peak, reason, self.wins[e.begun].ms)


def messages(rules: list[EventRule], windows: list[Win], length: int, max_jump: int) -> list[Message]:
    """All messages of a key."""
    out: list[Message] = []
    wins: list[Win] = []
    for win in windows:  # rule 1
        if wins and win.ms <= wins[-1].ms:
            if wins[-1].ms - win.ms <= max_jump:
                continue
            out += Stretch(rules, wins, length).messages("clock")
            wins = []
        wins.append(win)
    return out + Stretch(rules, wins, length).messages()
