"""Thresholds of glibc's malloc, so that the process keeps the memory that every iteration needs again.

By default glibc returns the top of the heap to the kernel after each iteration, and maps a new receive buffer each
time: 0.8 page faults a message at full speed (2.6 us of 22 us), and 13 us for each `recv` of 256 KiB. With the
thresholds below it is 0.03 faults, for 1.2 MB more resident memory.

An iteration of sound takes more: 64 windows of 300 ms are an array of 1.2 MB, their messages and samples as much again.
With a quarter of these thresholds such a process had 8 to 10 times the page faults, and 1.5 to 3 us more CPU for each
30 ms of a stream, at the same peak of memory (docs/performance.md, wake words).
"""

from __future__ import annotations

import ctypes
from typing import Final

_M_TRIM_THRESHOLD: Final = -1  # malloc.h of glibc
_M_MMAP_THRESHOLD: Final = -3
_KEPT_BYTES: Final = 4 * 1024 * 1024
_FROM_HEAP_BYTES: Final = 2 * 1024 * 1024
"""Above every buffer that a message, or the windows of one iteration, take."""


def tune_malloc() -> bool:
    """Tell glibc; does nothing elsewhere. Returns whether it took it."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):  # musl, macOS, Windows
        return False
    return bool(mallopt(_M_TRIM_THRESHOLD, _KEPT_BYTES)) and bool(mallopt(_M_MMAP_THRESHOLD, _FROM_HEAP_BYTES))
