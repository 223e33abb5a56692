"""Supervisor: the parent of workers, which starts them, restarts one that ended, and stops all of them together.

1. The first worker starts alone. A mistake in the configuration is logged once, and figures of the model that the start
   measures are there for the others, which start when the first is ready.
2. The application is ready when all workers were.
3. A worker that ends unasked is started again, after a back-off. Ends count in a row until one lived for `SETTLED_S`.
4. A worker whose configuration is wrong (exit code 2), or that ended `MOST_ENDS` times in a row, ends the application:
   its keys have no other worker, so the service manager is to decide.
5. A worker that shows no life is killed, and is then one that ended.
6. At a stop, all workers drain at the same time. One that has not ended when it should have is killed.
"""

from __future__ import annotations

import logging
import random
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Final

from edge_runtime.app.workers.child import Child
from edge_runtime.base.system.loop import Loop
from edge_runtime.base.system.retry import Retry
from edge_runtime.base.system.sd_notify import SystemdNotifier
from edge_runtime.base.system.subprocess_job import ended
from edge_runtime.clock import Clock

log = logging.getLogger(__name__)

MOST_ENDS: Final = 5
SETTLED_S: Final = 60.0
LOOK_S: Final = 1.0
"""Time between two looks at who hangs."""
SLACK_S: Final = 10.0
"""Between what draining may take by the configuration and when the parent loses patience."""
FAILED, WRONG, LOST = 1, 2, 3

_AGAIN: Final = Retry(base_s=1.0, cap_s=30.0)


class Supervisor:
    """Runs the workers until `stop`. Everything happens on its loop.

    Args:
        loop: the parent's loop.
        clock: monotonic time.
        children: workers, in order; closed here.
        notifier: the service manager's notifier.
        drain_s: time that workers may take to stop, seconds.
        on_change: called when a worker is ready, has ended, or reports something new.
    """

    def __init__(
        self,
        loop: Loop,
        clock: Clock,
        children: Sequence[Child],
        notifier: SystemdNotifier,
        *,
        drain_s: float,
        on_change: Callable[[], None],
    ) -> None:
        self.children = children
        self.restarts: Counter[int] = Counter()
        """Restarts of each worker since the start."""
        self._loop = loop
        self._clock = clock
        self._notifier = notifier
        self._drain_s = drain_s
        self._on_change = on_change
        self._rng = random.Random()  # noqa: S311 - jitter
        self._in_a_row: Counter[int] = Counter()
        self._codes: list[int] = []
        self._failed = 0
        self._stopping = False
        self._all_ready = False
        self._waiting = {child.worker for child in children[1:]}  # rule 1

    def run(self) -> int:
        """Start the workers and return the exit code, when the last one has ended."""
        before = signal.signal(signal.SIGCHLD, self._child_ended)
        try:
            self._loop.call_every(LOOK_S, self._look)
            if self._notifier.interval_s:
                self._loop.call_every(self._notifier.interval_s, self._notifier.alive)
            self._start(self.children[0])
            while not self._stopping:
                self._loop.iterate(None)
            self._drain()
        finally:
            for child in self.children:
                child.close()
            signal.signal(signal.SIGCHLD, before)
        if self._failed:
            return self._failed
        return next((code for code in (FAILED, WRONG, LOST) if code in self._codes), 0)

    def stop(self) -> None:
        """Stop all workers in order. Safe from a signal handler."""
        self._stopping = True
        self._loop.stop()

    def changed(self) -> None:
        """Take note that a worker is ready or reports something."""
        if self._waiting and self.children[0].ready:
            waiting, self._waiting = self._waiting, set()
            for child in self.children:
                if child.worker in waiting:
                    self._start(child)
        if not self._all_ready and all(child.ready for child in self.children):  # rule 2
            self._all_ready = True
            self._notifier.ready(f"{len(self.children)} workers")
            self._notifier.alive()
            log.info("workers: all %d are ready", len(self.children))
        self._on_change()

    # -- one of them ---------------------------------------------------------------------------------------------------

    def _start(self, child: Child) -> None:
        if self._stopping:
            return
        try:
            child.start()
        except OSError as error:
            self._ended(child, f"could not be started: {error.strerror}", FAILED)

    def _child_ended(self, _number: int, _frame: FrameType | None) -> None:
        self._loop.call_soon_threadsafe(self._reap)

    def _reap(self) -> None:
        for child in self.children:
            if (code := child.ended()) is not None:
                if self._stopping:
                    self._codes.append(code if code >= 0 else FAILED)
                else:
                    self._ended(child, f"ended {ended(code)}", code)
                    self._on_change()

    def _ended(self, child: Child, how: str, code: int) -> None:
        """Start a worker again, or give up (rules 3 and 4)."""
        worker = child.worker
        if self._clock.monotonic() - child.began > SETTLED_S:
            self._in_a_row[worker] = 0
        self._in_a_row[worker] += 1
        if code == WRONG or self._in_a_row[worker] >= MOST_ENDS:
            again = "" if code == WRONG else f", {MOST_ENDS} times in a row"
            log.critical(
                "workers: worker %d %s%s, so the application ends; the lines of worker %d above say why",
                *(worker, how, again, worker),
            )
            self._failed = WRONG if code == WRONG else FAILED
            self.stop()
            return
        self.restarts[worker] += 1
        delay_s = _AGAIN.delay(self._in_a_row[worker], None, self._rng)
        log.error("workers: worker %d %s unasked, started again in %.1f s", worker, how, delay_s)
        self._loop.call_later(delay_s, lambda: self._start(child))

    def _look(self) -> None:
        for child in self.children:
            if child.hangs():  # rule 5
                log.error("workers: worker %d shows no life, so it is killed", child.worker)
                child.kill()

    def _drain(self) -> None:
        self._notifier.stopping()
        for child in self.children:
            child.stop()
        until = self._clock.monotonic() + self._drain_s + SLACK_S
        while any(child.pid is not None for child in self.children) and self._clock.monotonic() < until:
            self._loop.iterate(0.5)
            self._reap()
        for child in self.children:
            if child.pid is not None:
                log.error(
                    "workers: worker %d has not stopped in %.0f s, so it is killed",
                    child.worker,
                    self._drain_s + SLACK_S,
                )
                self._codes.append(FAILED)
