"""How a command reaches the outbox of a running application: a file beside it, looked at once a second.

::

    outbox.db.request    what an operator wants; made complete by one link(), so never seen half-written
    outbox.db.answer     what was done

No socket is opened for it, and nobody may ask for more than they could do themselves: whoever can make a file of the
runtime's own user in the outbox's folder can also replace the outbox.
"""

from __future__ import annotations

import contextlib
import logging
import os
import stat
import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

import orjson

from edge_runtime.clock import Clock
from edge_runtime.durable.outbox.outbox import Outbox
from edge_runtime.errors import StoreError

log = logging.getLogger(__name__)

Action = Literal["retry", "drop"]

MAX_IDS = 1000
"""Ids in one request."""
_MAX_BYTES = 4 * 2**20
_LOOK_S = 0.05


def ask(path: Path, action: Action, ids: Sequence[str], clock: Clock, timeout_s: float) -> int:
    """Have the process that owns the outbox at `path` do something with dead letters.

    Args:
        path: of the database.
        action: ``retry`` queues them again, ``drop`` drops them for good.
        ids: at most `MAX_IDS`.
        clock: for the time-out.
        timeout_s: how long the owner may take.

    Returns:
        How many of the ids were dead letters.

    Raises:
        StoreError: it could not be asked, did not answer, or could not do it.
    """
    name = uuid.uuid4().hex
    request, answer = _request(path), _answer(path)
    own = path.with_name(f"{path.name}.{name}")
    try:
        _write(own, {"name": name, "action": action, "ids": list(ids)})
        try:
            os.link(own, request)
        except FileExistsError:
            raise StoreError(
                f"another command waits for the owner of the outbox already ({request}); try again"
            ) from None
        finally:
            own.unlink()
        give_up = clock.monotonic() + timeout_s
        while clock.monotonic() < give_up:
            found = _read(answer)
            if found is not None and found.get("name") == name:
                answer.unlink(missing_ok=True)
                if error := found.get("error"):
                    raise StoreError(str(error))
                return int(found["done"])
            clock.sleep(_LOOK_S)
        request.unlink(missing_ok=True)
    except OSError as error:
        raise StoreError(f"cannot ask the owner of the outbox {path}: {error.strerror}; check permissions") from error
    raise StoreError(f"the process that owns the outbox {path} did not answer within {timeout_s:g} s; is it stopping?")


def serve(path: Path, outbox: Outbox) -> bool:
    """Do what is asked for, if anything is; to be called by the owner now and then, behind a `Barrier`.

    Returns:
        Whether there was a request.

    Raises:
        Exception: only what nobody thought of; the request is removed, so that it is not met again.
    """
    request = _request(path)
    try:
        if not os.path.lexists(request):  # one stat, no more, when nobody asks
            return False
        asked = _read(request)
        if asked is None:
            log.warning("outbox: %s is not a request of this user's own, and is removed", request)
        else:
            _write_over(_answer(path), _do(asked, outbox))
        request.unlink(missing_ok=True)
    except OSError as error:
        log.warning("outbox: the request of a command could not be answered: %s", error.strerror)
        with contextlib.suppress(OSError):
            request.unlink(missing_ok=True)
    except Exception:
        request.unlink(missing_ok=True)
        raise
    return True


def _do(asked: dict[str, Any], outbox: Outbox) -> dict[str, Any]:
    name, action, ids = asked.get("name"), asked.get("action"), asked.get("ids")
    if (
        not (isinstance(name, str) and isinstance(ids, list) and all(isinstance(one, str) for one in ids))
        or len(ids) > MAX_IDS
    ):
        return {"name": name, "error": "the request is malformed; use the command of the same version"}
    try:
        if action == "retry":
            done = outbox.revive(ids)
        elif action == "drop":
            done = outbox.discard(ids)
        else:
            return {"name": name, "error": f"the running application does not know {str(action)[:40]!r}; update it"}
    except StoreError as error:
        return {"name": name, "error": str(error)}
    log.info("outbox: %s of %d dead letters, asked for by a command", action, done)
    return {"name": name, "done": done}


def _request(path: Path) -> Path:
    return path.with_name(path.name + ".request")


def _answer(path: Path) -> Path:
    return path.with_name(path.name + ".answer")


def _read(path: Path) -> dict[str, Any] | None:
    """An object in a plain file that this user, and nobody else, could have written; None otherwise."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor
        status = os.fstat(descriptor)
        others_write = status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid() or others_write:
            return None
        data = file.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        return None
    try:
        document = orjson.loads(data)
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) else None


def _write(path: Path, document: dict[str, Any]) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    with open(descriptor, "wb") as file:  # noqa: PTH123 - a descriptor
        file.write(orjson.dumps(document))


def _write_over(path: Path, document: dict[str, Any]) -> None:
    own = path.with_name(f"{path.name}.new")
    own.unlink(missing_ok=True)  # of a crash
    _write(own, document)
    own.replace(path)
