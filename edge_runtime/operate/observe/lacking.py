"""Channels that keep a joined key from a window: those that never came, stopped, or have another clock."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

from edge_runtime.manifest import InputContract
from edge_runtime.operate.observe.clocks import in_words
from edge_runtime.signal.windowing.window import KeyState

STOPPED_S: Final = 10.0
"""Time by which a channel's newest sample is older than its key's, from which it is said to have stopped."""


def lacking(state: KeyState, contract: InputContract) -> str:
    """Describe the channels that a key lacks: ``key w1 never got gx, gy``; empty where it lacks none."""
    found = []
    never = [column for part in state.parts if part.newest == -math.inf and not part.apart for column in part.columns]
    if never:
        found.append(f"never got {_names(sorted(never), contract)}")
    for part in state.parts:
        if part.apart:
            offset_s = float(part.apart[-1][0][-1]) - state.newest
            found.append(f"got {_names(part.columns, contract)} from a clock {in_words(offset_s)} the others")
        elif -math.inf < part.newest < state.newest - max(STOPPED_S, contract.max_gap):
            found.append(f"last got {_names(part.columns, contract)} {in_words(part.newest - state.newest)} the others")
    return f"key {state.name} {', '.join(found)}" if found else ""


def _names(columns: Sequence[int], contract: InputContract) -> str:
    return ", ".join(contract.channels[column].name for column in columns)
