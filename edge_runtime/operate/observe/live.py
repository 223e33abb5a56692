"""Live view of the answers: the last ones of each key and the last events, within a bound of memory.

A sink like any other, so that what is seen is what the sinks get, in the same order. It keeps numbers, no samples; of
the keys that a caller looks at, it keeps the last window too (`Live.look_at`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import Clock
from edge_runtime.key_table import KeyTable
from edge_runtime.model.tasks.answered import Answered
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Answer, Correction, Done, Event, FinalAnswer, Prediction

MAX_KEYS: Final = 500
"""Keys that are held, those that answered last."""
HISTORY: Final = 60
"""Answers of each key."""
EVENTS: Final = 100
CORRECTIONS: Final = 100
LOOKED_AT: Final = 8
"""Keys whose last window is kept, those that were asked for last."""


class _Step(NamedTuple):
    """One answer, as it is kept."""

    end: float
    """Stamp of the window's end, seconds."""
    label: str
    confidence: float
    hard: bool
    corrected: str
    """Label of the correction; empty while there is none."""
    number: float | None = None
    """Of an answer that is a number: the first value, or the anomaly score."""


class KeyView:
    """Last answers of one key."""

    __slots__ = ("first", "last", "seen", "steps", "windows")

    def __init__(self) -> None:
        self.steps: deque[_Step] = deque(maxlen=HISTORY)
        self.last: Prediction | None = None
        self.seen = 0.0
        """Wall clock of the last answer."""
        self.first = 0.0
        """Wall clock of the first answer since the key is held."""
        self.windows = 0

    def copy(self) -> KeyView:
        """Copy it for another thread; answers and steps are shared, since nothing changes them."""
        made = KeyView()
        made.steps = self.steps.copy()
        made.last, made.seen, made.first, made.windows = self.last, self.seen, self.first, self.windows
        return made


class Live:
    """Keeps the last answers of each key, on the loop's thread.

    Args:
        clock: wall clock, for the age of what is kept.
    """

    name = "observe"

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._keys: KeyTable[str, KeyView] = KeyTable(MAX_KEYS)
        self.events: deque[Event] = deque(maxlen=EVENTS)
        self.corrections: deque[Correction | FinalAnswer] = deque(maxlen=CORRECTIONS)
        self._looked_at: KeyTable[str, Window | None] = KeyTable(LOOKED_AT)
        self.agreed = 0
        """Corrections that said what the device had said."""

    # -- as a sink -----------------------------------------------------------------------------------------------------

    def open(self, loop: Loop) -> None:
        """Nothing to open."""

    def close(self, timeout_s: float) -> None:
        """Nothing to close."""

    def send(self, answers: Sequence[Answer], done: Done | None) -> None:
        """Note answers; the pipeline does not wait for this sink."""
        if done is not None:
            done()
        now = self._clock.wall()
        for answer in answers:
            if isinstance(answer, Prediction):
                self._note(answer, now)
            elif isinstance(answer, Event):
                self.events.append(answer)
            else:
                self._correct(answer)

    def _note(self, answer: Prediction, now: float) -> None:
        view = self._keys.get(answer.key)
        if view is None:
            view = self._keys[answer.key] = KeyView()
            view.first = now
        elif view.seen != now:
            self._keys.move_to_end(answer.key)
        view.steps.append(_Step(answer.end, answer.label, answer.confidence, answer.hard, "", number_of(answer)))
        view.last = answer
        view.seen = now
        view.windows += 1

    def _correct(self, answer: Correction | FinalAnswer) -> None:
        self.corrections.append(answer)
        if isinstance(answer, FinalAnswer):
            return
        agreed = agrees(answer)
        self.agreed += agreed
        view = self._keys.get(answer.key)
        if view is None:
            return
        steps = view.steps
        for at in range(len(steps) - 1, -1, -1):
            if steps[at].end == answer.end:
                steps[at] = steps[at]._replace(corrected=answer.label)
                return

    # -- windows -------------------------------------------------------------------------------------------------------

    def look_at(self, key: str) -> Window | None:
        """Keep the last window of this key from now on; return the one that is kept."""
        self._looked_at[key] = found = self._looked_at.get(key)
        return found

    def windows(self, answered: Answered) -> None:
        """Note windows that were answered (`edge_runtime.answer.pipeline.Pipeline.tap`)."""
        for window in answered.windows:
            if window.key in self._looked_at:
                self._looked_at[window.key] = window

    # -- reading -------------------------------------------------------------------------------------------------------

    def view(self, key: str) -> KeyView | None:
        """Return what is kept of a key."""
        return self._keys.get(key)

    def keys(self, limit: int, filter_text: str = "") -> tuple[list[tuple[str, KeyView]], int]:
        """Return the keys that answered last whose name holds a text, by name, and how many there are in all."""
        text = filter_text.casefold()
        found: list[tuple[str, KeyView]] = []
        matching = 0
        for key in reversed(self._keys):
            if text in key.casefold():
                matching += 1
                if len(found) < limit:
                    found.append((key, self._keys[key]))
        return sorted(found), matching


def number_of(answer: Prediction) -> float | None:
    """Return the number that an answer is, where it is one: an anomaly score, or the first value of a regression."""
    task = getattr(answer, "task", "")
    if task == "anomaly":
        return float(answer.score)  # type: ignore[attr-defined]
    if task == "regression":
        values: dict[str, dict[str, Any]] = answer.values  # type: ignore[attr-defined]
        first = next(iter(values.values()), None)
        return None if first is None else first["value"]
    return None


def agrees(correction: Correction) -> bool:
    """Return whether the cloud said what the device had said."""
    upheld = getattr(correction, "upheld", None)
    return correction.label == correction.supersedes if upheld is None else bool(upheld)
