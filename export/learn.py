"""The networks of a build: a teacher no larger than its accuracy needs, and a student that learns from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import orjson
from torch import nn  # noqa: TID251 - this is the export toolchain

from edge_runtime.manifest import InputContract
from export.data import Dataset, Float32, Int64, Windows
from export.distill import Distillation, distil, label_pool
from export.family import Family
from export.frontend import build_front_end
from export.frontend_spec import Chain, FrontEnd, Raw, fit_standardise
from export.judge import judge
from export.networks import Calibrated, build_network
from export.recipe import Recipe, TrainingRecipe
from export.sampling import PlaceSampler, Variation
from export.steps import Steps
from export.train import Training, answer, fit_labels, start
from export.weights import load_weights, save_weights

Say = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Task:
    """What the networks are to learn.

    Attributes:
        recipe: how.
        contract: what a window is.
        train: recordings to learn from.
        validation: windows that choose.
        data: digest of all recordings and their reading.
    """

    recipe: Recipe
    contract: InputContract
    train: Dataset
    validation: Windows
    data: str

    @property
    def classes(self) -> int:
        """Number of labels."""
        return len(self.recipe.classes)

    def sampler(self, seed: int) -> PlaceSampler:
        """Draws training windows with their history."""
        recipe = self.recipe
        return PlaceSampler(
            self.train,
            self.contract,
            rule=recipe.window.label,
            variation=variation(recipe),
            balance=recipe.balance,
            seed=seed,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Teacher:
    """The cloud's networks.

    Attributes:
        family: of each of them.
        members: answer (batch, channels, history) with logits.
        step: name of the step that made them.
        tried: validation score by candidate, in the recipe's order.
    """

    family: Family
    members: tuple[nn.Module, ...]
    step: str
    tried: tuple[float, ...]


def variation(recipe: Recipe) -> Variation:
    """The recipe's augmentation with channels by their place."""
    names = [channel.name for channel in recipe.window.channels]
    augmentation = recipe.augmentation
    noise = augmentation.noise if len(augmentation.noise) != 1 else augmentation.noise * len(names)
    return Variation(
        triads=tuple(tuple(names.index(name) for name in triad) for triad in augmentation.triads),
        rotation_rad=float(np.deg2rad(augmentation.rotation_deg)),
        rates=tuple(names.index(name) for name in augmentation.rates),
        speed=augmentation.speed,
        gain=augmentation.gain,
        noise=noise,
        shift=augmentation.shift,
        channel_dropout=augmentation.channel_dropout,
    )


def front_end(recipe: Recipe, windows: Float32) -> FrontEnd:
    """The recipe's stages, and behind them offset and scale fitted to training windows.

    Args:
        recipe: names the stages.
        windows: (n, n_channels, samples) of training groups.
    """
    stages: tuple[FrontEnd, ...] = tuple(recipe.front_end)
    if recipe.standardise != "none":
        below = Chain(stages=stages) if stages else Raw()
        network, _ = build_front_end(below, channels=windows.shape[1], samples=windows.shape[2])
        features = answer(network.eval(), windows)
        stages = (*stages, fit_standardise(features, together=recipe.standardise == "together"))
    return Chain(stages=stages) if stages else Raw()


def check_networks(task: Task, front: FrontEnd) -> None:
    """Build every network once, before an hour is spent on the first of them.

    Raises:
        ConfigError: one does not fit its window.
    """
    recipe, contract = task.recipe, task.contract
    channels = len(contract.channels)
    for family in recipe.teacher.candidates:
        build_network(family, front, channels=channels, samples=contract.history, classes=task.classes)
    build_network(recipe.student.network, front, channels=channels, samples=contract.window, classes=task.classes)


