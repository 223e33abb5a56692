"""States of a model, as durability sees them: what is kept over a stop, and what could not be restored."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from edge_runtime.signal.windowing.window import Window


class Resets(NamedTuple):
    """Keys whose states of a model could not be restored."""

    reason: str
    """As in ``state_resets_total``."""
    keys: int
    why: str
    """For people."""


class ModelStates(Protocol):
    """States of keys that each window moves: `edge_runtime.model.serving.states.StateStore`."""

    def hold(self, windows: Sequence[Window], *, begins: bool = False) -> None:
        """Keep the states before these windows until `release`; `begins`: their keys begin with the first of them."""
        ...

    def release(self, windows: Sequence[Window]) -> None:
        """Keep the states before these windows no longer."""
        ...

    def save(self, *, whole: bool) -> bytes:
        """Return the states of keys, before their first window that is held; not `whole`: of these keys alone."""
        ...

    def restore(self, data: bytes | None) -> Resets | None:
        """Take what `save` gave, None if there is nothing; returns keys that begin again for it, not counted."""
        ...
