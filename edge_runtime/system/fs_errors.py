"""What a refusal of the file system means: a person's mistake, or a disk's trouble that may pass."""

from __future__ import annotations

import errno

NOT_THE_DISK = frozenset(
    {
        *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG),
        *(errno.EACCES, errno.EPERM),
    }
)
"""What a person has to change: a wrong path, or somebody else's file. Everything else is the disk's and may pass: no
space, a quota, I/O errors, and EROFS too, since Linux makes a failing card read-only (a unit that forbids writing there
says the same, and is told apart by nobody)."""
