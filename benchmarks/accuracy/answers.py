"""Out-of-fold answers of a recipe's models, made once and kept in a file."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from pathlib import Path

import numpy as np
from edge_export.data.dataset import Windows, write_npz
from edge_export.recipe.recipe import Recipe, load
from edge_export.splits import read_all, read_splits
from edge_export.stages import make_models
from edge_export.step_cache import Say, StepCache, code_digest
from edge_export.surround.cross_fit import Folds, OutOfFold, cross_fit

from edge_runtime.clock import SystemClock

FILES = ("onnx-fp32", "onnx-int8-u8s8")


def answers_of(
    recipe: Path | Recipe,
    folders: Mapping[str, Path],
    cache: Path,
    say: Say,
    *,
    folds: Folds,
    seed: int = 0,
) -> OutOfFold:
    """Train a recipe's models once for each fold of all its groups, its test groups too, and keep what they answer.

    Nothing is pruned: channels would be chosen again in every fold.

    Args:
        recipe: it, or its file.
        folders: where the data lies.
        cache: folder for models and answers.
        say: takes progress.
        folds: that groups are dealt into; an official test set is set apart.
        seed: added to the recipe's: another training of the same.
    """
    file = cache / (f"answers-{seed}.npz" if seed else "answers.npz")
    if file.exists():
        return read_answers(file)
    cache.mkdir(parents=True, exist_ok=True)
    stated = load(recipe) if isinstance(recipe, Path) else recipe
    wanted: Recipe = dataclasses.replace(stated, prune=None, seed=stated.seed + seed)
    steps = StepCache(cache / "steps", {"code": code_digest()}, say, SystemClock())
    splits = read_splits(wanted, folders, say)
    models = make_models(wanted, splits, steps, say)
    dataset, digest = read_all(wanted, folders)
    kept = {group for groups in splits.recordings.groups.values() for group in groups}
    dataset = dataset.only([group for group in dataset.groups if group in kept])
    found = cross_fit(wanted, dataset, digest, models, steps, say, folds=folds, files=FILES)
    write_answers(file, found)
    return found


def write_answers(path: Path, found: OutOfFold) -> None:
    """Write answers and windows, without pickles."""
    windows = found.windows
    arrays = {name: getattr(windows, name) for name in ("y", "group", "recording", "start", "contexts")}
    arrays |= {f"p_{name}": each for name, each in found.given.items()}
    write_npz(path, arrays | {"samples": np.array(windows.samples), "fold": found.fold})


def read_answers(path: Path) -> OutOfFold:
    """Read what `write_answers` has written."""
    with np.load(path, allow_pickle=False) as stored:
        windows = Windows(
            contexts=stored["contexts"],
            samples=int(stored["samples"]),
            y=stored["y"].astype(np.int64),
            group=stored["group"],
            recording=stored["recording"],
            start=stored["start"],
        )
        given = {name.removeprefix("p_"): stored[name] for name in stored.files if name.startswith("p_")}
        return OutOfFold(windows=windows, given=given, fold=stored["fold"])
