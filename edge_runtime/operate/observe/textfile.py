"""Metrics as a file for Prometheus' node exporter (its text-file collector), replaced by a rename.

Not synced: after a power cut the next one comes within seconds, and a flash card has better uses for its writes.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger(__name__)


class TextFile:
    """Writes one file; a disk that fails is tried again and logged once.

    Args:
        path: the file's path, ending in ``.prom``.
        render: the metrics.
    """

    def __init__(self, path: Path, render: Callable[[], bytes]) -> None:
        self._path = path
        self._render = render
        self._failing = False

    def write(self) -> None:
        """Write it once more. Readable by all: the exporter runs as another user."""
        beside = self._path.with_name(f"{self._path.name}.new")  # the exporter reads *.prom alone
        try:
            fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
            with os.fdopen(fd, "wb") as file:
                file.write(self._render())
            beside.replace(self._path)
        except OSError as error:
            if not self._failing:
                log.warning("observe: metrics cannot be written: path=%s: %s", self._path, error.strerror)
            self._failing = True
            return
        self._failing = False

    def remove(self) -> None:
        """Remove the file at the end, so that no old figures are scraped."""
        self._path.unlink(missing_ok=True)
