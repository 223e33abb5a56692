"""Copies of windows that a device could ask its network about once more: earlier by some samples, or varied a little.

1. *Earlier*: the window that ended some samples before. Its samples are there, so nothing waits. Where the recording
   had not begun yet, the copy is missing.
2. *Varied*: turned, louder or softer, and with noise, as the recipe varies windows in training. A copy's rotation and
   gain are the same for all windows; only noise is drawn for each.
3. *Mirrored*: the other wrist, where the recipe has factors for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from edge_export.data.dataset import Dataset, Float32, Windows
from edge_export.learn.augment.sampling import rotations
from edge_export.recipe.augmentation import Augmentation
from edge_export.recipe.recipe import Recipe

from edge_runtime.errors import ConfigError

Bools = npt.NDArray[np.bool_]

STEPS = (0.02, 0.05, 0.1)
"""Shares of a window from a copy to the one before it."""
EARLIER = 4
"""Copies of each step at most."""
STRENGTHS = (0.5, 1.0)
"""Of the recipe's variation."""
VARIED = 4
"""Copies of each strength at most."""
MIRRORED = "mirrored"


def earlier(samples: int) -> dict[str, int]:
    """Name the copies of a window, and say how many samples earlier each one is.

    >>> earlier(100)["earlier 5 x 2"]
    10
    """
    steps = sorted({max(1, round(share * samples)) for share in STEPS})
    return {f"earlier {step} x {count}": step * count for step in steps for count in range(1, EARLIER + 1)}


def with_history(recipe: Recipe, dataset: Dataset, windows: Windows) -> Windows:
    """Cut the same windows once more, each with the samples before it that its earliest copy needs.

    Raises:
        ConfigError: the recordings give other windows than those that were answered.
    """
    reach = max(earlier(windows.samples).values())
    found = replace(recipe.window, context=windows.samples + reach).cut(dataset)
    same = len(found) == len(windows) and all(
        np.array_equal(getattr(found, name), getattr(windows, name)) for name in ("y", "recording", "start")
    )
    if not same:
        raise ConfigError("the recordings are not those that were answered; remove the folder named by --cache")
    return found


def copies(recipe: Recipe, windows: Windows, *, stream: bool, seed: int = 0) -> Iterator[tuple[str, Float32, Bools]]:
    """Yield every copy: its name, (n, channels, samples) of all windows, and (n,) whether it is there.

    Args:
        recipe: says how windows are varied.
        windows: of `with_history`.
        stream: whether earlier samples belong to the same stream; clips have none.
        seed: of the variations.
    """
    samples, always = windows.samples, np.ones(len(windows), np.bool_)
    first = np.full(int(windows.recording.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(first, windows.recording, windows.start)
    age = windows.start - first[windows.recording]
    end = windows.contexts.shape[-1]
    for name, back in earlier(samples).items() if stream else ():
        yield name, np.ascontiguousarray(windows.contexts[:, :, end - samples - back : end - back]), age >= back
    allowed = recipe.augmentation
    channels = [channel.name for channel in recipe.window.channels]
    random = np.random.default_rng(seed)
    for strength in STRENGTHS:
        for count in range(VARIED):
            yield f"varied {strength} x {count + 1}", varied(windows.x, allowed, channels, strength, random), always
    if allowed.mirror:
        yield MIRRORED, windows.x * np.array(allowed.mirror, np.float32)[None, :, None], always


def varied(
    x: Float32, allowed: Augmentation, channels: Sequence[str], strength: float, random: np.random.Generator
) -> Float32:
    """Vary windows, (n, channels, samples), by a share of what is allowed in training (rule 2)."""
    made = x.transpose(0, 2, 1).astype(np.float64)
    if allowed.triads and allowed.rotation_deg:
        turn = rotations(random, 1, (strength * float(np.deg2rad(allowed.rotation_deg)),) * 3)[0]
        for triad in ([channels.index(name) for name in names] for names in allowed.triads):
            made[:, :, triad] = made[:, :, triad] @ turn
    made *= np.exp(random.uniform(-1, 1) * strength * allowed.gain)
    if allowed.noise:
        deviation = strength * np.array(allowed.noise)
        made += random.standard_normal((len(x), 1, x.shape[1])) * deviation
        made += random.standard_normal(made.shape) * deviation
    return np.ascontiguousarray(made.transpose(0, 2, 1), np.float32)
