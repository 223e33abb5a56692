"""A recipe held against its recordings, without training anything: what would stop a build stops here, in seconds."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from edge_export.recipe.recipe import Recipe
from edge_export.recipe.splits import read_splits
from edge_export.step_cache import Say


def verify(recipe: Recipe, folder: Path, say: Say) -> dict[str, dict[str, int]]:
    """Read, split and cut as a build does.

    Args:
        recipe: a recipe with one ``[[data]]``.
        folder: the folder of its recordings.
        say: told a line for whatever is odd about them.

    Returns:
        Windows of each class, by set.

    Raises:
        ConfigError: the recordings do not fit the recipe, or do not suffice; names the file, the group or the class.
    """
    (reader,) = recipe.data
    splits = read_splits(recipe, {reader.key: folder}, lambda _line: None)
    for note in splits.notes:
        say(note)
    return {
        name: dict(zip(recipe.classes, np.bincount(windows.y, minlength=len(recipe.classes)).tolist(), strict=True))
        for name, windows in (("train", splits.train), ("validation", splits.validation), ("test", splits.test))
    }
