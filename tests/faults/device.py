"""A device as a process of its own, which strace may kill, or fail, at any system call.

A fork server has everything imported, so that a device is up within milliseconds::

    with Devices() as devices, devices.start(folder, Fault("pwrite64", "signal=KILL", "7")) as device:
        device.wait()

`folder` holds ``app.toml`` and the bundle that it names, as for ``edge-runtime run``. What a device wrote to its
standard error is in ``device.err``, and its figures, if it ended by itself, in ``figures.json``.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, NoReturn

import pytest

from tests.integration.running import PATIENCE_S, ROOT, environment, until

needs_strace = pytest.mark.skipif(
    shutil.which("strace") is None, reason="strace is not installed (Debian: apt-get install strace)"
)


class Fault(NamedTuple):
    """What strace does to some system calls; see ``inject`` in strace(1)."""

    calls: str
    """Comma-separated."""
    action: str
    """``signal=KILL``, ``error=ENOSPC``, ..."""
    when: str
    """The K-th such call of a thread (``7``), some of them (``7..9``), or all from then on (``7+``)."""


class Device:
    """One running device."""

    def __init__(self, server: Devices, pid: int, folder: Path, fault: Fault | None) -> None:
        self._server = server
        self.pid = pid
        self.folder = folder
        self.code: int | None = None
        self._tracer: subprocess.Popen[bytes] | None = None
        if fault is not None:
            self._attach(fault)
        os.kill(pid, signal.SIGUSR1)  # on your marks, get set

    @contextmanager
    def failing(self, fault: Fault) -> Iterator[None]:
        """Within, its system calls fail; it is running already, and goes on running."""
        self._attach(fault)
        try:
            yield
        finally:
            self.heal()

    def heal(self) -> None:
        """Its system calls fail no more, and it goes on running."""
        if self._tracer is not None:
            self._tracer.terminate()  # strace lets go of it
        self._detached()

    def _attach(self, fault: Fault) -> None:
        self._tracer = subprocess.Popen(
            [
                *("strace", "-f", "-p", str(self.pid), "-o", "/dev/null", "-e", f"trace={fault.calls}"),
                *("-e", f"inject={fault.calls}:{fault.action}:when={fault.when}"),
            ],
            stderr=subprocess.PIPE,
        )
        assert self._tracer.stderr is not None
        line = self._tracer.stderr.readline()
        if b"attached" not in line:
            line += self._tracer.communicate()[1]
            self._tracer = None
            # It has just ended, of what was done to it before: killed, or because its disk failed while it started.
            until(lambda: not self.running(), line.decode)

    def _detached(self) -> None:
        if self._tracer is not None:
            try:
                self._tracer.communicate(timeout=PATIENCE_S / 4)
            except subprocess.TimeoutExpired:  # it may wait for a thread that was killed under it
                self._tracer.kill()
                self._tracer.communicate()
            self._tracer = None

    def running(self) -> bool:
        """Whether it has not ended."""
        if self.code is None:
            self.code = self._server.poll(self.pid)
            if self.code is not None:
                self._detached()
        return self.code is None

    @property
    def killed(self) -> bool:
        return self.code == -signal.SIGKILL

    def kill(self) -> None:
        """SIGKILL, and wait for the end of it."""
        self._send(signal.SIGKILL)
        self.wait()

    def stop(self) -> None:
        """Ask it to drain and end, unless it has ended meanwhile."""
        self._send(signal.SIGTERM)

    def _send(self, number: signal.Signals) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def wait(self) -> int:
        """Wait for its end, and return its exit code; negative for a signal."""
        until(lambda: not self.running(), self.errors)
        assert self.code is not None
        return self.code

    def figures(self) -> dict[str, dict[str, int]]:
        """What it counted, after it has ended by itself."""
        found: dict[str, dict[str, int]] = json.loads((self.folder / "figures.json").read_bytes())
        return found

    def errors(self) -> str:
        """What it wrote to standard error."""
        path = self.folder / "device.err"
        return path.read_text("utf-8", "replace")[-4000:] if path.exists() else ""

    def __enter__(self) -> Device:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.running():
            self.kill()


class Devices:
    """The fork server."""

    def __enter__(self) -> Devices:
        self._server = subprocess.Popen(
            [sys.executable, "-m", "tests.faults.device"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=environment(PYTHONUNBUFFERED="1"),
        )  # fmt: skip
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.communicate(timeout=PATIENCE_S)

    def start(self, folder: Path, fault: Fault | None = None) -> Device:
        """Run ``app.toml`` of `folder`."""
        return Device(self, self._ask(f"fork {folder}"), folder, fault)

    def poll(self, pid: int) -> int | None:
        """Exit code, or None while it runs."""
        code = self._ask(f"poll {pid}")
        return None if code == _RUNNING else code

    def _ask(self, question: str) -> int:
        assert self._server.stdin is not None
        assert self._server.stdout is not None
        self._server.stdin.write(question.encode() + b"\n")
        self._server.stdin.flush()
        return int(self._server.stdout.readline())


_RUNNING = 1_000


def serve() -> None:
    """The fork server's side: a question a line, a number as answer."""
    import onnxruntime  # noqa: F401, PLC0415 - once, for all devices

    from edge_runtime.app import application  # noqa: F401, PLC0415
    from edge_runtime.cloud import escalator as escalate  # noqa: F401, PLC0415
    from edge_runtime.cloud import http as cloud_http  # noqa: F401, PLC0415
    from edge_runtime.io.mqtt import client as broker_client  # noqa: F401, PLC0415

    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    for line in open(0, "rb", buffering=0, closefd=False):  # noqa: SIM115 - a child must not read ahead
        command, _, argument = line.decode().strip().partition(" ")
        if command == "fork":
            pid = os.fork()
            if not pid:
                live(Path(argument))
            print(pid)
        else:
            pid, status = os.waitpid(int(argument), os.WNOHANG)
            print(os.waitstatus_to_exitcode(status) if pid else _RUNNING)


def live(folder: Path) -> NoReturn:
    """A device's life: wait for the tracer, then run the application until it is stopped or killed."""
    import logging  # noqa: PLC0415

    import orjson  # noqa: PLC0415

    from edge_runtime.app.application import App  # noqa: PLC0415
    from edge_runtime.app.config import load_config  # noqa: PLC0415
    from edge_runtime.base.system.signals import stopped_by_signals  # noqa: PLC0415
    from tests.integration.running import load_model  # noqa: PLC0415

    code = 1
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        errors = os.open(folder / "device.err", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(errors, 1)
        os.dup2(errors, 2)
        logging.basicConfig(level=logging.INFO, format="%(relativeCreated)d %(message)s")
        signal.sigwait({signal.SIGUSR1})
        config = load_config(folder / "app.toml")
        application = App(config, model=load_model(config.model.bundle, config.model.variant))
        with stopped_by_signals(application.stop):
            code = 0 if application.run() else 3
        (folder / "figures.json").write_bytes(orjson.dumps(application.metrics.snapshot()))
    except BaseException:
        logging.getLogger("device").exception("it failed")
    finally:
        os._exit(code)


if __name__ == "__main__":
    serve()
