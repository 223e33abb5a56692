"""One thread, one selector: everything that computes runs here; only waiting is done elsewhere.

A second busy Python thread starves an inference thread 25-fold under the GIL, so sources are read, windows cut, models
run and results handed over in iterations of this loop. An iteration is::

    wait for input ─► linger (the latency budget) ─► call the readers ─► call the timers ─► end-of-iteration hooks

The linger is what makes batches: with a budget of 5 ms a wake-up at 10,000 messages/s finds 50 of them, and receiving,
running the model, publishing and acknowledging are each done once for all. With budget 0 a message is answered at once,
and so it is while messages come too seldom for another one to join it (`edge_runtime.base.system.arrivals`).
"""

from __future__ import annotations

import heapq
import itertools
import selectors
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from edge_runtime.base.system.arrivals import Arrivals
from edge_runtime.clock import Clock, SystemClock

Callback = Callable[[], object]


class Timer:
    """A callback that waits for its time; `cancel` forgets it."""

    __slots__ = ("_callback",)

    def __init__(self, callback: Callback) -> None:
        self._callback: Callback | None = callback

    def cancel(self) -> None:
        """Never call it. May be called at any time, also twice."""
        self._callback = None

    def fire(self) -> bool:
        """Call it, unless cancelled; return whether it is not cancelled now."""
        if self._callback is not None:
            self._callback()
        return self._callback is not None


