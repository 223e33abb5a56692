"""Sensors that are not there: a pseudo terminal for a serial port, a folder for sysfs, a script for the recorder."""

from __future__ import annotations

import os
import pty
import stat
import sys
import time
import tty
from collections.abc import Callable, Sequence
from pathlib import Path

from edge_runtime.base.system.loop import Loop
from edge_runtime.io.sources import Source
from edge_runtime.types import Done, Reading

WAIT_S = 30.0
"""Generous: other programs use this machine too."""


class Listener:
    """Runs a source on a loop, and keeps what it delivers."""

    def __init__(self, source: Source, loop: Loop | None = None) -> None:
        self.source = source
        self.loop = loop or Loop()
        self.readings: list[Reading] = []
        self.held: list[Done] | None = None

    def open(self) -> None:
        self.source.open(self.loop, self.deliver)

    def deliver(self, readings: Sequence[Reading], received: float, done: Done | None) -> None:
        self.readings += readings
        if done is not None:
            if self.held is None:
                done()
            else:
                self.held.append(done)

    def values(self) -> list[float]:
        return [float(value) for reading in self.readings for value in reading.values.ravel()]

    def until(self, condition: Callable[[], object]) -> None:
        end = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < end, f"it did not happen; delivered: {self.values()[:50]}"
            self.loop.iterate(0.02)

    def close(self) -> None:
        self.source.close()
        self.loop.close()


class Port:
    """A device on a serial port. `path` stays the same when it is unplugged and plugged in again."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "ttySENSOR"
        self._ends: list[int] = []
        self.plug()

    def plug(self) -> None:
        master, slave = pty.openpty()
        tty.setraw(slave)
        os.set_blocking(master, False)
        self._ends = [master, slave]
        self.path.symlink_to(os.ttyname(slave))

    def unplug(self) -> None:
        self.path.unlink(missing_ok=True)
        for fd in self._ends:
            os.close(fd)
        self._ends = []

    def send(self, data: bytes) -> None:
        """Write what fits into the line; nobody may be listening."""
        for start in range(0, len(data), 512):
            os.write(self._ends[0], data[start : start + 512])


class Iio:
    """A sysfs folder of one sensor as its driver makes it, and its character device as a named pipe.

    Args:
        folder: for ``sys`` and ``dev``.
        name: of the sensor.
        files: attributes besides, by path below the device's folder.
    """

    def __init__(self, folder: Path, name: str, files: dict[str, str]) -> None:
        self.sysfs, self.dev = folder / "sys", folder / "dev"
        self.folder = self.sysfs / "iio:device0"
        self.folder.mkdir(parents=True)
        self.dev.mkdir(exist_ok=True)
        self.node = self.dev / "iio:device0"
        self.put("name", name)
        for path, text in files.items():
            self.put(path, text)
        self._writer: int | None = None

    def put(self, path: str, text: str) -> None:
        file = self.folder / path
        file.parent.mkdir(exist_ok=True)
        file.write_text(f"{text}\n")

    def get(self, path: str) -> str:
        return (self.folder / path).read_text().strip()

    def make_node(self) -> None:
        os.mkfifo(self.node)
        # Both ends, so that a reader may come and go.
        self._writer = os.open(self.node, os.O_RDWR | os.O_NONBLOCK)

    def send(self, data: bytes) -> None:
        assert self._writer is not None
        os.write(self._writer, data)

    def close(self) -> None:
        if self._writer is not None:
            os.close(self._writer)
            self._writer = None


def recorder(folder: Path, body: str) -> Path:
    """A program that stands for arecord.

    Args:
        folder: where it is put.
        body: Python; has `out(bytes)`, `say(text)`, `arguments` and `wait()`, which waits to be ended.
    """
    path = folder / "recorder"
    head = (
        f"#!{sys.executable} -S\n"
        "import os, signal, sys\n"
        "arguments = sys.argv[1:]\n"
        "def out(data):\n    os.write(1, data)\n"
        "def say(text):\n    os.write(2, text.encode() + b'\\n')\n"
        "wait = signal.pause\n"
    )
    path.write_text(head + body)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path
