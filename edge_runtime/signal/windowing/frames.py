"""From readings that are whole pictures to windows, one each: no grid, no resampling.

1. A reading is a frame: height x width samples with all channels. Another one is dropped as ``wrong_channels``.
2. A frame with the stamp of one of those answered last is dropped as ``duplicate``, another older one as ``late``. Two
   late ones, one after the other and in order, or one that is older by more than `WindowConfig.max_jump_s`, mean that
   the clock was set back; the last of them is answered.
3. Frames are answered at the contract's rate at most: one that comes less than (1 - snap) periods after the one
   answered last is dropped as ``frame_rate``. The period is `window` / `rate_hz`.
4. A window's slot is its stamp, in half periods since 1970, times half of `hop`: so a frame that is delivered again has
   the same id, and two answered frames have different ones; after a step back by
   `edge_runtime.signal.windowing.epochs`.

Counters count a picture as one sample.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from typing import Final

import numpy as np

from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.signal.windowing.config import WindowConfig
from edge_runtime.signal.windowing.epochs import Numbers
from edge_runtime.signal.windowing.grid import Segment
from edge_runtime.signal.windowing.keyed import Keyed
from edge_runtime.signal.windowing.ordering import Block
from edge_runtime.signal.windowing.window import KeyState, Window, settled
from edge_runtime.types import Reading

_ANSWERED: Final = 32
"""Stamps of frames that are remembered: more than a broker sends before it waits for acknowledgements."""


class _Frames:
    """All that is held for one key.

    Args:
        numbers: the numbers of its windows.
    """

    __slots__ = ("answered", "late", "newest", "numbers", "segment")

    def __init__(self, numbers: Numbers) -> None:
        self.numbers = numbers
        self.segment: Segment | None = None
        self.newest = -math.inf
        """Stamp of the frame answered last."""
        self.late = math.inf
        """Stamp of the frame before, if it was late."""
        self.answered: deque[float] = deque(maxlen=_ANSWERED)
        """Stamps of frames answered last."""


class FrameWindower(Keyed[_Frames]):
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
        super().__init__(contract, config, metrics)
        self._shape = (contract.window, len(contract.channels))
        self._hop = contract.hop
        period_s = contract.window / contract.rate_hz
        self._half_s = period_s / 2
        self._nearest_s = (1 - contract.snap) * period_s

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
            frames = self._keys.touch(key) or self._new_key(key)
            if refused := self._refuses(key, frames, stamp):
                self._metrics.dropped[refused] += 1
                continue
            frames.newest = stamp
            frames.answered.append(stamp)
            slot = math.floor(stamp / self._half_s) * self._hop // 2  # rule 4
            epoch = frames.numbers.number(slot)
            frames.numbers.highest = slot
            windows.append(Window(key, slot, stamp, values, values, received, epoch))
        self._metrics.counts["windows_total"] += len(windows)
        return settled(windows, self.epochs, self._keys) if self.epochs.claims else windows

    def _new_key(self, key: str) -> _Frames:
        return self._keys.get_or_make(key, lambda: _Frames(Numbers(self.epochs.pop(key), self._hop)))

    def _refuses(self, key: str, frames: _Frames, stamp: float) -> str:
        """Return the reason why a frame is not answered; empty if it is (rules 2 and 3)."""
        newest, before, frames.late = frames.newest, frames.late, math.inf
        if stamp > newest:
            return "frame_rate" if stamp < newest + self._nearest_s else ""
        if stamp in frames.answered:
            frames.late = before
            return "duplicate"
        if stamp < newest - self._config.max_jump_s or before < stamp:
            self._metrics.counts["clock_jumps_total"] += 1
            self._went_back(key, newest - stamp)
            return ""
        frames.late = stamp
        return "late"

    def flush(self, received: float = 0.0) -> list[Window]:  # noqa: ARG002 - as the other windowers have it
        """Return nothing: no frame waits."""
        return []

    # -- over a restart ----------------------------------------------------------------------------------------------

    def state(self) -> list[KeyState]:
        """Return all that `restore` needs to go on as if nothing had happened."""
        return [
            KeyState(name, one.newest, [self._stamps(one.answered)], late, None, given=one.numbers.note(None))
            for name, one in self._keys.items()
            for late in [self._stamps([one.late]) if one.late < math.inf else None]
        ]

    def restore(self, states: Iterable[KeyState]) -> None:
        """Go on where another windower of the same contract was; the keys, the one silent for longest first."""
        self._keys.clear()
        for state in states:
            frames = self._keys[state.name] = _Frames(Numbers(state.given, self._hop))
            frames.newest = state.newest
            frames.answered.extend(state.pending[0][0].tolist() if state.pending else [state.newest])
            if state.suspect is not None:
                frames.late = float(state.suspect[0][0])

    def _stamps(self, stamps: Iterable[float]) -> Block:
        """Return stamps as the samples that wait are saved, without values."""
        times = np.array(list(stamps), np.float64)
        return times, np.zeros((len(times), self._shape[1]), np.float32)
