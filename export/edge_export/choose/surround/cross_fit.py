"""Cross-fitting: every group is answered by models that have not seen it.

The surround of a network (temperature, how answers follow one another, how much the cloud's word weighs, the gate)
has to be fitted to answers about groups that the network was not trained on. One validation set is a few people; with
folds it is all of them: groups are dealt into folds, and what was chosen is trained again without each fold in turn,
which it then answers.

1. Groups are dealt by the number of their windows, the largest first, each to the fold that has the fewest.
2. Every fold's models are trained as a refit is (`choose.models.refit_models`): what was chosen stays chosen.
3. Groups set apart (a test set that others defined) are answered last, by what is trained on all others.
4. What is chosen was chosen once, on validation groups, which come back as folds: families and lengths of training
   have seen them, weights have not.

Source: cross-fitting and stacking: Wolpert 1992 (stacked generalisation); Chernozhukov et al. 2018 (arXiv:1608.00060).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from edge_export.choose.models import Models, refit_models
from edge_export.choose.selection.timing import answers
from edge_export.data.dataset import Dataset, Float32, Int64, Windows
from edge_export.data.split import Split
from edge_export.recipe.recipe import Recipe
from edge_export.recipe.splits import Splits, together
from edge_export.step_cache import Say, StepCache

CLOUD = "cloud"


@dataclass(frozen=True, slots=True)
class Folds:
    """Folds to deal groups into.

    Attributes:
        count: how many, at most one for each group.
        apart: groups that no fold is trained on; they are one fold more, the last (rule 3).
        always: groups that every fold is trained on, and that none answers.
    """

    count: int
    apart: tuple[str, ...] = ()
    always: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OutOfFold:
    """Windows with what models answered that have not seen their groups.

    Attributes:
        windows: in order of recording and time; `Windows.recording` counts over all recordings of the data set.
        given: (n, classes) probabilities at temperature 1 by name of the file; the cloud's under `CLOUD`.
        fold: (n,) number of the fold.
    """

    windows: Windows
    given: Mapping[str, Float32]
    fold: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class Fold:
    """One fold, and the models that were trained without it.

    Attributes:
        number: from 0.
        left_out: its recordings.
        unseen: the windows cut from them.
        models: trained on all other folds.
    """

    number: int
    left_out: Dataset
    unseen: Windows
    models: Models


def answers_unseen(
    recipe: Recipe, splits: Splits, models: Models, files: Sequence[str], steps: StepCache, say: Say
) -> OutOfFold:
    """Return answers to groups that the models have not seen: by folds where the recipe has some, else of validation.

    Args:
        recipe: how.
        splits: the build's splits.
        models: trained on training groups.
        files: names of the device's files that are asked.
        steps: keep what takes long.
        say: told which fold is trained.
    """
    if recipe.split.folds:
        whole = together(splits.unseen(recipe), splits.chosen)
        folds = Folds(recipe.split.folds, always=splits.recordings.train_only)
        return cross_fit(recipe, whole, splits.digest, models, steps, say, folds=folds, files=files)
    given = {
        source.name: answers(source, splits.validation.x)
        for source in models.candidates.sources()
        if source.name in files
    }
    given[CLOUD] = answers(models.cloud_at(1.0), splits.validation.contexts)
    _, fold = np.unique(splits.validation.group, return_inverse=True)
    return OutOfFold(windows=splits.validation, given=given, fold=fold)


def deal(counts: Mapping[str, int], folds: Folds) -> list[list[str]]:
    """Deal groups into folds of about the same number of windows (rule 1).

    Args:
        counts: windows by group.
        folds: 2 or more; at most one for each group is made.
    """
    free = [group for group in counts if group not in {*folds.apart, *folds.always}]
    dealt: list[list[str]] = [[] for _ in range(min(folds.count, len(free)))]
    loads = [0] * len(dealt)
    for group in sorted(free, key=lambda each: (-counts[each], each)):
        least = loads.index(min(loads))
        dealt[least].append(group)
        loads[least] += counts[group]
    return [*dealt, list(folds.apart)] if folds.apart else dealt


def cross_fit(
    recipe: Recipe,
    dataset: Dataset,
    digest: str,
    first: Models,
    steps: StepCache,
    say: Say,
    *,
    folds: Folds,
    files: Sequence[str],
) -> OutOfFold:
    """Train the chosen models once for each fold, and ask them about the groups that they have not seen.

    Args:
        recipe: how.
        dataset: recordings of all groups that may be used.
        digest: digest of how they are read, see `Splits.digest`.
        first: what was chosen.
        steps: keep what takes long.
        say: told which fold is trained.
        folds: the folds that groups are dealt into.
        files: names of the device's files that are asked; one that a fold does not have is left out.
    """
    parts: list[tuple[Windows, dict[str, Float32], int]] = []
    for fold in trained_folds(recipe, dataset, digest, first, steps, say, folds=folds):
        models, unseen = fold.models, fold.unseen
        sources = {source.name: source for source in models.candidates.sources()}
        given = {name: answers(sources[name], unseen.x) for name in files if name in sources}
        given[CLOUD] = answers(models.cloud_at(1.0), unseen.contexts)
        parts.append((_numbered(unseen, fold.left_out, dataset), given, fold.number))
    return _joined(parts)


def trained_folds(
    recipe: Recipe, dataset: Dataset, digest: str, first: Models, steps: StepCache, say: Say, *, folds: Folds
) -> Iterator[Fold]:
    """Train the chosen models without each fold in turn (rules 1 to 3); arguments as of `cross_fit`."""
    cut = {group: recipe.window.cut(dataset.only([group])) for group in dataset.groups}
    dealt = deal({group: len(windows) for group, windows in cut.items()}, folds)
    for number, held in enumerate(dealt):
        rest = dataset.only([group for group in dataset.groups if group not in {*held, *folds.apart}])
        left_out = dataset.only(held)
        seen, unseen = recipe.window.cut(rest), recipe.window.cut(left_out)
        splits = Splits(
            recordings=Split(train=rest, validation=left_out, test=left_out),
            train=seen, validation=unseen, test=unseen, digest=digest,
        )  # fmt: skip
        say(f"fold {number + 1} of {len(dealt)}: without {', '.join(held)}")
        yield Fold(
            number=number,
            left_out=left_out,
            unseen=unseen,
            models=refit_models(recipe, splits, first, steps, say),
        )


def _numbered(windows: Windows, part: Dataset, whole: Dataset) -> Windows:
    """Count recordings over the whole data set."""
    places = {recording.name: place for place, recording in enumerate(whole.recordings)}
    of = np.array([places[recording.name] for recording in part.recordings], np.int64)
    return replace(windows, recording=of[windows.recording])


def _joined(parts: Sequence[tuple[Windows, Mapping[str, Float32], int]]) -> OutOfFold:
    recording = np.concatenate([windows.recording for windows, _, _ in parts])
    start = np.concatenate([windows.start for windows, _, _ in parts])
    order = np.lexsort((start, recording))

    def joined(name: str) -> Float32:
        whole: Float32 = np.concatenate([getattr(windows, name) for windows, _, _ in parts])[order]
        return whole

    return OutOfFold(
        windows=Windows(
            contexts=joined("contexts"),
            samples=parts[0][0].samples,
            y=np.concatenate([windows.y for windows, _, _ in parts])[order],
            group=np.concatenate([windows.group for windows, _, _ in parts])[order],
            recording=recording[order],
            start=start[order],
        ),
        given={
            name: np.concatenate([given[name] for _, given, _ in parts])[order]
            for name in parts[0][1]
            if all(name in given for _, given, _ in parts)
        },
        fold=np.repeat([number for _, _, number in parts], [len(windows) for windows, _, _ in parts])[order],
    )
