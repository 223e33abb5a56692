"""Checks of a store's path: what is wrong with a configuration or with permissions, told apart from a failing disk."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from edge_runtime.errors import ConfigError, StoreUnusable

_BESIDE = ("", "-wal", "-shm", "-journal", ".lock", ".rebuilt")


def check(path: Path, option: str) -> None:
    """Refuse a path at which no store can ever be, before anything is opened. Writes nothing.

    A disk that is full, read-only or does not answer is no reason: it may be well again when the store is opened.

    Args:
        path: the database's path.
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


def refuse_foreign(path: Path) -> None:
    """Refuse a store that another user has made, or could write to: its contents may not be ours.

    Looks at the database and at what SQLite and the runtime keep beside it. Writes nothing.

    Args:
        path: the database's path.

    Raises:
        StoreUnusable: a file belongs to another user, or group or others may write to it.
        OSError: the disk fails.
    """
    for suffix in _BESIDE:
        file = path.with_name(path.name + suffix)
        try:
            status = file.stat()
        except FileNotFoundError:
            continue
        me = os.geteuid()
        if status.st_uid != me:
            raise StoreUnusable(
                f"{file} belongs to user {status.st_uid}, and this is user {me}; remove it, or give it to this user "
                "(chown) if you know what it holds"
            )
        if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
            raise StoreUnusable(
                f"{file} may be written by others (mode {stat.S_IMODE(status.st_mode):04o}); remove it, or take that "
                "right away (chmod 600) if you know what it holds"
            )


def is_removed(path: Path, identity: tuple[int, int] | None) -> bool:
    """Return whether the file that was opened at `path` is not there any more.

    Args:
        path: the database's path.
        identity: the file's identity when it was opened (`identity_of`); None: it was not opened.
    """
    return identity is not None and identity_of(path) not in {identity, None}


def identity_of(path: Path) -> tuple[int, int] | None:
    """Device and inode; (0, 0) where there is no file, None where the disk does not say."""
    try:
        status = path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return 0, 0
    except OSError:
        return None
    return status.st_dev, status.st_ino
