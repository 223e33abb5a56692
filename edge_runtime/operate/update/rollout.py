"""Rollout: a candidate's way to being the model that runs, or back; on the loop.

::

    idle ─► loading ─► shadow ─► swapping ─► trial ─► settling ─► idle
               └──────────┴─── held back ──────┘ (in `trial` the old model answers again at once)

The state file is written before what it says is done, except when going back, which is never too early.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Literal

from edge_runtime.errors import ADVICE, one_line
from edge_runtime.manifest import Manifest
from edge_runtime.model.serving.loading import Model, Predictor
from edge_runtime.operate.update import acceptance, check
from edge_runtime.operate.update import state as states
from edge_runtime.operate.update.acceptance import Elapsed, Rules
from edge_runtime.operate.update.boot import Served
from edge_runtime.operate.update.context import CandidateRun, RolloutContext
from edge_runtime.operate.update.shadow import Alone, Pair
from edge_runtime.operate.update.state import Installed, Phase, UpdateState
from edge_runtime.signal.windowing.join import windower_of

log = logging.getLogger(__name__)

LOOK_S = 0.25
"""Time between two evaluations of a run. Errors are seen in the iteration in which they happen."""
SOUND_S = 3600.0
"""Time of answers after which the starts before count no more: a few power cuts in a proof of days are no crashes."""
SAVE_AGAIN_S = 30.0
"""Time until a state that could not be written is written again; meanwhile the stream goes on."""

Stage = Literal["idle", "checking", "loading", "shadow", "swapping", "trial", "settling"]


class Rollout:
    """One candidate at a time.

    Args:
        context: what it works with.
        served: what has proved itself; None where that could not be loaded beside the candidate.
        on_trial: the candidate that `Starter` loaded, where there is one.
    """

    def __init__(self, context: RolloutContext, served: Served | None, on_trial: Served | None) -> None:
        self._context = context
        self._config = context.config
        self._store = context.store
        self._metrics = context.metrics
        self._clock = context.clock
        self._loop = context.loop
        self._jobs = context.jobs
        self.proof = context.proof
        self.stage: Stage = "idle"
        self.served = served
        self.on_trial = on_trial
        self.run: CandidateRun | None = None
        self._waking = False
        self._sound_at = 0.0

    @property
    def running(self) -> Manifest:
        """Return the manifest of the model that an update would replace."""
        found = self.served or self.on_trial
        assert found is not None
        return found.model.manifest

    @property
    def answering(self) -> Manifest:
        """Return the manifest of the model that answers now."""
        return self.running if self.on_trial is None else self.on_trial.model.manifest

    @property
    def digest(self) -> str:
        """Return the SHA-256 of the file of the bundle that answers now."""
        found = self.on_trial or self.served
        assert found is not None
        return found.model.bundle.digest

    @property
    def began(self) -> float:
        """Return the monotonic start time of the call into a candidate that is under way; 0.0 while there is none."""
        return self.run.pair.began if self.run is not None else 0.0

    def resume(self) -> None:
        """Go on where the last process stopped, before the first reading."""
        candidate = self._store.state.candidate
        if candidate is None:
            return
        if self.on_trial is not None:
            if self.proof is not None:
                self.proof.resume(self._store.state, self.on_trial.model)
            self._attend()
            self._begin_trial(self.on_trial, candidate, resumed=True)
        elif self._store.state.phase == "shadow":
            self.try_out(candidate)

    def close(self) -> None:
        """Free every model."""
        for one in (self.on_trial, self.run.new if self.run is not None else None, self.served):
            if one is not None:
                one.close()

    def after_iteration(self) -> None:
        """Compare, where something is to be compared; at the end of each iteration, after the answers have left."""
        run = self.run
        if run is None:
            return
        if run.pair.tally.errors > self._config.max_errors:
            self._look(run)
            return
        wait = run.pair.compare()
        if wait is not None and not self._waking:
            self._waking = True
            self._loop.call_later(wait, self._woken)

    # -- loading, shadow ---------------------------------------------------------------------------------------------

    def try_out(self, candidate: Installed) -> None:
        """Load a candidate and let it prove itself.

        Its phase, and its start, are written already: by `Updates.arrived`, or by `Starter`.
        """
        self.stage = "loading"
        self._jobs.run(
            lambda: self._context.starter.load(candidate),
            lambda new: self._begin_shadow(new, candidate),
            self._cannot_load,
        )
        self._context.publish_status()

    def _cannot_load(self, error: Exception) -> None:
        self.hold_back(one_line(error, ADVICE))

    def _begin_shadow(self, new: Served, candidate: Installed) -> None:
        old = self.served
        if (proof := self._context.proof_of(candidate)) is not None and old is not None:
            if (why := proof.impossible(old.model.manifest, new.model.manifest)) is not None:
                new.close()
                self.hold_back(why)
                return
            proof.use(candidate.sha256, old.model.manifest.model, self._store.state.attempt, old.model)
        if (
            old is None
            or check.difference(old.model.manifest, new.model.manifest)
            or not (self._config.shadow_s or self._config.shadow_windows)
        ):
            self.on_trial = new
            self._swap(new, candidate)
            return
        pair = self._pair(old, new, candidate, new_leads=False)
        self._replace(pair, old.model)
        self._begin("shadow", candidate, new, pair, self._config.shadow_s, self._config.shadow_windows)

    def _pair(self, old: Served, new: Served, candidate: Installed, *, new_leads: bool) -> Pair:
        return Pair(
            old.predictor, new.tried, agree=new.model.task().agree, new_leads=new_leads,
            clock=self._clock, share=self._config.compare_share,
            differ=None if (proof := self._context.proof_of(candidate)) is None else proof.differ,
        )  # fmt: skip

    def _begin(
        self, stage: Phase, candidate: Installed, new: Served, pair: Pair | Alone, seconds: float, windows: int
    ) -> None:
        assert stage != "idle"
        counts, now = self._metrics.counts, self._clock.monotonic()
        config, contract = self._config, new.model.manifest.input
        # No sameness with `prove = "better"`, of an operator's candidate neither: who installs it vouches for it.
        rules = Rules(
            seconds=seconds, windows=windows, comparable=isinstance(pair, Pair),
            min_agreement=0.0 if self.proof is not None else config.min_agreement,
            max_slowdown=config.max_slowdown, max_errors=config.max_errors,
            stall_s=config.stall_s + 3 * contract.window / contract.rate_hz,
        )  # fmt: skip
        self.run = CandidateRun(
            candidate, new, pair, rules, now, counts["predictions_total"], counts["readings_total"], now
        )
        self.stage = stage
        log.info("update: began a run: stage=%s model=%s", stage, candidate.model)
        self._look_later(self.run)
        self._context.publish_status()

    def _look(self, run: CandidateRun) -> None:
        """Evaluate the run, if it is still under way."""
        if run is not self.run:
            return
        now, counts = self._clock.monotonic(), self._metrics.counts
        if counts["predictions_total"] > run.answers or counts["readings_total"] == run.readings:
            run.answers, run.readings, run.answered_at = counts["predictions_total"], counts["readings_total"], now
        elapsed = Elapsed(seconds=now - run.began, silent_s=now - run.answered_at)
        tally = run.pair.tally
        if tally.answered and now - max(run.began, self._sound_at) > SOUND_S and self._store.state.starts:
            self._sound_at = now
            self._jobs.run(lambda: self._store.change(states.starts_cleared), lambda _: None, _starts_not_cleared)
        why = acceptance.fault(run.rules, tally, elapsed)
        if why is None and (proof := self._context.proof_of(run.candidate)) is not None:
            why = proof.fault(self._store.state)
        if why is not None:
            self.fail(why)
        elif acceptance.passed(run.rules, tally, elapsed) and self._may_go_on(run):
            log.info(
                "update: passed a run: stage=%s model=%s windows=%d agreement=%.4f slowdown=%.2f",
                self.stage, run.candidate.model, tally.answered, tally.agreement, tally.slowdown,
            )  # fmt: skip
            self.run = None
            if self.stage == "shadow":
                self.on_trial = run.new
                self._swap(run.new, run.candidate)
            else:
                self._confirm(run.candidate)
        else:
            self._look_later(run)

    def _may_go_on(self, run: CandidateRun) -> bool:
        """Return whether labels prove a candidate, where they have to, and there is an old model to compare it with."""
        proof = self._context.proof_of(run.candidate)
        return proof is None or self.stage == "trial" or isinstance(run.pair, Alone) or proof.accepts()

    def look_back(self) -> None:
        """Go back from what was accepted, where labels that came after its proof speak against it."""
        why = None if self.proof is None or self.stage != "idle" else self.proof.reversal(self._store.state)
        if why is not None:
            self.go_back(lambda now: states.withdrawn(now, why))

    # -- swap, trial, and either end of it ---------------------------------------------------------------------------

    def _swap(self, new: Served, candidate: Installed) -> None:
        """Swap first on disk, then in the stream: a process killed in between starts the candidate, and counts it."""
        self.stage = "swapping"
        proved = None if (proof := self._context.proof_of(candidate)) is None else proof.proved
        self.save(
            lambda now: states.tried(now, candidate, "trial", proved),
            lambda _: self._begin_trial(new, candidate, resumed=False),
        )

    def _begin_trial(self, new: Served, candidate: Installed, *, resumed: bool) -> None:
        old = self.served
        manifest = new.model.manifest
        pair: Pair | Alone = Alone(new.tried, self._clock)
        if old is not None and not check.difference(old.model.manifest, manifest):
            pair = self._pair(old, new, candidate, new_leads=True)
        self._replace(pair, new.model, cut_anew=not resumed and _windows_differ(old, new))
        self._context.host.serves(new.model, None)
        self._metrics.counts["updates_swapped_total"] += not resumed
        self._begin("trial", candidate, new, pair, self._config.trial_s, self._config.trial_windows)

    def _confirm(self, candidate: Installed) -> None:
        """Keep the candidate. The old model is closed when that is on disk."""
        self.stage = "settling"
        self.save(states.confirmed, lambda _: self._confirmed(candidate))

    def _confirmed(self, candidate: Installed) -> None:
        new, old = self.on_trial, self.served
        assert new is not None
        self._serve(new)
        self.on_trial = None
        if old is not None:
            old.close()
        self._metrics.counts["updates_installed_total"] += 1
        log.info("update: installed: model=%s", candidate.model)
        self._idle()

    def fail(self, why: str) -> None:
        """Go back at once; the disk hears of it after that."""
        run, self.run = self.run, None
        assert run is not None
        log.error("update: failed a run: stage=%s model=%s reason=%s", self.stage, run.candidate.model, why)
        old = self.served
        if old is None:  # it could not be loaded beside the candidate when this process started
            self.go_back(lambda now: states.rolled_back(now, why))
            return
        self._replace(old.predictor, old.model, cut_anew=self.stage == "trial" and _windows_differ(old, run.new))
        self._context.host.serves(old.model, old.fallback_chain)
        self.on_trial = None
        run.new.close()
        self.hold_back(why)

    def hold_back(self, why: str) -> None:
        """Hold back what is being tried, or about to be: it is not tried again; what ran before runs."""
        self._metrics.counts["updates_rolled_back_total"] += 1
        self._metrics.dropped["update_held_back"] += 1
        self.stage = "settling"

        def step(now: UpdateState) -> UpdateState:
            return now if now.candidate is None else states.rolled_back(now, why)

        self.save(step, lambda state: self._rolled_back(state.last))

    def _rolled_back(self, last: str) -> None:
        log.error("update: rolled back: %s", last)
        self._idle()

    def go_back(self, step: Callable[[UpdateState], UpdateState]) -> None:
        """Go back to what the state names after `step`; it is loaded first, since it is not in memory."""
        self.stage = "settling"
        before = self._store.state.running

        def work() -> tuple[Served | None, UpdateState]:
            state = self._store.change(step)
            stays = state.running == before and self.served is not None
            return (None if stays else self._context.starter.load_running()), state

        def done(outcome: tuple[Served | None, UpdateState]) -> None:
            served, state = outcome
            if served is not None:
                gone = (self.served, self.on_trial)
                contract = self.answering.input
                self._serve(served, cut_anew=contract != served.model.manifest.input)
                self.on_trial = None
                for one in gone:
                    if one is not None:
                        one.close()
                self._metrics.counts["updates_rolled_back_total"] += 1
            self._rolled_back(state.last)

        def failed(error: Exception) -> None:
            log.error("update: could not go back: error=%s", error)
            self._idle()

        self._jobs.run(work, done, failed)

    # -- small things ------------------------------------------------------------------------------------------------

    def _serve(self, served: Served, *, cut_anew: bool = False) -> None:
        """Serve it for good."""
        self.served = served
        self._attend()
        self._replace(served.predictor, served.model, cut_anew=cut_anew, trial=False)
        self._context.host.serves(served.model, served.fallback_chain)

    def _attend(self) -> None:
        if self.served is not None and self.served.fallback_chain is not None:
            self._context.host.attend(self.served.fallback_chain)

    def _replace(self, predictor: Predictor, model: Model, *, cut_anew: bool = False, trial: bool = True) -> None:
        windower = None
        if cut_anew:
            windower = windower_of(model.manifest.input, self._context.window, self._metrics)
        if not trial:  # of a candidate every window is asked
            predictor = self._context.host.cached(predictor)
        self._context.pipeline.replace(predictor, model.task(self._context.threshold), windower, trial=trial)

    def save(self, step: Callable[[UpdateState], UpdateState], then: Callable[[UpdateState], None]) -> None:
        """Write a state on a thread, then go on; on a full disk wait, and try again for ever."""

        def failed(error: Exception) -> None:
            log.error("update: could not write the state, trying again: error=%s", error)
            self._loop.call_later(SAVE_AGAIN_S, lambda: self.save(step, then))

        self._jobs.run(lambda: self._store.change(step), then, failed)

    def _idle(self) -> None:
        self.stage = "idle"
        self._jobs.run(self._store.tidy, lambda _: self._context.on_idle(), _not_tidied)
        self._context.publish_status()

    def _look_later(self, run: CandidateRun) -> None:
        self._loop.call_later(LOOK_S, lambda: self._look(run))

    def _woken(self) -> None:
        self._waking = False


def _not_tidied(error: Exception) -> None:
    log.warning("update: could not tidy the folder: error=%s", error)


def _windows_differ(old: Served | None, new: Served) -> bool:
    return old is not None and old.model.manifest.input != new.model.manifest.input


def _starts_not_cleared(error: Exception) -> None:
    log.warning("update: could not clear the starts that were counted: error=%s", error)
