"""Accuracy by where a word lies in its window: ``python -m benchmarks.accuracy.place --data ../shared [--shift 0.1]``.

Trains the recipe spoken-digits, as it is or with another ``shift`` under ``[augmentation]`` (some minutes), and asks
its networks about words of two speakers who were not trained on: the part of a clip that holds 98 % of its energy, put
at the beginning of a silent window, at its end, and between. A device that listens cuts windows where they come.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Final

import numpy as np
from edge_export.choose.models import make_models
from edge_export.choose.selection.timing import answers
from edge_export.data.dataset import Float32, Windows
from edge_export.metrics import REFERENCE
from edge_export.recipe.recipe import load
from edge_export.recipe.splits import read_splits
from edge_export.step_cache import StepCache, code_digest

from benchmarks.accuracy.nothing import extent
from benchmarks.accuracy.sets import SETS
from benchmarks.report import Report
from edge_runtime.clock import SystemClock

PLACES: Final = {"beginning": 0.0, "a quarter": 0.25, "middle": 0.5, "three quarters": 0.75, "end": 1.0}
"""Share of the room left that lies before the word."""
HISS: Final = 1e-4
"""Standard deviation of the noise around the word; samples reach 1."""


def placed(x: Float32, share: float, seed: int = 0) -> Float32:
    """Put the word of each clip somewhere else.

    Args:
        x: (n, 1, samples) clips.
        share: of the room left, that lies before the word.
        seed: of the noise.
    """
    found: Float32 = np.random.default_rng(seed).normal(0, HISS, x.shape).astype(np.float32)
    for row, clip in zip(found, x, strict=True):
        begin, end = extent(clip.T)
        at = int((x.shape[2] - (end - begin)) * share)
        row[0, at : at + end - begin] += clip[0, begin:end]
    return found


def main() -> int:
    """Train, ask, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.place", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the shared data")
    parser.add_argument("--shift", type=float, help="largest shift in training, as a share of the window")
    parser.add_argument("--cache", type=Path, default=Path("build/place"))
    options = parser.parse_args()
    digits = SETS["spoken-digits"]
    recipe = load(digits.recipe)
    if options.shift is not None:
        augmentation = dataclasses.replace(recipe.augmentation, shift=options.shift)
        recipe = dataclasses.replace(recipe, augmentation=augmentation)
    options.cache.mkdir(parents=True, exist_ok=True)
    splits = read_splits(recipe, digits.folders(options.data, {}, options.cache), print)
    models = make_models(recipe, splits, StepCache(options.cache, {"code": code_digest()}, print, SystemClock()), print)
    device = {source.name: source for source in models.candidates.sources()}[REFERENCE]
    report = Report(f"Words by their place, shift = {recipe.augmentation.shift:g}", ("speaker, network", *PLACES))

    def row(name: str, windows: Windows) -> None:
        for network, source in (("device", device), ("teacher", models.cloud)):
            right = [answers(source, placed(windows.x, share)).argmax(axis=1) == windows.y for share in PLACES.values()]
            report.rows.append((f"{name}, {network}", *(f"{each.mean():.3f}" for each in right)))

    row("validation", splits.validation)
    row("test", splits.test)
    print(report.text())
    return 0


if __name__ == "__main__":
    main()
