"""Standard streams of a command: there, and in the form that the journal wants."""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import Final

from edge_runtime.base.system.printing import LogFormatter

_PRIORITIES: Final = ((logging.CRITICAL, 2), (logging.ERROR, 3), (logging.WARNING, 4), (logging.INFO, 6))
"""Least level of a record, and its priority (sd-daemon(3))."""


def open_standard_streams() -> None:
    """Open those of descriptors 0 to 2 that are closed (``>&-``): else the next file gets the number and our output."""
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
        if getattr(sys, name) is None:
            setattr(sys, name, open(number, "r" if name == "stdin" else "w", encoding="utf-8", closefd=False))  # noqa: SIM115


class JournalFormatter(LogFormatter):
    """Formatter whose lines begin with their priority, each line of a traceback as well."""

    def format(self, record: logging.LogRecord) -> str:
        """Format one record."""
        priority = next((priority for level, priority in _PRIORITIES if record.levelno >= level), 7)
        return "\n".join(f"<{priority}>{line}" for line in super().format(record).splitlines() or [""])


def writes_to_journal(environment: Mapping[str, str]) -> bool:
    """Return whether standard error is the journal's stream (systemd.exec(5), ``JOURNAL_STREAM``)."""
    try:
        device, inode = map(int, environment.get("JOURNAL_STREAM", "").split(":"))
        found = os.fstat(2)
    except (ValueError, OSError):
        return False
    return (found.st_dev, found.st_ino) == (device, inode)
