"""A TCP socket that listens, or the reason why it cannot, and what to do about it."""

from __future__ import annotations

import errno
import os
import socket
from typing import Final

from edge_runtime.errors import ConfigError

_ADVICE: Final = {
    errno.EADDRINUSE: "another program listens there; choose another port",
    errno.EADDRNOTAVAIL: "this machine has no such address; 127.0.0.1 is for this machine alone, 0.0.0.0 for all",
    errno.EACCES: "ports below 1024 are for the administrator; choose a higher one",
}


def listen_tcp(host: str, port: int, backlog: int, setting: str) -> socket.socket:
    """Return a socket that listens, and does not block.

    Args:
        host: name or address, of either family.
        port: 0 lets the system choose.
        backlog: connections that may wait to be accepted.
        setting: name under which the address was configured, for the error.

    Raises:
        ConfigError: the address cannot be listened on.
    """
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.create_server(address, family=family, backlog=backlog)
    except OSError as error:
        raise ConfigError(f"{setting}: cannot listen on {host}:{port}: {_why(error)}") from None
    listener.setblocking(False)
    return listener


def _why(error: OSError) -> str:
    if isinstance(error, socket.gaierror) or error.errno is None:
        return str(error.strerror or error)
    return _ADVICE.get(error.errno) or os.strerror(error.errno)  # what Python says repeats the address
