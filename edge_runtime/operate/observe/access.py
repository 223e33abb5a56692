"""Access to a running application: each path, and what a caller needs for it. docs/SECURITY.md shows this table.

1. Over the Unix socket the application's own user and root may ask for everything: its mode is 0600, and the user id of
   the peer is checked (`edge_runtime.operate.serving.front`).
2. Over TCP the holder of the token may. An address of this machine is no permission: other users share it.
3. Where no ``token_file`` is named, a token is made once and kept beside the state, mode 0600; without a state folder
   it lasts for this run. Its link is logged at the start, with the token behind ``#``, which no browser sends on.
4. The page's files are open to all callers: they hold nothing of the application.
5. `FIGURES` are open where the token was made, for what scrapes and shows figures on this machine.
6. All else needs the token: what changes something, samples, kept cases, what a candidate says. So does a path without
   a row, and the site refuses to start with one.
"""

from __future__ import annotations

import logging
import os
import secrets
import stat
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from edge_runtime.base.system import durable_file
from edge_runtime.base.system.secrets import Secret, SecretFile
from edge_runtime.errors import ConfigError
from edge_runtime.operate.observe.config import ObserveConfig

log = logging.getLogger(__name__)

FIGURES: Final = frozenset({"metrics", "api/report", "api/stream"})
GUARDED: Final = frozenset(
    {
        *("api/key", "api/explain", "api/reset"),
        *("api/cases", "api/cases/one", "api/cases/export", "api/cases/label", "api/cases/erase"),
    }
)
_WHAT: Final = "observe.token_file"


@dataclass(frozen=True, slots=True)
class Guard:
    """Token of a TCP address, and whether it was made here (rule 3)."""

    token: Secret
    path: Path | None = None
    """File of a token that was made; None where one was named, or it is in no file."""
    made: bool = False

    def opens(self, path: str) -> bool:
        """Return whether a path may be asked for without the token (rules 5 and 6)."""
        return self.made and path in FIGURES

    def advice(self) -> str:
        """Describe where the token is, for a caller without it."""
        if not self.made:
            return "; it is the line in the file that token_file under [observe] names"
        kept = f", and keeps it in {self.path}" if self.path else ""
        return f"; the application logged a link with its token at its start{kept}: send Authorization: Bearer TOKEN"

    def link(self, address: tuple[str, int]) -> str:
        """Return the page's link with its token."""
        return f"{url_of(address)}#token={self.token.value()}"


def url_of(address: tuple[str, int]) -> str:
    """Return the URL of an address that is listened on."""
    host, port = address
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def guard_of(config: ObserveConfig, socket_path: Path | None) -> Guard | None:
    """Read the token of the configuration, or make one (rule 3); None where no address is listened on.

    Args:
        config: settings of the address and its token.
        socket_path: Unix socket beside which a made token is kept; None keeps it in memory.

    Raises:
        ConfigError: the token file cannot be read.
    """
    if not config.listen:
        return None
    if config.token_file is not None:
        return Guard(SecretFile(config.token_file, _WHAT))
    if socket_path is not None:
        path = socket_path.absolute().with_suffix(".page-token")
        try:
            return Guard(_kept(path), path, made=True)
        except OSError as error:
            log.warning("observe: kept the token of this run in no file: path=%s error=%s", path, error.strerror)
    return Guard(Secret(secrets.token_urlsafe(18)), made=True)


def _kept(path: Path) -> SecretFile:
    """Return the token in a file that only this user can have read or written; any other file is replaced."""
    with suppress(FileNotFoundError, ConfigError):
        status = path.lstat()
        private = stat.S_ISREG(status.st_mode) and not status.st_mode & 0o077
        if private and status.st_uid == os.geteuid() and status.st_size:
            return SecretFile(path, _WHAT)
    durable_file.remove(path)
    durable_file.create(path, secrets.token_urlsafe(18).encode() + b"\n", 0o600)
    return SecretFile(path, _WHAT)