class Loop:
    """A selector loop with timers, end-of-iteration hooks and one way in for other threads.

    Args:
        linger_s: how long input of a lingering reader may wait for more before it is handled, where more is to be
            expected. What came while an iteration was at work has waited since then, at most since that iteration
            looked.
        clock: source of time; None: the system's clock.
    """

    def __init__(self, linger_s: float = 0.0, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self.linger_s = linger_s
        self._selector = selectors.DefaultSelector()
        self._readers: dict[int, tuple[Callback, bool]] = {}
        self._writers: dict[int, Callback] = {}
        self._timers: list[tuple[float, int, Timer]] = []
        self._order = itertools.count()
        self._soon: deque[Callback] = deque()
        self._from_threads: deque[Callback] = deque()
        self._hooks: list[Callback] = []
        self._skip_linger = False
        self._arrivals = Arrivals(linger_s)
        self._arrived = 0
        self._looked_at = 0.0  # nothing that is unread can have come before
        self._stopping = False
        self._waker, wake_end = socket.socketpair()
        self._wake_end = wake_end
        for end in (self._waker, wake_end):
            end.setblocking(False)
        self.watch(self._waker.fileno(), self._on_wake)

    # -- what others register ------------------------------------------------------------------------------------

    def watch(self, fd: int, on_readable: Callback, *, lingers: bool = False) -> None:
        """Call back whenever `fd` can be read; `lingers` applies the latency budget to its wake-ups."""
        self._readers[fd] = (on_readable, lingers)
        self._update(fd)

    def watch_write(self, fd: int, on_writable: Callback | None) -> None:
        """Call back whenever `fd` can be written; None ends it."""
        if on_writable is None:
            self._writers.pop(fd, None)
        else:
            self._writers[fd] = on_writable
        self._update(fd)

    def unwatch(self, fd: int) -> None:
        """Forget `fd` altogether, before it is closed."""
        self._readers.pop(fd, None)
        self._writers.pop(fd, None)
        self._update(fd)

    def call_soon(self, callback: Callback) -> None:
        """Call in the next iteration; from the loop's own thread."""
        self._soon.append(callback)

    def call_soon_threadsafe(self, callback: Callback) -> None:
        """Call in the next iteration; from any thread."""
        self._from_threads.append(callback)
        with suppress(BlockingIOError, OSError):  # full pipe: it is awake already; closed: no loop is left to wake
            self._wake_end.send(b"\0")

    def call_later(self, seconds: float, callback: Callback) -> Timer:
        """Call once after `seconds`."""
        timer = Timer(callback)
        heapq.heappush(self._timers, (self.clock.monotonic() + seconds, next(self._order), timer))
        return timer

    def call_every(self, seconds: float, callback: Callback) -> Timer:
        """Call every `seconds`, for the first time after them, until the timer is cancelled."""
        timer = Timer(callback)

        def again() -> None:
            if timer.fire():
                self.call_later(seconds, again)

        self.call_later(seconds, again)
        return timer

    def each_iteration(self, hook: Callback) -> None:
        """Call at the end of every iteration, in the order registered: the pipeline first, then those who send."""
        self._hooks.append(hook)

    def skip_linger(self) -> None:
        """Do not linger before the next iteration: a sender waits for our answer, or more input waits already."""
        self._skip_linger = True

    def arrived(self, count: int) -> None:
        """Report messages that a lingering reader has read; from their rate follows whether waiting for more pays."""
        self._arrived += count

    # -- running -------------------------------------------------------------------------------------------------

    def run(self) -> None:
        """Turn until `stop` is called."""
        self._stopping = False
        while not self._stopping:
            self.iterate(None)

    def stop(self) -> None:
        """End `run` after this iteration. Safe from a signal handler and from the loop's thread."""
        self._stopping = True
        self.call_soon_threadsafe(lambda: None)

    def iterate(self, timeout: float | None) -> None:
        """Run one iteration: wait at most `timeout` seconds (None: without limit), then handle what is there."""
        ready = self._linger(timeout) if self.linger_s else self._selector.select(self._wait(timeout))
        self._skip_linger = False
        for key, events in ready:
            if events & selectors.EVENT_WRITE and (writer := self._writers.get(key.fd)):
                writer()
            if events & selectors.EVENT_READ and (reader := self._readers.get(key.fd)):
                reader[0]()
        self._run_due()
        for hook in self._hooks:
            hook()

    def close(self) -> None:
        """Free the selector. What others registered is theirs to close."""
        self._selector.close()
        self._waker.close()
        self._wake_end.close()

    def _wait(self, timeout: float | None) -> float | None:
        if self._soon or self._from_threads:
            return 0.0
        if self._timers:
            until = max(0.0, self._timers[0][0] - self.clock.monotonic())
            timeout = until if timeout is None else min(timeout, until)
        return timeout

    def _linger(self, timeout: float | None) -> list[tuple[selectors.SelectorKey, int]]:
        since = self._looked_at
        if self._arrived:
            self._arrivals.note(self._arrived, since)
            self._arrived = 0
        if not self._arrivals.expected:
            ready = self._selector.select(self._wait(timeout))
            self._looked_at = self.clock.monotonic()
            return ready
        ready = self._selector.select(0)
        if not ready:
            ready = self._selector.select(self._wait(timeout))
            since = self.clock.monotonic()
        if not self._skip_linger and any(self._lingers(key) for key, _ in ready):
            left = since + self.linger_s - self.clock.monotonic()
            if left > 0:
                self.clock.sleep(left)
                ready = self._selector.select(0)
        self._looked_at = self.clock.monotonic()
        return ready

    def _lingers(self, key: selectors.SelectorKey) -> bool:
        reader = self._readers.get(key.fd)
        return reader is not None and reader[1]

    def _run_due(self) -> None:
        # Only what is due now: a callback that asks for another one gets it in the next iteration, after the sockets.
        for _ in range(len(self._soon)):
            self._soon.popleft()()
        for _ in range(len(self._from_threads)):
            self._from_threads.popleft()()
        now = self.clock.monotonic() if self._timers else 0.0
        while self._timers and self._timers[0][0] <= now:
            heapq.heappop(self._timers)[2].fire()

    def _on_wake(self) -> None:
        with suppress(BlockingIOError):
            self._waker.recv(4096)

    def _update(self, fd: int) -> None:
        events = (selectors.EVENT_READ if fd in self._readers else 0) | (
            selectors.EVENT_WRITE if fd in self._writers else 0
        )
        known = fd in self._selector.get_map()
        if events and known:
            self._selector.modify(fd, events)
        elif events:
            self._selector.register(fd, events)
        elif known:
            self._selector.unregister(fd)
