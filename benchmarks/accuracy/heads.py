"""Ways to train the head of an embedding of speech, on speakers left out: each leaves one part of the shipped one out.

    python -m benchmarks.accuracy.heads SET --data ../shared

Features are computed once; no student is trained, so that it takes minutes.
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from edge_export.choose.surround.cross_fit import CLOUD, Folds, OutOfFold, deal
from edge_export.data.dataset import Float32, Windows
from edge_export.learn.networks import Calibrated, Classifier, build_network
from edge_export.learn.training.embedding import fit_embedding
from edge_export.learn.training.loop import answer, start
from edge_export.learn.training.task import TrainingTask
from edge_export.recipe.feature_spec import Raw
from edge_export.recipe.network_spec import Embedding
from edge_export.recipe.recipe import Recipe, load
from edge_export.recipe.splits import read_all
from torch import nn  # noqa: TID251 - the head is trained by the export toolchain

from benchmarks.accuracy.sets import SETS
from benchmarks.accuracy.taught import log_loss, over_groups, write_embedding

WAYS = ("as shipped", "recorded windows alone", "drawn windows alone", "windows left out instead of groups")


def main() -> int:
    """Print accuracy over groups and log loss of each way."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.heads", description=__doc__)
    parser.add_argument("set", metavar="SET", choices=[name for name, one in SETS.items() if one.kind == "sound"])
    parser.add_argument("--data", type=Path, required=True, help="the shared data and models")
    parser.add_argument("--cache", type=Path, default=Path("build/accuracy"))
    given = parser.parse_args()
    one = SETS[given.set]
    recipe = load(one.recipe)
    family = Embedding(file=write_embedding(recipe, given.data, given.cache / f"{one.name}-embedding"))
    dataset, _ = read_all(recipe, one.folders(given.data, {}, given.cache / one.name))
    start(recipe.seed)
    whole = _features(recipe, family, recipe.window.cut(dataset))
    counts = {group: int((whole.group == group).sum()) for group in dataset.groups}
    dealt = deal({group: count for group, count in counts.items() if count}, Folds(one.folds, one.apart))
    answered = {way: np.zeros((len(whole), len(recipe.classes)), np.float32) for way in WAYS}
    for held in dealt:
        task = TrainingTask(
            recipe=recipe, contract=recipe.window.contract(), validation=whole, data="",
            train=dataset.only([group for group in dataset.groups if group not in held]),
        )  # fmt: skip
        known = [_features(recipe, family, windows) for windows in task.known(family.windows, recipe.seed)]
        left = np.isin(whole.group, held)
        for way in WAYS:
            network = fit_embedding(_head(known[0], len(recipe.classes)), *changed(known, way))
            answered[way][left] = answer(Calibrated([network]), whole.contexts[left])
    print("| head | accuracy | log loss |\n|---|---|---|")
    for way in WAYS:
        found = OutOfFold(windows=whole, given={CLOUD: answered[way]}, fold=np.zeros(len(whole), np.int64))
        print(f"| {way} | {over_groups(found, CLOUD).mean():.3f} | {log_loss(found, CLOUD):.3f} |")
    return 0


def _features(recipe: Recipe, family: Embedding, windows: Windows) -> Windows:
    """Put pooled features, (n, features, 1), in the place of windows."""
    channels, samples = windows.contexts.shape[1:]
    network = build_network(family, Raw(), channels=channels, samples=samples, classes=len(recipe.classes))
    network.head = nn.Identity()
    found: Float32 = answer(network, windows.contexts)
    return dataclasses.replace(windows, contexts=found[:, :, None], samples=1)


def _head(windows: Windows, classes: int) -> Classifier:
    """Build a network that takes such features."""
    width = windows.contexts.shape[1]
    return Classifier(
        front=nn.Identity(), body=nn.Flatten(), pool="mean", width=width, sizes=(), classes=classes, dropout=0.0,
        reach=(1, 1),
    )  # fmt: skip


def changed(known: Sequence[Windows], way: str) -> list[Windows]:
    """Leave out what a way leaves out."""
    recorded, drawn = known
    if way == WAYS[1]:
        return [recorded]
    if way == WAYS[2]:
        return [drawn]
    if way == WAYS[3]:
        names = np.arange(len(recorded) + len(drawn)).astype(str)
        parts = np.split(names, [len(recorded)])
        return [dataclasses.replace(part, group=own) for part, own in zip(known, parts, strict=True)]
    return [recorded, drawn]


if __name__ == "__main__":
    sys.exit(main())
