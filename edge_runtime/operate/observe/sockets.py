"""Sockets on which an application is asked: bound at its start, before anything that answers on them is loaded."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from pathlib import Path
from typing import Final

from edge_runtime.base.system import tcp
from edge_runtime.errors import ConfigError
from edge_runtime.operate.observe.config import address_of

_MAX_PATH_BYTES: Final = 107
"""Longest path of a Unix socket (unix(7): sun_path is 108 bytes with its end)."""


def listen_unix(path: Path) -> socket.socket:
    """Listen on a Unix socket that its owner alone may use.

    Raises:
        ConfigError: another application listens there, it is another kind of file, or the path is too long.
    """
    if len(os.fsencode(path)) > _MAX_PATH_BYTES:
        raise ConfigError(
            f"observe.socket: the path has more than {_MAX_PATH_BYTES} bytes, which no Unix socket may have; name a "
            "shorter one"
        )
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        _remove_dead(path)
        os.fchmod(listener.fileno(), 0o600)  # Linux takes it over to the file; unix(7)
        listener.bind(str(path))
        path.chmod(0o600)
        listener.listen(16)
        listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise ConfigError(f"observe.socket: cannot listen on {path}: {error.strerror}") from None
    except ConfigError:
        listener.close()
        raise
    return listener


def _remove_dead(path: Path) -> None:
    """Remove the socket of an application that is gone.

    Raises:
        ConfigError: an application listens there, or it is no socket.
    """
    try:
        mode = path.lstat().st_mode
    except FileNotFoundError:
        return
    if not stat.S_ISSOCK(mode):
        raise ConfigError(f"observe.socket: {path} is no socket; remove it, or name another path")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(str(path))
        except OSError as error:
            if error.errno not in {errno.ECONNREFUSED, errno.ENOENT}:
                raise
        else:
            raise ConfigError(f"observe.socket: another application listens on {path}; name another path")
    with contextlib.suppress(FileNotFoundError):
        path.unlink()


def listen_tcp(listen: str) -> socket.socket:
    """Listen on ``host:port``.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    return tcp.listen_tcp(*address_of(listen), 64, "observe.listen")
