"""One running application: everything that the configuration names, built, opened, run, drained and closed.

The order matters and is kept in one place: what can fail because of a wrong file or a missing library fails before
anything connects; the pipeline's end-of-iteration hook comes before those of the clients, which send what it produced;
and stopping goes the way of the data, from the sources to the sinks, within the time that `drain_timeout_s` states.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import asdict, replace
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_runtime.clock import Clock, SystemClock
from edge_runtime.cloud.config import EscalationConfig
from edge_runtime.cloud.saved_budget import SavedBudget
from edge_runtime.config import AppConfig
from edge_runtime.drift.monitor import Drift
from edge_runtime.durable.config import ReadingLogConfig
from edge_runtime.errors import ConfigError, StoreError
from edge_runtime.events.tracker import EventTracker
from edge_runtime.gate.budget import Budget
from edge_runtime.intake.intake import Intake
from edge_runtime.manifest.outputs import EmbeddingOutput
from edge_runtime.metrics import Metrics
from edge_runtime.model import fallback_chain as fallback_chains
from edge_runtime.model import resets
from edge_runtime.model.config import ModelConfig
from edge_runtime.model.failover import FallbackChain
from edge_runtime.model.loading import Model, load_model
from edge_runtime.observe.drops import DropReporter
from edge_runtime.observe.silence import SilenceReporter
from edge_runtime.observe.subject import Subject
from edge_runtime.pipeline import Pipeline
from edge_runtime.sinks import Described, Sink
from edge_runtime.sinks.build import SinkConfig, build_sink
from edge_runtime.sources import Source
from edge_runtime.sources.build import SourceConfig, brings_parts, build_source, require_channels, with_room
from edge_runtime.system.barrier import Barrier
from edge_runtime.system.loop import Loop
from edge_runtime.system.sd_notify import SystemdNotifier
from edge_runtime.system.watchdog import Watchdog
from edge_runtime.tasks.key_thresholds import KeyThresholds
from edge_runtime.types import Correction, Done, FinalAnswer
from edge_runtime.windowing.join import windower_of

if TYPE_CHECKING:
    from edge_runtime.cases.keeper import CaseKeeper
    from edge_runtime.cloud.escalator import Escalator
    from edge_runtime.durable.counters import LifetimeCounters
    from edge_runtime.durable.outbox import Outbox
    from edge_runtime.durable.reading_log import ReadingLog
    from edge_runtime.durable.soft_state import SoftState
    from edge_runtime.durable.window_state import SavedWindows
    from edge_runtime.governor.governor import Governor
    from edge_runtime.mqtt.client import BrokerClient
    from edge_runtime.observe.observation import Observation
    from edge_runtime.tasks.learnt_examples import LearntExamples
    from edge_runtime.update.updates import Updates

log = logging.getLogger(__name__)


class App:
    """Builds everything; connects to nothing before `run`.

    Args:
        config: the whole of it.
        metrics: receives everything that is counted.
        clock: where time comes from.
        model: loaded already; None loads the one that the configuration names.
        sources: objects of the caller's own, besides the sources that the configuration names.
        sinks: the same for sinks. Both are opened by `run` and closed with the application.
        notifier: told when it is ready, that it is alive, and when it stops; closed with the rest.
        replace_process: called from another thread when a call into an engine hangs, with what the process that takes
            this one's place is to be given as `handed_over`. None: the hang is logged and goes on.
        handed_over: what the process before this one said when it was replaced.
        rehearsal: it will not be run: updates count no start and change nothing.

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
        notifier: SystemdNotifier | None = None,
        replace_process: Callable[[Mapping[str, object]], None] | None = None,
        handed_over: Mapping[str, object] | None = None,
        rehearsal: bool = False,
    ) -> None:
        config.require_ends(sources, sinks)
        self.config = config
        self._window = replace(config.window, parts=config.window.parts or any(map(brings_parts, config.source)))
        self.metrics = metrics or Metrics()
        self.clock: Clock = clock or SystemClock()
        self._notifier = notifier or SystemdNotifier()
        self._stopping = False
        self.restarting = False
        self._draining = False
        self._drained = True
        self._held: list[BrokerClient] = []
        self.drops = DropReporter(self.metrics)
        self.silence = SilenceReporter(self.metrics, self.clock, config.silence_s)
        with ExitStack() as stack:
            stack.callback(self._notifier.close)
            self._watchdog: Watchdog | None = None
            self._replace_process = replace_process
            self._handed_over = handed_over
            self.updates = self._updates(stack, rehearsal=rehearsal)
            self.model, self.fallback_chain = self._model(model)
            stack.callback(self.model.close)
            if self.fallback_chain is not None:
                stack.callback(self.fallback_chain.close)
            manifest = self.model.manifest
            self.loop = Loop(config.model.latency_budget_ms / 1e3, self.clock)
            stack.callback(self.loop.close)
            self._broker_clients = _broker_clients(config, self.metrics)
            if not sources:
                require_channels(config.source, manifest.input)
            self.sources = [*(self._source(i, part) for i, part in enumerate(config.source)), *sources]
            self.sinks = [*(self._sink(i, part) for i, part in enumerate(config.sink)), *sinks]
            self.outbox = self._outbox(stack)
            self.budget = Budget(config.gate, self.clock, manifest.input.case_bytes)
            self.escalator = self._escalator(stack)
            self._saved_budget = (
                SavedBudget(self.budget, self.outbox, self.escalator) if self.outbox and self.escalator else None
            )
            self._saved: SavedWindows | None = None
            self.events = EventTracker(
                config.events,
                max_keys=config.window.max_keys,
                max_jump_s=config.window.max_jump_s,
                metrics=self.metrics,
            )
            self.intake = Intake(config.intake, config.window.max_keys, self.metrics, self.clock)
            self.thresholds = KeyThresholds(config.window.max_keys, self.metrics)
            self.drift = Drift(config.drift, config.window.max_keys, self.metrics, self.clock)
            self.examples = self._examples()
            self.pipeline = Pipeline(
                model=self.fallback_chain or self.model,
                windower=windower_of(manifest.input, self._window, self.metrics),
                task=self.model.task(config.gate.threshold),
                budget=self.budget,
                sinks=self.sinks,
                escalation=self.escalator,
                metrics=self.metrics,
                clock=self.clock,
                audit_share=config.gate.audit_share,
                reading_log=self._reading_log(stack),
                intake=self.intake,
                drift=self.drift,
                events=self.events,
                thresholds=self.thresholds,
                examples=self.examples,
                cache=(config.model.cache_windows, config.model.cache_distance),
                explain_share=config.escalation.explain if config.escalation is not None else 0.0,
            )
            self.learnt = self._learnt(stack)
            self._examples_state = self._kept_examples(stack)
            self.governor = self._governor(stack)
            self.counters = self._counters(stack)
            self.cases = self._cases()
            self.observation = self._observation(stack)
            self._show_in_home_assistant()
            self._resources = stack.pop_all()

    # -- building ----------------------------------------------------------------------------------------------------

    def _model(self, model: Model | None) -> tuple[Model, FallbackChain | None]:
        if model is not None:
            fallback_chain = self.fallback_chain_of(self._bounded(model))
            if self.updates is not None:
                self.updates.adopt(model, fallback_chain)
            return model, fallback_chain
        return self.start(self.config.model) if self.updates is None else self.updates.start()

    def _updates(self, stack: ExitStack, *, rehearsal: bool) -> Updates | None:
        config = self.config
        if config.update is None:
            return None
        from edge_runtime.update.config import Setting  # noqa: PLC0415 - only what the application names
        from edge_runtime.update.updates import Updates  # noqa: PLC0415 - only what the application names

        setting = Setting(
            config.model,
            self._window,
            config.gate.threshold,
            has_cloud=config.cloud is not None,
            events=config.events or (),
        )
        updates = Updates(config.update, setting, self.metrics, self.clock, self, rehearsal=rehearsal)
        stack.callback(updates.close)
        return updates

    def _source(self, position: int, config: SourceConfig) -> Source:
        name = f"source[{position}]"
        try:
            return build_source(
                config,
                name=name,
                contract=self.model.manifest.input,
                broker_clients=self._broker_clients,
                metrics=self.metrics,
                clock=self.clock,
            )
        except ConfigError as error:
            raise ConfigError(f"{name}: {str(error).removeprefix(f'{name}: ')}") from error

    def _sink(self, position: int, config: SinkConfig) -> Sink:
        return build_sink(
            config,
            name=f"sink[{position}]",
            broker_clients=self._broker_clients,
            metrics=self.metrics,
            clock=self.clock,
            describe=self._described,
            state=self.config.counters_file,
        )

    def _described(self) -> Described:
        rules = tuple([rule.name for rule in self.events.rules])
        return Described(self.model.manifest, self.pipeline.labels, rules)

    def _outbox(self, stack: ExitStack) -> Outbox | None:
        """Build the outbox; `run` opens it, since checking a configuration makes no file and touches none in use."""
        config = self.config.outbox
        if config is None or self.config.cloud is None:
            return None
        from edge_runtime.durable.outbox import Outbox, path_checks  # noqa: PLC0415

        path_checks.check(config.path, "outbox.path")
        outbox = Outbox(config, self.clock)
        stack.callback(outbox.close)
        return outbox

    def _reading_log(self, stack: ExitStack) -> ReadingLog | SavedWindows | None:
        path = self.config.saved_windows
        reading = self.config.reading_log is not None and self.config.durability == "reading"
        if path is None and not reading:
            return None
        from edge_runtime.durable.outbox import path_checks  # noqa: PLC0415
        from edge_runtime.durable.reading_log import ReadingLog  # noqa: PLC0415 - SQLite, only where state is kept
        from edge_runtime.durable.window_state import SavedWindows  # noqa: PLC0415

        config = self.config.reading_log or ReadingLogConfig(path=path or Path())
        path_checks.check(config.path, "outbox.path" if self.config.reading_log is None else "reading_log.path")
        if reading:
            reading_log = ReadingLog(config, loop=self.loop, metrics=self.metrics, clock=self.clock, events=self.events)
            stack.callback(reading_log.close)
            return reading_log
        self._saved = SavedWindows(
            config.path, config.max_bytes, metrics=self.metrics, clock=self.clock, events=self.events
        )
        stack.callback(self._saved.close)
        return self._saved

    def _counters(self, stack: ExitStack) -> LifetimeCounters | None:
        """Build the lifetime counters; `run` opens them, like all files."""
        path = self.config.counters_file
        if path is None:
            return None
        from edge_runtime.durable.counters import LifetimeCounters  # noqa: PLC0415 - only where state is kept

        counters = LifetimeCounters(path, self.metrics, self.clock)
        stack.callback(counters.close)
        return counters

    def _cases(self) -> CaseKeeper | None:
        """Build what keeps windows for people; `run` opens it, and closes it with the sinks."""
        config = self.config.cases
        if config is None or config.keep == "nothing":
            return None
        from edge_runtime.cases.keeper import CaseKeeper  # noqa: PLC0415 - SQLite, only where cases are kept
        from edge_runtime.durable.outbox import path_checks  # noqa: PLC0415

        path_checks.check(config.path, "cases.path")
        keeper = CaseKeeper(
            config,
            audit_share=0.0 if self.escalator is None else self.config.gate.audit_share,
            manifest=lambda: self.model.manifest,
            metrics=self.metrics,
            clock=self.clock,
        )
        self.sinks.append(keeper)
        self.pipeline.add_sink(keeper)
        self.pipeline.tap(lambda answered: keeper.windows(answered.windows))
        return keeper

    def _learnt(self, stack: ExitStack) -> list[SoftState]:
        """Build what keeps thresholds of keys, and how their sensors began, over a restart; `run` opens it."""
        learnt: list[SoftState] = []
        for path, part in ((self.config.thresholds_file, self.thresholds), (self.config.drift_file, self.drift)):
            # An update may bring a model with something to learn.
            if path is not None and (part.active or self.updates is not None):
                from edge_runtime.durable.soft_state import SoftState  # noqa: PLC0415 - only where something is learnt

                learnt.append(SoftState(path, part.save, part.restore))
                stack.callback(learnt[-1].close)
        return learnt

    def _observation(self, stack: ExitStack) -> Observation | None:
        """Build what looks into this application; `run` binds its addresses."""
        path, config = self.config.socket_file, self.config.observe
        if path is None and config is None:
            return None
        from edge_runtime.observe.config import ObserveConfig  # noqa: PLC0415 - only where it can be looked into
        from edge_runtime.observe.observation import Observation  # noqa: PLC0415

        observation = Observation(config or ObserveConfig(), self._subject(), path, self.pipeline.add_sink)
        stack.callback(observation.close)
        return observation

    def _show_in_home_assistant(self) -> None:
        """Add the bridge to Home Assistant to the sinks, where one is named."""
        config = self.config.home_assistant
        if config is None:
            return
        from edge_runtime.observe.home_assistant.bridge import HomeAssistant  # noqa: PLC0415 - only where it is named

        bridge = HomeAssistant(config, self._subject(), self._broker_clients[config.broker])
        self.sinks.append(bridge)
        self.pipeline.add_sink(bridge)

    def _subject(self) -> Subject:
        """Describe this application to observers."""
        return Subject(
            name=self.config.name,
            loop=self.loop,
            clock=self.clock,
            metrics=self.metrics,
            manifest=lambda: self.model.manifest,
            backend=self._backend,
            governor=lambda: None if self.governor is None else self.governor.status(),
            update=self._update_status,
            suspects=self.intake.suspects,
            alarms=lambda: self.drift.alarms,
            drift=self.drift.of,
            explain=self.pipeline.explain,
            tap=self.pipeline.tap,
            reset=self.pipeline.reset,
            outbox=self._outbox_figures,
            lifetime=lambda: None if self.counters is None else self.counters.totals().plain(),
            rules=lambda: self.events.rules,
            install=lambda: self.updates is not None and self.updates.install(),
            restart=self.restart,
            publish_stats=self._publish_stats,
            cases=lambda: None if self.cases is None else self.cases.store,
            cloud="" if self.config.cloud is None else self.config.cloud.url,
        )

    def _update_status(self) -> dict[str, Any] | None:
        """Say what the topic says of updates, and how the last ones ended, which is too long for a topic."""
        if self.updates is None:
            return None
        return self.updates.status() | {"history": self.updates.store.state.outcomes()}

    def _publish_stats(self, document: bytes) -> None:
        for broker_client in self._broker_clients.values():
            broker_client.publish_below_status("$stats", document)

    def _backend(self) -> dict[str, Any]:
        """Name what answers; an update may bring another model."""
        chain = self.fallback_chain
        named = {"variant": self.model.variant.name, "engine": self.model.engine.name}
        return named if chain is None else named | chain.status()

    def _outbox_figures(self) -> dict[str, Any] | None:
        """Count what is in the outbox; it may wait for the disk."""
        if self.outbox is None:
            return None
        try:
            return asdict(self.outbox.counts())
        except StoreError:
            return None

    def _examples(self) -> LearntExamples | None:
        """Build what holds the examples of users; an update may bring an embedding later."""
        embeds = isinstance(self.model.manifest.output, EmbeddingOutput)
        if self.config.examples_file is None or not (embeds or self.updates is not None):
            return None
        from edge_runtime.tasks.learnt_examples import LearntExamples  # noqa: PLC0415 - only where there may be some

        return LearntExamples()

    def _kept_examples(self, stack: ExitStack) -> SoftState | None:
        """Build what keeps examples over a restart; `run` opens it."""
        path, examples = self.config.examples_file, self.examples
        if path is None or examples is None:
            return None
        from edge_runtime.durable.soft_state import SoftState  # noqa: PLC0415 - only where something is learnt

        def restore(data: bytes) -> None:
            examples.restore(data)
            self._take_examples(examples)

        state = SoftState(path, examples.save, restore)
        stack.callback(state.close)
        return state

    def _take_examples(self, examples: LearntExamples) -> None:
        self.pipeline.take_examples()
        self._publish_status("examples", {"labels": examples.counts()})

    def figures(self) -> dict[str, Any]:
        """Return everything that was counted, as plain data, and the alarms of drift that are on.

        ``lifetime`` is the sum of all runs, where it is kept.
        """
        found = self.metrics.snapshot()
        if self.drift.alarms:
            found["drift_alarms"] = [asdict(alarm) for alarm in self.drift.alarms]
        if self.counters is not None:
            found["lifetime"] = self.counters.totals().plain()
        return found

    def _escalator(self, stack: ExitStack) -> Escalator | None:
        if self.outbox is None or self.config.cloud is None:
            return None
        from edge_runtime.cloud.connect import connect  # noqa: PLC0415 - and HTTP
        from edge_runtime.cloud.escalator import Escalator  # noqa: PLC0415

        client = connect(self.config.cloud, self.clock)
        stack.callback(client.close)
        return Escalator(
            config=self.config.escalation or EscalationConfig(),
            manifest=self.model.manifest,
            outbox=self.outbox,
            client=client,
            loop=self.loop,
            publish=self._publish,
            metrics=self.metrics,
            clock=self.clock,
            on_status=self._publish_outbox_status,
        )

    def _governor(self, stack: ExitStack) -> Governor | None:
        config = self.config.governor
        if config is None:
            return None
        from edge_runtime.governor.governor import governor_of  # noqa: PLC0415 - and what is known of boards

        governor = governor_of(
            config,
            pipeline=self.pipeline,
            fallback_chain=self.fallback_chain,
            budget=self.budget if self.escalator is not None else None,
            share=self.config.gate.max_share,
            metrics=self.metrics,
            clock=self.clock,
            on_status=self._publish_governor_status,
        )
        stack.callback(governor.close)
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
            # Until the last status is sent, whichever source or sink closes last.
            for broker_client in self._broker_clients.values():
                broker_client.hold()
                self._held.append(broker_client)
            if self._saved_budget is not None:
                self._saved_budget.open()
            self.drops.start(self.loop)
            self.loop.each_iteration(self.pipeline.flush_iteration)
            for sink in self.sinks:
                sink.open(self.loop)
            if self.escalator is not None and self._saved_budget is not None:
                self.escalator.start()
                self._saved_budget.start(self.loop)
            if self.fallback_chain is not None:
                self.fallback_chain.open(self.loop, self._publish_model_status)
            if self.config.model.failover != "off":
                self._watchdog = Watchdog(self._call_began, self.config.model.deadline_ms / 1e3, self._hung, self.clock)
            if self.updates is not None:  # before the sources, whose topics may overlap with those of updates
                self.updates.open(self.loop, self.pipeline, self._broker_clients)
            if self.governor is not None:
                self.governor.open(self.loop)
            self._open_files()
            self.pipeline.recover(self.model.manifest.input, self._window)
            for source, part in zip_longest(self.sources, self.config.source):  # objects of the caller's own come last
                source.open(self.loop, self.silence.watch(part or source.name, self.pipeline.deliver))
            self.silence.start(self.loop, lambda: self.model.manifest.input, self.pipeline.key_states)
            self._begin_windows()
            self._serve_resets()
            if self.observation is not None:
                self.observation.open()
            self._serve_examples()
            if self.updates is not None:
                self.loop.each_iteration(self.updates.after_iteration)
            self.loop.each_iteration(self._stop_when_finished)
            self._stop_when_finished()  # an empty recording never wakes the loop
            self._serve()
            self._drain()
        finally:
            self.close()
        return self._drained

    def _open_files(self) -> None:
        """Open the small files that lie beside the outbox or the reading log."""
        if self.counters is not None:
            self.counters.open()
        for learnt in self.learnt:
            learnt.open(self.loop)
        if self._examples_state is not None:
            self._examples_state.open(self.loop)

    def _serve(self) -> None:
        """Say that everything is open, and run the loop until `stop`."""
        model = self.model
        log.info(
            "model %s, %s: variant %s on %s",
            *(model.manifest.model, model.bundle.signature, model.variant.name, model.engine.name),
        )
        self._notifier.ready(f"{model.manifest.model}: {model.variant.name} on {model.engine.name}")
        self._notify_alive()
        while not self._stopping:  # not loop.run(), which would forget a stop that came before it
            self.loop.iterate(None)

    def _serve_resets(self) -> None:
        """Look for requests of ``edge-runtime reset``; an update may bring a model with something to reset later."""
        path, barrier = self.config.state_file, Barrier("control", self.metrics)
        if path is not None and (self.model.states is not None or self.drift.active or self.updates is not None):
            self.loop.call_every(resets.LOOK_S, lambda: barrier.call(lambda: resets.serve(path, self.pipeline.reset)))

    def _serve_examples(self) -> None:
        """Look for requests of ``edge-runtime examples``."""
        path, examples, state = self.config.examples_file, self.examples, self._examples_state
        if path is None or examples is None or state is None:
            return
        from edge_runtime.model import example_requests  # noqa: PLC0415 - only where there may be examples

        def changed() -> bool:
            self._take_examples(examples)
            return state.write_now()

        barrier = Barrier("control", self.metrics)
        self.loop.call_every(
            resets.LOOK_S, lambda: barrier.call(lambda: example_requests.serve(path, examples, changed))
        )

    def _begin_windows(self) -> None:
        """Begin to keep windows: before the first reading, and after all that may keep this start from going on."""
        if self._saved is not None:
            self._saved.begin()
        elif self.config.state_file is None and any(part.type != "recording" for part in self.config.source):
            log.info("windows that have begun are lost at a stop; to keep them, add [reading_log] with a path")

    def close(self) -> None:
        """Close everything at once, without draining. May be called twice."""
        if self._watchdog is not None:
            self._watchdog.close()
        if self.observation is not None:
            self.observation.close()
        for source in self.sources:
            source.close()
        if self.updates is not None:
            self.updates.close()
        if self.escalator is not None:
            self.escalator.stop(0.0 if self._draining else 1.0)
        for sink in self.sinks:
            sink.close(0.0)
        self._release_broker_clients(0.0)
        self.drops.stop()
        self._resources.close()

    def _release_broker_clients(self, timeout_s: float) -> None:
        """Let what is queued and the last status reach the brokers, then disconnect."""
        held, self._held = self._held, []
        for broker_client in held:
            broker_client.close(timeout_s)

    def _publish_status(self, part: str, status: Mapping[str, object]) -> None:
        for broker_client in self._broker_clients.values():
            broker_client.publish_status(part, status)

    def _publish_model_status(self, status: Mapping[str, object]) -> None:
        self._publish_status("model", status)

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
        self._publish_status("governor", status)
        level, reason = status["level"], status["reason"]
        self._notifier.status(f"stepped down {level} times: {reason}" if level else "well")

    def _publish_outbox_status(self, failure_reason: str) -> None:
        self._publish_status("outbox", {"accepting": not failure_reason, "failure_reason": failure_reason})

    def _notify_alive(self) -> None:
        """Notify systemd from the loop, so that one that hangs shows no life and is restarted."""
        if self._notifier.interval_s:
            self._notifier.alive()
            self.loop.call_every(self._notifier.interval_s, self._notifier.alive)

    def _stop_when_finished(self) -> None:
        if all(source.finished for source in self.sources):
            self.stop()

    def _drain(self) -> None:
        """Drain what was accepted: answer windows, hand over answers, commit hard cases."""
        self._draining = True
        self._notifier.stopping()
        until = self.clock.monotonic() + self.config.drain_timeout_s
        for source in self.sources:
            source.pause()
        self.pipeline.flush()
        while not self._idle() and self.clock.monotonic() < until:
            self.loop.iterate(0.05)
        self._drained = self._idle()
        if self.escalator is not None and self._saved_budget is not None:
            self._saved_budget.save()
            self.escalator.stop(max(0.1, until - self.clock.monotonic()))
            self.loop.iterate(0)  # corrections and commits that came in meanwhile
            self._log_what_waits()
        self.pipeline.save(max(0.1, until - self.clock.monotonic()))
        for source in self.sources:
            source.close()
        if self.updates is not None:
            self.updates.stop()
        for sink in self.sinks:
            sink.close(max(0.1, until - self.clock.monotonic()))
        self._release_broker_clients(max(0.1, until - self.clock.monotonic()))
        if not self._drained:
            log.warning(
                "stopped after %g s with answers not handed over; raise drain_timeout_s if this matters",
                self.config.drain_timeout_s,
            )

    def _log_what_waits(self) -> None:
        """Log what waits in the outbox, so that the operator knows whether to run an ended stream again."""
        if self.outbox is None or not all(source.finished for source in self.sources):
            return
        with suppress(StoreError):
            if queued := self.outbox.counts().queued:
                log.warning(
                    "%d hard cases wait for the cloud in %s; run the application again to send them, or look at them "
                    "with: edge-runtime outbox list %s --queued",
                    queued, self.outbox.path, self.outbox.path,
                )  # fmt: skip

    def _idle(self) -> bool:
        return self.pipeline.idle and (self.escalator is None or self.escalator.drained())

    # -- models that come and go (`edge_runtime.update.boot.ModelHost`) -----------------------------------------------

    def load(self, config: ModelConfig) -> Model:
        """Verify a bundle, try it in a child process, load it: this variant or none."""
        return self._bounded(load_model(config, self.clock))

    def start(self, config: ModelConfig) -> tuple[Model, FallbackChain | None]:
        """Load as `load` does, with a fallback chain where failover is on."""
        if config.failover == "off":
            return self.load(config), None
        model, chain = fallback_chains.start(
            config, clock=self.clock, metrics=self.metrics, handed_over=self._handed_over
        )
        try:
            return self._bounded(model), chain
        except BaseException:
            chain.close()
            raise

    def _bounded(self, model: Model) -> Model:
        """Bound the states of keys, where it has some; a model that breaks the bounds is closed."""
        try:
            if model.states is not None:
                model.states.bound(self._window.max_keys, self.metrics, self.config.model.max_state_mb * 2**20)
        except BaseException:
            model.close()
            raise
        return model

    def fallback_chain_of(self, model: Model) -> FallbackChain | None:
        """Build the fallback chain of a model that was loaded; None where failover is off."""
        if self.config.model.failover == "off":
            return None
        return fallback_chains.build_fallback_chain(model, self.config.model, clock=self.clock, metrics=self.metrics)

    def attend(self, fallback_chain: FallbackChain) -> None:
        """Open a fallback chain that came later."""
        fallback_chain.open(self.loop, self._publish_model_status)

    def serves(self, model: Model, fallback_chain: FallbackChain | None) -> None:
        """Note the model that answers now."""
        self.model, self.fallback_chain = model, fallback_chain
        if self.governor is not None:
            self.governor.follow(fallback_chain)


def _broker_clients(config: AppConfig, metrics: Metrics) -> dict[str, BrokerClient]:
    """Build a client for each broker; MQTT is not imported where there is none."""
    if not config.broker:
        return {}
    from edge_runtime.mqtt.client import BrokerClient  # noqa: PLC0415

    brokers = dict(config.broker)
    if (home := config.home_assistant) is not None:
        brokers[home.broker] = home.with_status(brokers[home.broker], config.name)
    return {
        name: BrokerClient(with_room(broker, name, config.source), name, metrics, application=config.name)
        for name, broker in brokers.items()
    }
