"""Soft state in a file of its own: written once a minute and at an orderly stop, whole or not at all.

A kill costs the last minute, so this is for what is learnt slowly. A disk that fails costs the file and nothing else;
it is logged once, and tried again.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from edge_runtime.base.system import durable_file
from edge_runtime.base.system.loop import Loop
from edge_runtime.errors import StoreError
from edge_runtime.store.durable.outbox.path_checks import refuse_foreign

log = logging.getLogger(__name__)

EVERY_S: Final = 60.0
DAMAGED: Final = ".damaged"
"""Suffix of a file that could not be read: a program of another version may still read it."""


class SoftState:
    """Writes what `take` gives, and hands what was written last to `restore`.

    Args:
        path: the file's path; its folder must exist.
        take: encodes the state; on the loop's thread.
        restore: takes what the run before has left; it raises `StoreError` for what it cannot read.
    """

    def __init__(self, path: Path, take: Callable[[], bytes], restore: Callable[[bytes], object]) -> None:
        self._path = path
        self._take = take
        self._restore = restore
        self._written = b""
        self._failing = False
        self._open = False
        self._thread: threading.Thread | None = None

    def open(self, loop: Loop) -> None:
        """Read the file, and begin to write.

        Raises:
            StoreUnusable: others could have written the file.
        """
        self._open = True
        with suppress(OSError):
            refuse_foreign(self._path)
            self._written = self._path.read_bytes()
            try:
                self._restore(self._written)
            except StoreError as error:
                log.warning("%s is begun again, and kept as *%s: %s", self._path, DAMAGED, error)
                durable_file.move(self._path, self._path.with_name(self._path.name + DAMAGED))
                self._written = b""
        loop.call_every(EVERY_S, self._save)

    def close(self) -> None:
        """Write once more. May be called twice."""
        if self._open:
            self._open = False
            self.write_now()

    def write_now(self) -> bool:
        """Write what must not wait for the minute; on the loop's thread. Returns whether the disk has it."""
        if self._thread is not None:
            self._thread.join()
        self._write(self._take())
        return not self._failing

    def _save(self) -> None:
        if self._open and (self._thread is None or not self._thread.is_alive()):
            data = self._take()
            self._thread = threading.Thread(target=self._write, args=(data,), name="soft state", daemon=True)
            self._thread.start()

    def _write(self, data: bytes) -> None:
        if data == self._written:
            return
        try:
            durable_file.write(self._path, data)
        except OSError as error:
            if not self._failing:
                log.warning("%s cannot be written: %s", self._path, error.strerror)
            self._failing = True
            return
        self._failing = False
        self._written = data
