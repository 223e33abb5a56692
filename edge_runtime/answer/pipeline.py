"""The streaming path: readings in, predictions to the sinks, hard cases to the escalation. Composition only.

One iteration of the loop, for all that arrived in it::

    deliver() ─► windower ─► ready windows      (once per arrival)
    flush_iteration() ─► batches ─► engine ─► gate ─► events ─► sinks.send ──────────┐
                                        └► escalation.submit ─► commit ─► sinks.send ─┴─► all safe ─► done(), and
                                                                                         the source acknowledges

When an answer leaves, and when a source's `done` is called: see `edge_runtime.answer.handover`. An acknowledged reading
leaves behind an unfinished window at most, which is soft state.

The stages in between are `Stages`, in their order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from edge_runtime.answer.durability import Durability
from edge_runtime.answer.events.tracker import EventTracker
from edge_runtime.answer.gate.adaptive import AdaptiveGate
from edge_runtime.answer.gate.selection import Selection
from edge_runtime.answer.handover import HandOver, Join
from edge_runtime.clock import Clock
from edge_runtime.errors import EngineError, InputError
from edge_runtime.io.sinks import Sink
from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.model.over_time import AnswersOverTime
from edge_runtime.model.serving.cache import uncached
from edge_runtime.model.serving.explain import explain_alone
from edge_runtime.model.serving.loading import Predictor, calls, play
from edge_runtime.model.tasks import Task
from edge_runtime.model.tasks.answered import Answered, Tap, Unanswered, latencies_ms, marked, without_answer
from edge_runtime.model.tasks.key_thresholds import KeyThresholds
from edge_runtime.signal.drift.agreement import Agreement
from edge_runtime.signal.stage import Stage, WindowBatch
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.epochs import Epochs, Given
from edge_runtime.signal.windowing.join import AnyWindower
from edge_runtime.signal.windowing.thinning import Thinning
from edge_runtime.signal.windowing.window import KeyState, Window
from edge_runtime.types import Correction, Done, FinalAnswer, Prediction, Reading

if TYPE_CHECKING:
    from edge_runtime.model.tasks.learnt_examples import LearntExamples


@dataclass(kw_only=True, slots=True)
class Stages:
    """Stages of a message's way, in their order; one that is left out goes by the bundle alone, or does nothing."""

    intake: Stage = field(default_factory=Stage)
    """Finds readings and windows that are suspect: their answers are hard, and the cloud is not asked about them."""
    drift: Stage = field(default_factory=Stage)
    """Finds keys whose sensors are mounted otherwise than in training, or have changed."""
    examples: LearntExamples | None = None
    """Remembers the model's numbers, and teaches the task the examples that users add."""
    over_time: Stage = field(default_factory=AnswersOverTime)
    """Filters the numbers by what a key's answers before say."""
    thresholds: Stage = field(default_factory=KeyThresholds)
    """Puts the key's own threshold behind the numbers."""
    task: Task
    """Makes of the numbers a decision: which answer, how far it is trusted, whether it is hard."""
    gate: Stage = field(default_factory=AdaptiveGate)
    """Decides by the key's own threshold whether it is hard."""
    events: Stage = field(default_factory=lambda: EventTracker(None))
    """Puts events behind the answers that begin or end them."""

    def __iter__(self) -> Iterator[Stage]:
        """Go through all but the task, which has no state."""
        examples = () if self.examples is None else (self.examples,)
        yield from (self.intake, self.drift, *examples, self.over_time, self.thresholds, self.gate, self.events)

    def taught(self) -> Task:
        """Return the task with the examples that there are now."""
        return self.task if self.examples is None else self.examples.taught(self.task)


