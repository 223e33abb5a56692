"""Observers: all that looks on while an application runs, composed here and told of it by one `Subject`.

Two report into the log (`DropReporter`, `SilenceReporter`). The others are there only where the configuration names
them: the socket, page, metrics and traces (`Observation`), the cases kept for people (`CaseKeeper`), Home Assistant.
Inference needs none of them.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol

from edge_runtime.answer.events.tracker import EventTracker
from edge_runtime.answer.pipeline import Pipeline
from edge_runtime.app.composition.brokers import Brokers
from edge_runtime.app.composition.kept_state import KeptState
from edge_runtime.app.composition.sinks import Sinks
from edge_runtime.app.config import AppConfig
from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import Clock
from edge_runtime.io.sinks import Sink
from edge_runtime.metrics import Metrics
from edge_runtime.model.serving.host import Host
from edge_runtime.operate.observe.drops import DropReporter
from edge_runtime.operate.observe.silence import SilenceReporter
from edge_runtime.operate.observe.subject import Subject
from edge_runtime.signal.drift.monitor import Drift
from edge_runtime.signal.intake.intake import Intake

if TYPE_CHECKING:
    from edge_runtime.app.composition.cloud_path import CloudPath
    from edge_runtime.operate.governor.governor import Governor
    from edge_runtime.operate.observe.observation import Observation
    from edge_runtime.operate.update.updates import Updates
    from edge_runtime.store.cases.keeper import CaseKeeper


class Observed(Protocol):
    """An application, as far as its observers reach it; complete but for them."""

    config: AppConfig
    metrics: Metrics
    clock: Clock
    loop: Loop
    host: Host
    pipeline: Pipeline
    intake: Intake
    drift: Drift
    events: EventTracker
    kept: KeptState
    cloud: CloudPath | None
    governor: Governor | None
    updates: Updates | None
    brokers: Brokers
    guarded: Sinks

    def restart(self) -> None:
        """Stop in order, to be started again."""
        ...


class Observers:
    """Observers of one application. Each that is to be told of answers is in `sinks`, or attaches itself when asked.

    Args:
        app: what they look at.

    Raises:
        ConfigError: a package or a file that an observer needs is missing.
    """

    def __init__(self, app: Observed) -> None:
        self._app = app
        self.drops = DropReporter(app.metrics)
        self.silence = SilenceReporter(app.metrics, app.clock, app.config.silence_s, app.guarded.blocking)
        self.cases = self._cases()
        """Keeper of windows for people; None where none are kept."""
        self.observation = self._observation()
        """Socket, page, metrics and traces; None where nothing may look in."""
        bridge = self._home_assistant()
        self.sinks: list[Sink] = [sink for sink in (self.cases, bridge) if sink is not None]
        """Observers that answers are sent to; opened and closed by the application, with its other sinks."""

    def start(self) -> None:
        """Look at silence, and bind what is to be listened on: after the sources are open.

        Raises:
            ConfigError: an address cannot be listened on.
        """
        app = self._app
        self.silence.start(app.loop, lambda: app.host.model.manifest.input, app.pipeline.key_states)
        if self.observation is not None:
            self.observation.open()

    def stop(self) -> None:
        """Close what is listened on, and end what looks in. May be called twice."""
        if self.observation is not None:
            self.observation.close()

    def figures(self) -> dict[str, Any]:
        """Return everything that was counted, as plain data, the alarms of drift that are on, and sums of all runs."""
        app = self._app
        found = app.metrics.snapshot() | {"sinks": app.guarded.status()}
        if app.drift.alarms:
            found["drift_alarms"] = [asdict(alarm) for alarm in app.drift.alarms]
        if app.kept.counters is not None:
            found["lifetime"] = app.kept.counters.totals().plain()
        return found

    # -- each of them --------------------------------------------------------------------------------------------------

    def _cases(self) -> CaseKeeper | None:
        app, config = self._app, self._app.config.cases
        if config is None or config.keep == "nothing":
            return None
        from edge_runtime.store.cases.keeper import CaseKeeper  # noqa: PLC0415 - SQLite, only where cases are kept

        keeper = CaseKeeper(
            config,
            audit_share=0.0 if app.cloud is None else app.config.gate.audit_share,
            manifest=lambda: app.host.model.manifest,
            metrics=app.metrics,
            clock=app.clock,
        )
        app.pipeline.tap(lambda answered: keeper.windows(answered.windows))
        return keeper

    def _observation(self) -> Observation | None:
        app, path, config = self._app, self._app.config.socket_file, self._app.config.observe
        if path is None and config is None:
            return None
        from edge_runtime.operate.observe.config import ObserveConfig  # noqa: PLC0415 - only where it can be looked into
        from edge_runtime.operate.observe.observation import Observation  # noqa: PLC0415

        return Observation(config or ObserveConfig(), self._subject(), path, app.pipeline.add_sink)

    def _home_assistant(self) -> Sink | None:
        config = self._app.config.home_assistant
        if config is None:
            return None
        from edge_runtime.operate.observe.home_assistant.bridge import HomeAssistant  # noqa: PLC0415 - only where it is named

        return HomeAssistant(config, self._subject(), self._app.brokers.clients[config.broker])

    # -- what they see -------------------------------------------------------------------------------------------------

    def _update_status(self) -> dict[str, Any] | None:
        """Say what the topic says of updates, and how the last ones ended, which is too long for a topic."""
        updates = self._app.updates
        return None if updates is None else updates.status() | {"history": updates.store.state.outcomes()}

    def _subject(self) -> Subject:
        app, config = self._app, self._app.config
        return Subject(
            name=config.name,
            loop=app.loop,
            clock=app.clock,
            metrics=app.metrics,
            manifest=lambda: app.host.model.manifest,
            backend=app.host.named,
            governor=lambda: None if app.governor is None else app.governor.status(),
            update=self._update_status,
            suspects=app.intake.suspects,
            alarms=lambda: app.drift.alarms,
            drift=app.drift.of,
            explain=app.pipeline.explain,
            tap=app.pipeline.tap,
            reset=app.pipeline.reset,
            outbox=lambda: None if app.cloud is None else app.cloud.figures(),
            sinks=app.guarded.status,
            lifetime=lambda: None if app.kept.counters is None else app.kept.counters.totals().plain(),
            rules=lambda: app.events.rules,
            install=lambda: app.updates is not None and app.updates.install(),
            restart=app.restart,
            publish_stats=app.brokers.publish_stats,
            cases=lambda: None if self.cases is None else self.cases.store,
            fold_outbox=lambda: None if app.cloud is None else app.cloud.outbox.fold(),
            cloud="" if config.cloud is None else config.cloud.url,
        )
