"""Two models on the same windows: one answers, the other is asked the same afterwards, when there is time for it.

1. What it costs the live stream: a call of the second model, on as many windows as the first one had just been given,
   and only after that iteration's answers have left; then a pause, so that such calls take `share` of the thread's time
   at most. Windows that come meanwhile are not compared, and are counted as skipped.
2. Where a model has states, every window is compared, also after the iteration's answers have left, and `share` does
   not hold: a model that misses a step begins again, and its answers say nothing of it.
3. Windows that wait for rule 2 are bounded (`_MOST_WAITING`): beyond it they are compared before the next answer.
4. Each of two models with states has states of its own, from its first window on. So the one that takes over is warm.
   Windows that only one of them answers, since it is full earlier, are not compared.
5. Times: after a comparison, within `share`, both models are called twice in a row on the same windows, and the second
   call of each counts; the order changes each time. A live call never counts: it follows a wait, with cold caches, and
   takes 2 to 3 times as long. Models with states are asked about one window under a key of their own.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from edge_runtime.clock import Clock
from edge_runtime.errors import ADVICE, EngineError, InputError, one_line
from edge_runtime.manifest import Manifest, Variant
from edge_runtime.model.serving.loading import Answers, Predictor
from edge_runtime.model.serving.states import StateStore
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Float32

if TYPE_CHECKING:
    from edge_runtime.model.serving.failover import FallbackChain

Agree = Callable[[Float32, Float32], Sequence[bool]]
Differ = Callable[[Window, Float32, Float32], None]
"""Told of a window on which two models do not agree, with the row of the old one and that of the new one."""

_RATIOS = 512
"""Timings kept; the last ones, so that a slow minute in the past is forgotten."""
_MOST_WAITING: Final = 4096
"""Windows."""
_TIMED_EACH: Final = 16
"""Times that are taken with each comparison; after them, with one comparison in eight."""
_AT_ONCE: Final = 5
"""Times that are taken with one comparison, as far as they take no longer than `_LONG_S` together."""
_LONG_S: Final = 0.02
_TIMED_KEY: Final = "\0timed"
"""Key under which models with states are timed: no message can have it."""
_SHORTEST_S: Final = 1e-6


class _Asked(NamedTuple):
    """A call of the model that leads."""

    windows: list[Window]
    answered: list[Window]
    rows: Float32


@dataclass(slots=True)
class ShadowTally:
    """Counts of a comparison so far."""

    compared: int = 0
    """Windows that both answered."""
    agreed: int = 0
    """Of these, with the same answer, as the task compares them."""
    answered: int = 0
    """Windows that the new model answered."""
    errors: int = 0
    """Windows that the new model failed on, or gave no finite numbers for, where the old one did not."""
    skipped: int = 0
    """Windows that were not compared for lack of time."""
    error: str = ""
    """The first error."""
    timings: int = 0
    """Times taken of both models (rule 5)."""
    _ratios: list[float] = field(default_factory=list)

    @property
    def agreement(self) -> float:
        """Share of `compared`; 1 before anything was compared."""
        return self.agreed / self.compared if self.compared else 1.0

    @property
    def slowdown(self) -> float:
        """Median of the new model's time by the old one's, for the same windows; 0 before the first."""
        return median(self._ratios) if self._ratios else 0.0

    def timed(self, ratio: float) -> None:
        """Note the ratio of times of one more call of both."""
        self.timings += 1
        self._ratios.append(ratio)
        del self._ratios[:-_RATIOS]

    def failed(self, windows: int, error: str) -> None:
        """Count windows that the new model did not answer."""
        self.errors += windows
        self.error = self.error or error


class Steady:
    """Fallback chain on trial: it fails when another backend would have to stand in, which is what a trial looks for.

    Args:
        fallback_chain: not opened, so that nothing but a failure changes the backend.
    """

    def __init__(self, fallback_chain: FallbackChain) -> None:
        self._fallback_chain = fallback_chain
        self._backend = fallback_chain.current
        self.max_batch = fallback_chain.max_batch

    @property
    def manifest(self) -> Manifest:
        """Of the bundle."""
        return self._fallback_chain.manifest

    @property
    def variant(self) -> Variant:
        """See `Predictor`."""
        return self._fallback_chain.variant

    @property
    def states(self) -> StateStore | None:
        """See `Predictor`."""
        return self._fallback_chain.states

    def predict(self, windows: Sequence[Window]) -> Answers:
        """See `Predictor`."""
        answers = self._fallback_chain.predict(windows)
        if self._fallback_chain.current != self._backend:
            raise EngineError(
                f"{self._fallback_chain.backends[self._backend].name} failed, and another variant or engine stands in"
            )
        return answers


class Pair:
    """A `Predictor` that answers with one model and compares with another.

    Args:
        old: what ran before.
        new: what is to be tried.
        agree: says for each window whether two answers are the same: `edge_runtime.model.tasks.Task.agree`.
        new_leads: role of the new one: it answers, else the old one does.
        clock: measures both.
        share: share of the thread's time that comparing may take.
        differ: told of each window on which they do not agree.

    While the new one leads, the old one stands in where it fails: no window is lost to a bad update.
    """

    def __init__(
        self,
        old: Predictor,
        new: Predictor,
        *,
        agree: Agree,
        new_leads: bool,
        clock: Clock,
        share: float,
        differ: Differ | None = None,
    ) -> None:
        self._old = old
        self._new = new
        self._new_leads = new_leads
        self._lead, self._other = (new, old) if new_leads else (old, new)
        self._clock = clock
        self._pause = (1 - share) / share
        self._free_at = 0.0
        self._comparisons = 0
        self._agree = agree
        self._differ = differ
        self._all = old.states is not None or new.states is not None  # rule 2
        self._waiting: deque[_Asked] = deque()
        self._answering = self._lead
        self.max_batch = min(old.max_batch, new.max_batch)
        self.tally = ShadowTally()
        self.began = 0.0
        """When the call into the new model that is under way began; 0.0 while there is none. Read by the watchdog."""

    @property
    def manifest(self) -> Manifest:
        """Of the model that gave the last answers."""
        return self._answering.manifest

    @property
    def variant(self) -> Variant:
        """See `manifest`."""
        return self._answering.variant

    @property
    def states(self) -> StateStore | None:
        """Of the model that leads; each of the two has its own."""
        return self._lead.states

    def predict(self, windows: Sequence[Window]) -> Answers:
        """See `Predictor`."""
        self._answering = self._lead
        if self._new_leads:
            answers, stood_in = self._try(windows)
            if stood_in:
                return answers
        else:
            answers = self._lead.predict(windows)
        if self._all or (not self._waiting and self._clock.monotonic() >= self._free_at):
            self._waiting.append(_Asked(list(windows), list(answers.windows), answers.rows.copy()))
        else:
            self.tally.skipped += len(windows)
        if self._all and sum(len(asked.windows) for asked in self._waiting) > _MOST_WAITING:  # rule 3
            self._catch_up()
        return answers

    def _try(self, windows: Sequence[Window]) -> tuple[Answers, bool]:
        """Answers of the new model, or of the old one where it has none."""
        self.began = self._clock.monotonic()
        try:
            answers = self._new.predict(windows)
            if np.isfinite(answers.rows).all():
                self.tally.answered += len(windows)
                return answers, False
            error = "answers that are not finite"
        except (EngineError, InputError) as raised:
            error = one_line(raised, ADVICE)
        finally:
            self.began = 0.0
        self._catch_up()  # it sees this window now
        answers = self._old.predict(windows)  # if this raises too, the windows are to blame, and nothing is counted
        self._answering = self._old
        self.tally.failed(len(windows), error)
        return answers, True

    def compare(self) -> float | None:
        """Ask the other model what the first one was asked, if there is something and the time for it has come.

        Returns:
            Seconds after which to call again, or None when there is nothing to do.
        """
        if not self._waiting:
            return None
        began = self._clock.monotonic()
        if began < self._free_at and not self._all:
            return self._free_at - began
        latest = self._waiting[-1].windows
        self._catch_up()
        if self._waiting:
            self._ask(self._waiting.popleft())
        self._comparisons += 1
        if began >= self._free_at:
            if self.tally.timings < _TIMED_EACH or self._comparisons % 8 == 0:
                for _ in range(_AT_ONCE):
                    self._time(latest)
                    if self._clock.monotonic() - began > _LONG_S:
                        break
            self._free_at = self._clock.monotonic() + (self._clock.monotonic() - began) * self._pause
        return None

    def _catch_up(self) -> None:
        """Ask the other model about all windows that it has not seen, where it has to see each of them."""
        while self._all and self._waiting:
            self._ask(self._waiting.popleft())

    def _time(self, windows: Sequence[Window]) -> None:
        """Time both models on the same windows (rule 5); a model that fails here is not timed."""
        both = [self._old, self._new] if self._comparisons % 2 else [self._new, self._old]
        try:
            took_s = {model is self._new: self._warm_call(model, windows) for model in both}
        except (EngineError, InputError):  # counted where it is asked for an answer
            return
        self.tally.timed(max(took_s[True], _SHORTEST_S) / max(took_s[False], _SHORTEST_S))

    def _warm_call(self, model: Predictor, windows: Sequence[Window]) -> float:
        """Call a model twice; return how long the second call took, seconds."""
        states = model.states
        calls = [windows, windows]
        if states is not None:
            if states.full:
                raise EngineError("the states of another key would have to go")
            first = windows[0]._replace(key=_TIMED_KEY)
            calls = [[first], [first._replace(slot=first.slot + model.manifest.input.hop)]]
        try:
            for call in calls:
                began = self._clock.monotonic()
                self.began = began if model is self._new else 0.0
                model.predict(call)
            return self._clock.monotonic() - began
        finally:
            self.began = 0.0
            if states is not None:
                states.forget([_TIMED_KEY])

    def _ask(self, asked: _Asked) -> None:
        """Ask the other model, and compare."""
        self.began = 0.0 if self._new_leads else self._clock.monotonic()
        try:
            answers = self._other.predict(asked.windows)
        except (EngineError, InputError) as error:
            if not self._new_leads:
                self.tally.failed(len(asked.windows), one_line(error, ADVICE))
            return
        finally:
            self.began = 0.0
        if not self._new_leads:
            if not np.isfinite(answers.rows).all():
                self.tally.failed(len(asked.windows), "answers that are not finite")
                return
            self.tally.answered += len(asked.windows)
        windows, given, found = _both(asked, answers) if self._all else (asked.windows, asked.rows, answers.rows)
        if windows:
            self._compare(windows, *((found, given) if self._new_leads else (given, found)))

    def _compare(self, windows: Sequence[Window], old: Float32, new: Float32) -> None:
        same = self._agree(old, new)
        self.tally.compared += len(windows)
        self.tally.agreed += sum(same)
        if self._differ is not None:
            for window, ours, theirs, agreed in zip(windows, old, new, same, strict=True):
                if not agreed:
                    self._differ(window, ours, theirs)


def _both(asked: _Asked, answers: Answers) -> tuple[list[Window], Float32, Float32]:
    """Return windows that both models have answered, and the answers to them (rule 4)."""
    places = {window.id: place for place, window in enumerate(answers.windows)}
    both = [(place, places[window.id]) for place, window in enumerate(asked.answered) if window.id in places]
    ours, theirs = [one for one, _ in both], [other for _, other in both]
    return [asked.answered[one] for one in ours], asked.rows[ours], answers.rows[theirs]


class Alone:
    """A `Predictor` with nothing to compare with: another contract, or no old model. Counts answers and errors."""

    def __init__(self, new: Predictor, clock: Clock) -> None:
        self._new = new
        self._clock = clock
        self.max_batch = new.max_batch
        self.tally = ShadowTally()
        self.began = 0.0
        """See `Pair`."""

    @property
    def manifest(self) -> Manifest:
        """Of the model."""
        return self._new.manifest

    @property
    def variant(self) -> Variant:
        """See `Predictor`."""
        return self._new.variant

    @property
    def states(self) -> StateStore | None:
        """See `Predictor`."""
        return self._new.states

    def predict(self, windows: Sequence[Window]) -> Answers:
        """See `Predictor`."""
        self.began = self._clock.monotonic()
        try:
            answers = self._new.predict(windows)
        except EngineError as error:
            self.tally.failed(len(windows), one_line(error, ADVICE))
            raise
        finally:
            self.began = 0.0
        if np.isfinite(answers.rows).all():
            self.tally.answered += len(windows)
        else:
            self.tally.failed(len(windows), "answers that are not finite")
        return answers

    def compare(self) -> None:
        """Do nothing; there is nothing to compare with."""
