"""One running application: everything that the configuration names, built, opened, run, drained and closed.

The order matters and is kept in one place: what can fail because of a wrong file or a missing library fails before
anything connects; the pipeline's end-of-iteration hook comes before those of the clients, which send what it produced;
and stopping goes the way of the data, from the sources to the sinks, within the time that `drain_timeout_s` states.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from edge_runtime.answer.events.tracker import EventTracker
from edge_runtime.answer.gate.adaptive import AdaptiveGate
from edge_runtime.answer.gate.budget import Budget
from edge_runtime.answer.gate.selection import Selection
from edge_runtime.answer.pipeline import Pipeline, Stages
from edge_runtime.app.composition.brokers import Brokers
from edge_runtime.app.composition.kept_state import KeptState, LearntOfKeys, examples_of
from edge_runtime.app.composition.names import with_kept_names
from edge_runtime.app.composition.observers import Observers
from edge_runtime.app.composition.sinks import Sinks
from edge_runtime.app.config import AppConfig
from edge_runtime.app.workers.plan import Part, alone
from edge_runtime.app.workers.share import OwnTopics, by_topic, own_readings
from edge_runtime.base.system.loop import Loop
from edge_runtime.base.system.sd_notify import SystemdNotifier
from edge_runtime.base.system.watchdog import Watchdog
from edge_runtime.clock import Clock, SystemClock
from edge_runtime.errors import ConfigError, StoreError
from edge_runtime.io.sinks import Described, Sink
from edge_runtime.io.sources import Source
from edge_runtime.io.sources.arrival import ArrivalStamps, Turn
from edge_runtime.io.sources.build import SourceConfig, brings_parts, build_source, require_channels
from edge_runtime.metrics import Metrics
from edge_runtime.model.over_time import AnswersOverTime
from edge_runtime.model.serving.cache import require_cacheable
from edge_runtime.model.serving.explain import Explainer
from edge_runtime.model.serving.failover import FallbackChain
from edge_runtime.model.serving.host import Host
from edge_runtime.model.serving.loading import Model
from edge_runtime.model.tasks.key_thresholds import KeyThresholds
from edge_runtime.signal.drift.monitor import Drift
from edge_runtime.signal.intake.intake import Intake
from edge_runtime.signal.windowing.join import windower_of
from edge_runtime.store.durable.answer_states import AnswerStates
from edge_runtime.types import Correction, Done, FinalAnswer

if TYPE_CHECKING:
    from edge_runtime.app.composition.cloud_path import CloudPath
    from edge_runtime.io.sources.mqtt import BrokerSubscriber
    from edge_runtime.operate.governor.governor import Governor
    from edge_runtime.operate.update.updates import Updates

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessRole:
    """Role of this process: for its service manager, after the process before it, and beside other workers."""

    notifier: SystemdNotifier | None = None
    """Told when the application is ready, that it is alive, and when it stops; closed with it."""
    replace: Callable[[Mapping[str, object]], None] | None = None
    """Called from another thread when a call into an engine hangs, with what the process that takes this one's place is
    to be given as `handed_over`. None: the hang is logged and goes on."""
    handed_over: Mapping[str, object] | None = None
    """Said by the process before this one when it was replaced."""
    part: Part | None = None
    """Keys that are its own, and outboxes that it adopts; None: all of this machine's."""


