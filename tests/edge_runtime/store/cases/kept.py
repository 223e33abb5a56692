"""A contract, cases that fit it, and the order in which drawn windows count."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import numpy as np

from edge_runtime.manifest import Channel
from edge_runtime.store.cases.case import Case, Contract

T = TypeVar("T")
CONTRACT = Contract("watch/1", 50.0, (Channel(name="ax", unit="g"), Channel(name="ay", unit="g")), ("walk", "sit"))


def case(at: int, key: str = "a", *, samples: int = 100, kept: float = 0.0) -> Case:
    values = np.random.default_rng(at).normal(size=(samples, 2)).astype(np.float32)
    return Case(f"{key}@{at}", key, float(at), kept, "hard", CONTRACT, values, {"label": "sit", "confidence": 0.4})


def in_order(windows: Iterable[tuple[str, int, T]]) -> list[tuple[str, int, T]]:
    """Sort windows, each a key, its number and anything, into the order in which they count."""
    turns: dict[str, int] = {}
    found = []
    for key, number, what in sorted(windows, key=lambda one: one[1]):
        turns[key] = turns.get(key, 0) + 1
        found.append((turns[key], number, (key, number, what)))
    return [one for _, _, one in sorted(found, key=lambda one: one[:2])]
