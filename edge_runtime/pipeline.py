"""The streaming path: readings in, predictions to the sinks, hard cases to the escalation. Composition only.

One iteration of the loop, for all that arrived in it::

    deliver() ─► windower ─► ready windows      (once per arrival)
    flush_iteration() ─► batches ─► engine ─► gate ─► sinks.send ────────────────────┐
                                        └► escalation.submit ─► commit ─► sinks.send ─┴─► all safe ─► done(), and
                                                                                         the source acknowledges

A source's `done` is called when every sink has handed over the answers of that iteration and every hard case is
committed, so an acknowledged reading has no consequence that a crash could take back (its unfinished window is soft
state). ``provisional`` promises that the case will be closed, so such an answer leaves when its case is committed, and
the answers of its key that come after it leave behind it; those of other keys do not wait.
"""

from __future__ import annotations

import itertools
import logging
import zlib
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

import numpy as np

from edge_runtime.clock import Clock
from edge_runtime.errors import EngineError, InputError
from edge_runtime.gate.budget import Budget
from edge_runtime.gate.gate import Gate, audited
from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.model.loading import Predictor
from edge_runtime.sinks import Sink
from edge_runtime.types import Answer, Correction, Done, FinalAnswer, Hard, Prediction, Reading, Route
from edge_runtime.windowing.config import WindowConfig
from edge_runtime.windowing.window import Window, Windower

if TYPE_CHECKING:
    from edge_runtime.durable.reading_log import ReadingLog
    from edge_runtime.durable.window_state import SavedWindows

log = logging.getLogger(__name__)


class Escalation(Protocol):
    """Takes hard cases and sees to it that each of them is answered, dropped by a stated policy, or a dead letter."""

    def refuses(self) -> str:
        """Return the reason for which a case would be dropped now, so that none is paid for; empty if it is taken."""
        ...

    def takes_short(self) -> bool:
        """Return whether a case may have fewer samples than its bundle's history."""
        ...

    def submit(self, cases: Sequence[Hard], done: Done | None) -> None:
        """Take cases; `done` is called on the loop's thread once they are committed, or refused and counted.

        Before that, the prediction of each case that was refused has its route set to ``local``.
        """
        ...


class Join:
    """Calls several callbacks when a number of others have reported. Single-threaded, like everything on the loop."""

    __slots__ = ("_callbacks", "_missing")

    def __init__(self, missing: int, callbacks: Sequence[Done]) -> None:
        self._missing = missing
        self._callbacks = callbacks

    def __call__(self) -> None:
        """Report once more; the last report calls everything, in order."""
        self._missing -= 1
        if self._missing == 0:
            for callback in self._callbacks:
                callback()


class _Held:
    """Answers of one key and one iteration that wait for a commit, their own or that of an earlier iteration."""

    __slots__ = ("answers", "done", "uncommitted")

    def __init__(self) -> None:
        self.answers: list[Prediction] = []
        self.uncommitted = False
        self.done: Done = lambda: None


