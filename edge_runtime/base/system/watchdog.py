"""Watchdog of calls into an engine: notices one that does not come back.

A native call that hangs cannot be ended from Python, and the thread that made it is the one that computes: all that is
left is to replace the process. This module only notices, from a thread of its own, which works as long as the call has
released the interpreter's lock, as ONNX Runtime and LiteRT do. A call that keeps it is the service manager's to notice
(`edge_runtime.base.system.sd_notify`): nothing in this process runs any more.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from edge_runtime.clock import Clock

_LOOKS_PER_DEADLINE = 4


class Watchdog:
    """Looks four times in a deadline whether the call that is under way has taken longer.

    Args:
        began: start of the call that is under way, monotonic seconds; 0.0 while there is none.
        deadline_s: how long a call may take; noticed after at most a quarter more.
        overdue: called once for a call, from the watchdog's thread, with the seconds that it has taken so far.
        clock: monotonic time.
    """

    def __init__(
        self, began: Callable[[], float], deadline_s: float, overdue: Callable[[float], None], clock: Clock
    ) -> None:
        self._began = began
        self._deadline_s = deadline_s
        self._overdue = overdue
        self._clock = clock
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watchdog", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no more. May be called twice."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        warned = 0.0
        while not self._stopping.wait(self._deadline_s / _LOOKS_PER_DEADLINE):
            began = self._began()
            taken = self._clock.monotonic() - began
            if began and began != warned and taken > self._deadline_s:
                warned = began
                self._overdue(taken)