class App:
    """Builds everything; connects to nothing before `run`.

    Args:
        config: the whole of it.
        metrics: receives everything that is counted.
        clock: wall and monotonic time.
        model: loaded already; None loads the one that the configuration names.
        sources: objects of the caller's own, besides the sources that the configuration names.
        sinks: the same for sinks. Both are opened by `run` and closed with the application.
        rehearsal: it will not be run: updates count no start and change nothing.
        role: role of the process that it runs in; None: it runs alone.

    Raises:
        EdgeError: something that the configuration names is missing, unusable or refused; or there is no source or no
            sink at all.
    """

    def __init__(
        self,
        config: AppConfig,
        *,
        metrics: Metrics | None = None,
        clock: Clock | None = None,
        model: Model | None = None,
        sources: Sequence[Source] = (),
        sinks: Sequence[Sink] = (),
        rehearsal: bool = False,
        role: ProcessRole | None = None,
    ) -> None:
        role = role or ProcessRole()
        config.require_ends(sources, sinks)
        self.config = config = with_kept_names(config, write=not rehearsal)
        self._part = role.part or alone(config)
        self._window = replace(config.window, parts=config.window.parts or any(map(brings_parts, config.source)))
        self.metrics = metrics or Metrics()
        self.clock: Clock = clock or SystemClock()
        self._notifier = role.notifier or SystemdNotifier()
        self._stopping = False
        self.restarting = False
        self._draining = False
        self._drained = True
        self._watchdog: Watchdog | None = None
        self._replace_process = role.replace
        with ExitStack() as stack:
            stack.callback(self._notifier.close)
            # The model that answers.
            self.host = Host(
                config.model,
                self._window.max_keys,
                metrics=self.metrics,
                clock=self.clock,
                handed_over=role.handed_over,
            )
            self.updates = self._updates(stack, rehearsal=rehearsal)
            self.host.serves(*self._model(model))
            stack.callback(self.model.close)
            if self.fallback_chain is not None:
                stack.callback(self.fallback_chain.close)
            manifest = self.model.manifest
            # Where readings come from, where answers go, and where hard cases do.
            self.loop = Loop(config.model.latency_budget_ms / 1e3, self.clock)
            stack.callback(self.loop.close)
            self.brokers = Brokers(config, self.metrics, self._notifier.part if self._part.share.workers > 1 else None)
            if not sources:
                require_channels(config.source, manifest.input)
            self.sources = [*(self._source(i, part) for i, part in enumerate(config.source)), *sources]
            self.guarded = Sinks(
                config,
                sinks,
                self.sources,
                clients=self.brokers.clients,
                metrics=self.metrics,
                clock=self.clock,
                describe=self._described,
                on_status=self.brokers.publish_status,
            )
            self.sinks = [guard.sink for guard in self.guarded.guards]
            stamps = ArrivalStamps(manifest.input, config.window.max_keys, config.window.max_jump_s)
            self._turn = Turn(stamps, self.clock)
            self.budget = Budget(config.gate, self.clock, manifest.input.case_bytes)
            self.cloud = self._cloud(stack)
            self.outbox = None if self.cloud is None else self.cloud.outbox
            self.escalator = escalator = None if self.cloud is None else self.cloud.escalator
            if escalator is not None:
                self.host.on_change(lambda model, _: escalator.use(model.manifest))
            # What is known of each key, what of it is kept over a restart, and the way of a message.
            max_keys = config.window.max_keys
            self.events = EventTracker(
                config.events, max_keys=max_keys, max_jump_s=config.window.max_jump_s, metrics=self.metrics
            )
            self.over_time = AnswersOverTime(max_keys, self.metrics)
            self.intake = Intake(config.intake, max_keys, self.metrics, self.clock)
            self.thresholds = KeyThresholds(max_keys, self.metrics)
            self.gate = AdaptiveGate(config.gate, max_keys, self.metrics, alone=config.model.alone)
            self.drift = Drift(config.drift, max_keys, self.metrics, self.clock)
            self.examples = examples_of(config, manifest, model_changes=self.updates is not None)
            self.kept = KeptState(
                config,
                loop=self.loop,
                metrics=self.metrics,
                clock=self.clock,
                answers=AnswerStates(self.events, self.over_time),
                learnt=LearntOfKeys(self.thresholds, self.gate, self.drift),
                examples=self.examples,
            )
            stack.callback(self.kept.close)
            if config.model.cache_windows:
                require_cacheable(self.host.predictor, config.model.cache_distance)
            self.pipeline = Pipeline(
                model=self.host.cached(self.host.predictor),
                windower=windower_of(manifest.input, self._window, self.metrics),
                stages=Stages(
                    intake=self.intake,
                    drift=self.drift,
                    examples=self.examples,
                    over_time=self.over_time,
                    thresholds=self.thresholds,
                    task=self.model.task(config.gate.threshold),
                    gate=self.gate,
                    events=self.events,
                ),
                sinks=self.guarded.guards,
                escalation=self._selection(),
                durability=self.kept.reading_log,
                metrics=self.metrics,
                clock=self.clock,
            )
            # The governor, which makes it do less, and all that look on.
            self.governor = self._governor(stack)
            self.observers = Observers(self)
            self.drops, self.cases = self.observers.drops, self.observers.cases
            self.observation = self.observers.observation
            for sink in self.observers.sinks:
                self.sinks.append(sink)
                self.pipeline.add_sink(sink)
            self._resources = stack.pop_all()

    @property
    def model(self) -> Model:
        """The model that answers now."""
        return self.host.model

    @property
    def fallback_chain(self) -> FallbackChain | None:
        """Variants that stand in for the model when it fails; None where failover is off."""
        return self.host.fallback_chain

    def figures(self) -> dict[str, Any]:
        """Return everything that was counted, as plain data, and the alarms of drift that are on.

        ``lifetime`` is the sum of all runs, where it is kept.
        """
        return self.observers.figures()

    # -- building ----------------------------------------------------------------------------------------------------

    def _model(self, model: Model | None) -> tuple[Model, FallbackChain | None]:
        if model is None:
            return self.host.start(self.config.model) if self.updates is None else self.updates.start()
        model, fallback_chain = self.host.adopt(model)
        if self.updates is not None:
            self.updates.adopt(model, fallback_chain)
        return model, fallback_chain

    def _updates(self, stack: ExitStack, *, rehearsal: bool) -> Updates | None:
        config = self.config
        if config.update is None:
            return None
        from edge_runtime.operate.update.config import UpdateSurroundings  # noqa: PLC0415 - only what the application names
        from edge_runtime.operate.update.updates import Updates  # noqa: PLC0415 - only what the application names

        setting = UpdateSurroundings(
            config.model,
            self._window,
            config.gate.threshold,
            has_cloud=config.cloud is not None,
            events=config.events or (),
        )
        try:
            updates = Updates(config.update, setting, self.metrics, self.clock, self.host, rehearsal=rehearsal)
        except StoreError as error:
            if rehearsal:
                raise
            # What is held back and how old news may be is in that folder: without it no update may be taken.
            log.error("update: turned off, and the configured bundle runs, until the next start: %s", error)  # noqa: TRY400
            return None
        stack.callback(updates.close)
        return updates

    def _source(self, position: int, config: SourceConfig) -> Source:
        name = f"source[{position}]"
        clients: Mapping[str, BrokerSubscriber] = self.brokers.clients
        share = self._part.share
        if config.type == "mqtt" and by_topic(config) and not share.everything:
            clients = {config.broker: OwnTopics(clients[config.broker], config, share, self.metrics)}
        try:
            return build_source(
                config,
                name=name,
                contract=self.model.manifest.input,
                broker_clients=clients,
                metrics=self.metrics,
                clock=self.clock,
            )
        except ConfigError as error:
            raise ConfigError(f"{name}: {str(error).removeprefix(f'{name}: ')}") from error

    def _described(self) -> Described:
        rules = tuple([rule.name for rule in self.events.rules])
        return Described(self.model.manifest, self.pipeline.labels, rules)

    def _cloud(self, stack: ExitStack) -> CloudPath | None:
        config = self.config
        if config.outbox is None or config.cloud is None:
            return None
        from edge_runtime.app.composition.cloud_path import CloudPath  # noqa: PLC0415 - SQLite and HTTP

        cloud = CloudPath(
            config,
            manifest=self.model.manifest,
            budget=self.budget,
            loop=self.loop,
            publish=self._publish,
            on_status=self._publish_outbox_status,
            metrics=self.metrics,
            clock=self.clock,
        )
        stack.callback(cloud.close)
        cloud.outbox.adopt(self._part.adopts)
        return cloud

    def _selection(self) -> Selection | None:
        if self.escalator is None:
            return None
        share = 0.0 if self.config.escalation is None else self.config.escalation.explain
        explainer = Explainer(share, self.host.predictor, self.clock, self.metrics) if share else None
        return Selection(self.escalator, self.budget, self.config.gate.audit_share, explainer, self.metrics)

    def _governor(self, stack: ExitStack) -> Governor | None:
        config = self.config.governor
        if config is None:
            return None
        from edge_runtime.operate.governor.governor import governor_of  # noqa: PLC0415 - and what is known of boards

        governor = governor_of(
            config,
            pipeline=self.pipeline,
            fallback_chain=self.fallback_chain,
            budget=self.budget if self.cloud is not None else None,
            share=self.config.gate.max_share,
            metrics=self.metrics,
            clock=self.clock,
            on_status=self._publish_governor_status,
        )
        stack.callback(governor.close)
        self.host.on_change(lambda _, chain: governor.use(chain))
        return governor

    def _publish(self, answers: Sequence[Correction | FinalAnswer], done: Done) -> None:
        self.pipeline.publish(answers, done)

    # -- running -----------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop taking readings and drain. Safe from a signal handler and from any thread."""
        self._stopping = True
        self.loop.stop()

    def restart(self) -> None:
        """Stop as `stop` does, with `restarting` set, so that the command ends with the code for it."""
        log.info("runtime: ending to be started again, as a command wants")
        self.restarting = True
        self.stop()

    def run(self) -> bool:
        """Run until `stop` is called or every source has finished, then drain and close everything.

        Returns:
            Whether everything was handed over within `drain_timeout_s`.

        Raises:
            EdgeError: a source, sink or store cannot be opened, and waiting would not help.
        """
        try:
            self.brokers.hold()  # until the last status is sent, whichever source or sink closes last
            if self.cloud is not None:
                self.cloud.open()
            self.drops.start(self.loop)
            self.loop.each_iteration(self._turn.end)
            self.loop.each_iteration(self.pipeline.flush_iteration)
            for sink in (*self.guarded.guards, *self.observers.sinks):
                sink.open(self.loop)
            if self.cloud is not None:
                self.cloud.start()
            self.host.open(self.loop, lambda status: self.brokers.publish_status("model", status))
            if self.config.model.failover != "off":
                self._watchdog = Watchdog(self._call_began, self.config.model.deadline_ms / 1e3, self._hung, self.clock)
            if self.updates is not None:  # before the sources, whose topics may overlap with those of updates
                self.updates.open(self.loop, self.pipeline, self.brokers.clients, self.cases)
            if self.governor is not None:
                self.governor.open(self.loop)
            self.kept.open(self.pipeline, self.brokers.publish_status, model_changes=self.updates is not None)
            self.pipeline.recover(self.model.manifest.input, self._window)
            self._turn.stamps.resume((state.name, state.newest_stamps()) for state in self.pipeline.key_states())
            # Not before: what is replayed has the ids that it had.
            self.pipeline.epochs.claim([] if self.cloud is None else self.cloud.claims())
            self.kept.open_epochs(self.pipeline)
            for source, part in zip_longest(self.sources, self.config.source):  # objects of the caller's own come last
                deliver = self.observers.silence.watch(part or source.name, self.pipeline.deliver)
                own = own_readings(deliver, part, self._part.share, self.metrics)
                source.open(self.loop, self._turn.into(own))
            self.kept.begin_windows()
            self.observers.start()
            if self.updates is not None:
                self.loop.each_iteration(self.updates.after_iteration)
            self.loop.each_iteration(self._stop_when_finished)
            self._stop_when_finished()  # an empty recording never wakes the loop
            self._serve()
            self._drain()
        finally:
            self.close()
        return self._drained

    def _serve(self) -> None:
        """Say that everything is open, and run the loop until `stop`."""
        model = self.model
        log.info(
            "model %s, %s: variant %s on %s",
            *(model.manifest.model, model.bundle.signature, model.variant.name, model.engine.name),
        )
        self.guarded.log_who_waits()
        self._notifier.ready(f"{model.manifest.model}: {model.variant.name} on {model.engine.name}")
        self._notify_alive()
        while not self._stopping:  # not loop.run(), which would forget a stop that came before it
            self.loop.iterate(None)

    def close(self) -> None:
        """Close everything at once, without draining. May be called twice."""
        if self._watchdog is not None:
            self._watchdog.close()
        self.observers.stop()
        for source in self.sources:
            source.close()
        if self.updates is not None:
            self.updates.close()
        if self.escalator is not None:
            self.escalator.stop(0.0 if self._draining else 1.0)
        for sink in (*self.guarded.guards, *self.observers.sinks):
            sink.close(0.0)
        self.brokers.release(0.0)
        self.drops.stop()
        self._resources.close()

    def _call_began(self) -> float:
        began = self.fallback_chain.began if self.fallback_chain is not None else 0.0
        return began or (self.updates.began if self.updates is not None else 0.0)

    def _hung(self, taken_s: float) -> None:
        """Replace this process, on the watchdog's thread: the loop's thread is in a call that does not come back."""
        if self.updates is not None and self.updates.began:  # a candidate's: counted as one of its failed starts
            handed_over: dict[str, object] | None = {}
        else:
            handed_over = self.fallback_chain.hand_over(taken_s) if self.fallback_chain is not None else None
        if handed_over is None:
            return
        log.critical("model: an engine has not answered for %.1f s, so this process is replaced", taken_s)
        if self._replace_process is not None:
            self._replace_process(handed_over)

    def _publish_governor_status(self, status: Mapping[str, object]) -> None:
        self.brokers.publish_status("governor", status)
        level, reason = status["level"], status["reason"]
        self._notifier.status(f"stepped down {level} times: {reason}" if level else "well")

    def _publish_outbox_status(self, failure_reason: str) -> None:
        if not failure_reason and self.cloud is not None:  # it could not be read before
            self.pipeline.epochs.claim(self.cloud.claims())
        self.brokers.publish_status("outbox", {"accepting": not failure_reason, "failure_reason": failure_reason})

    def _notify_alive(self) -> None:
        """Notify systemd from the loop, so that one that hangs shows no life and is restarted."""
        if self._notifier.interval_s:
            self._notifier.alive()
            self.loop.call_every(self._notifier.interval_s, self._notifier.alive)

    def _finished(self) -> bool:
        return all(source.finished for source in self.sources)

    def _stop_when_finished(self) -> None:
        if self.sources[0].finished and self._finished():  # most sources never end, and this is asked each time
            self.stop()

    def _drain(self) -> None:
        """Drain what was accepted: answer windows, hand over answers, commit hard cases."""
        self._draining = True
        self._notifier.stopping()
        until = self.clock.monotonic() + self.config.drain_timeout_s
        for source in self.sources:
            source.pause()
        self._turn.end()
        self.pipeline.flush()
        while not self._idle() and self.clock.monotonic() < until:
            self.loop.iterate(0.05)
        self._drained = self._idle()
        if self.cloud is not None:
            self.cloud.drain(max(0.1, until - self.clock.monotonic()))
            if self._finished():
                self.cloud.log_what_waits()
        self.pipeline.save(max(0.1, until - self.clock.monotonic()))
        for source in self.sources:
            source.close()
        if self.updates is not None:
            self.updates.stop()
        for sink in (*self.guarded.guards, *self.observers.sinks):
            sink.close(max(0.1, until - self.clock.monotonic()))
        self.brokers.release(max(0.1, until - self.clock.monotonic()))
        if not self._drained:
            log.warning(
                "stopped after %g s with answers not handed over; raise drain_timeout_s if this matters",
                self.config.drain_timeout_s,
            )

    def _idle(self) -> bool:
        handed_over = self.pipeline.idle and self.guarded.idle
        return handed_over and (self.escalator is None or self.escalator.drained())
