"""Work that waits or takes long, beside the loop: fetching, verifying, loading, writing to disk."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TypeVar

from edge_runtime.errors import EdgeError, UpdateRefused
from edge_runtime.loop import Loop

log = logging.getLogger(__name__)

T = TypeVar("T")


class Jobs:
    """Runs functions on threads of their own, and what follows on the loop.

    Args:
        loop: where outcomes are handled. Nothing is handled after `close`.
    """

    def __init__(self, loop: Loop) -> None:
        self._loop = loop
        self._threads: set[threading.Thread] = set()
        self._closed = False
        self.cancelled = threading.Event()
        """Set when there is no sense in going on."""

    def run(self, work: Callable[[], T], then: Callable[[T], None], failed: Callable[[Exception], None]) -> None:
        """Do `work` on a thread; then call, on the loop, `then` with its result or `failed` with what it raised."""

        def outcome() -> Callable[[], None]:
            try:
                result = work()
            except (EdgeError, OSError) as raised:
                error: Exception = raised
            except Exception as raised:
                log.exception("an update failed in a way that nobody thought of")
                error = UpdateRefused("unexpected", f"{type(raised).__name__}: {raised}")
            else:
                return lambda: then(result)
            return lambda: failed(error)

        def body() -> None:
            handle = outcome()
            self._loop.call_soon_threadsafe(lambda: self._finish(thread, handle))

        thread = threading.Thread(target=body, name="update", daemon=True)
        self._threads.add(thread)
        thread.start()

    def close(self, timeout_s: float) -> None:
        """Handle no more outcomes; wait a little for what is under way."""
        self._closed = True
        self.cancelled.set()
        for thread in self._threads:
            thread.join(timeout_s)

    def _finish(self, thread: threading.Thread, handle: Callable[[], None]) -> None:
        self._threads.discard(thread)
        if not self._closed:
            handle()
