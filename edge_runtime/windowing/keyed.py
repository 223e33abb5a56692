"""Keys of a windower: bounded in number, the one silent for longest first."""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.windowing.config import WindowConfig
from edge_runtime.windowing.ordering import Ordering

Held = TypeVar("Held")


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
        self._keys: OrderedDict[str, Held] = OrderedDict()
        self._period = 1.0 / contract.rate_hz
        self._max_gap = contract.max_gap
        self._order = Ordering(contract, self._config, self._metrics)

    def __len__(self) -> int:
        """Keys held."""
        return len(self._keys)

    def _evict(self) -> Held | None:
        """Make room for another key; return what was held for the one that leaves."""
        if len(self._keys) < self._config.max_keys:
            return None
        self._metrics.counts["keys_evicted_total"] += 1
        return self._keys.popitem(last=False)[1]
