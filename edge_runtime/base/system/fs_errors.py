"""Meaning of file system errors: a person's mistake, or a failing disk, which may pass."""

from __future__ import annotations

import errno

NOT_THE_DISK = frozenset(
    {
        *(errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG),
        *(errno.EACCES, errno.EPERM),
    }
)
"""Errors that a person has to mend: a wrong path, or another user's file. All others are the disk's and may pass: no
space, a quota, I/O errors, and EROFS too, since Linux makes a failing card read-only (a unit that forbids writing there
gives the same error)."""
