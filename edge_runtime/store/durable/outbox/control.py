"""Requests of a command to the application that owns an outbox: retry or drop dead letters, or empty its log.

They lie beside the database, as ``outbox.db.request`` and ``outbox.db.answer``
(`edge_runtime.base.system.control_spool`), and are looked for once a second.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Literal

from edge_runtime.base.system.control_spool import Spool
from edge_runtime.clock import Clock
from edge_runtime.errors import StoreError, StoreInUse
from edge_runtime.store.durable.config import OutboxConfig
from edge_runtime.store.durable.outbox.outbox import Outbox

log = logging.getLogger(__name__)

Action = Literal["retry", "drop", "fold"]

MAX_IDS = 1000
"""Ids in one request."""


def ask(path: Path, action: Action, ids: Sequence[str], clock: Clock, timeout_s: float) -> int:
    """Have the process that owns the outbox at `path` do something with dead letters.

    Args:
        path: the database's path.
        action: ``retry`` queues them again, ``drop`` drops them for good, ``fold`` needs none (`Outbox.fold`).
        ids: ids of dead letters, at most `MAX_IDS`.
        clock: monotonic time for the time-out.
        timeout_s: how long the owner may take.

    Returns:
        How many of the ids were dead letters.

    Raises:
        StoreError: it could not be asked, did not answer, or could not do it.
    """
    answer = _spool(path).ask_running({"action": action, "ids": list(ids)}, clock, timeout_s, ", or is it stopping")
    return int(answer["done"])


def fold(config: OutboxConfig, clock: Clock, timeout_s: float) -> None:
    """Empty the log of an outbox, or have the application do so that has it open.

    Raises:
        StoreError: it cannot be opened, or its owner did not answer.
    """
    try:
        with Outbox(config, clock) as outbox:
            outbox.fold()
    except StoreInUse:
        ask(config.path, "fold", (), clock, timeout_s)


def serve(path: Path, outbox: Outbox) -> bool:
    """Do what is asked for, if anything is; to be called by the owner now and then, behind a `Barrier`.

    Returns:
        Whether there was a request.

    Raises:
        Exception: only what is unexpected; the request is removed, so that it is not met again.
    """
    return _spool(path).serve(lambda asked: _do(asked, outbox))


@lru_cache(maxsize=1)  # the owner looks after each commit: two paths made are a tenth of its Python calls
def _spool(path: Path) -> Spool:
    return Spool(path.with_name(f"{path.name}.request"), path.with_name(f"{path.name}.answer"))


def _do(asked: dict[str, Any], outbox: Outbox) -> dict[str, Any]:
    name, action, ids = asked.get("name"), asked.get("action"), asked.get("ids")
    if (
        not (isinstance(name, str) and isinstance(ids, list) and all(isinstance(one, str) for one in ids))
        or len(ids) > MAX_IDS
    ):
        return {"error": "the request is malformed; use the command of the same version"}
    try:
        if action == "retry":
            done = outbox.requeue(ids)
        elif action == "drop":
            done = outbox.discard(ids)
        elif action == "fold":
            outbox.fold()
            done = 0
        else:
            return {"error": f"the running application does not know {str(action)[:40]!r}; update it"}
    except StoreError as error:
        return {"error": str(error)}
    log.info("outbox: %s of %d dead letters, asked for by a command", action, done)
    return {"done": done}
