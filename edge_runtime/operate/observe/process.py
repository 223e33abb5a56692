"""Figures of this process, as the system has them."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path


def process_figures() -> dict[str, float]:
    """Return CPU seconds, resident bytes and open files of this process, where the system says."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    found = {"cpu_s": round(usage.ru_utime + usage.ru_stime, 3)}
    try:
        pages = int(Path("/proc/self/statm").read_text("ascii").split()[1])
        found["resident_bytes"] = pages * resource.getpagesize()
        found["open_files"] = len(os.listdir("/proc/self/fd"))  # noqa: PTH208 - names alone
    except (OSError, ValueError, IndexError):
        found["resident_bytes"] = usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    return found
