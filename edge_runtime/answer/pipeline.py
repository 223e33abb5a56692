"""The streaming path: readings in, predictions to the sinks, hard cases to the escalation. Composition only.

One iteration of the loop, for all that arrived in it::

    deliver() ─► windower ─► ready windows      (once per arrival)
    flush_iteration() ─► batches ─► engine ─► gate ─► events ─► sinks.send ──────────┐
                                        └► escalation.submit ─► commit ─► sinks.send ─┴─► all safe ─► done(), and
                                                                                         the source acknowledges

When an answer leaves, and when a source's `done` is called: see `edge_runtime.answer.handover`. An acknowledged reading
leaves behind an unfinished window at most, which is soft state.

The intake (`edge_runtime.signal.intake`) sees the readings as they come and the windows before they are answered:
answers of a key whose readings are suspect are hard, and the cloud is not asked about them. Windows that it lets pass
are looked at by `edge_runtime.signal.drift`, which finds sensors that are mounted otherwise than in training.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from edge_runtime.answer.durability import Durability
from edge_runtime.answer.events.tracker import EventTracker
from edge_runtime.answer.gate.adaptive import AdaptiveGate
from edge_runtime.answer.gate.budget import Budget
from edge_runtime.answer.gate.selection import Selection
from edge_runtime.answer.handover import Escalation, HandOver, Join
from edge_runtime.clock import Clock
from edge_runtime.errors import EngineError, InputError
from edge_runtime.io.sinks import Sink
from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.model.over_time import AnswersOverTime
from edge_runtime.model.serving.cache import CachedModel, require_cacheable
from edge_runtime.model.serving.explain import Explainer, explain_alone
from edge_runtime.model.serving.loading import Predictor, calls, play
from edge_runtime.model.tasks import Task
from edge_runtime.model.tasks.answered import Answered, Tap, Unanswered, latencies_ms, marked, without_answer
from edge_runtime.model.tasks.follower import Follower
from edge_runtime.model.tasks.key_thresholds import KeyThresholds
from edge_runtime.signal.drift.agreement import Agreement
from edge_runtime.signal.drift.monitor import Drift
from edge_runtime.signal.intake.intake import Intake
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.epochs import Epochs, Given
from edge_runtime.signal.windowing.join import AnyWindower
from edge_runtime.signal.windowing.thinning import Thinning
from edge_runtime.signal.windowing.window import KeyState, Window
from edge_runtime.types import Correction, Done, FinalAnswer, Float32, Hard, Prediction, Reading

if TYPE_CHECKING:
    from edge_runtime.model.tasks.learnt_examples import LearntExamples


class Pipeline:
    """From readings to answers, for one bundle.

    Args:
        model: answers windows.
        windower: cuts windows for all keys.
        task: makes answers of what the model says, and tells hard ones from easy ones.
        budget: bounds what is sent.
        sinks: all receivers of answers.
        escalation: receiver of hard cases; None keeps every answer local.
        metrics: receives everything that is counted.
        clock: monotonic time for latencies.
        audit_share: share of trusted answers that is sent all the same.
        reading_log: keeps begun windows over an orderly stop, or writes readings down before they are acknowledged;
            None keeps begun windows in memory only.
        intake: finds keys whose readings are suspect; None takes all as they come.
        drift: finds keys whose sensors are mounted otherwise, or have changed; None looks for neither.
        events: makes events of the answers; its state is kept where the windows' is. None: the bundle's rules.
        over_time: what a key's answers before say of one; None: nothing.
        thresholds: those of keys, where the bundle's task learns them; None begins with none.
        gate: moves the thresholds of keys; None: as the bundle asks.
        examples: those that users add to an embedding; None: the bundle's alone.
        cache: windows and distance of `edge_runtime.model.serving.cache.CachedModel`; no windows is no cache.
        explain_share: share of the time that may go into explaining hard cases.

    Raises:
        ConfigError: the model's answers cannot be kept in a cache, or not be explained.
    """

    def __init__(
        self,
        *,
        model: Predictor,
        windower: AnyWindower,
        task: Task,
        budget: Budget,
        sinks: Sequence[Sink],
        escalation: Escalation | None,
        metrics: Metrics,
        clock: Clock,
        audit_share: float = 0.0,
        reading_log: Durability | None = None,
        intake: Intake | None = None,
        drift: Drift | None = None,
        events: EventTracker | None = None,
        over_time: AnswersOverTime | None = None,
        thresholds: KeyThresholds | None = None,
        gate: AdaptiveGate | None = None,
        examples: LearntExamples | None = None,
        cache: tuple[int, float] = (0, 0.0),
        explain_share: float = 0.0,
    ) -> None:
        self._intake = intake
        self._drift = drift
        self._suspects: dict[tuple[str, int], str] = {}  # windows of this iteration, by place
        self._reading_log = reading_log
        self._writes_readings = reading_log is not None and reading_log.writes_readings
        self._events = events or EventTracker(None, metrics=metrics)
        self._over_time = over_time or AnswersOverTime()
        self._gate = gate or AdaptiveGate(metrics=metrics)
        self._examples = examples
        # Between the model's numbers and the task's decision, in this order.
        self._followers: list[Follower] = [self._over_time, thresholds or KeyThresholds(metrics=metrics)]
        if examples is not None:
            self._followers.insert(0, examples)
        self._thinning = Thinning(metrics)
        self._metrics = metrics
        self._cache = cache
        if cache[0]:
            require_cacheable(model, cache[1])
        self._selection: Selection | None = None
        if escalation is not None:
            explainer = Explainer(explain_share, model, clock, metrics) if explain_share else None
            self._selection = Selection(escalation, budget, audit_share, explainer, metrics)
        self._use(model)
        if reading_log is not None:
            reading_log.keep(model.states)
        self._windower = windower
        self._untaught = task
        self.take_examples()
        self._budget = budget
        self._out = HandOver(sinks, escalation, metrics, clock)
        self._clock = clock
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
        return (
            not self._ready
            and not self._again
            and self._out.idle
            and (self._reading_log is None or self._reading_log.drained())
        )

    def deliver(self, readings: Sequence[Reading], received: float, done: Done | None) -> None:
        """Take readings from a source (see `edge_runtime.io.sources.Deliver`)."""
        counts = self._metrics.counts
        counts["readings_total"] += len(readings)
        began = self._clock.monotonic()
        if self._writes_readings and self._reading_log is not None and done is not None:
            done = Join(2, [done])  # the disk has them, and what follows from them is safe
            self._reading_log.write(readings, done)
        if self._intake is not None:
            self._intake.read(readings)
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
        return (0, 0) if self._reading_log is None else self._reading_log.marks

    def key_states(self) -> list[KeyState]:
        """Return what is held for each key, the one silent for longest first; views, to be looked at at once."""
        return self._windower.state()

    def flush(self) -> None:
        """Use what waits for the lateness bound, before stopping; a reading log keeps it instead."""
        if self._reading_log is None:
            windows = self._windower.flush(self._clock.monotonic())
            self._ready += windows if self._steps else self._thinning.thinned(windows)
        self.flush_iteration()
        if self._reading_log is None and (ended := self._events.finish()):
            self._out.give(ended, [], [])

    def recover(self, contract: InputContract, config: WindowConfig) -> None:
        """Continue where the run before ended, as far as a reading log has it, by answering its last windows.

        Raises:
            StoreError: the reading log's file is another program's, or its path or permissions are wrong.
        """
        if self._reading_log is not None:
            self._answer_first(
                *self._reading_log.recover(
                    contract, config, self._windower, self._answer_first, lambda windows: play(self._model, windows)
                )
            )

    def _answer_first(self, windows: list[Window], done: Done) -> None:
        self._again += windows
        self._waiting.append(done)

    def reset(self, keys: Sequence[str]) -> int:
        """Let the states of keys begin again with their next windows; returns how many had some."""
        states = self._model.states
        known = set() if self._drift is None else set(filter(self._drift.reset, keys))
        moved = set() if states is None else set(filter(states.reset, keys))
        passed = set(filter(self._over_time.reset, keys))
        done = len(known | moved | passed)
        if moved and self._reading_log is not None:
            self._reading_log.save(self._windower)
        return done

    def save(self, timeout_s: float) -> None:
        """Save begun windows and their context, after the last iteration."""
        if self._reading_log is not None:
            self._reading_log.stop(self._windower, timeout_s)

    def answer_every(self, n: int) -> None:
        """Answer every n-th window of each key from now on; the others are counted as dropped, ``rate_reduced``.

        A model with states is asked about all of them, since each moves the state; its answers are left out then.
        """
        self._thinning.every = n

    def flush_iteration(self) -> None:
        """Answer all windows that this iteration made ready."""
        if (
            self._reading_log is not None
            and (done := self._reading_log.flush_iteration(self._ready, self._windower)) is not None
        ):
            self._waiting.append(done)
        if not self._ready and not self._again:
            return
        windows, self._ready, self._again = self._again + self._ready if self._again else self._ready, [], []
        waiting, self._waiting = self._waiting, []
        answers: list[Prediction] = []
        hard: list[Hard] = []
        self._suspects = {} if self._intake is None else self._intake.run(windows)
        if self._drift is not None and self._drift.active:
            self._drift.run(windows, self._suspects)
        for part in calls(self._model, windows):
            self._answer(part, answers, hard)
        self._cuts.clear()
        self._out.give(answers if self._events.idle else self._events.run(answers), hard, waiting)

    def replace(
        self, model: Predictor, task: Task, windower: AnyWindower | None = None, *, trial: bool = False
    ) -> None:
        """Answer with another model from now on; what is ready is answered by the one before.

        Args:
            model: a model of the same input contract, so that the windows begun go on.
            task: its own.
            windower: windower of another contract. What the one before holds back for late samples is used; the
                windows begun are not finished, and the keys that had some are counted (``window_restarts_total``).
            trial: it is to be seen at work, so each window is asked of it, whatever the cache knows.
        """
        if windower is not None:
            self._ready += self._windower.flush(self._clock.monotonic())
            self._metrics.counts["window_restarts_total"] += len(self._windower)
            windower.succeed(self._windower)
            self._windower = windower
        self.flush_iteration()
        if self._reading_log is not None:
            self._reading_log.keep(model.states, self._windower if windower is None else None)
            if windower is not None:
                self._reading_log.change(model.manifest.input, windower)
        if model.states is not None:
            model.states.succeed(self._model.states)
        self._use(model, trial=trial)
        self._untaught = task
        self.take_examples()

    def take_examples(self) -> None:
        """Answer by the examples that there are now, from the next window on."""
        self._task = self._untaught if self._examples is None else self._examples.taught(self._untaught)

    def publish(self, answers: Sequence[Correction | FinalAnswer], done: Done) -> None:
        """Hand corrections and final answers to the sinks; `done` is called when all of them have them safe."""
        corrections = [answer for answer in answers if isinstance(answer, Correction)]
        self._metrics.counts["corrections_total"] += len(corrections)
        self._metrics.counts["final_total"] += len(answers) - len(corrections)
        if corrections:
            outcomes = [(answer.hard, self._task.upheld(answer)) for answer in corrections]
            self._agreement.learn(outcomes)
            self._gate.learn(outcomes)
        self._out.send(answers, [done])

    def _use(self, model: Predictor, *, trial: bool = False) -> None:
        manifest = model.manifest
        self._explained = None if trial else model  # a trial counts what is asked
        self._steps = model.states is not None
        windows, distance = self._cache
        caches = windows and not trial and not self._steps
        self._model = CachedModel(model, windows, distance, self._metrics) if caches else model
        self._manifest = manifest
        self._thinning.hop = manifest.input.hop
        if self._selection is not None:
            self._selection.history = manifest.input.history
        if self._intake is not None:
            self._intake.use(manifest)
        if self._drift is not None:
            self._drift.use(manifest)
        self._events.use(manifest)
        self._gate.use(manifest)
        for follower in self._followers:
            follower.use(manifest)
        self._active = [follower for follower in self._followers if follower.active]

    def _answer(self, windows: list[Window], answers: list[Prediction], hard: list[Hard]) -> None:
        stages, clock = self._metrics.stages, self._clock
        began = clock.monotonic()
        try:
            numbers, answered = self._model.predict(windows)
        except InputError as error:
            self._refuse(windows, error, answers, hard)
            return
        except EngineError as error:
            self._unanswered(windows, error, answers, hard, began)
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
            made = self._follow(windows, numbers, hard, (began, ended))
            answers += made
            self._show(windows, made, began, ended)

    def _show(self, windows: Sequence[Window], made: Sequence[Prediction], began: float, ended: float) -> None:
        for tap in self._taps:
            tap(Answered(windows, made, began, ended, self._cuts))

    def _follow(
        self,
        windows: list[Window],
        numbers: Float32,
        hard: list[Hard],
        times: tuple[float, float],
    ) -> Sequence[Prediction]:
        """Make predictions of a model's numbers, and send hard cases on their way.

        1. What follows keys sees the numbers, and may change them.
        2. The task decides: which answer, how far it is trusted, whether it is hard.
        3. Answers are made of the decision; those of suspect readings are hard.
        4. The cloud is asked about some of them.
        """
        task = self._task
        for follower in self._active:  # rule 1
            numbers = follower.run(windows, numbers, self._suspects)
        decision = task.decide(numbers)  # rule 2
        if self._gate.active:
            decision = decision._replace(hard=self._gate.hard(windows, decision.trust, self._suspects))
        self._budget.seen(len(windows))
        # Asked of the model each time: one made of several answers under the name of the one that answered.
        manifest = self._model.manifest
        made = task.predictions(  # rule 3
            windows,
            numbers,
            decision,
            latencies_ms(windows, *times, self._metrics),
            (manifest.model, self._model.variant.name),
        )
        if self._suspects:
            made = marked(windows, made, self._suspects)
            decision = decision._replace(hard=[answer.hard for answer in made])
        n_hard = sum(decision.hard)
        if self._selection is not None and (n_hard or self._selection.audit_share):  # rule 4
            self._selection.select(windows, made, decision.trust, hard, self._explained)
        self._metrics.counts["predictions_total"] += len(windows)
        self._metrics.counts["hard_total"] += n_hard
        return made

    def _refuse(self, windows: list[Window], error: InputError, answers: list[Prediction], hard: list[Hard]) -> None:
        """Refuse windows the engine cannot take: values near float32's end can become infinite between two samples."""
        if len(windows) == 1:
            self._metrics.dropped[error.reason] += 1
            self._lose(windows)
            return
        for window in windows:  # one bad window must not take the others with it
            self._answer([window], answers, hard)

    def _lose(self, windows: Sequence[Window]) -> None:
        """Note steps that are missing: their keys' states begin again."""
        if self._model.states is not None:
            self._model.states.lose(windows)

    def _unanswered(
        self, windows: list[Window], error: EngineError, answers: list[Prediction], hard: list[Hard], began: float
    ) -> None:
        """Ask the cloud for windows that nothing on the device can answer, within the budget; count the others.

        The stream goes on, and what is published says so (`without_answer`).
        """
        self._lost.begin(windows, error)
        self._lose(windows)
        if self._selection is None:
            self._metrics.dropped["engine_error"] += len(windows)
            return
        self._budget.seen(len(windows))
        now = self._clock.monotonic()
        made = without_answer(self._task, self._manifest, windows, now)
        self._selection.select(windows, made, [0.0] * len(made), hard, None)
        answers += made
        self._show(windows, made, began, now)
        self._metrics.counts["predictions_total"] += len(windows)
        self._metrics.counts["hard_total"] += len(windows)
