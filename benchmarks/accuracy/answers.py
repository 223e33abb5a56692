"""Out-of-fold answers of a recipe's models, and the device's files of each fold, made once and kept."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from edge_export.choose.models import Models, make_models
from edge_export.choose.surround.cross_fit import Folds, OutOfFold, cross_fit, trained_folds
from edge_export.data.dataset import Dataset, Windows, write_npz
from edge_export.package.pack import VariantSource
from edge_export.recipe.recipe import Recipe, load
from edge_export.recipe.splits import read_all, read_splits
from edge_export.step_cache import Say, StepCache, code_digest

from edge_runtime.clock import SystemClock

_PRECISIONS: dict[str, Literal["fp32", "int8"]] = {"onnx-fp32": "fp32", "onnx-int8-u8s8": "int8"}
FILES = tuple(_PRECISIONS)


def say(text: str) -> None:
    """Print progress beside the tables."""
    print(text, file=sys.stderr, flush=True)


def recipe_of(file: Path, *, small_teacher: bool) -> Recipe:
    """Read a recipe; with `small_teacher` its first teacher alone is left, to spare hours."""
    recipe = load(file)
    if not small_teacher:
        return recipe
    teacher = dataclasses.replace(recipe.teacher, candidates=recipe.teacher.candidates[:1], members=1)
    return dataclasses.replace(recipe, teacher=teacher)


def answers_of(
    recipe: Recipe,
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
        recipe: as `recipe_of` reads it.
        folders: where the data lies.
        cache: folder for models and answers.
        say: takes progress.
        folds: that groups are dealt into; an official test set is set apart.
        seed: added to the recipe's: another training of the same.
    """
    file = cache / (f"answers-{seed}.npz" if seed else "answers.npz")
    if file.exists():
        return read_answers(file)
    chosen = _chosen(recipe, folders, cache, say, seed=seed)
    found = cross_fit(*chosen, say, folds=folds, files=FILES)
    write_answers(file, found)
    return found


def networks_of(
    recipe: Recipe,
    folders: Mapping[str, Path],
    cache: Path,
    say: Say,
    *,
    folds: Folds,
    seed: int = 0,
) -> list[dict[str, VariantSource]]:
    """Return the device's files of each fold that `answers_of` asked, by name; arguments as there.

    Its trainings are taken from the cache, so this takes seconds a fold.
    """
    kept = cache / (f"networks-{seed}" if seed else "networks")
    if not kept.exists():
        half = kept.with_suffix(".partial")
        chosen = _chosen(recipe, folders, cache, say, seed=seed)
        for fold in trained_folds(*chosen, say, folds=folds):
            folder = half / f"{fold.number:03}"
            folder.mkdir(parents=True, exist_ok=True)
            for source in fold.models.candidates.sources():
                if source.name in FILES:
                    (folder / f"{source.name}.onnx").write_bytes(source.model)
        half.rename(kept)
    return [
        {
            name: VariantSource(
                name=name, model=(folder / f"{name}.onnx").read_bytes(), format="onnx", precision=precision
            )
            for name, precision in _PRECISIONS.items()
        }
        for folder in sorted(kept.iterdir())
    ]


class _Chosen(NamedTuple):
    """The first arguments of `cross_fit`."""

    recipe: Recipe
    dataset: Dataset
    digest: str
    first: Models
    steps: StepCache


def _chosen(recipe: Recipe, folders: Mapping[str, Path], cache: Path, say: Say, *, seed: int) -> _Chosen:
    cache.mkdir(parents=True, exist_ok=True)
    wanted: Recipe = dataclasses.replace(recipe, prune=None, seed=recipe.seed + seed)
    steps = StepCache(cache / "steps", {"code": code_digest()}, say, SystemClock())
    splits = read_splits(wanted, folders, say)
    models = make_models(wanted, splits, steps, say)
    dataset, digest = read_all(wanted, folders)
    kept = {group for groups in splits.recordings.groups.values() for group in groups}
    dataset = dataset.only([group for group in dataset.groups if group in kept])
    return _Chosen(wanted, dataset, digest, models, steps)


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
