"""Resets on demand: ``edge-runtime reset`` has a running application let states of keys begin again.

The request lies beside the state file, as ``outbox.reset``
(`edge_runtime.base.system.control_spool`), and is looked for once a second.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, TypeGuard

from edge_runtime.base.system.control_spool import Spool
from edge_runtime.clock import Clock

log = logging.getLogger(__name__)

LOOK_S: Final = 1.0
MAX_KEYS: Final = 1000
"""Keys in one request."""


def ask(state_file: Path, keys: Sequence[str], clock: Clock, timeout_s: float) -> int:
    """Have the application that owns a file of state reset keys.

    Args:
        state_file: see `edge_runtime.app.config.AppConfig.state_file`.
        keys: keys to reset, at most `MAX_KEYS`.
        clock: monotonic time of the time-out.
        timeout_s: longest time that the application may take.

    Returns:
        How many of the keys had states.

    Raises:
        StoreError: it could not be asked, or did not answer.
    """
    answer = _spool(state_file).ask_running({"keys": list(keys)}, clock, timeout_s, ", and has its model states")
    return int(answer["done"])


def are_keys(keys: object) -> TypeGuard[list[str]]:
    """Return whether what came from outside is a list of at most `MAX_KEYS` keys."""
    return isinstance(keys, list) and len(keys) <= MAX_KEYS and all(isinstance(key, str) for key in keys)


def serve(state_file: Path, reset: Callable[[Sequence[str]], int]) -> bool:
    """Do what is asked for, if anything is; to be called by the application now and then, behind a `Barrier`.

    Returns:
        Whether there was a request.
    """

    def handle(asked: dict[str, Any]) -> dict[str, Any]:
        keys = asked.get("keys")
        if not are_keys(keys):
            return {"done": 0}
        done = reset(keys)
        log.info("model: reset states: keys=%d of=%d", done, len(keys))
        return {"done": done}

    return _spool(state_file).serve(handle)


def _spool(state_file: Path) -> Spool:
    return Spool(state_file.with_suffix("").with_suffix(".reset"))
