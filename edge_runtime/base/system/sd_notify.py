"""Notifications to systemd: ready, alive, about to stop.

The protocol is that of sd_notify(3) and sd_watchdog_enabled(3): one datagram of ``NAME=VALUE`` lines to the Unix socket
that ``NOTIFY_SOCKET`` names, a path, or a name in the abstract namespace that begins with ``@``; ``WATCHDOG_USEC`` says
how long the service manager waits for a sign of life, and ``WATCHDOG_PID`` whose. Anything else that speaks it (podman,
runit's and s6's bridges) gets the same.

A service manager that is slow or gone never holds the loop up: datagrams are sent without waiting, and one that cannot
be sent is logged once.
"""

from __future__ import annotations

import json
import logging
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

log = logging.getLogger(__name__)

_MAX_STATUS: Final = 200

PART: Final = "X_EDGE_PART="
"""Line of a part's status, as JSON; the manual leaves names that begin with ``X_`` to programs."""


class SystemdNotifier:
    """One end of a service manager's notification socket; does nothing where there is none.

    Args:
        address: the socket's address, as ``NOTIFY_SOCKET`` names it; empty for none.
        watchdog_s: how long the manager waits for a sign of life before it ends us; 0 if it does not wait.
    """

    def __init__(self, address: str = "", watchdog_s: float = 0.0) -> None:
        self._socket: socket.socket | None = None
        self._address = address
        self._warned = False
        if address:
            self._connect(address)
        self.watchdog_s = watchdog_s if self._socket is not None else 0.0

    @classmethod
    def from_environment(cls, environment: Mapping[str, str], pid: int | None = None) -> SystemdNotifier:
        """Make the notifier that a process's environment asks for; `pid` None is this process."""
        address = environment.get("NOTIFY_SOCKET", "")
        usec, whose = environment.get("WATCHDOG_USEC", ""), environment.get("WATCHDOG_PID", "")
        mine = not whose or whose == str(os.getpid() if pid is None else pid)
        # Digits alone, as the manual demands: int() would take "+5" and "1_0" too.
        asked = usec.isascii() and usec.isdigit() and len(usec) <= 18 and mine
        return cls(address, int(usec) / 1e6 if asked else 0.0)

    @property
    def connected(self) -> bool:
        """Return whether a service manager listens."""
        return self._socket is not None

    @property
    def interval_s(self) -> float:
        """Return the seconds between calls of `alive`: half the watchdog time, as its manual recommends; 0 is never."""
        return self.watchdog_s / 2

    def ready(self, status: str = "") -> None:
        """Report that it has started: everything is open, and readings are taken."""
        self._send("READY=1", *_status(status))

    def alive(self) -> None:
        """Report that the loop iterates."""
        self._send("WATCHDOG=1")

    def status(self, text: str) -> None:
        """Report one line for people, as ``systemctl status`` shows it."""
        self._send(*_status(text))

    def part(self, name: str, facts: Mapping[str, object]) -> None:
        """Report the status of a part, to a parent that is one of ours (`edge_runtime.app.workers.child`)."""
        self._send(PART + json.dumps({"part": name, "facts": dict(facts)}))

    def stopping(self) -> None:
        """Report that the program stops: it takes nothing new, and finishes what was accepted."""
        self._send("STOPPING=1")

    def close(self) -> None:
        """Close the socket; from now on nothing is sent. May be called twice."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _connect(self, address: str) -> None:
        if address[0] not in "/@" or len(address) < 2:
            log.warning("systemd: ignored NOTIFY_SOCKET, which names no Unix socket: address=%s", address)
            return
        target = "\0" + address[1:] if address[0] == "@" else address
        end = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        try:
            end.connect(target)
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            end.close()
            log.warning(
                "systemd: could not reach NOTIFY_SOCKET, notifications are off: address=%s error=%s", address, error
            )
            return
        self._socket = end

    def _send(self, *lines: str) -> None:
        if self._socket is None or not lines:
            return
        message = "\n".join(lines).encode("utf-8", "replace")
        try:
            self._socket.send(message)
        except OSError as error:
            if not self._warned:
                log.warning("systemd: could not notify: address=%s error=%s", self._address, error.strerror)
            self._warned = True
            with suppress(OSError, ValueError):  # a restarted manager has a new socket in the same place
                self._socket.connect("\0" + self._address[1:] if self._address[0] == "@" else self._address)


def _status(text: str) -> list[str]:
    line = " ".join(text.split())[:_MAX_STATUS]
    return [f"STATUS={line}"] if line else []
