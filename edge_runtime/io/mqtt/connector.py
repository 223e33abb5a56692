"""Connector: connects without blocking the loop, in a short-lived thread per attempt with one hand-over."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TYPE_CHECKING

from edge_runtime.base.system.loop import Loop
from edge_runtime.errors import EdgeError

if TYPE_CHECKING:
    from edge_runtime.io.mqtt.config import Secrets
    from edge_runtime.io.mqtt.connection import Connection

Then = Callable[["Connection", Exception | None], None]


class Connector:
    """Background connector: runs `Connection.connect` in a daemon thread.

    Resolving, TCP and TLS may each take seconds. The thread owns the connection until its result is taken on the loop's
    thread; then it is gone. A result that is not wanted any more is closed by its holder.

    Args:
        name: the broker's name; shows in the thread's name.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._lock = threading.Lock()
        self._wanted: Connection | None = None
        self._result: tuple[Connection, Exception | None] | None = None

    def connect(self, connection: Connection, secrets: Secrets, loop: Loop, then: Then) -> None:
        """Connect; `then` is called on the loop with what went wrong, or None."""
        self._wanted = connection
        threading.Thread(
            target=self._run, args=(connection, secrets, loop, then), name=f"mqtt-connect[{self._name}]", daemon=True
        ).start()

    def cancel(self) -> None:
        """Close what is or will be connected; `then` is not called."""
        with self._lock:
            self._wanted = None
            result, self._result = self._result, None
        if result is not None:
            _discard(result[0])

    def _run(self, connection: Connection, secrets: Secrets, loop: Loop, then: Then) -> None:
        error: Exception | None = None
        try:
            connection.connect(secrets)
        except (OSError, ValueError, EdgeError) as failure:
            error = failure
        with self._lock:
            if self._wanted is connection:
                self._result = connection, error
                loop.call_soon_threadsafe(lambda: self._take(then))
                return
        _discard(connection)

    def _take(self, then: Then) -> None:
        with self._lock:
            result, self._result = self._result, None
            self._wanted = None
        if result is not None:
            then(*result)


def _discard(connection: Connection) -> None:
    connection.silence()
    connection.abort("closed")
