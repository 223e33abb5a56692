"""Two models on the same windows: one answers, the other is asked the same afterwards, when there is time for it.

What it costs the live stream: a call of the second model, on as many windows as the first one had just been given, and
only after that iteration's answers have left; then a pause, so that such calls take `share` of the thread's time at
most. Windows that come meanwhile are not compared, and are counted as skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from edge_runtime.clock import Clock
from edge_runtime.errors import EngineError, InputError
from edge_runtime.manifest import Manifest, Variant
from edge_runtime.model.loading import Answers, Predictor
from edge_runtime.model.states import StateStore
from edge_runtime.types import Float32
from edge_runtime.windowing.window import Window

if TYPE_CHECKING:
    from edge_runtime.model.failover import FallbackChain

Agree = Callable[[Float32, Float32], Sequence[bool]]

_RATIOS = 512
"""Timings kept; the last ones, so that a slow minute in the past is forgotten."""


@dataclass(slots=True)
class Tally:
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
    _ratios: list[float] = field(default_factory=list)

    @property
    def agreement(self) -> float:
        """Share of `compared`; 1 before anything was compared."""
        return self.agreed / self.compared if self.compared else 1.0

    @property
    def slowdown(self) -> float:
        """Median over calls of the new model's time by the old one's, for the same windows; 0 before the first."""
        return median(self._ratios) if self._ratios else 0.0

    def timed(self, ratio: float) -> None:
        """Note the ratio of times of one more call of both."""
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
        agree: says for each window whether two answers are the same: `edge_runtime.tasks.Task.agree`.
        leads: which of the two answers.
        clock: measures both.
        share: of the thread's time that comparing may take.

    While the new one leads, the old one stands in where it fails: no window is lost to a bad update.
    """

    def __init__(
        self, old: Predictor, new: Predictor, *, agree: Agree, new_leads: bool, clock: Clock, share: float
    ) -> None:
        self._old = old
        self._new = new
        self._new_leads = new_leads
        self._lead, self._other = (new, old) if new_leads else (old, new)
        self._clock = clock
        self._pause = (1 - share) / share
        self._free_at = 0.0
        self._agree = agree
        self._pending: tuple[list[Window], Float32, float] | None = None
        self._answering = self._lead
        self.max_batch = min(old.max_batch, new.max_batch)
        self.tally = Tally()
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
        began = self._clock.monotonic()
        self._answering = self._lead
        if self._new_leads:
            answers, stood_in = self._try(windows)
            if stood_in:
                return answers
        else:
            answers = self._lead.predict(windows)
        ended = self._clock.monotonic()
        if self._pending is None and ended >= self._free_at:
            self._pending = (list(answers.windows), answers.rows.copy(), ended - began)
        else:
            self.tally.skipped += len(windows)
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
            error = " ".join(str(raised).split())
        finally:
            self.began = 0.0
        answers = self._old.predict(windows)  # if this raises too, the windows are to blame, and nothing is counted
        self._answering = self._old
        self.tally.failed(len(windows), error)
        return answers, True

    def compare(self) -> float | None:
        """Ask the other model what the first one was asked, if there is something and the time for it has come.

        Returns:
            Seconds after which to call again, or None when there is nothing to do.
        """
        if self._pending is None:
            return None
        began = self._clock.monotonic()
        if began < self._free_at:
            return self._free_at - began
        windows, given, lead_s = self._pending
        self._pending = None
        self.began = 0.0 if self._new_leads else began
        try:
            answers = self._other.predict(windows)
        except (EngineError, InputError) as error:
            if not self._new_leads:
                self.tally.failed(len(windows), " ".join(str(error).split()))
            return None
        finally:
            self.began = 0.0
        ended = self._clock.monotonic()
        other_s = ended - began
        self._free_at = ended + other_s * self._pause
        if not self._new_leads:
            if not np.isfinite(answers.rows).all():
                self.tally.failed(len(windows), "answers that are not finite")
                return None
            self.tally.answered += len(windows)
        old_s, new_s = (other_s, lead_s) if self._new_leads else (lead_s, other_s)
        if old_s > 0:
            self.tally.timed(new_s / old_s)
        self.tally.compared += len(windows)
        self.tally.agreed += sum(self._agree(given, answers.rows))
        return None


class Alone:
    """A `Predictor` with nothing to compare with: another contract, or no old model. Counts answers and errors."""

    def __init__(self, new: Predictor, clock: Clock) -> None:
        self._new = new
        self._clock = clock
        self.max_batch = new.max_batch
        self.tally = Tally()
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
            self.tally.failed(len(windows), " ".join(str(error).split()))
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
