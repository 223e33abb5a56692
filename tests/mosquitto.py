"""A real mosquitto for tests: on 127.0.0.1, on a port of its own, from a temporary configuration file."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType

import pytest

from edge_runtime.tools.demo.broker.broker import Broker

EXECUTABLE = shutil.which(
    "mosquitto", path=os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/usr/local/sbin"))
)

needs_mosquitto = pytest.mark.skipif(
    EXECUTABLE is None, reason="mosquitto is not installed (Debian: apt-get install mosquitto)"
)


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody listens on at this moment."""
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


class Mosquitto:
    """A mosquitto process; skips the test that asks for it where mosquitto is not installed.

    Args:
        lines: configuration lines; a line about an option of `DEFAULTS` replaces that one. They stand behind the
            ``listener`` line, so options of a listener (TLS files, say) apply to it.
        port: where to listen; 0 picks a free port, which stays the same over `restart`.
    """

    DEFAULTS = (
        "allow_anonymous true",
        "persistence false",
        "set_tcp_nodelay true",
        "log_dest stderr",
        "log_type all",
        f"user {'root' if os.geteuid() == 0 else 'mosquitto'}",  # else it drops root and cannot write where tests can
    )

    def __init__(self, *lines: str, port: int = 0) -> None:
        if EXECUTABLE is None:
            pytest.skip("mosquitto is not installed (Debian: apt-get install mosquitto)")
        self.port = port
        self._picks_port = port == 0
        own = {line.split()[0] for line in lines if line.strip()}
        self._lines = [line for line in self.DEFAULTS if line.split()[0] not in own] + [*lines]
        self._folder = Path(tempfile.mkdtemp(prefix="mosquitto-"))
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"mqtt://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("mosquitto is not running")
        return self._process.pid

    def log(self) -> str:
        """What mosquitto has written so far."""
        path = self._folder / "log"
        return path.read_text(errors="replace") if path.exists() else ""

    def start(self, timeout_s: float = 60.0) -> Mosquitto:
        """Start it and wait until it accepts connections."""
        if self._process is not None:
            raise RuntimeError("mosquitto is running already")
        self._folder.mkdir(exist_ok=True)
        attempts = 3 if self._picks_port else 1
        for attempt in range(attempts):  # somebody else may take the port between our look and mosquitto's
            if self._picks_port and (attempt or not self.port):
                self.port = free_port()
            if self._launch(timeout_s):
                self._picks_port = False
                return self
        raise RuntimeError(f"mosquitto does not start:\n{self.log()}")

    def _launch(self, timeout_s: float) -> bool:
        config = self._folder / "mosquitto.conf"
        config.write_text("\n".join([f"listener {self.port} 127.0.0.1", *self._lines, ""]))
        with (self._folder / "log").open("ab") as log:
            process = subprocess.Popen(
                [str(EXECUTABLE), "-c", str(config)], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        deadline = time.monotonic() + timeout_s
        while process.poll() is None and time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=10).close()
            except OSError:
                time.sleep(0.01)
            else:
                self._process = process
                return True
        process.kill()
        process.wait()
        return False

    def stop(self) -> None:
        """End it as an operator does (SIGTERM: it says goodbye and writes its persistence file)."""
        self._end(kill=False)

    def kill(self) -> None:
        """End it as a crash does (SIGKILL)."""
        self._end(kill=True)

    def restart(self, *, kill: bool = False) -> Mosquitto:
        """End it, and start it again on the same port."""
        self._end(kill=kill)
        return self.start()

    def close(self) -> None:
        """End it, and remove its folder."""
        self._end(kill=False)
        shutil.rmtree(self._folder, ignore_errors=True)

    def _end(self, *, kill: bool) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        if kill:
            process.kill()
        else:
            process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    def __enter__(self) -> Mosquitto:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def has_subscriptions(broker: Mosquitto | Broker, client_id: str) -> bool:
    """Whether the broker has what a client subscribed to since it last connected."""
    if isinstance(broker, Broker):
        session = broker._protocol.sessions.get(client_id)
        return session is not None and bool(session.subscriptions)
    since = broker.log().rpartition(f" as {client_id} (")[2]
    return re.search(rf"^\d+: {re.escape(client_id)} [012] ", since, re.MULTILINE) is not None


@contextmanager
def either_broker(kind: str) -> Iterator[Mosquitto | Broker]:
    """A running broker: ``mosquitto``, with room for a test's messages, or ours, ``embedded``."""
    if kind == "mosquitto":
        with Mosquitto("max_queued_messages 100000") as mosquitto:
            yield mosquitto
    else:
        with Broker() as embedded:
            yield embedded
