"""Fallback chain: backends, best first; when one of them fails, the next one answers the same windows.

::

    backends    accelerator ─► the same variant on the CPU ─► another variant ─► none: hard cases for the cloud
                 ▲                                              │
                 └──── its golden vectors pass again, after a back-off ◄──── failed

A backend fails when it raises, hangs or dies, or no longer reproduces its golden vectors, which are replayed when it
is loaded and at an interval. The governor limits how high the fallback chain may climb (`FallbackChain.step_down`,
`FallbackChain.step_up`). Log, metrics and status show every change. Why it is so: docs/decisions/0010-failover.md.

It belongs to the loop's thread. Loading, which takes a child process and up to a second or two, happens on a thread of
its own, unless there is nothing else that could answer.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from edge_runtime.base.system.loop import Loop, Timer
from edge_runtime.base.system.retry import Retry
from edge_runtime.clock import Clock
from edge_runtime.errors import EngineError, InputError
from edge_runtime.manifest import Manifest, Variant
from edge_runtime.metrics import Metrics
from edge_runtime.model.serving.backend import Backend, BackendState, Load, Loaded, Preparation
from edge_runtime.model.serving.loading import Answers, describe_failure
from edge_runtime.model.serving.states import StateStore
from edge_runtime.signal.windowing.window import Window

log = logging.getLogger(__name__)

STABLE_S: Final = 60.0
"""A backend that answered for so long before it failed begins its back-off from the start."""
CHECK_INTERVAL_S: Final = 60.0
"""Seconds between two replays of the golden vectors on the backend that answers."""
KEEP_BYTES: Final = 64 * 2**20
"""Model files whose backends stay loaded together; beyond it the ones that do not answer are closed, lowest first."""
RETRY: Final = Retry(base_s=2.0, cap_s=600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainCare:
    """Care for the backends of a fallback chain."""

    retry: Retry = RETRY
    """Waits before a failed backend is tried again."""
    check_interval_s: float = CHECK_INTERVAL_S
    """Time between two replays of the golden vectors on the backend that answers; 0 is never."""
    keep_bytes: int = KEEP_BYTES
    """Model files whose backends stay loaded together."""
    rng: random.Random = field(default_factory=random.Random)
    """Jitter."""


class FallbackChain:
    """Fallback chain: a predictor made of backends; see the module and `edge_runtime.model.serving.loading.Predictor`.

    Args:
        manifest: the bundle's manifest.
        backends: best first, at least one; some may be in memory already, or have failed.
        load: proves and loads one.
        clock: monotonic time.
        metrics: receives the gauges ``model_fallback_level`` (0 is the best one, the number of backends is none) and
            ``model_fallback_level_limit``, and the counter ``failovers_total{how="raised"}``, by how it failed.
        max_batch: windows in one call.
        states: store that all backends share; None where the bundle's model has none.
        care: how backends are checked, tried again and kept.

    Raises:
        EngineError, BundleError: no backend can be loaded; says why for each.
    """

    def __init__(
        self,
        manifest: Manifest,
        backends: Sequence[BackendState],
        load: Load,
        *,
        clock: Clock,
        metrics: Metrics,
        max_batch: int = 32,
        states: StateStore | None = None,
        care: ChainCare | None = None,
    ) -> None:
        self.manifest = manifest
        self.backends = tuple([state.backend for state in backends])
        self.max_batch = max_batch
        self.began = 0.0
        """When the call that is under way began, monotonic seconds; 0.0 while there is none. Read by the watchdog."""
        self._kept = states
        self._load = load
        self._clock = clock
        self._metrics = metrics
        self._care = care or ChainCare()
        self._states = list(backends)
        self._active: Loaded | None = None
        self._current = len(self.backends)
        self._limits: list[tuple[int, str]] = [(0, "")]
        self._loop: Loop | None = None
        self._on_status: Callable[[Mapping[str, Any]], None] | None = None
        self._timers: dict[str, Timer] = {}
        self._closed = False
        self._select(wait=True)
        if self._active is None:
            self.close()
            raise EngineError(self._no_backend())

    # -- answers -----------------------------------------------------------------------------------------------------

    @property
    def current(self) -> int:
        """Position of the backend that answers; `len(backends)` while none can."""
        return self._current

    @property
    def backend(self) -> Backend | None:
        """The backend that answers; None while none can."""
        return self.backends[self._current] if self._active is not None else None

    @property
    def limit(self) -> int:
        """Position above which the fallback chain does not climb; 0 is no limit."""
        return self._limits[-1][0]

    @property
    def variant(self) -> Variant:
        """See `Predictor`."""
        return self.backends[min(self._current, len(self.backends) - 1)].variant

    @property
    def states(self) -> StateStore | None:
        """See `Predictor`; shared by all backends, so one that takes over goes on."""
        return self._kept

    def predict(self, windows: Sequence[Window]) -> Answers:
        """Answer with the best backend that works; replace one that fails, and answer the windows again.

        Raises:
            InputError: the engine will not have these values.
            EngineError: no backend works.
        """
        while (active := self._active) is not None:
            self.began = self._clock.monotonic()
            try:
                return active.predict(windows)
            except InputError:
                raise
            except Exception as error:  # noqa: BLE001 - whatever an engine raises, the next one answers
                self._fail(self._current, error)
            finally:
                self.began = 0.0
        raise EngineError(self._no_backend())

    def check(self) -> None:
        """Replay golden vectors on the backend that answers; one that gives other answers than those has failed."""
        active = self._active
        if active is None:
            return
        self.began = self._clock.monotonic()
        try:
            active.check()
        except Exception as error:  # noqa: BLE001 - as in predict
            self._fail(self._current, error)
        finally:
            self.began = 0.0

    # -- the governor's side -----------------------------------------------------------------------------------------

    def step_down(self, reason: str) -> bool:
        """Limit the fallback chain to the next lighter backend.

        Returns at once; while that backend is being loaded, the present one answers. The limit gives way if nothing at
        or below it works: an answer comes before a cool board.

        Args:
            reason: text for people, for example ``82 °C``.

        Returns:
            Whether there is a lighter backend.
        """
        base = max(self.limit, self._current)
        for position in range(base + 1, len(self.backends)):
            if self.backends[position].cost < self.backends[base].cost:
                self._limits.append((position, reason))
                log.info("model: limited to %s: %s", self.backends[position].name, reason)
                self._select()
                self._publish_status()
                return True
        return False

    def step_up(self) -> bool:
        """Take back the last `step_down`. Returns at once.

        Returns:
            Whether there was one.
        """
        if len(self._limits) == 1:
            return False
        self._limits.pop()
        log.info("model: limited to %s no longer", self.backends[self._current].name if self._active else "none")
        self._select()
        self._publish_status()
        return True

    # -- life --------------------------------------------------------------------------------------------------------

    def open(self, loop: Loop, on_status: Callable[[Mapping[str, Any]], None] | None = None) -> None:
        """Begin to check the backend that answers, and to retry those that failed.

        Args:
            loop: loop of the thread that this belongs to.
            on_status: told the status whenever it changes; see `status`.
        """
        self._loop = loop
        self._on_status = on_status
        if self.backend is not None and self.backend.accelerators:
            others = ", ".join(backend.name for backend in self.backends[self._current + 1 :])
            log.info("model: %s answers; what stands in: %s", self.backend.name, others)
        for state in self._states:
            if state.failure_reason:
                self._retry_later(state)
        self._check_regularly(first=True)
        self._publish_status()

    def close(self) -> None:
        """Free every backend. May be called twice."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._active = None
        for state in self._states:
            self._drop(state)

    def hand_over(self, taken_s: float) -> dict[str, Any] | None:
        """Return what a process that replaces this one must know, because the call under way hangs in this process.

        May be called from any thread, while that call goes on.

        Args:
            taken_s: how long it has taken.

        Returns:
            ``first``, the variant to answer on the processor when it can, and ``failed``, reasons by the name of the
            backend; None if the call is a worker's, which has a deadline of its own.
        """
        position = self._current
        if position >= len(self.backends) or self.backends[position].apart:
            return None
        failed = {state.backend.name: state.failure_reason for state in self._states if state.failure_reason}
        failed[self.backends[position].name] = f"hung: no answer within {taken_s:.1f} s"
        first = next((backend for backend in self.backends if not backend.accelerators), self.backends[0])
        return {"first": first.variant.name, "failed": failed}

    def status(self) -> dict[str, Any]:
        """Return the backend that answers and the failures, as plain values for the status topic."""
        return {
            "backend": self.backend.name if self.backend else "none",
            "position": self._current,
            "of": len(self.backends),
            "failed": {state.backend.name: state.failure_reason for state in self._states if state.failure_reason},
        } | ({"limit": self._limits[-1][1]} if self.limit else {})

    def _check_regularly(self, *, first: bool = False) -> None:
        if self._loop is None or not self._care.check_interval_s or self._closed:
            return
        if not first:
            self.check()
        self._timers["check"] = self._loop.call_later(self._care.check_interval_s, self._check_regularly)

    # -- who answers -------------------------------------------------------------------------------------------------

    def _order(self) -> list[int]:
        """Positions in the order of preference; above the limit only what nothing below it can replace."""
        return [*range(self.limit, len(self.backends)), *reversed(range(self.limit))]

    def _select(self, *, wait: bool = False) -> None:
        """Let the best backend answer that may.

        One that is not loaded is loaded by a thread, and answers when it is ready, unless no other can meanwhile.

        Args:
            wait: no other can: load it here and now.
        """
        for position in self._order():
            state = self._states[position]
            if state.failure_reason:
                continue
            if state.loaded is None:
                if not wait and self._active is not None and self._loop is not None:
                    self._prepare(state)
                    return
                try:
                    state.loaded = state.preparation.result() if state.preparation else self._load(state.backend)
                except Exception as error:  # noqa: BLE001 - as in predict
                    self._mark_failed(state, error)
                    continue
                finally:
                    state.preparation = None
            self._use(position)
            return
        self._use(len(self.backends))

    def _use(self, position: int) -> None:
        before, self._current = self._current, position
        self._active = self._states[position].loaded if position < len(self.backends) else None
        if self._active is not None and before != position:
            self._states[position].since = self._clock.monotonic()
        self._metrics.gauges["model_fallback_level"] = float(position)
        self._metrics.gauges["model_fallback_level_limit"] = float(self.limit)
        if before != position and self._loop is not None and self._active is not None:
            log.info("model: %s answers now", self.backends[position].name)
        self._trim()

    def _fail(self, position: int, error: Exception) -> None:
        """Replace the backend that answers, which has failed."""
        state = self._states[position]
        if self._clock.monotonic() - state.since >= STABLE_S:
            state.failures = 0
        self._active = None
        self._drop(state)
        self._mark_failed(state, error)
        self._select(wait=True)
        if self._active is None:
            log.error("model: no backend is left, windows go unanswered by this device until one works again")
        self._publish_status()

    def _mark_failed(self, state: BackendState, error: Exception) -> None:
        state.failures += 1
        how, why = describe_failure(error)
        state.failure_reason = f"{how}: {why}"
        self._metrics.counts[f'failovers_total{{how="{how}"}}'] += 1
        log.error("model: %s failed (%s)", state.backend.name, state.failure_reason)
        self._retry_later(state)

    def _drop(self, state: BackendState) -> None:
        loaded, state.loaded = state.loaded, None
        if loaded is not None:
            try:
                loaded.close()
            except Exception as error:  # noqa: BLE001 - it is given up anyway
                log.warning("model: %s does not close: %s", state.backend.name, describe_failure(error)[1])

    def _trim(self) -> None:
        """Close backends that do not answer while they take too much memory together."""
        held = sum(state.backend.variant.size for state in self._states if state.loaded is not None)
        for state in reversed(self._states):
            if held <= self._care.keep_bytes:
                return
            if state.loaded is not None and state.loaded is not self._active:
                held -= state.backend.variant.size
                self._drop(state)

    # -- the failed ones come back -----------------------------------------------------------------------------------

    def _retry_later(self, state: BackendState) -> None:
        if self._loop is None or self._closed:
            return
        delay = self._care.retry.delay(state.failures, None, self._care.rng)
        self._timers[state.backend.name] = self._loop.call_later(delay, lambda: self._prepare(state))

    def _prepare(self, state: BackendState) -> None:
        """Prove and load it on a thread; `_prepared` hears of it."""
        loop = self._loop
        if state.preparation is not None or self._closed or loop is None:
            return

        def report(preparation: Preparation) -> None:
            loop.call_soon_threadsafe(lambda: self._prepared(state, preparation))

        state.preparation = Preparation(state.backend, self._load, report)

    def _prepared(self, state: BackendState, preparation: Preparation) -> None:
        if state.preparation is not preparation or self._closed:  # a caller waited for it, or none does any more
            if self._closed and preparation.loaded is not None:
                preparation.loaded.close()
            return
        state.preparation = None
        if preparation.loaded is None:
            error = preparation.error or EngineError("it was not loaded")
            self._mark_failed(state, error)
        else:
            state.loaded, state.failure_reason = preparation.loaded, ""
        self._select()
        self._publish_status()

    def _publish_status(self) -> None:
        if self._on_status is not None and not self._closed:
            self._on_status(self.status())

    def _no_backend(self) -> str:
        reasons = " | ".join(
            f"{state.backend.name}: {state.failure_reason}" for state in self._states if state.failure_reason
        )
        return f"nothing of {self.manifest.model} works here ({reasons})"
