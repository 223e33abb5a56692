"""The daily budget of uploads, kept in the outbox: what one run has spent, the next one does not spend again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from edge_runtime.answer.gate.budget import Budget
from edge_runtime.base.system.loop import Loop
from edge_runtime.errors import StoreError, StoreInUse, StoreUnusable

if TYPE_CHECKING:
    from edge_runtime.cloud.escalator import Escalator
    from edge_runtime.store.durable.outbox import Outbox

SAVE_S = 60.0
"""Seconds between two saves. A crash forgets nothing: the outbox knows how many cases it accepted since."""


class SavedBudget:
    """Reads what is left of the budget when the outbox opens, and writes it down from then on.

    Args:
        budget: what is kept.
        outbox: opened by `open`.
        escalator: goes on without the outbox while a disk fails, and writes to it.
        boot: this boot's name, see `edge_runtime.clock.boot_id`.
    """

    def __init__(self, budget: Budget, outbox: Outbox, escalator: Escalator, boot: str) -> None:
        self._budget = budget
        self._outbox = outbox
        self._escalator = escalator
        self._boot = boot
        self._known = False  # what an earlier run spent has been read, and may be written over

    def open(self) -> None:
        """Open the outbox; a disk that fails ends nothing: hard cases are counted as dropped until it can be opened.

        Raises:
            StoreError: waiting would not help: another process has the file, or it is no outbox.
        """
        try:
            self._outbox.open()
            self._restore(self._outbox.get_state("budget"))
        except (StoreInUse, StoreUnusable):
            raise
        except StoreError as error:
            self._escalator.begin_without_outbox(error)
            self._escalator.load_state("budget", self._restore)

    def start(self, loop: Loop) -> None:
        """Save now and then, as long as the loop runs."""
        self.save()
        loop.call_every(SAVE_S, self.save)

    def save(self) -> None:
        """Write down what is left."""
        if self._known:
            about = {"boot": self._boot, "accepted": self._outbox.accepted}
            self._escalator.save_state("budget", orjson.dumps(self._budget.state() | about))

    def _restore(self, saved: bytes | None) -> None:
        self._known = True
        if saved is not None:
            state = orjson.loads(saved)
            same_boot = bool(self._boot) and state.get("boot") == self._boot
            accepted = self._outbox.accepted
            unsaved = max(0, accepted - state.get("accepted", accepted))
            self._budget.restore(state, same_boot=same_boot, unsaved=unsaved)
