"""Updates of an application, as a whole: what it calls, and what ties the parts together.

`Acquisition` gets files, `Updates.arrived` has them checked, `Rollout` tries what passed and keeps it or goes back,
`Starter` chooses what a start loads, `UpdateStore` keeps the state. Whatever takes long happens on a thread beside the
loop (`Jobs`); the stream is not stopped for any of it.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from edge_runtime.answer.pipeline import Pipeline
from edge_runtime.base.system import durable_file
from edge_runtime.base.system.barrier import Barrier, GuardedLoop, Scheduler
from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import Clock
from edge_runtime.errors import ADVICE, StoreError, UpdateRefused, one_line
from edge_runtime.io.mqtt.outbound_queue import Message
from edge_runtime.io.mqtt.packets import Publish
from edge_runtime.manifest import Manifest
from edge_runtime.metrics import Metrics
from edge_runtime.model.bundle.signature import TrustedKey
from edge_runtime.model.serving.loading import Model
from edge_runtime.operate.update import check, freshness, inbox, status
from edge_runtime.operate.update import state as states
from edge_runtime.operate.update.acquisition import Acquisition, Arrived
from edge_runtime.operate.update.boot import ModelHost, Served, Started, Starter
from edge_runtime.operate.update.context import RolloutContext
from edge_runtime.operate.update.freshness import FloorClock
from edge_runtime.operate.update.job import JobQueue, Jobs
from edge_runtime.operate.update.keys import KeyChain
from edge_runtime.operate.update.rollout import Rollout
from edge_runtime.operate.update.state import Installed, UpdateState
from edge_runtime.operate.update.update_store import UpdateStore

if TYPE_CHECKING:
    from edge_runtime.io.mqtt.client import BrokerClient
    from edge_runtime.model.serving.failover import FallbackChain
    from edge_runtime.operate.update.config import UpdateConfig, UpdateSurroundings
    from edge_runtime.operate.update.proof import Proof
    from edge_runtime.store.cases.keeper import CaseKeeper

log = logging.getLogger(__name__)

_QUIET_S = 10.0
"""Refusals of messages that anybody may send are logged, and shown in the status, once in this time for each reason."""


class Updates:
    """Takes bundles in while an application runs, and replaces its model by those that prove themselves.

    Args:
        config: the table ``[update]``.
        setting: the application's other settings.
        metrics: receives counts; says whether answers come.
        clock: source of monotonic and wall time.
        host: the application.
        rehearsal: change nothing on disk; nothing but `start` may be called then.

    Raises:
        ConfigError: a key file cannot be used, or another application uses the update folder.
        StoreError: the update folder cannot be used.
    """

    def __init__(
        self,
        config: UpdateConfig,
        setting: UpdateSurroundings,
        metrics: Metrics,
        clock: Clock,
        host: ModelHost,
        *,
        rehearsal: bool = False,
    ) -> None:
        self._config = config
        self._setting = setting
        self._metrics = metrics
        self._host = host
        self._barrier = Barrier("update", metrics)
        self.store = UpdateStore(self._config.folder, clock.wall, read_only=rehearsal)
        self._clock = FloorClock(clock, self.store)
        try:
            self._keys = KeyChain(
                setting.model.trusted_keys, self._config.key_threshold, self._config.folder, read_only=rehearsal
            )
            self._starter = Starter(
                setting.model, self.store, self._keys, host, self._config.max_failed_starts, rehearsal=rehearsal
            )
            self._acquisition = Acquisition(self._config, self.store, self, metrics, self._clock)
        except BaseException:
            self.store.close()
            raise
        self._started = Started(served=None)
        self.rollout: Rollout | None = None
        self._broker_client: BrokerClient | None = None
        self._loop: Scheduler | None = None
        self._jobs: Jobs | None = None
        self._keys_line: JobQueue | None = None
        self._quiet_until: dict[str, float] = {}
        self._presence = ""
        """Topic that says whether this device is there, where the status of updates has no Will of its own."""
        self._obeying = 0
        """Requests whose effect is not on disk yet."""
        self._opened = self._closed = False

    # -- what the application calls ----------------------------------------------------------------------------------

    def start(self) -> tuple[Model, FallbackChain | None]:
        """Load the bundle that is to run, or the candidate that is on trial.

        Raises:
            EdgeError: nothing can be loaded, not even the configured bundle.
        """
        started = self._started = self._starter.start()
        if started.on_trial is not None:
            return started.on_trial.model, None  # what stands in for it is the old one
        assert started.served is not None
        return started.served.model, started.served.fallback_chain

    def adopt(self, model: Model, fallback_chain: FallbackChain | None) -> None:
        """Take over a model that the caller loaded; in place of `start`."""
        self._started = Started(served=Served(model, fallback_chain))

    def open(
        self,
        loop: Loop,
        pipeline: Pipeline,
        broker_clients: dict[str, BrokerClient],
        cases: CaseKeeper | None = None,
    ) -> None:
        """Listen for news, and go on where the last process stopped; before the sources are opened.

        Args:
            loop: the application's loop.
            pipeline: answers with what `start` gave.
            broker_clients: brokers by name.
            cases: keeps windows that people label; needed with ``prove = "better"``.
        """
        guarded = self._loop = GuardedLoop(loop, self._barrier)
        self._broker_client = broker_clients.get(self._config.broker)
        self._jobs = Jobs(guarded, self._barrier)
        self._keys_line = JobQueue(
            self._jobs, guarded, self._metrics
        )  # one each: a flood of one does not drop the other
        line = JobQueue(self._jobs, guarded, self._metrics)
        self._acquisition.open(guarded, self._jobs, line, self._broker_client, self._barrier)
        if self._broker_client is not None:
            gone, stopped = (self._status_message(status.gone(self._config, how)) for how in ("gone", "stopped"))
            if self._config.status_topic and not self._broker_client.leave_will(gone, stopped, self._status_message):
                self._presence = self._broker_client.config.status_topic
            if self._config.keys_topic:
                self._broker_client.listen([(self._config.keys_topic, 1)], self._receive_keys, self._barrier)
            self._broker_client.open(loop, publish_qos=1)
        self._opened = True
        context = RolloutContext(
            config=self._config, window=self._setting.window, threshold=self._setting.threshold, store=self.store,
            starter=self._starter, host=self._host, metrics=self._metrics, clock=self._clock, loop=guarded,
            jobs=self._jobs, pipeline=pipeline, publish_status=self.publish_status, on_idle=self._acquisition.consider,
            proof=self._proof(cases),
        )  # fmt: skip
        self.rollout = Rollout(context, self._started.served, self._started.on_trial)
        self.store.tidy()
        self.rollout.resume()
        guarded.call_later(self._config.poll_s, self._poll)
        self.publish_status()

    def _proof(self, cases: CaseKeeper | None) -> Proof | None:
        if self._config.prove == "same":
            return None
        from edge_runtime.operate.update.proof import Proof  # noqa: PLC0415 - SQLite, only where models are proved

        assert cases is not None, "AppConfig asks for [cases]"
        assert self._jobs is not None
        return Proof(self._config, cases, self._jobs, self._clock)

    def after_iteration(self) -> None:
        """Compare two models, where that is due; at the end of each iteration, after the answers have left."""
        rollout = self.rollout
        if rollout is not None and not self._barrier.call(rollout.after_iteration) and rollout.run is not None:
            self._barrier.call(lambda: rollout.fail("comparing it failed unexpectedly"))

    @property
    def began(self) -> float:
        """Return the monotonic start time of the call into a candidate that is under way; 0.0 while there is none."""
        return self.rollout.began if self.rollout is not None else 0.0

    def stop(self) -> None:
        """Record an orderly end: nothing that is tried has failed by that. `close` comes later."""
        if self.store.state.candidate is not None:
            try:
                self.store.change(states.starts_cleared)
            except StoreError as error:
                log.warning("update: could not record the orderly end: error=%s", error)

    def close(self) -> None:
        """Close everything at once. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._acquisition.close()
        if self._jobs is not None:
            self._jobs.close(1.0)
        if self._opened and self._broker_client is not None:
            self._broker_client.close(1.0)
        if self.rollout is not None:
            self.rollout.close()
        else:
            for one in (self._started.served, self._started.on_trial):
                if one is not None:
                    one.close()
        self.store.close()

    @property
    def _rollout(self) -> Rollout:
        assert self.rollout is not None, "open() comes first"
        return self.rollout

    # -- called by the acquisition -----------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """See `Receiver`."""
        return self._rollout.stage != "idle"

    @property
    def keys(self) -> tuple[TrustedKey, ...]:
        """See `Receiver`."""
        return self._keys.current.keys

    @property
    def running(self) -> Manifest:
        """See `Receiver`."""
        return self._rollout.running

    def refused(self, error: UpdateRefused, what: str, *, flood: bool = False) -> None:
        """See `Receiver`."""
        self._metrics.counts["updates_refused_total"] += 1
        self._metrics.dropped[f"update_{error.reason}"] += 1
        now = self._clock.monotonic()
        if flood and now < self._quiet_until.get(error.reason, now):
            return
        self._quiet_until[error.reason] = now + _QUIET_S
        self._acquisition.note = f"{what} refused: {error}"
        log.error("update: refused: what=%s reason=%s error=%s", what, error.reason, error)
        self.publish_status()

    def arrived(self, file: Arrived) -> None:
        """See `Receiver`."""
        assert self._jobs is not None
        rollout = self._rollout
        rollout.stage = "checking"
        waits = self._config.start == "asked" and file.announced is not None and not file.asked

        def checked(candidate: Installed | None) -> None:
            rollout.stage = "idle"
            if candidate is None:
                self._acquisition.consider()
                self.publish_status()
            elif waits:
                log.info("update: verified, waiting to be asked for: model=%s", candidate.model)
                self._acquisition.hold(file)
            else:
                rollout.try_out(candidate)

        def failed(error: Exception) -> None:
            rollout.stage = "idle"
            if not isinstance(error, UpdateRefused):  # a full disk, say: not the bundle's fault
                self._acquisition.later(file, error)
                return
            if self.store.state.candidate is not None:  # accepted, and then it could not be begun with
                rollout.hold_back(str(error))
                return
            if file.dropped is not None:
                inbox.set_aside(file.dropped)
            self.refused(error, file.what)
            if file.announced is None:  # what it took the place of may go on
                self._acquisition.consider()

        self._jobs.run(lambda: self._examine(file, install=not waits), checked, failed)
        self.publish_status()

    def install(self) -> bool:
        """Start what was verified and waits to be asked for; it is verified once more. Returns whether there is any."""
        if self.rollout is None or self.busy or self.store.state.on_hold:
            return False
        file = self._acquisition.take_ready()
        if file is None:
            return False
        log.info("update: asked for: model=%s", file.what)
        self.arrived(file)
        return True

    def _examine(self, file: Arrived, *, install: bool) -> Installed | None:
        """Check a file, and install it as the candidate; None where it is no update. On a thread beside the loop."""
        part = self.store.part(file.sha256)
        by_operator = file.dropped is not None and file.dropped.parent == self.store.requests
        try:
            keys = self._keys.current.keys
            with check.open_candidate(part, self._config, keys, self._clock) as bundle:
                found = check.examine(
                    bundle, file.announced, self.store.state, self.running, self._config,
                    has_cloud=self._setting.has_cloud,
                    events=self._setting.events, by_operator=by_operator,
                )  # fmt: skip
                created = bundle.manifest.created
        except UpdateRefused as error:
            durable_file.remove(part)
            reason, known = str(error), error.reason in ("held", "older", "refused")
            if file.dropped is not None or not known:
                with suppress(StoreError):
                    self.store.change(
                        lambda now: states.refusing(now, file.what, file.sha256, reason, for_good=not known)
                    )
            raise
        if found is None:
            durable_file.remove(part)
        elif install:
            self.store.adopt(file.sha256)
            self.store.change(lambda now: freshness.made_at(states.tried(now, found, "shadow"), created))
        if file.dropped is not None:
            durable_file.remove(file.dropped)
        return found

    def publish_status(self) -> None:
        """See `Receiver`: publish the status, retained."""
        if self._broker_client is not None and self._config.status_topic and self.rollout is not None:
            self._broker_client.publish([self._status_message()])

    def _status_message(self, document: dict[str, Any] | None = None) -> Message:
        body = orjson.dumps(document or self.status())
        return Message(self._config.status_topic.encode(), body, b"", 1, retain=True)

    def status(self) -> dict[str, Any]:
        """Build the status that the topic shows, as plain values."""
        made = status.of(
            self._config, self.store.state, self._rollout, self._acquisition, self._keys.current.version,
            self._clock.wall(),
        )  # fmt: skip
        if self._presence:
            made["presence"] = self._presence
        return made

    # -- keys and requests -------------------------------------------------------------------------------------------

    def _receive_keys(self, publish: Publish) -> None:
        if publish[1]:
            self._rotate(publish[1])

    def _rotate(self, envelope: bytes) -> None:
        assert self._keys_line is not None

        def work() -> bool:
            before = {key.id for key in self._keys.current.keys}
            changed = self._keys.rotate(envelope)
            if changed and before - {key.id for key in self._keys.current.keys}:
                self.store.change(freshness.forgotten)
            return changed

        def rotated(changed: bool) -> None:
            if changed:
                log.info("update: replaced the keys: version=%d", self._keys.current.version)
                self._metrics.counts["update_key_rotations_total"] += 1
                self._acquisition.keys_changed()
                self.publish_status()

        self._keys_line.run(work, rotated, lambda error: self.refused(_as_refusal(error), "keys", flood=True))

    def _poll(self) -> None:
        assert self._loop is not None
        self._loop.call_later(self._config.poll_s, self._poll)
        if self._clock.ahead and self._jobs is not None:
            self._jobs.run(self._clock.note, lambda _: None, _time_not_noted)
        self._rollout.look_back()
        for path, request in inbox.requests(self.store):
            self._obey(path, request)
        if not self._obeying:
            self._acquisition.poll()

    def _obey(self, path: Path, request: inbox.Request) -> None:
        rollout = self._rollout
        if request.action == "rollback" and rollout.stage not in ("idle", "shadow", "trial"):
            return  # at the next look: what is under way ends in a moment
        log.info("update: received a request: action=%s", request.action)
        with suppress(OSError):
            durable_file.remove(path)
        if request.action != "rollback":
            self._obeying += 1
            rollout.save(request.obey, self._lifted)
        elif rollout.run is not None:
            rollout.fail(states.BY_OPERATOR)
        else:
            rollout.go_back(states.withdrawn)

    def _lifted(self, _: UpdateState) -> None:
        self._obeying -= 1
        self._acquisition.again()
        self.install()
        self.publish_status()


def _time_not_noted(error: Exception) -> None:
    log.warning("update: could not write the latest time: error=%s", error)


def _as_refusal(error: Exception) -> UpdateRefused:
    if isinstance(error, UpdateRefused):
        return error
    return UpdateRefused("disk" if isinstance(error, (OSError, StoreError)) else "load", one_line(error, ADVICE))
