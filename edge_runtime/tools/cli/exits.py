"""Exit codes of the commands that run an application."""

from __future__ import annotations

import logging
from typing import Final

log = logging.getLogger(__name__)

FAILED: Final = 1
LOST: Final = 3
"""It ended in order, and yet lost what it should not have."""

RESTART: Final = 4
"""It ended in order, to be started again."""

HELP: Final = (
    "Exit codes: 0 done; 1 failed, or not drained in time; 2 wrong use; 3 ended, but answers were dropped, or all "
    "messages, rows or a whole recording were refused, or most samples were late or had a stamp twice: the log says "
    "why; "
    "4 ended to be started again, as a command over MQTT wants."
)


def finished(*, drained: bool, lost: str, restarting: bool = False) -> int:
    """Return the exit code of a run, and log what it lost.

    Args:
        drained: everything was handed over in time.
        lost: `edge_runtime.operate.observe.drops.DropReporter.lost`.
        restarting: it is to be started again.
    """
    if lost:
        log.error("runtime: ended with losses: %s", lost)
    if not drained:
        return FAILED
    if restarting:
        return RESTART
    return LOST if lost else 0
