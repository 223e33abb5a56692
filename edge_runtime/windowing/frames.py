"""From readings that are whole pictures to windows, one each: no grid, no resampling.

1. A reading is a frame: height x width samples with all channels. Another one is dropped as ``wrong_channels``.
2. A frame with the stamp of the one answered last is dropped as ``duplicate``, an older one as ``late``. One that is
   older by more than `WindowConfig.max_jump_s` means that the clock was set back, and is answered.
3. Frames are answered at the contract's rate at most: one that comes less than (1 - snap) periods after the one
   answered last is dropped as ``frame_rate``. The period is `window` / `rate_hz`.
4. A window's slot is its stamp, in half periods since the epoch, times half of `hop`: so a frame that is delivered
   again has the same id, and two answered frames have different ones.

Counters count a picture as one sample.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable

import numpy as np

from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.types import Reading
from edge_runtime.windowing.config import WindowConfig
from edge_runtime.windowing.window import KeyState, Window


class FrameWindower:
    """Makes windows of pictures.

    Args:
        contract: what a frame is.
        config: run-time bounds; `lateness_s` and what is for joined channels say nothing here.
        metrics: receives ``samples_total``, ``windows_total``, ``keys_evicted_total``, ``clock_jumps_total``, and drops
            by reason (``late``, ``duplicate``, ``frame_rate``, ``wrong_channels``).
    """

    def __init__(
        self, contract: InputContract, config: WindowConfig | None = None, metrics: Metrics | None = None
    ) -> None:
        self._config = config or WindowConfig()
        self._metrics = metrics or Metrics()
        self._shape = (contract.window, len(contract.channels))
        self._hop = contract.hop
        period_s = contract.window / contract.rate_hz
        self._half_s = period_s / 2
        self._nearest_s = (1 - contract.snap) * period_s
        self._newest: OrderedDict[str, float] = OrderedDict()

    def __len__(self) -> int:
        """Keys held."""
        return len(self._newest)

    def push(self, readings: Iterable[Reading], received: float = 0.0) -> list[Window]:
        """Take readings in the order of arrival; return a window for each frame that is answered."""
        windows: list[Window] = []
        for key, t, values, _, columns in readings:
            self._metrics.counts["samples_total"] += 1
            if values.shape != self._shape or columns is not None:  # rule 1
                self._metrics.dropped["wrong_channels"] += 1
                self._metrics.examples["wrong_channels"] = (
                    f"key {key}: {values.shape[0]} pixels of {values.shape[1]} channels; a frame has "
                    f"{self._shape[0]} of {self._shape[1]}"
                )
                continue
            stamp = float(t[0]) if isinstance(t, np.ndarray) else t
            if refused := self._refuses(key, stamp):
                self._metrics.dropped[refused] += 1
                continue
            self._newest[key] = stamp
            slot = math.floor(stamp / self._half_s) * self._hop // 2  # rule 4
            windows.append(Window(key, slot, stamp, values, values, received))
        self._metrics.counts["windows_total"] += len(windows)
        return windows

    def _refuses(self, key: str, stamp: float) -> str:
        """Return the reason why a frame is not answered; empty if it is (rules 2 and 3)."""
        newest = self._newest.get(key)
        if newest is None:
            if len(self._newest) >= self._config.max_keys:
                self._newest.popitem(last=False)
                self._metrics.counts["keys_evicted_total"] += 1
            return ""
        self._newest.move_to_end(key)
        if stamp < newest - self._config.max_jump_s:
            self._metrics.counts["clock_jumps_total"] += 1
            return ""
        if stamp <= newest:
            return "duplicate" if stamp == newest else "late"
        return "frame_rate" if stamp < newest + self._nearest_s else ""

    def flush(self, received: float = 0.0) -> list[Window]:  # noqa: ARG002 - as the other windowers have it
        """Return nothing: no frame waits."""
        return []

    # -- over a restart ----------------------------------------------------------------------------------------------

    def state(self) -> list[KeyState]:
        """Return all that `restore` needs to go on as if nothing had happened."""
        return [KeyState(name, newest, (), None, None) for name, newest in self._newest.items()]

    def restore(self, states: Iterable[KeyState]) -> None:
        """Go on where another windower of the same contract was; the keys, the one silent for longest first."""
        self._newest = OrderedDict((state.name, state.newest) for state in states)
