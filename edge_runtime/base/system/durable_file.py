"""Files that a power cut leaves either as they were or as they should be.

Written beside the place, synced, renamed into it, and the folder synced: without the last step the rename itself may
be lost (Pillai et al. 2014, "All File Systems Are Not Created Equal", OSDI).
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

NEW = ".new"
"""Suffix of a file that is being written; whatever has it after a crash is of no use."""


def write(path: Path, data: bytes) -> None:
    """Put a file in its place, whole and on disk.

    Raises:
        OSError: it is not; what was there before still is.
    """
    beside = path.with_name(path.name + NEW)
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, data)
        os.fsync(fd)
    finally:
        os.close(fd)
    os.replace(beside, path)  # noqa: PTH105 - as the calls around it, which pathlib lacks
    sync_folder(path.parent)


def create(path: Path, data: bytes, mode: int) -> None:
    """Put a new file in its place, whole and on disk; one that is there stays as it is.

    Args:
        path: the new file's path.
        data: the file's bytes.
        mode: permissions, whatever the umask is; never wider on the way.

    Raises:
        FileExistsError: something is there.
        OSError: it cannot be written; nothing is there.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}{NEW}")
    remove(beside)  # of a process with the same number that was killed
    fd = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        write_all(fd, data)
        os.fchmod(fd, mode)
        os.fsync(fd)
        os.link(beside, path)
    finally:
        os.close(fd)
        remove(beside)
    try:
        sync_folder(path.parent)
    except OSError:
        remove(path)
        raise


def write_all(fd: int, data: bytes | bytearray | memoryview) -> None:
    """Write all of it: a nearly full disk takes a part and says so only when asked again."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def move(source: Path, target: Path) -> None:
    """Rename a file that is synced already; within one file system.

    Raises:
        OSError: it is not moved.
    """
    os.replace(source, target)  # noqa: PTH105
    sync_folder(target.parent)
    if source.parent != target.parent:
        sync_folder(source.parent)


def remove(path: Path) -> None:
    """Remove a file if it is there. Not synced: what comes back after a power cut is removed again.

    Raises:
        OSError: it is there and stays.
    """
    with suppress(FileNotFoundError):
        os.unlink(path)  # noqa: PTH108


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
