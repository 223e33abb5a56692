"""A disk under a sink that fails when it is told to."""

from __future__ import annotations

import errno
import os
import threading
from typing import Any


class Disk:
    """Stands in for `os` in the sink's module; writes fail when it is told to."""

    def __init__(self) -> None:
        self.room: int | None = None
        self.can_truncate = True
        self.open_error = 0
        self.sync_error: OSError | None = None
        self.synced = 0
        self.may_sync = threading.Event()
        self.may_sync.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    def open(self, *arguments: Any) -> int:
        if self.open_error:
            raise OSError(self.open_error, os.strerror(self.open_error))
        return os.open(*arguments)

    def write(self, fd: int, data: memoryview) -> int:
        if self.room is None:
            return os.write(fd, data)
        if not self.room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = os.write(fd, data[: self.room])
        self.room -= written
        return written

    def ftruncate(self, fd: int, size: int) -> None:
        if not self.can_truncate:
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        os.ftruncate(fd, size)

    def fdatasync(self, fd: int) -> None:
        self.may_sync.wait(5)
        if self.sync_error is not None:
            raise self.sync_error
        os.fdatasync(fd)
        self.synced += 1
