"""The update folder: state, bundles by their digest, what is being fetched, and what an operator asked for.

``state``, ``state.before``   what is known, and what was known before that (the second copy is for a damaged first)
``keys``                      sets of trusted keys that replaced those of the configuration
``bundles/SHA256.edge``       installed; nothing is changed in place
``incoming/``                 what is being fetched
``requests/``                 what ``edge-runtime update`` asked for
``lock``                      held by the application that runs
"""

from __future__ import annotations

import fcntl
import logging
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from edge_runtime.base.system import durable_file
from edge_runtime.errors import ConfigError, StoreCorrupt, StoreError
from edge_runtime.operate.update.state import Installed, UpdateState, dump, parse, stamped

log = logging.getLogger(__name__)

_MAX_STATE_BYTES = 2**20


class UpdateStore:
    """Reads and writes the update folder. One process writes; anybody may read.

    Args:
        folder: made if its parent is there.
        wall: seconds since 1970, for the time of an outcome; 0 where none is to be had.
        read_only: look at it and change nothing.

    Raises:
        ConfigError: another application uses it.
        StoreError: it cannot be used.
    """

    def __init__(self, folder: Path, wall: Callable[[], float] = lambda: 0.0, *, read_only: bool = False) -> None:
        self.folder = folder
        self._wall = wall
        self.bundles = folder / "bundles"
        self.incoming = folder / "incoming"
        self.requests = folder / "requests"
        self.damaged = False
        """The state was beyond repair, and a new one has been started."""
        self._lock = -1
        self._writing = threading.Lock()
        self._read_only = read_only
        if not read_only:
            self._take()
        try:
            self.state = self._load()
        except StoreError:
            self.close()
            raise

    def close(self) -> None:
        """Let another process have it. May be called twice."""
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def change(self, step: Callable[[UpdateState], UpdateState]) -> UpdateState:
        """Take one step, durably; to be called before acting on it. From any thread.

        Returns:
            The state after it.

        Raises:
            StoreError: it is not written (the disk is full, or read-only), and the state before still counts.
        """
        with self._writing:
            state = stamped(step(self.state), self._wall())
            if state != self.state:
                self._save(state)
            return state

    def _save(self, state: UpdateState) -> None:
        path = self.folder / "state"
        try:
            # The rename of the old one comes first. Between the two there is no "state", and the one before counts:
            # this write has not happened yet.
            fresh = path.with_name("state.next")
            durable_file.write(fresh, dump(state))
            if path.exists() and _readable(path):
                os.replace(path, path.with_name("state.before"))  # noqa: PTH105 - synced with the next one
            durable_file.move(fresh, path)
        except OSError as error:
            raise StoreError(f"update state {path}: cannot be written: {error.strerror}; make room for it") from error
        self.state = state

    def path(self, sha256: str) -> Path:
        """Return where an installed bundle lies."""
        return self.bundles / f"{sha256}.edge"

    def part(self, sha256: str) -> Path:
        """Return where a bundle grows while it is fetched."""
        return self.incoming / f"{sha256}.part"

    def adopt(self, sha256: str) -> Path:
        """Install a fetched file whose digest was found right. It is synced already.

        Raises:
            StoreError: it cannot be moved.
        """
        try:
            durable_file.move(self.part(sha256), self.path(sha256))
        except OSError as error:
            raise StoreError(f"update folder {self.folder}: cannot be written: {error.strerror}") from error
        return self.path(sha256)

    def tidy(self) -> None:
        """Remove bundles that neither the state nor its predecessor names, and left-overs of writing."""
        states = [self.state]
        with suppress(OSError, StoreCorrupt):
            states.append(parse((self.folder / "state.before").read_bytes()))
        kept: set[str] = set()
        for state in states:
            named = (state.running, state.previous, state.candidate)
            kept |= {one.sha256 for one in named if isinstance(one, Installed)}
        try:
            for path in self.bundles.iterdir():
                if path.name.partition(".")[0] not in kept:  # what others keep beside a bundle goes with it
                    durable_file.remove(path)
            for path in self.folder.glob(f"*{durable_file.NEW}"):
                durable_file.remove(path)
        except OSError as error:
            log.warning("update: could not tidy the folder: path=%s error=%s", self.folder, error.strerror)

    def forget_parts(self, keep: str = "") -> None:
        """Remove what was fetched in part, but for one."""
        with suppress(OSError):
            for path in self.incoming.iterdir():
                if path != self.part(keep):
                    durable_file.remove(path)

    def _take(self) -> None:
        try:
            self.folder.mkdir(exist_ok=True, mode=0o700)
            for folder in (self.bundles, self.incoming, self.requests):
                folder.mkdir(exist_ok=True, mode=0o700)
            self._lock = os.open(self.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            self.close()
            raise ConfigError(f"update.folder {self.folder}: another application uses it; give each its own") from error
        except OSError as error:
            self.close()
            raise StoreError(f"update.folder {self.folder}: cannot be used: {error.strerror}") from error

    def _load(self) -> UpdateState:
        found = False
        # A first one that is not there may be in the middle of being replaced; see `save`.
        for name in ("state", "state.before"):
            path = self.folder / name
            try:
                with path.open("rb") as file:
                    data = file.read(_MAX_STATE_BYTES)
                found = True
                return parse(data)
            except FileNotFoundError:
                continue
            except OSError as error:
                raise StoreError(f"update state {path}: cannot be read: {error.strerror}") from error
            except StoreCorrupt as error:
                log.error("update: could not read the state: path=%s error=%s", path, error)  # noqa: TRY400 - one line, no traceback
                if not self._read_only:
                    self._set_aside(path)
        self.damaged = found
        return UpdateState()

    def _set_aside(self, path: Path) -> None:
        aside = path.with_name(path.name + ".damaged")
        try:
            os.replace(path, aside)  # noqa: PTH105
        except OSError as error:
            raise StoreError(f"update state {path}: is damaged and cannot be moved: {error.strerror}") from error
        log.error("update: moved a damaged state aside: path=%s to=%s", path, aside.name)


def _readable(path: Path) -> bool:
    try:
        parse(path.read_bytes())
    except (OSError, StoreCorrupt):
        return False
    return True
