"""The course of an update, on the loop of the application that it updates.

::

    idle ─► checking ─► loading ─► shadow ─► swapping ─► trial ─► settling ─► idle
              │            │          │                    │
              └ refused    └──────────┴─── held back ──────┘ (in `trial` the old model answers again at once)

Whatever takes long happens on a thread beside (`Jobs`); the state file is written before what it says is done, except
when going back, which is never too early. The stream is not stopped for any of it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import orjson

from edge_runtime.clock import Clock
from edge_runtime.errors import StoreError, UpdateRefused
from edge_runtime.gate import Gate
from edge_runtime.loop import Loop
from edge_runtime.manifest import Manifest
from edge_runtime.metrics import Metrics
from edge_runtime.model import Model, Predictor
from edge_runtime.mqtt.packets import Publish
from edge_runtime.mqtt.session import Done, Message
from edge_runtime.pipeline import Pipeline
from edge_runtime.update import check, durable, inbox
from edge_runtime.update import health as rules_of
from edge_runtime.update import state as states
from edge_runtime.update.compare import Alone, Pair
from edge_runtime.update.depot import Depot
from edge_runtime.update.health import Elapsed, Rules
from edge_runtime.update.intake import Arrived, Intake
from edge_runtime.update.job import Jobs
from edge_runtime.update.keys import KeyChain
from edge_runtime.update.starting import Host, Served, Starter
from edge_runtime.update.state import Installed, Phase, State
from edge_runtime.window import Windower

if TYPE_CHECKING:
    from edge_runtime.config import AppConfig
    from edge_runtime.lineup import Lineup
    from edge_runtime.mqtt.link import Link

log = logging.getLogger(__name__)

_LOOK_S = 0.25
"""How often a run is judged. Errors are seen in the turn in which they happen."""
_SAVE_AGAIN_S = 30.0
"""After a state could not be written: on a full disk the update waits, and the stream goes on."""

Stage = Literal["idle", "checking", "loading", "shadow", "swapping", "trial", "settling"]


@dataclass(slots=True)
class _Run:
    """A shadow run or a trial under way."""

    candidate: Installed
    new: Model
    pair: Pair | Alone
    rules: Rules
    began: float
    answers: int
    """How many there were when the last one was seen."""
    readings: int
    """The same of readings."""
    answered_at: float


class Updates:
    """Takes bundles in while an application runs, and replaces its model by those that prove themselves.

    Args:
        config: of the application; has ``update``.
        metrics: receives counts; says whether answers come.
        clock: where time comes from.
        host: the application.
        rehearsal: change nothing on disk; nothing but `start` may be called then.

    Raises:
        ConfigError: the update folder or a key file cannot be used.
    """

    def __init__(
        self, config: AppConfig, metrics: Metrics, clock: Clock, host: Host, *, rehearsal: bool = False
    ) -> None:
        assert config.update is not None
        self._app = config
        self._config = config.update
        self._metrics = metrics
        self._clock = clock
        self._host = host
        self._link: Link | None = None
        self.depot = Depot(self._config.folder, read_only=rehearsal)
        try:
            self._keys = KeyChain(
                config.model.trusted_keys, self._config.key_threshold, self._config.folder, read_only=rehearsal
            )
            self._starter = Starter(
                config.model, self.depot, self._keys, host, self._config.max_failed_starts, rehearsal=rehearsal
            )
            self._intake = Intake(self._config, self.depot, self, metrics, clock)
        except BaseException:
            self.depot.close()
            raise
        self._stage: Stage = "idle"
        self._served: Served | None = None
        self._on_trial: Model | None = None
        self._run: _Run | None = None
        self._loop: Loop | None = None
        self._jobs: Jobs | None = None
        self._pipeline: Pipeline | None = None
        self._opened = self._waking = self._closed = False

    # -- what the application calls ----------------------------------------------------------------------------------

    def start(self) -> tuple[Model, Lineup | None]:
        """Load the bundle that is to run, or the candidate that is on trial.

        Raises:
            EdgeError: nothing can be loaded, not even the configured bundle.
        """
        started = self._starter.start()
        self._served, self._on_trial = started.served, started.on_trial
        if self._on_trial is not None:
            return self._on_trial, None  # what stands in for it is the old one
        assert self._served is not None
        return self._served.model, self._served.lineup

    def adopt(self, model: Model, lineup: Lineup | None) -> None:
        """Instead of `start`: what runs was loaded by somebody else."""
        self._served = Served(model, lineup)

    def open(self, loop: Loop, pipeline: Pipeline, links: dict[str, Link]) -> None:
        """Listen for news, and go on where the last process stopped; before the sources are opened.

        Args:
            loop: of the application.
            pipeline: answers with what `start` gave.
            links: brokers by name.
        """
        self._loop, self._pipeline = loop, pipeline
        self._link = links.get(self._config.broker)
        self._jobs = Jobs(loop)
        self._opened = True
        candidate = self.depot.state.candidate
        if self._on_trial is not None and candidate is not None:
            self._attend()
            self._begin_trial(self._on_trial, candidate, resumed=True)
        self._intake.open(loop, self._jobs, self._link)
        if self._link is not None:
            if self._config.keys_topic:
                self._link.subscribe([(self._config.keys_topic, 1)], self._receive_keys)
            self._link.open(loop, publish_qos=1)
        self.depot.tidy()
        if candidate is not None and self.depot.state.phase == "shadow":
            self._load_for_shadow(candidate)
        loop.call_later(self._config.poll_s, self._poll)
        self.tell()

    def after_turn(self) -> None:
        """Compare, where something is to be compared; at the end of each turn, after the answers have left."""
        run = self._run
        if run is None or self._loop is None:
            return
        if run.pair.tally.errors > self._config.max_errors:
            self._look(run)
            return
        wait = run.pair.compare()
        if wait is not None and not self._waking:
            self._waking = True
            self._loop.call_later(wait, self._woken)

    @property
    def began(self) -> float:
        """When the call into a candidate that is under way began, monotonic seconds; 0.0 while there is none."""
        return self._run.pair.began if self._run is not None else 0.0

    def stop(self) -> None:
        """The application ends in order: nothing that is tried has failed by that. `close` comes later."""
        if self.depot.state.candidate is not None:
            try:
                self.depot.change(states.ended_in_order)
            except StoreError as error:
                log.warning("%s", error)

    def close(self) -> None:
        """Let go of everything at once. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._intake.close()
        if self._jobs is not None:
            self._jobs.close(1.0)
        if self._opened and self._link is not None:
            self._link.close(1.0)
        run_new = self._run.new if self._run is not None else None
        for one in (self._on_trial, run_new, self._served):
            if one is not None:
                one.close()
        self.depot.close()

    # -- what the intake asks and tells ------------------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """See `Receiver`."""
        return self._stage != "idle"

    @property
    def running(self) -> Manifest:
        """See `Receiver`."""
        model = self._served.model if self._served is not None else self._on_trial
        assert model is not None, "open() comes first"
        return model.manifest

    def refused(self, error: UpdateRefused, what: str) -> None:
        """See `Receiver`."""
        self._metrics.counts["updates_refused_total"] += 1
        self._metrics.dropped[f"update_{error.reason}"] += 1
        self._intake.note = f"{what} refused: {error}"
        log.error("update: %s refused: %s", what, error)
        self.tell()

    def arrived(self, file: Arrived) -> None:
        """See `Receiver`."""
        assert self._jobs is not None
        self._stage = "checking"

        def work() -> Installed | None:
            part = self.depot.part(file.sha256)
            try:
                keys = self._keys.current.keys
                with check.open_candidate(part, self._config, keys, self._clock) as bundle:
                    found = check.examine(
                        bundle, file.announced, self.depot.state, self.running, self._config,
                        has_cloud=self._app.cloud is not None,
                    )  # fmt: skip
            except UpdateRefused as error:
                durable.remove(part)
                if error.reason not in ("held", "older", "refused"):
                    reason = str(error)
                    with suppress(StoreError):
                        self.depot.change(lambda now: states.refusing(now, file.sha256, reason))
                raise
            if found is None:
                durable.remove(part)
            else:
                self.depot.adopt(file.sha256)
                self.depot.change(lambda now: states.tried(now, found, "shadow"))
            if file.dropped is not None:
                durable.remove(file.dropped)
            return found

        def failed(error: Exception) -> None:
            if file.dropped is not None:
                inbox.set_aside(file.dropped)
            self._stage = "idle"
            self.refused(_as_refusal(error), file.what)

        self._jobs.run(work, self._checked, failed)
        self.tell()

    def tell(self) -> None:
        """Publish the status, retained."""
        if self._link is not None and self._config.status_topic and self._opened:
            document = orjson.dumps(self.status())
            self._link.publish([Message(self._config.status_topic.encode(), document, b"", 1, retain=True)])

    def status(self) -> dict[str, Any]:
        """What the status topic shows, as plain values."""
        state = self.depot.state
        told: dict[str, Any] = {
            "device": self._config.identity,
            "state": self._stage,
            "running": self.running.model if self._on_trial is None else self._on_trial.manifest.model,
            "candidate": state.candidate.model if state.candidate is not None else None,
            "held_back": [f"{one.name}/{one.version}" for one in state.held],
            "on_hold": state.on_hold,
            "keys_version": self._keys.current.version,
            "last": state.last,
        }
        if self._intake.note:
            told["note"] = self._intake.note
        if (progress := self._intake.progress) is not None:
            model, have, size = progress
            told |= {"state": "fetching", "candidate": model, "bytes": have, "size": size}
        if self._run is not None:
            tally = self._run.pair.tally
            told |= {
                "answered": tally.answered, "compared": tally.compared, "agreement": round(tally.agreement, 4),
                "slowdown": round(tally.slowdown, 2), "errors": tally.errors, "skipped": tally.skipped,
            }  # fmt: skip
        return told

    # -- keys and wishes ---------------------------------------------------------------------------------------------

    def _receive_keys(self, publishes: list[Publish], _received: float, done: Done | None) -> None:
        for publish in publishes:
            if publish[1]:
                self._rotate(publish[1])
        if done is not None:
            done()

    def _rotate(self, envelope: bytes) -> None:
        assert self._jobs is not None

        def rotated(changed: bool) -> None:
            if changed:
                log.info("update: key set %d counts from now on", self._keys.current.version)
                self._metrics.counts["update_key_rotations_total"] += 1
                self._intake.consider()
                self.tell()

        self._jobs.run(
            lambda: self._keys.rotate(envelope), rotated, lambda error: self.refused(_as_refusal(error), "keys")
        )

    def _poll(self) -> None:
        assert self._loop is not None
        self._loop.call_later(self._config.poll_s, self._poll)
        for path, request in inbox.requests(self.depot):
            self._obey(path, request)
        self._intake.look()

    def _obey(self, path: Path, request: inbox.Request) -> None:
        log.info("update: an operator asked to %s", request.action)
        if request.action == "rollback" and self._stage not in ("idle", "shadow", "trial"):
            return  # at the next look: what is under way ends in a moment
        with suppress(OSError):
            durable.remove(path)
        if request.action == "rollback" and self._run is not None:
            self._fail(states.BY_OPERATOR)
        elif request.action == "rollback":
            self._go_back(states.withdrawn)
        else:
            self._save(request.obey, self._lifted)

    def _lifted(self, _: State) -> None:
        self._intake.again()
        self.tell()

    # -- checking, loading, shadow -----------------------------------------------------------------------------------

    def _checked(self, candidate: Installed | None) -> None:
        if candidate is None:
            self._stage = "idle"
            self.tell()
        else:
            self._load_for_shadow(candidate)

    def _load_for_shadow(self, candidate: Installed) -> None:
        """Its start is counted already, by whoever wrote the phase or by `Starter`."""
        assert self._jobs is not None
        self._stage = "loading"
        self._jobs.run(
            lambda: self._starter.load(candidate),
            lambda model: self._begin_shadow(model, candidate),
            self._cannot_load,
        )
        self.tell()

    def _cannot_load(self, error: Exception) -> None:
        self._hold_back(" ".join(str(error).split()))

    def _begin_shadow(self, new: Model, candidate: Installed) -> None:
        old = self._served
        if (
            old is None
            or check.difference(old.model.manifest, new.manifest)
            or not (self._config.shadow_s or self._config.shadow_windows)
        ):
            self._on_trial = new
            self._swap(new, candidate)
            return
        pair = Pair(old.predictor, new, new_leads=False, clock=self._clock, share=self._config.compare_share)
        self._replace(pair, old.model.manifest)
        self._begin("shadow", candidate, new, pair, self._config.shadow_s, self._config.shadow_windows)

    def _begin(
        self, stage: Phase, candidate: Installed, new: Model, pair: Pair | Alone, seconds: float, windows: int
    ) -> None:
        assert stage != "idle"
        counts, now = self._metrics.counts, self._clock.monotonic()
        config = self._config
        rules = Rules(
            seconds=seconds, windows=windows, comparable=isinstance(pair, Pair), min_agreement=config.min_agreement,
            max_slowdown=config.max_slowdown, max_errors=config.max_errors,
            stall_s=config.stall_s + 3 * new.manifest.input.window / new.manifest.input.rate_hz,
        )  # fmt: skip
        self._run = _Run(candidate, new, pair, rules, now, counts["predictions_total"], counts["readings_total"], now)
        self._stage = stage
        log.info("update: %s of %s begins", stage, candidate.model)
        self._look_later(self._run)
        self.tell()

    def _look(self, run: _Run) -> None:
        """Judge the run, if it is still under way."""
        if run is not self._run:
            return
        now, counts = self._clock.monotonic(), self._metrics.counts
        if counts["predictions_total"] > run.answers or counts["readings_total"] == run.readings:
            run.answers, run.readings, run.answered_at = counts["predictions_total"], counts["readings_total"], now
        elapsed = Elapsed(seconds=now - run.began, silent_s=now - run.answered_at)
        tally = run.pair.tally
        why = rules_of.fault(run.rules, tally, elapsed)
        if why is not None:
            self._fail(why)
        elif rules_of.passed(run.rules, tally, elapsed):
            log.info(
                "update: %s of %s passed: %d windows, agreement %.4f, %.2f times the old one's time",
                self._stage, run.candidate.model, tally.answered, tally.agreement, tally.slowdown,
            )  # fmt: skip
            self._run = None
            if self._stage == "shadow":
                self._on_trial = run.new
                self._swap(run.new, run.candidate)
            else:
                self._confirm(run.candidate)
        else:
            self._look_later(run)

    # -- swap, trial, and either end of it ---------------------------------------------------------------------------

    def _swap(self, new: Model, candidate: Installed) -> None:
        """First on disk, then in the stream: whoever is killed in between starts the candidate, and counts that."""
        self._stage = "swapping"
        self._save(
            lambda now: states.tried(now, candidate, "trial"),
            lambda _: self._begin_trial(new, candidate, resumed=False),
        )

    def _begin_trial(self, new: Model, candidate: Installed, *, resumed: bool) -> None:
        old = self._served
        pair: Pair | Alone = Alone(new, self._clock)
        if old is not None and not check.difference(old.model.manifest, new.manifest):
            pair = Pair(old.predictor, new, new_leads=True, clock=self._clock, share=self._config.compare_share)
        self._replace(pair, new.manifest, cut_anew=not resumed and _windows_differ(old, new))
        self._host.serves(new, None)
        self._metrics.counts["updates_swapped_total"] += not resumed
        self._begin("trial", candidate, new, pair, self._config.trial_s, self._config.trial_windows)

    def _confirm(self, candidate: Installed) -> None:
        """The candidate stays. The old model is let go when that is on disk."""
        self._stage = "settling"
        self._save(states.confirmed, lambda _: self._confirmed(candidate))

    def _confirmed(self, candidate: Installed) -> None:
        new, old = self._on_trial, self._served
        assert new is not None
        self._serve(Served(new, self._host.line_up(new)))
        self._on_trial = None
        if old is not None:
            old.close()
        self._metrics.counts["updates_installed_total"] += 1
        log.info("update: %s stays", candidate.model)
        self._idle()

    def _fail(self, why: str) -> None:
        """Go back at once; the disk hears of it after that."""
        run, self._run = self._run, None
        assert run is not None
        log.error("update: %s failed: %s", run.candidate.model, why)
        old = self._served
        if old is None:  # it could not be loaded beside the candidate when this process started
            self._go_back(lambda now: states.rolled_back(now, why))
            return
        self._replace(
            old.predictor, old.model.manifest, cut_anew=self._stage == "trial" and _windows_differ(old, run.new)
        )
        self._host.serves(old.model, old.lineup)
        self._on_trial = None
        run.new.close()
        self._hold_back(why)

    def _hold_back(self, why: str) -> None:
        self._metrics.counts["updates_rolled_back_total"] += 1
        self._metrics.dropped["update_held_back"] += 1
        self._stage = "settling"

        def step(now: State) -> State:
            return now if now.candidate is None else states.rolled_back(now, why)

        self._save(step, lambda state: self._said(state.last))

    def _said(self, last: str) -> None:
        log.error("update: %s", last)
        self._idle()

    def _go_back(self, step: Callable[[State], State]) -> None:
        """To what the state names after `step`; loaded first, since it is not in memory."""
        assert self._jobs is not None
        self._stage = "settling"
        before = self.depot.state.running

        def work() -> tuple[Served | None, State]:
            state = self.depot.change(step)
            stays = state.running == before and self._served is not None
            return (None if stays else self._starter.load_running()), state

        def done(outcome: tuple[Served | None, State]) -> None:
            before, state = outcome
            if before is not None:
                gone = (self._served, self._on_trial)
                contract = self.running.input
                self._serve(before, cut_anew=contract != before.model.manifest.input)
                self._on_trial = None
                for one in gone:
                    if one is not None:
                        one.close()
                self._metrics.counts["updates_rolled_back_total"] += 1
            self._said(state.last)

        def failed(error: Exception) -> None:
            log.error("update: cannot go back: %s", error)
            self._idle()

        self._jobs.run(work, done, failed)

    # -- small things ------------------------------------------------------------------------------------------------

    def _serve(self, served: Served, *, cut_anew: bool = False) -> None:
        """For good."""
        self._served = served
        self._attend()
        self._replace(served.predictor, served.model.manifest, cut_anew=cut_anew)
        self._host.serves(served.model, served.lineup)

    def _attend(self) -> None:
        if self._served is not None and self._served.lineup is not None:
            self._host.attend(self._served.lineup)

    def _replace(self, predictor: Predictor, manifest: Manifest, *, cut_anew: bool = False) -> None:
        assert self._pipeline is not None
        windower = None
        if cut_anew:
            windower = Windower(manifest.input, self._app.window, self._metrics)
        self._pipeline.replace(predictor, Gate(manifest.gate, self._app.gate.threshold), windower)

    def _save(self, step: Callable[[State], State], then: Callable[[State], None]) -> None:
        """Write a state on a thread, then go on; on a full disk wait, and try again for ever."""
        assert self._jobs is not None

        def failed(error: Exception) -> None:
            assert self._loop is not None
            log.error("update: %s", error)
            self._loop.call_later(_SAVE_AGAIN_S, lambda: self._save(step, then))

        self._jobs.run(lambda: self.depot.change(step), then, failed)

    def _idle(self) -> None:
        self._stage = "idle"
        assert self._jobs is not None
        self._jobs.run(self.depot.tidy, lambda _: self._intake.consider(), lambda error: log.warning("%s", error))
        self.tell()

    def _look_later(self, run: _Run) -> None:
        assert self._loop is not None
        self._loop.call_later(_LOOK_S, lambda: self._look(run))

    def _woken(self) -> None:
        self._waking = False


def _windows_differ(old: Served | None, new: Model) -> bool:
    return old is not None and old.model.manifest.input != new.manifest.input


def _as_refusal(error: Exception) -> UpdateRefused:
    if isinstance(error, UpdateRefused):
        return error
    return UpdateRefused("disk" if isinstance(error, (OSError, StoreError)) else "load", " ".join(str(error).split()))