class Pipeline:
    """Way of a message from readings to answers, for one bundle at a time.

    Args:
        model: answers windows.
        windower: cuts windows for all keys.
        stages: all else that happens to windows and answers.
        sinks: all receivers of answers.
        escalation: chooses what the cloud is asked about; None keeps every answer local.
        durability: keeps begun windows over an orderly stop, or writes readings down before they are acknowledged;
            None keeps begun windows in memory only.
        metrics: receives everything that is counted.
        clock: monotonic time for latencies.
    """

    def __init__(
        self,
        *,
        model: Predictor,
        windower: AnyWindower,
        stages: Stages,
        sinks: Sequence[Sink],
        escalation: Selection | None = None,
        durability: Durability | None = None,
        metrics: Metrics,
        clock: Clock,
    ) -> None:
        self._windower = windower
        self._stages = stages
        self._selection = escalation
        self._durability = durability or Durability()
        self._metrics = metrics
        self._clock = clock
        self._thinning = Thinning(metrics)
        self._use(model)
        self._durability.keep(model.states)
        self._out = HandOver(sinks, None if escalation is None else escalation.escalation, metrics, clock)
        self._agreement = Agreement(metrics)
        self._ready: list[Window] = []
        self._again: list[Window] = []  # completed by the run before
        self._waiting: list[Done] = []
        self._lost = Unanswered(metrics)
        self._taps: list[Tap] = []
        self._cuts: dict[float, tuple[float, float]] = {}  # of this iteration; kept only for taps

    def add_sink(self, sink: Sink) -> None:
        """Show answers to this observer too, from now on; its owner opens and closes it."""
        self._out.add(sink)

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels that the scores of an answer are of; those that examples were added for stand behind the bundle's."""
        taught: tuple[str, ...] | None = getattr(self._task, "labels", None)
        return self._model.manifest.output.labels if taught is None else taught

    def tap(self, tap: Tap) -> None:
        """Have a function called with what is answered from now on, before it is handed over."""
        self._taps.append(tap)

    def explain(self, window: Window) -> dict[str, Any]:
        """Explain the answer to a window, now (`edge_runtime.model.serving.explain`).

        Raises:
            EngineError: nothing on the device answers, or its answers depend on earlier windows.
            InputError: the engine will not have these values.
        """
        if self._explained is None:
            raise EngineError(f"{self._manifest.model} is on trial; ask again later")
        return explain_alone(self._explained, window)

    @property
    def idle(self) -> bool:
        """Nothing is ready, every answer given so far is safe, and what was accepted is written down."""
        return not self._ready and not self._again and self._out.idle and self._durability.drained()

    def deliver(self, readings: Sequence[Reading], received: float, done: Done | None) -> None:
        """Take readings from a source (see `edge_runtime.io.sources.Deliver`)."""
        counts = self._metrics.counts
        counts["readings_total"] += len(readings)
        began = self._clock.monotonic()
        if self._durability.writes_readings and done is not None:
            done = Join(2, [done])  # the disk has them, and what follows from them is safe
            self._durability.write(readings, done)
        self._stages.intake.read(readings)
        windows = self._windower.push(readings, received)
        ended = self._clock.monotonic()
        self._metrics.stages["window"].observe(ended - began)
        if self._thinning.every > 1 and not self._steps:
            windows = self._thinning.thinned(windows)
        if windows:
            self._ready += windows
            if self._taps:
                self._cuts[received] = (began, ended)
            if done is not None:
                self._waiting.append(done)
        elif done is not None:
            done()  # context alone is soft: nothing waits for it

    @property
    def epochs(self) -> Epochs:
        """Epochs of keys, from which the ids of windows follow; the same object for as long as this lives."""
        return self._windower.epochs

    def given(self) -> Iterator[tuple[str, Given]]:
        """Go through all keys that are known, with the epoch and the highest number of each."""
        return self._windower.given()

    def marks(self) -> tuple[int, int]:
        """Return the numbers of the last iteration, and of the last up to which all answers are safe."""
        return self._durability.marks

    def key_states(self) -> list[KeyState]:
        """Return what is held for each key, the one silent for longest first; views, to be looked at at once."""
        return self._windower.state()

    def flush(self) -> None:
        """Use what waits for the lateness bound, before stopping, unless it is kept over the stop."""
        if self._durability.keeps_windows:
            self.flush_iteration()
            return
        windows = self._windower.flush(self._clock.monotonic())
        self._ready += windows if self._steps else self._thinning.thinned(windows)
        self.flush_iteration()
        self._out.give([event for stage in self._stages for event in stage.finish()], [], [])

    def recover(self, contract: InputContract, config: WindowConfig) -> None:
        """Continue where the run before ended, as far as a reading log has it, by answering its last windows.

        Raises:
            StoreError: the reading log's file is another program's, or its path or permissions are wrong.
        """
        self._answer_first(
            *self._durability.recover(
                contract, config, self._windower, self._answer_first, lambda windows: play(self._model, windows)
            )
        )

    def _answer_first(self, windows: list[Window], done: Done) -> None:
        self._again += windows
        self._waiting.append(done)

    def reset(self, keys: Sequence[str]) -> int:
        """Let the states of keys begin again with their next windows; returns how many had some."""
        states = self._model.states
        moved = set() if states is None else set(filter(states.reset, keys))
        done = moved.union(*(stage.reset(keys) for stage in self._stages))
        if moved:
            self._durability.save(self._windower)
        return len(done)

    def save(self, timeout_s: float) -> None:
        """Save begun windows and their context, after the last iteration."""
        self._durability.stop(self._windower, timeout_s)

    def answer_every(self, n: int) -> None:
        """Answer every n-th window of each key from now on; the others are counted as dropped, ``rate_reduced``.

        A model with states is asked about all of them, since each moves the state; its answers are left out then.
        """
        self._thinning.every = n

    def flush_iteration(self) -> None:
        """Answer all windows that this iteration made ready."""
        if (done := self._durability.flush_iteration(self._ready, self._windower)) is not None:
            self._waiting.append(done)
        if not self._ready and not self._again:
            return
        windows, self._ready, self._again = self._again + self._ready if self._again else self._ready, [], []
        waiting, self._waiting = self._waiting, []
        batch = WindowBatch(windows)
        for stage in self._checks:
            stage.run(batch)
        for part in calls(self._model, windows):
            self._answer(batch if part is windows else batch.part(part))
        self._cuts.clear()
        self._stages.events.run(batch)
        self._out.give(batch.answers, batch.cases, waiting)

    def replace(
        self, model: Predictor, task: Task, windower: AnyWindower | None = None, *, trial: bool = False
    ) -> None:
        """Answer with another model from now on; what is ready is answered by the one before.

        Args:
            model: a model of the same input contract, so that the windows begun go on.
            task: its own.
            windower: windower of another contract. What the one before holds back for late samples is used; the
                windows begun are not finished, and the keys that had some are counted (``window_restarts_total``).
            trial: it is to be seen at work, so it is asked for no explanation.
        """
        if windower is not None:
            self._ready += self._windower.flush(self._clock.monotonic())
            self._metrics.counts["window_restarts_total"] += len(self._windower)
            windower.succeed(self._windower)
            self._windower = windower
        self.flush_iteration()
        self._durability.keep(model.states, self._windower if windower is None else None)
        if windower is not None:
            self._durability.change(model.manifest.input, windower)
        if model.states is not None:
            model.states.succeed(self._model.states)
        self._stages.task = task
        self._use(model, trial=trial)

    def teach(self) -> None:
        """Answer by the examples that there are now, from the next window on."""
        self._task = self._stages.taught()

    def publish(self, answers: Sequence[Correction | FinalAnswer], done: Done) -> None:
        """Hand corrections and final answers to the sinks; `done` is called when all of them have them safe."""
        corrections = [answer for answer in answers if isinstance(answer, Correction)]
        self._metrics.counts["corrections_total"] += len(corrections)
        self._metrics.counts["final_total"] += len(answers) - len(corrections)
        if corrections:
            outcomes = [(answer.hard, self._task.upheld(answer)) for answer in corrections]
            self._agreement.learn(outcomes)
            for stage in self._stages:
                stage.learn(outcomes)
        self._out.send(answers, [done])

    def _use(self, model: Predictor, *, trial: bool = False) -> None:
        self._model = model
        self._explained = None if trial else uncached(model)  # a trial counts what is asked
        self._steps = model.states is not None
        self._manifest = manifest = model.manifest
        self._thinning.hop = manifest.input.hop
        stages = self._stages
        if self._selection is not None:
            self._selection.use(manifest)
        for stage in stages:
            stage.use(manifest)
        self._checks = [stage for stage in (stages.intake, stages.drift) if stage.active]
        followers = [stage for stage in (stages.examples, stages.over_time, stages.thresholds) if stage is not None]
        self._followers = [stage for stage in followers if stage.active]
        self.teach()

    def _answer(self, batch: WindowBatch) -> None:
        windows, stages, clock = batch.windows, self._metrics.stages, self._clock
        began = clock.monotonic()
        try:
            numbers, answered = self._model.predict(windows)
        except InputError as error:
            self._refuse(batch, error)
            return
        except EngineError as error:
            self._unanswered(batch, error, began)
            return
        self._lost.end()
        ended = clock.monotonic()
        stages["engine"].observe((ended - began) / len(windows), len(windows))
        if answered is not windows:  # a chain that is not full yet answers nothing
            self._metrics.counts["warmup_total"] += len(windows) - len(answered)
            windows = list(answered)
        if self._thinning.every > 1 and self._steps:
            kept = self._thinning.kept(answered)
            numbers, windows = numbers[kept], [answered[position] for position in kept]
        if windows:
            answering = batch if windows is batch.windows else batch.part(windows)
            answering.numbers = numbers
            self._decide(answering, began, ended)

    def _show(self, windows: Sequence[Window], made: Sequence[Prediction], began: float, ended: float) -> None:
        for tap in self._taps:
            tap(Answered(windows, made, began, ended, self._cuts))

    def _decide(self, batch: WindowBatch, began: float, ended: float) -> None:
        """Make predictions of a model's numbers, and send hard cases on their way.

        1. What follows keys sees the numbers, and may change them.
        2. The task decides, and the gate by the thresholds of keys.
        3. Answers are made of the decision; those of suspect readings are hard.
        4. The cloud is asked about some of them.
        """
        task, windows = self._task, batch.windows
        for stage in self._followers:  # rule 1
            stage.run(batch)
        batch.decision = task.decide(batch.numbers)  # rule 2
        if self._stages.gate.active:
            self._stages.gate.run(batch)
        # Asked of the model each time: one made of several answers under the name of the one that answered.
        manifest = self._model.manifest
        made: Sequence[Prediction] = task.predictions(  # rule 3
            windows,
            batch.numbers,
            batch.decision,
            latencies_ms(windows, began, ended, self._metrics),
            (manifest.model, self._model.variant.name),
        )
        hard = batch.decision.hard
        if batch.suspects:
            made = marked(windows, made, batch.suspects)
            hard = [answer.hard for answer in made]
        n_hard = sum(hard)
        if self._selection is not None:  # rule 4
            self._selection.select(batch, made, batch.decision.trust, n_hard, self._explained)
        self._metrics.counts["predictions_total"] += len(windows)
        self._metrics.counts["hard_total"] += n_hard
        batch.answers += made
        self._show(windows, made, began, ended)

    def _refuse(self, batch: WindowBatch, error: InputError) -> None:
        """Refuse windows the engine cannot take: values near float32's end can become infinite between two samples."""
        if len(batch.windows) == 1:
            self._metrics.dropped[error.reason] += 1
            self._lose(batch.windows)
            return
        for window in batch.windows:  # one bad window must not take the others with it
            self._answer(batch.part([window]))

    def _lose(self, windows: Sequence[Window]) -> None:
        """Note steps that are missing: their keys' states begin again."""
        if self._model.states is not None:
            self._model.states.lose(windows)

    def _unanswered(self, batch: WindowBatch, error: EngineError, began: float) -> None:
        """Ask the cloud for windows that nothing on the device can answer, within the budget; count the others.

        The stream goes on, and what is published says so (`without_answer`).
        """
        windows = batch.windows
        self._lost.begin(windows, error)
        self._lose(windows)
        if self._selection is None:
            self._metrics.dropped["engine_error"] += len(windows)
            return
        now = self._clock.monotonic()
        made = without_answer(self._task, self._manifest, windows, now)
        self._selection.select(batch, made, [0.0] * len(made), len(made), None)
        batch.answers += made
        self._show(windows, made, began, now)
        self._metrics.counts["predictions_total"] += len(windows)
        self._metrics.counts["hard_total"] += len(windows)
