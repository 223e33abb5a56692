"""Keys of a windower: bounded in number, the one silent for longest first."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final, Generic, Protocol, TypeVar

from edge_runtime.key_table import KeyTable
from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.epochs import Epochs, Given, Numbers
from edge_runtime.signal.windowing.grid import Segment
from edge_runtime.signal.windowing.ordering import Ordering

log = logging.getLogger(__name__)

_LOGGED: Final = 100
"""Steps back of clocks of which each is logged; of further ones those whose number is a power of two."""


class Numbered(Protocol):
    """Part of what is held for a key that its ids follow from."""

    numbers: Numbers
    segment: Segment | None


Held = TypeVar("Held", bound=Numbered)


class Keyed(Generic[Held]):
    """Keys with what is held for each, and what both windowers need besides.

    Args:
        contract: what a window is.
        config: run-time bounds.
        metrics: receives ``keys_evicted_total``, and what `Ordering` counts.
    """

    def __init__(
        self, contract: InputContract, config: WindowConfig | None = None, metrics: Metrics | None = None
    ) -> None:
        self._config = config or WindowConfig()
        self._metrics = metrics or Metrics()
        self._keys: KeyTable[str, Held] = KeyTable(self._config.max_keys, self._evicted)
        self._steps_back = 0
        self.epochs = Epochs(self._config.max_keys)
        """Those of keys that are not held here; the application hands them on to the next windower."""
        self._period = 1.0 / contract.rate_hz
        self._max_gap = contract.max_gap
        self._order = Ordering(contract, self._config, self._metrics)

    def __len__(self) -> int:
        """Keys held."""
        return len(self._keys)

    def _evicted(self, name: str, held: Held) -> None:
        """Count a key that left to make room, and hand on its epoch."""
        self._metrics.counts["keys_evicted_total"] += 1
        self.epochs.keep(name, held.numbers.note(held.segment))

    def given(self) -> Iterator[tuple[str, Given]]:
        """Go through all keys that are known, with the epoch and the highest number of each."""
        yield from self.epochs.kept()
        for name, key in self._keys.items():
            yield name, key.numbers.note(key.segment)

    def succeed(self, before: Keyed[Any]) -> None:
        """Take over the keys of another windower, as far as their ids go."""
        for name, given in list(before.given()):
            before.epochs.keep(name, given)
        self.epochs = before.epochs

    def _went_back(self, name: str, by_s: float) -> None:
        self._steps_back += 1
        if self._steps_back <= _LOGGED or self._steps_back & (self._steps_back - 1) == 0:
            log.warning("window: the clock of a key went back: key=%s by_s=%.3f", name, by_s)
