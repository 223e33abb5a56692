"""Birth and death sequence of an edge node: the number by which a host tells whose death it hears of."""

from __future__ import annotations

import hashlib
import logging
from pathlib import Path

from edge_runtime.base.system import durable_file

logger = logging.getLogger(__name__)


def file_beside(state: Path, group: str, node: str) -> Path:
    """Return the file of an edge node's number, beside a file of state: ``outbox.3f9a81c2.bdseq``."""
    digest = hashlib.sha256(f"{group}/{node}".encode()).hexdigest()[:8]
    return state.with_name(f"{state.stem}.{digest}.bdseq")


class BirthDeathSequence:
    """The number, which grows by one with each CONNECT; 0 follows 255.

    It is on the disk before its CONNECT is sent. Else a process that was killed would come back under the number of
    the connection that it left, and the late death of that one would end the new one in the eyes of a host.

    Args:
        path: the number's file; None: it begins at 0 with each process.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._read = False
        self._failing = False
        self.value = 255
        """Of the last CONNECT."""

    def advance(self) -> int:
        """Return the number of the next CONNECT. It waits for the disk: not for the loop's thread."""
        if not self._read:
            self._read = True
            self.value = self._stored()
        self.value = (self.value + 1) % 256
        self._store()
        return self.value

    def _stored(self) -> int:
        try:
            text = b"" if self._path is None else self._path.read_bytes()[:16]
        except OSError:
            return self.value
        number = text.strip()
        if number.isdigit() and int(number) <= 255:
            return int(number)
        if text:
            logger.warning("%s is begun again: it holds no number from 0 to 255", self._path)
        return self.value

    def _store(self) -> None:
        if self._path is None:
            return
        try:
            durable_file.write(self._path, b"%d\n" % self.value)
        except OSError as error:
            if not self._failing:
                logger.warning("%s cannot be written: %s", self._path, error.strerror)
            self._failing = True
        else:
            self._failing = False