class Pipeline:
    """From readings to answers, for one bundle.

    Args:
        model: answers windows.
        windower: cuts windows for all keys.
        gate: tells hard from easy.
        budget: bounds what is sent.
        sinks: where answers go, all of them.
        escalation: where hard cases go; None keeps every answer local.
        metrics: receives everything that is counted.
        clock: monotonic time for latencies.
        audit_share: share of trusted answers that is sent all the same.
        reading_log: keeps begun windows over an orderly stop, or writes readings down before they are acknowledged;
            None keeps begun windows in memory only.
    """

    def __init__(
        self,
        *,
        model: Predictor,
        windower: Windower,
        gate: Gate,
        budget: Budget,
        sinks: Sequence[Sink],
        escalation: Escalation | None,
        metrics: Metrics,
        clock: Clock,
        audit_share: float = 0.0,
        reading_log: ReadingLog | SavedWindows | None = None,
    ) -> None:
        self._reading_log = reading_log
        self._writes_readings = reading_log is not None and reading_log.writes_readings
        self._use(model)
        self._windower = windower
        self._gate = gate
        self._budget = budget
        self._sinks = list(sinks)
        self._escalation = escalation
        self._metrics = metrics
        self._clock = clock
        self._audit_share = audit_share if escalation is not None else 0.0
        self._every = 1
        self._ready: list[Window] = []
        self._waiting: list[Done] = []
        self._open_iterations = 0
        self._held: dict[str, deque[_Held]] = {}  # by key, oldest first; none where no case waits for its commit
        self._unanswering = False

    @property
    def idle(self) -> bool:
        """Nothing is ready, every answer given so far is safe, and what was accepted is written down."""
        return (
            not self._ready
            and self._open_iterations == 0
            and (self._reading_log is None or self._reading_log.drained())
        )

    def deliver(self, readings: Sequence[Reading], received: float, done: Done | None) -> None:
        """Take readings from a source (see `edge_runtime.sources.Deliver`)."""
        counts = self._metrics.counts
        counts["readings_total"] += len(readings)
        began = self._clock.monotonic()
        if self._writes_readings and self._reading_log is not None and done is not None:
            done = Join(2, [done])  # the disk has them, and what follows from them is safe
            self._reading_log.take(readings, done)
        windows = self._windower.push(readings, received)
        self._metrics.stages["window"].observe(self._clock.monotonic() - began)
        if self._every > 1:
            windows = self._thinned(windows)
        if windows:
            self._ready += windows
            if done is not None:
                self._waiting.append(done)
        elif done is not None:
            done()  # context alone is soft: nothing waits for it

    def flush(self) -> None:
        """Use what waits for the lateness bound, before stopping; a reading log keeps it instead."""
        if self._reading_log is None:
            self._ready += self._thinned(self._windower.flush(self._clock.monotonic()))
        self.flush_iteration()

    def recover(self, contract: InputContract, config: WindowConfig) -> None:
        """Continue where the run before ended, as far as a reading log has it, by answering its last windows.

        Raises:
            StoreError: the reading log's file is another program's, or its path or permissions are wrong.
        """
        if self._reading_log is not None:
            self._answer_first(*self._reading_log.recover(contract, config, self._windower, self._answer_first))

    def _answer_first(self, windows: list[Window], done: Done) -> None:
        self._ready += windows
        self._waiting.append(done)

    def save(self, timeout_s: float) -> None:
        """Save begun windows and their context, after the last iteration."""
        if self._reading_log is not None:
            self._reading_log.stop(self._windower, timeout_s)

    def answer_every(self, n: int) -> None:
        """Answer every n-th window of each key from now on; the others are counted as dropped, ``rate_reduced``.

        The choice follows their number, so the same stream is thinned the same way on every run; the keys alternate, so
        that the load is spread.
        """
        self._every = n

    def _thinned(self, windows: list[Window]) -> list[Window]:
        n, hop = self._every, self._hop
        if n == 1:
            return windows
        kept = [window for window in windows if (window.slot // hop + zlib.crc32(window.key.encode())) % n == 0]
        self._metrics.dropped["rate_reduced"] += len(windows) - len(kept)
        return kept

    def flush_iteration(self) -> None:
        """Answer all windows that this iteration made ready."""
        if (
            self._reading_log is not None
            and (done := self._reading_log.flush_iteration(self._ready, self._windower)) is not None
        ):
            self._waiting.append(done)
        if not self._ready:
            return
        windows, self._ready = self._ready, []
        waiting, self._waiting = self._waiting, []
        answers: list[Prediction] = []
        hard: list[Hard] = []
        step = self._model.max_batch
        for at in range(0, len(windows), step):
            self._answer(windows[at : at + step], answers, hard)
        self._hand_over(answers, hard, waiting)

    def replace(self, model: Predictor, gate: Gate, windower: Windower | None = None) -> None:
        """Answer with another model from now on; what is ready is answered by the one before.

        Args:
            model: of the same input contract, so that the windows begun go on.
            gate: its own.
            windower: where the contract is another one. What the one before holds back for late samples is used; the
                windows begun are not finished, and the keys that had some are counted (``window_restarts_total``).
        """
        if windower is not None:
            self._ready += self._windower.flush(self._clock.monotonic())
            self._metrics.counts["window_restarts_total"] += len(self._windower)
            self._windower = windower
        self.flush_iteration()
        if windower is not None and self._reading_log is not None:
            self._reading_log.change(model.manifest.input, windower)
        self._use(model)
        self._gate = gate

    def publish(self, answers: Sequence[Correction | FinalAnswer], done: Done) -> None:
        """Hand corrections and final answers to the sinks; `done` is called when all of them have them safe."""
        corrections = sum(isinstance(answer, Correction) for answer in answers)
        self._metrics.counts["corrections_total"] += corrections
        self._metrics.counts["final_total"] += len(answers) - corrections
        self._send(answers, [done])

    def _use(self, model: Predictor) -> None:
        manifest = model.manifest
        self._model = model
        self._name = manifest.model
        self._labels = manifest.output.labels
        self._length_s = manifest.input.window / manifest.input.rate_hz
        self._history = manifest.input.history
        self._hop = manifest.input.hop

    def _answer(self, windows: list[Window], answers: list[Prediction], hard: list[Hard]) -> None:
        stages, clock = self._metrics.stages, self._clock
        began = clock.monotonic()
        try:
            probabilities = self._model.predict(windows)
        except InputError as error:
            self._refuse(windows, error, answers, hard)
            return
        except EngineError as error:
            self._unanswered(windows, error, answers, hard)
            return
        self._unanswering = False
        ended = clock.monotonic()
        stages["engine"].observe((ended - began) / len(windows), len(windows))
        best, trust, is_hard = self._gate.decide(probabilities)
        self._budget.seen(len(windows))
        # The same figures in the record as in the decision: rounding after the gate, to what float32 can carry.
        rows = probabilities.astype(np.float64).round(7).tolist()
        # Asked of the model each time: one made of several answers under the name of the one that answered.
        labels, model, variant = self._labels, self._model.manifest.model, self._model.variant.name
        keys, slots, starts, _, _, received = zip(*windows, strict=True)
        length = self._length_s
        made = [
            Prediction(
                f"{key}@{slot}",
                key,
                start := round(begin * 1e6) / 1e6,  # microseconds; a third of the time of round(x, 6)
                round((start + length) * 1e6) / 1e6,
                labels[label],
                scores[label],
                scores,
                "local",
                difficult,
                model,
                variant,
                latency_ms,
            )
            for key, slot, begin, label, scores, difficult, latency_ms in zip(
                keys,
                slots,
                starts,
                best,
                rows,
                is_hard,
                self._latencies_ms(received, began, ended),
                strict=True,
            )
        ]
        answers += made
        n_hard = sum(is_hard)
        if self._escalation is not None and (n_hard or self._audit_share):
            for window, prediction, score in zip(windows, made, trust, strict=True):
                if prediction.hard or self._audit_share:
                    self._escalate(self._escalation, window, prediction, score, hard)
        self._metrics.counts["predictions_total"] += len(windows)
        self._metrics.counts["hard_total"] += n_hard

    def _refuse(self, windows: list[Window], error: InputError, answers: list[Prediction], hard: list[Hard]) -> None:
        """Refuse windows the engine cannot take: values near float32's end can become infinite between two samples."""
        if len(windows) == 1:
            self._metrics.dropped[error.reason] += 1
            return
        for window in windows:  # one bad window must not take the others with it
            self._answer([window], answers, hard)

    def _unanswered(
        self, windows: list[Window], error: EngineError, answers: list[Prediction], hard: list[Hard]
    ) -> None:
        """Ask the cloud for windows that nothing on the device can answer, within the budget; count the others.

        The stream goes on. What is published says so: no label, no scores, and `variant` is ``none``.
        """
        if not self._unanswering:  # one line when it begins, not one for every batch
            self._unanswering = True
            log.error("windows go unanswered: %s", error)
        self._metrics.counts["unanswered_total"] += len(windows)
        if self._escalation is None:
            self._metrics.dropped["engine_error"] += len(windows)
            return
        self._budget.seen(len(windows))
        now = self._clock.monotonic()
        length = self._length_s
        for window in windows:
            start = round(window.start * 1e6) / 1e6
            end = round((start + length) * 1e6) / 1e6
            latency_ms = round((now - window.received) * 1e3, 3)
            prediction = Prediction(
                window.id, window.key, start, end, "", 0.0, [], "local", True, self._name, "none", latency_ms
            )
            answers.append(prediction)
            self._escalate(self._escalation, window, prediction, 0.0, hard)
        self._metrics.counts["predictions_total"] += len(windows)
        self._metrics.counts["hard_total"] += len(windows)

    def _latencies_ms(self, received: Sequence[float], began: float, ended: float) -> list[float]:
        """Measure milliseconds from arrival to answer of each window; windows of one arrival are counted together."""
        latencies: list[float] = []
        for arrived, together in itertools.groupby(received):
            n = len(list(together))
            self._metrics.stages["wait"].observe(began - arrived, n)
            self._metrics.stages["total"].observe(ended - arrived, n)
            latencies += [round((ended - arrived) * 1e3, 3)] * n
        return latencies

    def _escalate(
        self, escalation: Escalation, window: Window, prediction: Prediction, score: float, hard: list[Hard]
    ) -> None:
        audit = not prediction.hard
        if audit and not audited(prediction.id, self._audit_share):
            return
        self._metrics.counts["audit_total"] += audit
        if reason := escalation.refuses():
            self._metrics.dropped[reason] += 1
            return
        context = window.context
        if len(context) < self._history and not escalation.takes_short():
            self._metrics.dropped["context_short"] += 1
            return
        refused = self._budget.spend(context.nbytes)
        if refused is not None:
            self._metrics.dropped[f"budget_{refused}"] += 1
            return
        route: Route = "local" if audit else "provisional"
        prediction.route = route
        hard.append(Hard(prediction, np.ascontiguousarray(context.T), score, audit))

    def _hand_over(self, answers: list[Prediction], hard: list[Hard], waiting: list[Done]) -> None:
        if not answers and not hard:
            for done in waiting:
                done()
            return
        self._open_iterations += 1
        began = self._clock.monotonic()
        held: dict[str, _Held] = {}
        now = self._hold(answers, held) if hard or self._held else answers
        join = Join(bool(now) + bool(hard) + len(held) + 1, [*waiting, self._iteration_ended])
        for one in held.values():
            one.done = join
        if now:
            self._send(now, [join])  # first: answers of a key before its first hard one are among them
        if self._escalation is not None and hard:
            self._escalation.submit(hard, lambda: self._committed(held, join))
        join()  # the iteration itself
        ended = self._clock.monotonic()
        self._metrics.stages["publish"].observe((ended - began) / max(1, len(answers)), max(1, len(answers)))

    def _hold(self, answers: Sequence[Prediction], held: dict[str, _Held]) -> list[Prediction]:
        """Return the answers that leave at once; those that wait for a commit are put into `held` by key."""
        now = []
        for answer in answers:
            one = held.get(answer.key)
            if one is None and (answer.route == "provisional" or answer.key in self._held):
                one = held[answer.key] = _Held()
                self._held.setdefault(answer.key, deque()).append(one)
            if one is None:
                now.append(answer)
            else:
                one.answers.append(answer)
                one.uncommitted |= answer.route == "provisional"
        return now

    def _committed(self, held: Mapping[str, _Held], join: Done) -> None:
        """Send the answers of an iteration whose cases are committed or refused, those of each key in order."""
        ready: list[Prediction] = []
        done: list[Done] = []
        for key, one in held.items():
            one.uncommitted = False
            waiting = self._held.get(key)
            while waiting and not waiting[0].uncommitted:
                first = waiting.popleft()
                ready += first.answers
                done.append(first.done)
            if waiting is not None and not waiting:
                del self._held[key]
        if ready:
            self._send(ready, done)
        join()

    def _send(self, answers: Sequence[Answer], done: Sequence[Done]) -> None:
        """Hand answers to every sink; all of `done` are called once, when each sink has them safe."""
        join = Join(len(self._sinks) + 1, done)
        for sink in self._sinks:
            sink.send(answers, join)
        join()  # with no sink no other reports

    def _iteration_ended(self) -> None:
        self._open_iterations -= 1
