"""A recipe held against its recordings, without training anything: what would stop a build stops here, in seconds."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np

from export.check_data import FEWEST, check_units, check_windows
from export.labels import clip, label_windows
from export.readers import read
from export.recipe import Recipe
from export.split import split


def verify(recipe: Recipe, folder: Path) -> dict[str, dict[str, int]]:
    """Read, split and cut as a build does.

    Args:
        recipe: with one ``[[data]]``.
        folder: where its recordings lie.

    Returns:
        Windows of each class, by set.

    Raises:
        ConfigError: the recordings do not fit the recipe, or do not suffice; names the file, the group or the class.
    """
    (reader,) = recipe.data
    rate_hz = recipe.window.source_rate_hz or recipe.window.rate_hz
    whole = read(reader, folder, channels=recipe.window.channels, classes=recipe.classes, rate_hz=rate_hz)
    parts = split(whole, recipe.split, seed=recipe.seed)
    counts: dict[str, dict[str, int]] = {}
    trained = None
    for name in ("train", "validation", "test"):
        part = getattr(parts, name)
        if recipe.window.clip_s:
            samples = round(recipe.window.clip_s * rate_hz)
            part = replace(part, recordings=tuple(clip(each, samples) for each in part.recordings))
        windows = label_windows(part, recipe.window.contract(), rule=recipe.window.label, purity=recipe.window.purity)
        check_windows(windows, recipe.classes, what=name, fewest=FEWEST if name == "train" else 1)
        trained = windows if trained is None else trained
        check_units(trained.x, windows.x, whole.channels, what=name)
        found = np.bincount(windows.y, minlength=len(recipe.classes)).tolist()
        counts[name] = dict(zip(recipe.classes, found, strict=True))
    return counts
