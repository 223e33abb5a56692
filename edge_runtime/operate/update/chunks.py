"""File joined from MQTT messages: part ``i`` on ``TOPIC/i``, in any order, each as often as it likes.

What arrived is kept in memory alone: after a restart all parts are needed again, which retained ones are.
"""

from __future__ import annotations

import os
from pathlib import Path

from edge_runtime.base.system import durable_file
from edge_runtime.errors import UpdateRefused
from edge_runtime.operate.update.announcement import Announcement


class Chunks:
    """One file that is being joined.

    Args:
        announcement: size and chunk size, and the topic.
        part: the file; overwritten.

    Raises:
        OSError: it cannot be written.
    """

    def __init__(self, announcement: Announcement, part: Path) -> None:
        self._size = announcement.size
        self._chunk = announcement.chunk_bytes
        self._prefix = announcement.chunks.encode() + b"/"
        count = -(-self._size // self._chunk)
        self._missing = set(range(count))
        self._fd = os.open(part, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)

    @property
    def missing(self) -> int:
        """Number of parts that are not here yet."""
        return len(self._missing)

    @property
    def have(self) -> int:
        """Bytes that are here, give or take the last part."""
        return max(0, self._size - self.missing * self._chunk)

    def add(self, topic: bytes, payload: bytes) -> bool:
        """Add one part.

        Returns:
            Whether the file is whole now, and on disk.

        Raises:
            UpdateRefused: it is no part of this file.
            OSError: it cannot be written.
        """
        number = topic.removeprefix(self._prefix)
        if not topic.startswith(self._prefix) or not number.isdigit() or len(number) > 8:
            raise UpdateRefused("chunk", f"{topic.decode(errors='replace')[:200]!r} is not the topic of a chunk")
        index = int(number)
        offset = index * self._chunk
        expected = min(self._chunk, self._size - offset)
        if expected <= 0 or len(payload) != expected:
            raise UpdateRefused("chunk", f"chunk {index} has {len(payload)} bytes, {max(0, expected)} are expected")
        if index not in self._missing:
            return False
        os.lseek(self._fd, offset, os.SEEK_SET)
        durable_file.write_all(self._fd, payload)
        self._missing.discard(index)
        if self._missing:
            return False
        os.fsync(self._fd)
        return True

    def close(self) -> None:
        """Close the file. May be called twice."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1
