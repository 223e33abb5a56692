"""Whether a path can be a store's at all: what is wrong with a configuration, told apart from a disk that fails."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from edge_runtime.errors import ConfigError


def check(path: Path, option: str) -> None:
    """Refuse a path at which no store can ever be, before anything is opened. Writes nothing.

    A disk that is full, read-only or does not answer is no reason: it may be well again when the store is opened.

    Args:
        path: of the database.
        option: its name in the configuration, for the message.

    Raises:
        ConfigError: the folder does not exist, is none, or is closed to this user; or `path` is a folder.
    """
    folder = path.parent
    try:
        if path.is_dir():
            raise ConfigError(f"{option}: {path} is a folder; name a file in it")
        if not folder.is_dir():
            raise ConfigError(f"{option}: {_missing(folder)}")
        # Asked of the folder: the lock, and SQLite's log, are made there. Root may write everywhere.
        if not os.access(folder, os.W_OK | os.X_OK) and not os.statvfs(folder).f_flag & os.ST_RDONLY:
            raise ConfigError(f"{option}: this user may not write to the folder {folder}; change its owner or its mode")
    except OSError as error:
        if error.errno in {errno.EACCES, errno.EPERM, errno.ENAMETOOLONG}:
            raise ConfigError(f"{option}: {path}: {error.strerror}; change the path, or who may enter") from error


def _missing(folder: Path) -> str:
    for parent in (folder, *folder.parents):
        if parent.exists() and not parent.is_dir():
            return f"{parent} is a file and not a folder; choose another path"
    return f"the folder {folder} does not exist; make it"
