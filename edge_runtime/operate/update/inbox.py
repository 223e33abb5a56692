"""Inbox of updates besides MQTT: bundles in the drop folder, and requests of ``edge-runtime update``."""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from edge_runtime import schema
from edge_runtime.base.system import durable_file
from edge_runtime.base.system.control_spool import Spool
from edge_runtime.errors import UpdateRefused
from edge_runtime.operate.update.state import UpdateState, forgiven, opened, paused, withdrawn
from edge_runtime.operate.update.update_store import UpdateStore

log = logging.getLogger(__name__)

REFUSED = ".refused"
"""Suffix that a dropped file gets which did not become an update."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request of an operator."""

    action: Literal["hold", "apply", "rollback"]
    bundle: bool = False
    """A bundle comes with it: `post` sets it."""

    def obey(self, state: UpdateState) -> UpdateState:
        """Apply it to a state."""
        apply = opened if self.bundle else forgiven
        return {"hold": paused, "apply": apply, "rollback": withdrawn}[self.action](state)


def post(store: UpdateStore, request: Request, bundle: Path | None = None) -> None:
    """Leave a request for the application, which reads it within `UpdateConfig.poll_s` or at its next start.

    Args:
        store: the update folder; read-only.
        request: what is wanted.
        bundle: goes with ``apply``.

    Raises:
        OSError: it cannot be left there.
    """
    # The request first: it forgives the bundle what was held against it, so it must not come too late.
    Spool(store.requests / f"{request.action}.json").post(replace(request, bundle=bundle is not None))
    if bundle is not None:
        with (store.requests / f"apply.edge{durable_file.NEW}").open("wb") as target, bundle.open("rb") as source:
            shutil.copyfileobj(source, target)
            target.flush()
            os.fsync(target.fileno())
        durable_file.move(store.requests / f"apply.edge{durable_file.NEW}", store.requests / "apply.edge")


def requests(store: UpdateStore) -> list[tuple[Path, Request]]:
    """Read what was asked for and not done yet, the oldest first. What cannot be read is removed."""
    found: list[tuple[int, Path, Request]] = []
    with suppress(OSError):
        for path in store.requests.glob("*.json"):
            try:
                found.append((path.stat().st_mtime_ns, path, _read(path)))
            except (OSError, ValueError) as error:
                log.error("update: removed an unreadable request: path=%s error=%s", path, error)  # noqa: TRY400 - one line, no traceback
                durable_file.remove(path)
    return [(path, request) for _, path, request in sorted(found, key=lambda one: one[:2])]


def _read(path: Path) -> Request:
    document = Spool(path).read()
    if document is None:
        raise ValueError("not a JSON object in a file that only this user can write")
    return schema.load(Request, document)


class DropFolder:
    """A folder that people and programs put bundles into.

    A file counts when it has not changed from one look to the next; rename it into the folder, and it counts soonest.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: dict[Path, tuple[int, int]] = {}

    def poll(self) -> Path | None:
        """Find the first file that is ready to be taken, by name."""
        seen: dict[Path, tuple[int, int]] = {}
        ready = None
        with suppress(OSError):
            for path in sorted(self.folder.glob("*.edge")):
                status = path.stat()
                seen[path] = (status.st_size, status.st_mtime_ns)
                if ready is None and self._seen.get(path) == seen[path] and path.is_file():
                    ready = path
        self._seen = seen
        return ready


def copy_in(path: Path, store: UpdateStore, max_bytes: int) -> str:
    """Copy a dropped file to where fetched ones lie; no other user can change it there.

    Returns:
        Its SHA-256.

    Raises:
        UpdateRefused: it is too large.
        OSError: it cannot be read or written.
    """
    digest = hashlib.sha256()
    part = store.incoming / "dropped"
    copied = 0
    with path.open("rb") as source, part.open("wb") as target:
        while block := source.read(2**20):
            copied += len(block)
            if copied > max_bytes:
                raise UpdateRefused("too_large", f"{path.name} has more than update.max_bytes ({max_bytes})")
            digest.update(block)
            target.write(block)
        target.flush()
        os.fsync(target.fileno())
    durable_file.move(part, store.part(digest.hexdigest()))
    return digest.hexdigest()


def set_aside(path: Path) -> None:
    """Rename a dropped file that did not become an update, so that it is not taken again."""
    try:
        os.replace(path, path.with_name(path.name + REFUSED))  # noqa: PTH105 - as the other calls here
    except OSError as error:
        log.error("update: could not rename a refused file: path=%s error=%s", path, error.strerror)  # noqa: TRY400
