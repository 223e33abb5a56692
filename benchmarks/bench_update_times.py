"""Ratio of times that an update's shadow run and trial find, on a stream with waits: an equal model and slower ones.

Run: ``python -m benchmarks update-times``. Windows of the demo's bundle come every 20 ms, so each live call has cold
caches. The slower model calls the same network several times. Each row is 20 runs of 40 windows: least, median and most
of the ratios, and how many runs the limit of 3 (`UpdateConfig.max_slowdown`) ends.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from edge_runtime.clock import SystemClock
from edge_runtime.model.serving.config import ModelConfig
from edge_runtime.model.serving.loading import Answers, Model, load_model
from edge_runtime.operate.update.shadow import Pair
from edge_runtime.signal.windowing.window import Window

BUNDLE: Final = Path(__file__).parents[1] / "examples/exercise-watch/watch.edge"
RUNS, WINDOWS, WAIT_S = 20, 40, 0.02
LIMIT: Final = 3.0


class Slower:
    """A model that calls another one several times."""

    def __init__(self, model: Model, times: int) -> None:
        self._model = model
        self._times = times
        self.max_batch, self.states = model.max_batch, model.states
        self.manifest, self.variant = model.manifest, model.variant

    def predict(self, windows: Sequence[Window]) -> Answers:
        """See `Predictor`."""
        for _ in range(self._times - 1):
            self._model.predict(windows)
        return self._model.predict(windows)


def ratio(model: Model, times: int, *, new_leads: bool) -> float:
    """Return the ratio that one run finds."""
    pair = Pair(
        model, Slower(model, times), agree=model.task().agree, new_leads=new_leads, clock=SystemClock(), share=1.0
    )
    contract = model.manifest.input
    shape = (contract.window, len(contract.channels))
    for i in range(WINDOWS):
        time.sleep(WAIT_S)
        samples = np.random.default_rng(i).normal(0, 1, shape).astype(np.float32)
        pair.predict([Window("k", i, 0.0, samples, samples, 0.0)])
        pair.compare()
    return pair.tally.slowdown


def main() -> None:
    """Print the table."""
    print(f"{'the new model':24}{'run':8}{'least':>7}{'median':>8}{'most':>7}   ended by the limit")
    with load_model(ModelConfig(bundle=BUNDLE, unsigned="allow")) as model:
        for times in (1, 2, 5):
            for new_leads in (False, True):
                found = [ratio(model, times, new_leads=new_leads) for _ in range(RUNS)]
                name = "the same" if times == 1 else f"{times} times slower"
                ended = sum(one > LIMIT for one in found)
                print(
                    f"{name:24}{'trial' if new_leads else 'shadow':8}{min(found):7.2f}"
                    f"{statistics.median(found):8.2f}{max(found):7.2f}   {ended} of {RUNS}"
                )


if __name__ == "__main__":
    main()
