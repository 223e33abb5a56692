"""Group commit: one thread, one queue, and one flush for all jobs that have come while the flush before it took.

A flush of a disk takes milliseconds, whatever it holds. Jobs that share one cost a share of it, and nothing waits for
others to come: under load the groups grow by themselves.

Source: DeWitt et al., "Implementation techniques for main memory database systems" (SIGMOD 1984), section 5.2.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Generic, TypeVar

T = TypeVar("T")

_CLOSE: Final = object()


class GroupCommit(Generic[T]):
    """Hands jobs to a flush function, in groups, on a thread of its own.

    1. `put` never waits. Jobs reach `flush` once each, in the order of `put`, and never in two calls at a time.
    2. An exception that leaves `flush` goes to `failed` with the jobs of that call; the jobs after them are flushed.
    3. `close` flushes what was put before it, then ends the thread.

    Args:
        name: the thread's name.
        flush: commits jobs and reports them. Handles the errors that it knows.
        failed: reports jobs whose `flush` met an error that it does not know. It must not raise.
        split: cuts what has come into the groups that one `flush` can take; all together by default.
        linger_s: how long a group waits for further jobs.
        idle_s: how long the thread waits for a job before it calls `flush` with none; None: for ever.
    """

    def __init__(
        self,
        name: str,
        flush: Callable[[Sequence[T]], None],
        failed: Callable[[Sequence[T], Exception], None],
        *,
        split: Callable[[Sequence[T]], Iterable[Sequence[T]]] = lambda jobs: [jobs],
        linger_s: float = 0.0,
        idle_s: Callable[[], float] | None = None,
    ) -> None:
        self._flush = flush
        self._failed = failed
        self._split = split
        self._linger_s = linger_s
        self._idle_s = idle_s
        self._jobs: queue.SimpleQueue[T | object] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Start the thread; jobs may have been put before."""
        self._thread.start()

    @property
    def running(self) -> bool:
        """The thread was started and has not ended."""
        return self._thread.is_alive()

    @property
    def closing(self) -> bool:
        """`close` was called: nothing that is put from now on is flushed."""
        return self._closing.is_set()

    @property
    def waiting(self) -> bool:
        """A job has not been taken from the queue."""
        return not self._jobs.empty()

    def put(self, job: T) -> None:
        """Hand a job over; from any thread. After `close` it is never flushed."""
        self._jobs.put(job)

    def pause(self, seconds: float) -> None:
        """Wait within `flush`, before another attempt; `close` ends the wait."""
        self._closing.wait(seconds)

    def close(self, timeout_s: float) -> bool:
        """Flush what was put before, and end the thread. May be called twice, and without `start`.

        Returns:
            Whether the thread has ended; else it still waits for the disk.
        """
        self._closing.set()
        if self._thread.is_alive():
            self._jobs.put(_CLOSE)
            self._thread.join(max(0.0, timeout_s))
        return not self._thread.is_alive()

    def run_once(self, wait_s: float | None) -> bool:
        """Flush what has come, as the thread does; a simulation calls it in the thread's place.

        Args:
            wait_s: longest wait for the first job, after which `flush` is called with none; None: for ever.

        Returns:
            Whether to go on: False after `close`.
        """
        taken: list[T | object] = []
        try:
            taken.append(self._jobs.get(timeout=wait_s))
            if self._linger_s:
                self._closing.wait(self._linger_s)
            while True:
                taken.append(self._jobs.get_nowait())
        except queue.Empty:
            pass
        jobs: list[T] = [job for job in taken if job is not _CLOSE]  # type: ignore[misc]  # all others are jobs
        closed = len(jobs) < len(taken)
        if jobs:
            for group in self._split(jobs):
                self._flush_group(group)
        elif not closed:
            self._flush_group(jobs)
        return not closed

    def _flush_group(self, group: Sequence[T]) -> None:
        try:
            self._flush(group)
        except Exception as error:  # noqa: BLE001 - rule 2: the thread outlives what it does not know
            self._failed(group, error)

    def _run(self) -> None:
        while self.run_once(None if self._idle_s is None else self._idle_s()):
            pass
