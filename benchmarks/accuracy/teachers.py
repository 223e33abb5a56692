"""A teacher of fixed convolutions beside the trained one, on groups left out.

    python -m benchmarks.accuracy.teachers RECIPE CACHE

Args: a recipe, and the folder that `python -m benchmarks.accuracy` keeps for its set. Half the features, 2,000 plain
training windows, every fourth window judged, so that it takes minutes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from edge_export.data.dataset import spread
from edge_export.learn.networks import Calibrated, build_network
from edge_export.learn.training.loop import answer, start
from edge_export.learn.training.ridge import fit_rocket
from edge_export.learn.training.task import front_end
from edge_export.recipe.network_spec import Rocket
from edge_export.recipe.recipe import load

from benchmarks.accuracy.answers import read_answers
from benchmarks.accuracy.scoring import log_loss, over_groups

FAMILY = Rocket(width=0.5, windows=2000)
EVERY = 4


def main() -> int:
    """Print accuracy by group and log loss of each."""
    recipe, given = load(Path(sys.argv[1])), read_answers(Path(sys.argv[2]) / "answers.npz")
    windows, judged = given.windows, np.arange(len(given.windows)) % EVERY == 0
    x, y = windows.contexts, windows.y
    rocket = np.zeros((len(windows), len(recipe.classes)), np.float32)
    for fold in np.unique(given.fold):
        start(recipe.seed)
        seen = np.flatnonzero(given.fold != fold)
        seen = seen[spread(len(seen), FAMILY.windows)]
        front = front_end(recipe, x[seen])
        network = build_network(FAMILY, front, channels=x.shape[1], samples=x.shape[2], classes=len(recipe.classes))
        fit_rocket(network, x[seen], y[seen], seed=recipe.seed)
        left = judged & (given.fold == fold)
        rocket[left] = answer(Calibrated([network]), x[left])
    for name, found in {"rocket": rocket, **given.given}.items():
        right = found.argmax(axis=1) == y
        each = over_groups(right[judged], windows.group[judged])
        loss = log_loss(found[judged], y[judged])
        print(f"{name}: {each.mean():.3f} (groups {np.round(each, 3).tolist()}), log loss {loss:.3f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