def fit_teacher(task: Task, front: FrontEnd, steps: Steps, say: Say) -> Teacher:
    """Train the recipe's candidates, take the smallest within reach of the best, and make it an ensemble."""
    recipe = task.recipe
    tried: list[float] = []
    for place, family in enumerate(recipe.teacher.candidates):
        score = score_of(_teacher_member(task, front, family, recipe.seed, steps), task, recipe.metric)
        tried.append(score)
        say(f"  teacher candidate {place + 1} ({type(family).__name__} width {family.width:g}): {score:.4f}")
    chosen = smallest_within(tried, recipe.teacher.within)
    family = recipe.teacher.candidates[chosen]
    members = tuple(
        _teacher_member(task, front, family, recipe.seed + member, steps) for member in range(recipe.teacher.members)
    )
    return Teacher(family=family, members=members, step=f"teacher {chosen}", tried=tuple(tried))


def smallest_within(scores: Sequence[float], within: float) -> int:
    """The first of some candidates, smallest first, that lacks at most `within` of the best score."""
    return next(place for place, score in enumerate(scores) if score >= max(scores) - within)


def score_of(network: nn.Module, task: Task, metric: str) -> float:
    """Accuracy or macro F1 on validation groups."""
    validation = task.validation
    (judged,) = judge({"it": answer(network, validation.contexts)}, validation.y, reference="it", resamples=1)
    return judged.accuracy if metric == "accuracy" else judged.macro_f1


def _teacher_member(task: Task, front: FrontEnd, family: Family, seed: int, steps: Steps) -> nn.Module:
    recipe, contract = task.recipe, task.contract
    channels, samples = len(contract.channels), contract.history

    def network() -> nn.Module:
        return build_network(family, front, channels=channels, samples=samples, classes=task.classes)

    def make(folder: Path) -> None:
        start(seed)
        trained = fit_labels(network(), task.sampler(seed), training(recipe.teacher.training))
        save_weights(trained, folder / "weights.npz")

    inputs = {**_inputs(task, front), "family": family, "kind": type(family).__name__, "seed": seed}
    folder = steps.run("teacher", {**inputs, "training": recipe.teacher.training}, make)
    start(seed)
    return load_weights(network(), folder / "weights.npz")


def fit_student(task: Task, front: FrontEnd, teacher: Teacher, steps: Steps) -> nn.Module:
    """Train the device's network on the teacher's answers and the labels."""
    recipe, contract = task.recipe, task.contract
    student = recipe.student

    def network() -> nn.Module:
        return build_network(
            student.network, front, channels=len(contract.channels), samples=contract.window, classes=task.classes
        )

    def make(folder: Path) -> None:
        distillation = Distillation(
            pool=student.pool, temperature=student.temperature, teacher_share=student.teacher_share
        )
        # A seed that no member of the teacher has had: it has not seen these very windows.
        sampler = task.sampler(recipe.seed + 1000)
        pool = label_pool(Calibrated(teacher.members).eval(), sampler, size=distillation.pool, samples=contract.window)
        start(recipe.seed)
        trained = distil(network(), pool, distillation, training(student.training), seed=recipe.seed)
        save_weights(trained, folder / "weights.npz")

    inputs = {
        **_inputs(task, front),
        "student": student,
        "kind": type(student.network).__name__,
        "teacher": [teacher.step, recipe.teacher, recipe.seed],
    }
    folder = steps.run("student", inputs, make)
    start(recipe.seed)
    return load_weights(network(), folder / "weights.npz")


def training(recipe: TrainingRecipe) -> Training:
    """The recipe's table as `export.train` takes it."""
    return Training(
        steps=recipe.steps,
        batch=recipe.batch,
        learning_rate=recipe.learning_rate,
        weight_decay=recipe.weight_decay,
        label_smoothing=recipe.label_smoothing,
    )


def spread(count: int, wanted: int) -> Int64:
    """At most `wanted` of so many places, evenly."""
    return np.linspace(0, count - 1, min(count, wanted)).astype(np.int64)


def _inputs(task: Task, front: FrontEnd) -> dict[str, object]:
    """What every network's training depends on."""
    recipe = task.recipe
    return {
        "data": task.data,
        "window": recipe.window,
        "split": recipe.split,
        "split_seed": recipe.seed,
        "augmentation": recipe.augmentation,
        "balance": recipe.balance,
        "front_end": orjson.dumps(front).decode(),
    }
