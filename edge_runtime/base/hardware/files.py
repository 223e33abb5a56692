"""Reading a machine's own files under a root, where any of them may be missing, unreadable, endless or nonsense.

The kernel's files under ``/proc`` and ``/sys`` vanish while they are read (a USB stick is pulled), answer with an error
(a sensor is asleep), or hold what their documentation does not say. Nothing here raises for that: what cannot be read
is None or empty, and who asks decides what its absence means.
"""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path("/")
LIBRARIES = (
    "/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib/arm-linux-gnueabihf", "/usr/lib64", "/usr/lib",
    "/usr/local/lib",
)  # fmt: skip
"""Folders in which a vendor's libraries are looked for when a person asks what is missing."""

# cpuinfo of a large machine is the longest file that is read: about 1.5 kB for each processor.
_MAX_BYTES = 2**20
# More is a mistake in the tree; the largest machines have a few hundred processors and sensors.
_MAX_ENTRIES = 4096


def data(root: Path, path: str, limit: int = _MAX_BYTES) -> bytes | None:
    """Read the first `limit` bytes of a file, or None if it cannot be read.

    Args:
        root: folder of the machine's files; ``/`` on the machine itself.
        path: absolute on the machine, for example ``/proc/cpuinfo``.
        limit: bytes to read at most.
    """
    chunks: list[bytes] = []
    left = limit
    try:
        # Non-blocking: a named pipe in the place of a file must not hold us up.
        fd = os.open(root / path.lstrip("/"), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except (OSError, ValueError):
        return None
    try:
        while left > 0 and (chunk := os.read(fd, min(left, 65536))):
            chunks.append(chunk)
            left -= len(chunk)
    except OSError:
        return None
    finally:
        os.close(fd)
    return b"".join(chunks)


def text(root: Path, path: str) -> str | None:
    """Read a file as text without surrounding blanks and NULs (as the device tree ends strings), or None."""
    read = data(root, path)
    return None if read is None else read.decode("utf-8", "replace").strip("\0 \t\r\n")


def strings(root: Path, path: str) -> tuple[str, ...]:
    """Read a device-tree property that lists strings, each ended by a NUL; empty if it cannot be read."""
    read = data(root, path)
    if read is None:
        return ()
    return tuple(part.strip() for part in read.decode("utf-8", "replace").split("\0") if part.strip())


def number(root: Path, path: str, base: int = 10) -> int | None:
    """Read a file that holds one whole number, or None if it cannot be read or holds anything else."""
    read = text(root, path)
    if not read or len(read) > 32:
        return None
    try:
        return int(read, base)
    except ValueError:
        return None


def exists(root: Path, path: str) -> bool:
    """Return whether there is such a file, folder or device node."""
    try:
        return (root / path.lstrip("/")).exists()
    except (OSError, ValueError):
        return False


def entries(root: Path, pattern: str) -> list[str]:
    """Paths on the machine that match, numbers in their natural order (``cpu2`` before ``cpu10``).

    Args:
        root: folder of the machine's files.
        pattern: absolute path whose parts may hold ``*``, for example ``/sys/class/hwmon/hwmon*/name``.
    """
    found = list(_expand(root, "", [part for part in pattern.split("/") if part]))
    return sorted(found, key=_natural)


def ranges(listed: str | None) -> tuple[int, ...]:
    """Parse the kernel's list of numbers, ``0-3,6``, as numbers; empty if it is malformed.

    >>> ranges("0-2,5")
    (0, 1, 2, 5)
    """
    numbers: set[int] = set()
    for part in (listed or "").split(","):
        match = re.fullmatch(r"\s*(\d{1,5})(?:-(\d{1,5}))?\s*", part)
        if match is None:
            return ()
        first = int(match[1])
        last = int(match[2] or match[1])
        if last - first >= _MAX_ENTRIES:
            return ()
        numbers.update(range(first, last + 1))
    return tuple(sorted(numbers))


def _expand(root: Path, prefix: str, parts: list[str]) -> Iterator[str]:
    if not parts:
        yield prefix
        return
    part, rest = parts[0], parts[1:]
    if "*" not in part:
        path = f"{prefix}/{part}"
        if exists(root, path):
            yield from _expand(root, path, rest)
        return
    try:
        with os.scandir(root / prefix.lstrip("/")) as folder:
            names = [entry.name for entry, _ in zip(folder, range(_MAX_ENTRIES), strict=False)]
    except OSError:
        return
    for name in names:
        if fnmatch.fnmatchcase(name, part):
            yield from _expand(root, f"{prefix}/{name}", rest)


def _natural(path: str) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", path) if part]
