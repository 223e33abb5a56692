"""Several ways to get an answer, best first: when one of them fails, the next one answers the same windows.

::

    rungs    accelerator ─► the same variant on the CPU ─► another variant ─► none: hard cases for the cloud
                 ▲                                              │
                 └──── its golden vectors pass again, after a back-off ◄──── failed

A rung fails when it raises, hangs or dies, or no longer reproduces its
golden vectors, which are replayed when it is loaded and at an interval. Whoever governs heat or load limits from above
how high the line-up may climb (`Lineup.step_down`, `Lineup.step_up`). Everything is said: in the log, in the metrics
and in the status. Why it is so: docs/decisions/0010-failover.md.

It belongs to the loop's thread. Loading, which takes a child process and up to a second or two, happens on a thread of
its own, unless there is nothing else that could answer.
"""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

from edge_runtime.clock import Clock
from edge_runtime.errors import EngineError, InputError
from edge_runtime.manifest import Manifest, Variant
from edge_runtime.metrics import Metrics
from edge_runtime.model.loading import Predictor, trouble
from edge_runtime.system.loop import Loop, Timer
from edge_runtime.system.retry import Retry
from edge_runtime.types import Float32
from edge_runtime.windowing.window import Window

log = logging.getLogger(__name__)

STABLE_S: Final = 60.0
"""A rung that answered for so long before it failed begins its back-off anew."""
CHECK_INTERVAL_S: Final = 60.0
"""How often the golden vectors are replayed on the rung that answers."""
KEEP_BYTES: Final = 64 * 2**20
"""Model files whose rungs stay loaded together; beyond it the ones that do not answer are let go, lowest first."""
RETRY: Final = Retry(base_s=2.0, cap_s=600.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rung:
    """One way to get an answer."""

    name: str
    """For people, logs and the status: the variant, and where it runs if that is not the CPU."""
    variant: Variant
    cost: float = 0.0
    """What an answer costs, in one unit for all rungs of a line-up: less is lighter."""
    engine: str = ""
    """Name in `edge_runtime.engines`; empty takes the best one installed."""
    threads: int = 0
    """That the engine may use; 0 is as configured."""
    accelerators: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Execution providers or delegates by name, with their options; empty runs on the CPU."""
    apart: bool = False
    """It runs in a process of its own, so that it may hang or die."""


class Loaded(Predictor, Protocol):
    """A rung that is in memory and has proven itself."""

    def check(self) -> None:
        """Replay golden vectors.

        Raises:
            BundleError: the answers are other ones.
            EngineError: there are none.
        """
        ...

    def close(self) -> None:
        """Free it. May be called twice."""
        ...


Load = Callable[[Rung], Loaded]
"""Prove a rung in a child process and load it. Slow; called on any thread; raises BundleError or EngineError."""


class _Preparation:
    """A rung that is being loaded by a thread of its own."""

    def __init__(self, rung: Rung, load: Load, report: Callable[[_Preparation], None]) -> None:
        self.loaded: Loaded | None = None
        self.error: Exception | None = None
        self._rung = rung
        self._load = load
        self._report = report
        self._thread = threading.Thread(target=self._run, name=f"prepare {rung.name}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.loaded = self._load(self._rung)
        except Exception as error:  # noqa: BLE001 - a vendor's library may raise anything; the loop judges it
            self.error = error
        self._report(self)

    def result(self) -> Loaded:
        """Wait for it."""
        self._thread.join()
        if self.loaded is None:
            raise self.error or EngineError("it was not loaded")
        return self.loaded


class _Place:
    """What is known of a rung."""

    __slots__ = ("failures", "loaded", "preparation", "rung", "since", "trouble")

    def __init__(self, rung: Rung) -> None:
        self.rung = rung
        self.loaded: Loaded | None = None
        self.trouble = ""
        """Why it may not answer; empty if it may."""
        self.failures = 0
        """In a row."""
        self.since = 0.0
        """When it began to answer."""
        self.preparation: _Preparation | None = None


class Lineup:
    """A predictor made of rungs; see the module and `edge_runtime.model.loading.Predictor`.

    Args:
        manifest: of the bundle.
        rungs: best first, at least one.
        load: proves and loads one.
        clock: monotonic time.
        metrics: receives the gauges ``model_rung`` (0 is the best one, the number of rungs is none) and
            ``model_rung_limit``, and the counter ``failovers_total{how="raised"}``, by how it failed.
        loaded: rungs that are in memory already, by position.
        failed: rungs that have failed already, by position, with the reason.
        max_batch: windows in one call.
        retry: waits before a failed rung is tried again.
        check_interval_s: how often the golden vectors are replayed on the rung that answers; 0 is never.
        keep_bytes: model files whose rungs stay loaded together.
        rng: jitter.

    Raises:
        EngineError, BundleError: no rung can be loaded; says why for each.
    """

    def __init__(
        self,
        manifest: Manifest,
        rungs: Sequence[Rung],
        load: Load,
        *,
        clock: Clock,
        metrics: Metrics,
        loaded: Mapping[int, Loaded] | None = None,
        failed: Mapping[int, str] | None = None,
        max_batch: int = 32,
        retry: Retry = RETRY,
        check_interval_s: float = CHECK_INTERVAL_S,
        keep_bytes: int = KEEP_BYTES,
        rng: random.Random | None = None,
    ) -> None:
        self.manifest = manifest
        self.rungs = tuple(rungs)
        self.max_batch = max_batch
        self.began = 0.0
        """When the call that is under way began, monotonic seconds; 0.0 while there is none. Read by the watchdog."""
        self._load = load
        self._clock = clock
        self._metrics = metrics
        self._retry = retry
        self._check_interval_s = check_interval_s
        self._keep_bytes = keep_bytes
        self._rng = rng or random.Random()  # noqa: S311 - jitter
        self._places = [_Place(rung) for rung in self.rungs]
        self._active: Loaded | None = None
        self._current = len(self.rungs)
        self._limits: list[tuple[int, str]] = [(0, "")]
        self._loop: Loop | None = None
        self._say: Callable[[Mapping[str, Any]], None] | None = None
        self._timers: dict[str, Timer] = {}
        self._closed = False
        for position, one in (loaded or {}).items():
            self._places[position].loaded = one
        for position, reason in (failed or {}).items():
            self._places[position].trouble = reason
            self._places[position].failures = 1
        self._select(wait=True)
        if self._active is None:
            self.close()
            raise EngineError(self._nobody())

    # -- answers -----------------------------------------------------------------------------------------------------

    @property
    def current(self) -> int:
        """Position of the rung that answers; `len(rungs)` while none can."""
        return self._current

    @property
    def rung(self) -> Rung | None:
        """The rung that answers; None while none can."""
        return self.rungs[self._current] if self._active is not None else None

    @property
    def limit(self) -> int:
        """Position above which the line-up does not climb; 0 is no limit."""
        return self._limits[-1][0]

    @property
    def variant(self) -> Variant:
        """See `Predictor`."""
        return self.rungs[min(self._current, len(self.rungs) - 1)].variant

    def predict(self, windows: Sequence[Window]) -> Float32:
        """Answer with the best rung that works; a rung that fails here is replaced, and the windows answered again.

        Raises:
            InputError: the engine will not have these values.
            EngineError: no rung works.
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
        raise EngineError(self._nobody())

    def check(self) -> None:
        """Replay golden vectors on the rung that answers; one that gives other answers than those has failed."""
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
        """Limit the line-up to the next lighter rung.

        Returns at once; while that rung is being loaded, the present one answers. The limit gives way if nothing at or
        below it works: an answer comes before a cool board.

        Args:
            reason: for people, for example ``82 °C``.

        Returns:
            Whether there is a lighter rung.
        """
        base = max(self.limit, self._current)
        for position in range(base + 1, len(self.rungs)):
            if self.rungs[position].cost < self.rungs[base].cost:
                self._limits.append((position, reason))
                log.info("model: limited to %s: %s", self.rungs[position].name, reason)
                self._select()
                self._tell()
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
        log.info("model: limited to %s no longer", self.rungs[self._current].name if self._active else "none")
        self._select()
        self._tell()
        return True

    # -- life --------------------------------------------------------------------------------------------------------

    def open(self, loop: Loop, say: Callable[[Mapping[str, Any]], None] | None = None) -> None:
        """Begin to check the rung that answers, and to retry those that failed.

        Args:
            loop: whose thread this belongs to.
            say: told the status whenever it changes; see `status`.
        """
        self._loop = loop
        self._say = say
        if self.rung is not None and self.rung.accelerators:
            others = ", ".join(rung.name for rung in self.rungs[self._current + 1 :])
            log.info("model: %s answers; what stands in: %s", self.rung.name, others)
        for place in self._places:
            if place.trouble:
                self._retry_later(place)
        self._check_regularly(first=True)
        self._tell()

    def close(self) -> None:
        """Free every rung. May be called twice."""
        self._closed = True
        for timer in self._timers.values():
            timer.cancel()
        self._active = None
        for place in self._places:
            self._drop(place)

    def hand_over(self, taken_s: float) -> dict[str, Any] | None:
        """What a process that replaces this one must know, because the call that is under way hangs in this process.

        May be called from any thread, while that call goes on.

        Args:
            taken_s: how long it has taken.

        Returns:
            ``first``, the variant to answer on the processor when it can, and ``failed``, reasons by the name of the
            rung; None if the call is a worker's, which has a deadline of its own.
        """
        position = self._current
        if position >= len(self.rungs) or self.rungs[position].apart:
            return None
        failed = {place.rung.name: place.trouble for place in self._places if place.trouble}
        failed[self.rungs[position].name] = f"hung: no answer within {taken_s:.1f} s"
        first = next((rung for rung in self.rungs if not rung.accelerators), self.rungs[0])
        return {"first": first.variant.name, "failed": failed}

    def status(self) -> dict[str, Any]:
        """Who answers and what is wrong, as plain values for the status topic."""
        return {
            "rung": self.rung.name if self.rung else "none",
            "position": self._current,
            "of": len(self.rungs),
            "failed": {place.rung.name: place.trouble for place in self._places if place.trouble},
        } | ({"limit": self._limits[-1][1]} if self.limit else {})

    def _check_regularly(self, *, first: bool = False) -> None:
        if self._loop is None or not self._check_interval_s or self._closed:
            return
        if not first:
            self.check()
        self._timers["check"] = self._loop.call_later(self._check_interval_s, self._check_regularly)

    # -- who answers -------------------------------------------------------------------------------------------------

    def _order(self) -> list[int]:
        """Positions in the order of preference; above the limit only what nothing below it can replace."""
        return [*range(self.limit, len(self.rungs)), *reversed(range(self.limit))]

    def _select(self, *, wait: bool = False) -> None:
        """Let the best rung answer that may.

        One that is not loaded is loaded by a thread, and answers when it is ready, unless nobody else can meanwhile.

        Args:
            wait: nobody can: load it here and now.
        """
        for position in self._order():
            place = self._places[position]
            if place.trouble:
                continue
            if place.loaded is None:
                if not wait and self._active is not None and self._loop is not None:
                    self._prepare(place)
                    return
                try:
                    place.loaded = place.preparation.result() if place.preparation else self._load(place.rung)
                except Exception as error:  # noqa: BLE001 - as in predict
                    self._found_wanting(place, error)
                    continue
                finally:
                    place.preparation = None
            self._use(position)
            return
        self._use(len(self.rungs))

    def _use(self, position: int) -> None:
        before, self._current = self._current, position
        self._active = self._places[position].loaded if position < len(self.rungs) else None
        if self._active is not None and before != position:
            self._places[position].since = self._clock.monotonic()
        self._metrics.gauges["model_rung"] = float(position)
        self._metrics.gauges["model_rung_limit"] = float(self.limit)
        if before != position and self._loop is not None and self._active is not None:
            log.info("model: %s answers now", self.rungs[position].name)
        self._trim()

    def _fail(self, position: int, error: Exception) -> None:
        """The rung that answers has failed: put another one in its place."""
        place = self._places[position]
        if self._clock.monotonic() - place.since >= STABLE_S:
            place.failures = 0
        self._active = None
        self._drop(place)
        self._found_wanting(place, error)
        self._select(wait=True)
        if self._active is None:
            log.error("model: no rung is left, windows go unanswered by this device until one works again")
        self._tell()

    def _found_wanting(self, place: _Place, error: Exception) -> None:
        place.failures += 1
        how, why = trouble(error)
        place.trouble = f"{how}: {why}"
        self._metrics.counts[f'failovers_total{{how="{how}"}}'] += 1
        log.error("model: %s failed (%s)", place.rung.name, place.trouble)
        self._retry_later(place)

    def _drop(self, place: _Place) -> None:
        loaded, place.loaded = place.loaded, None
        if loaded is not None:
            try:
                loaded.close()
            except Exception as error:  # noqa: BLE001 - it is given up anyway
                log.warning("model: %s does not close: %s", place.rung.name, trouble(error)[1])

    def _trim(self) -> None:
        """Let go of rungs that do not answer while they take too much memory together."""
        held = sum(place.rung.variant.size for place in self._places if place.loaded is not None)
        for place in reversed(self._places):
            if held <= self._keep_bytes:
                return
            if place.loaded is not None and place.loaded is not self._active:
                held -= place.rung.variant.size
                self._drop(place)

    # -- the failed ones come back -----------------------------------------------------------------------------------

    def _retry_later(self, place: _Place) -> None:
        if self._loop is None or self._closed:
            return
        delay = self._retry.delay(place.failures, None, self._rng)
        self._timers[place.rung.name] = self._loop.call_later(delay, lambda: self._prepare(place))

    def _prepare(self, place: _Place) -> None:
        """Prove and load it on a thread; `_prepared` hears of it."""
        loop = self._loop
        if place.preparation is not None or self._closed or loop is None:
            return

        def report(preparation: _Preparation) -> None:
            loop.call_soon_threadsafe(lambda: self._prepared(place, preparation))

        place.preparation = _Preparation(place.rung, self._load, report)

    def _prepared(self, place: _Place, preparation: _Preparation) -> None:
        if place.preparation is not preparation or self._closed:  # somebody waited for it, or nobody does any more
            if self._closed and preparation.loaded is not None:
                preparation.loaded.close()
            return
        place.preparation = None
        if preparation.loaded is None:
            error = preparation.error or EngineError("it was not loaded")
            self._found_wanting(place, error)
        else:
            place.loaded, place.trouble = preparation.loaded, ""
        self._select()
        self._tell()

    def _tell(self) -> None:
        if self._say is not None and not self._closed:
            self._say(self.status())

    def _nobody(self) -> str:
        reasons = " | ".join(f"{place.rung.name}: {place.trouble}" for place in self._places if place.trouble)
        return f"nothing of {self.manifest.model} works here ({reasons})"
