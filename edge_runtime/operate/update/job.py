"""Work that waits or takes long, beside the loop: fetching, verifying, loading, writing to disk."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TypeVar

from edge_runtime.base.system.barrier import Barrier, Scheduler
from edge_runtime.errors import EdgeError, UpdateRefused
from edge_runtime.metrics import Metrics

T = TypeVar("T")

QUEUED = 16
"""Messages that wait to be verified. Beyond that the oldest is dropped: of what is retained, the newest counts."""
PAUSE_S = 0.1
"""Between two of them, so that a flood costs a small share of a core."""


class Jobs:
    """Runs functions on threads of their own, and what follows on the loop.

    Args:
        loop: scheduler on which outcomes are handled. Nothing is handled after `close`.
        barrier: counts unexpected exceptions; to the caller they are an `UpdateRefused`.
    """

    def __init__(self, loop: Scheduler, barrier: Barrier) -> None:
        self._loop = loop
        self._barrier = barrier
        self._threads: set[threading.Thread] = set()
        self._closed = False

    def run(self, work: Callable[[], T], then: Callable[[T], None], failed: Callable[[Exception], None]) -> None:
        """Do `work` on a thread; then call, on the loop, `then` with its result or `failed` with what it raised.

        `failed` is also called when `then` raises something unexpected: each caller gets an outcome.
        """

        def unexpected(error: Exception) -> None:
            self._barrier.caught(error)
            failed(UpdateRefused("unexpected", f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"))

        def outcome() -> Callable[[], None]:
            try:
                result = work()
            except (EdgeError, OSError) as raised:
                error = raised
                return lambda: failed(error)
            except Exception as raised:  # noqa: BLE001 - the barrier counts and logs it
                defect = raised
                return lambda: unexpected(defect)

            def go_on() -> None:
                try:
                    then(result)
                except Exception as raised:  # noqa: BLE001
                    unexpected(raised)

            return go_on

        def body() -> None:
            handle = outcome()
            self._loop.call_soon_threadsafe(lambda: self._finish(thread, handle))

        thread = threading.Thread(target=body, name="update", daemon=True)
        self._threads.add(thread)
        thread.start()

    def close(self, timeout_s: float) -> None:
        """Handle no more outcomes; wait a little for what is under way."""
        self._closed = True
        for thread in self._threads:
            thread.join(timeout_s)

    def _finish(self, thread: threading.Thread, handle: Callable[[], None]) -> None:
        self._threads.discard(thread)
        if not self._closed:
            handle()


class JobQueue:
    """Jobs one after the other, in order, with a pause between them: for messages that anybody may send.

    Args:
        jobs: runs them.
        loop: scheduler of the pause.
        metrics: counts those that are dropped as ``update_flood``.
    """

    def __init__(self, jobs: Jobs, loop: Scheduler, metrics: Metrics) -> None:
        self._jobs = jobs
        self._loop = loop
        self._metrics = metrics
        self._waiting: deque[Callable[[], None]] = deque()
        self._busy = False

    def run(self, work: Callable[[], T], then: Callable[[T], None], failed: Callable[[Exception], None]) -> None:
        """Do as `Jobs.run` does, in the order of the calls."""

        def start() -> None:
            def done(result: T) -> None:
                self._rest()
                then(result)

            def undone(error: Exception) -> None:
                self._rest()
                failed(error)

            self._jobs.run(work, done, undone)

        self._waiting.append(start)
        if len(self._waiting) > QUEUED:
            self._waiting.popleft()
            self._metrics.dropped["update_flood"] += 1
        self._next()

    def _next(self) -> None:
        if self._waiting and not self._busy:
            self._busy = True
            self._waiting.popleft()()

    def _rest(self) -> None:
        if self._busy:
            self._loop.call_later(PAUSE_S, self._go_on)

    def _go_on(self) -> None:
        self._busy = False
        self._next()
