"""Child: one worker as its parent sees it, a process and the notifications that it sends.

A worker notifies its parent as it would systemd (`edge_runtime.base.system.sd_notify`): ready, alive, and the status of
its parts. It holds the reading end of a pipe as its standard input, whose other end its parent alone has: when that
closes, because the parent wants it to stop or is gone, the worker stops in order. So a worker never outlives its
parent, however that ends, and a service manager that signals all processes of a service does no harm.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import orjson

from edge_runtime.base.system.loop import Loop
from edge_runtime.base.system.sd_notify import PART
from edge_runtime.clock import Clock

log = logging.getLogger(__name__)

_DATAGRAM_BYTES: Final = 2**18


class Child:
    """A worker's process; started again as often as the parent wants.

    Args:
        worker: its number, from 1.
        command: the command that starts it.
        folder: the folder for its sockets; this user's alone.
        loop: the parent's loop.
        clock: monotonic time.
        watchdog_s: a worker that is ready and shows no life for so long is killed.
        on_change: called when it is ready, or when the status of a part has changed.
        out: file for its standard output; None: the parent's.
    """

    def __init__(
        self,
        worker: int,
        command: Sequence[str],
        folder: Path,
        *,
        loop: Loop,
        clock: Clock,
        watchdog_s: float,
        on_change: Callable[[], None],
        out: Path | None = None,
    ) -> None:
        self.worker = worker
        self.socket_path = folder / f"worker-{worker}.sock"
        self.out = out
        self.ready = False
        """It has everything open, and has not ended since."""
        self.began = 0.0
        """Monotonic second of its last start."""
        self.parts: dict[str, Mapping[str, Any]] = {}
        """Status of its parts, by name, as on the status topic."""
        self._command = [*command]
        self._loop = loop
        self._clock = clock
        self._watchdog_s = watchdog_s
        self._on_change = on_change
        self._alive = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._notify_path = folder / f"worker-{worker}.notify"
        self._notified = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        self._notified.bind(str(self._notify_path))
        loop.watch(self._notified.fileno(), self._read)

    @property
    def pid(self) -> int | None:
        """Number of its process; None while there is none."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process.

        Raises:
            OSError: the system has no room for one.
        """
        environment = {name: value for name, value in os.environ.items() if name != "WATCHDOG_PID"}
        environment["NOTIFY_SOCKET"] = str(self._notify_path)
        environment["WATCHDOG_USEC"] = str(int(self._watchdog_s * 1e6))
        self.ready, self.parts, self.began = False, {}, self._clock.monotonic()
        out = (
            None if self.out is None else os.open(self.out, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        )
        # A process inherits what its parent blocks. One that comes to the parent meanwhile waits for the end of this.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGINT, signal.SIGTERM))
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter
                self._command, stdin=subprocess.PIPE, stdout=out, env=environment
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            if out is not None:
                os.close(out)

    def ended(self) -> int | None:
        """Return the exit code of a process that has ended, once; None while it runs, or where there is none."""
        process = self._process
        if process is None or (code := process.poll()) is None:
            return None
        self.stop()
        self._process = None
        self.ready, self.parts = False, {}
        return code

    def stop(self) -> None:
        """Have it stop in order. May be called twice."""
        if self._process is not None and self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)

    def hangs(self) -> bool:
        """Return whether it was ready, and has shown no life for too long."""
        return self.ready and self._process is not None and self._clock.monotonic() - self._alive > self._watchdog_s

    def close(self) -> None:
        """End it at once, if it still runs, and close what it was heard on."""
        if self._process is not None:
            self.kill()
            self.stop()
            self._process.wait()
            self._process = None
        self._loop.unwatch(self._notified.fileno())
        self._notified.close()

    def _read(self) -> None:
        with suppress(BlockingIOError):
            while True:
                self._take(self._notified.recv(_DATAGRAM_BYTES))

    def _take(self, message: bytes) -> None:
        if self._process is None:
            return  # of one that has ended
        self._alive = self._clock.monotonic()
        for line in message.decode("utf-8", "replace").splitlines():
            if line == "READY=1":
                self.ready = True
                self._on_change()
            elif line.startswith(PART):
                with suppress(ValueError, KeyError, TypeError):
                    found = orjson.loads(line.removeprefix(PART))
                    self.parts[found["part"]] = found["facts"]
                    self._on_change()


def until_parent_ends(loop: Loop, stop: Callable[[], None], descriptor: int = 0) -> None:
    """Have a worker stop when its parent closes the pipe, or is gone.

    Args:
        loop: the worker's loop.
        stop: called once.
        descriptor: the reading end's descriptor; 0 is standard input.
    """

    def closed() -> None:
        if not os.read(descriptor, 4096):
            loop.unwatch(descriptor)
            stop()

    loop.watch(descriptor, closed)
