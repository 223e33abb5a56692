"""The networks of a build: a teacher no larger than its accuracy needs, and a student that learns from it."""

from __future__ import annotations

import functools
import hashlib
import multiprocessing
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import onnx
import orjson
from google.protobuf.message import DecodeError
from torch import nn  # noqa: TID251 - this is the export toolchain

from edge_export.data.dataset import spread
from edge_export.graph.onnx_graph.from_torch import to_onnx
from edge_export.graph.onnx_graph.passes.canonicalise import canonicalise
from edge_export.graph.onnx_graph.passes.temperature import ends_in_softmax, with_softmax, with_temperature
from edge_export.learn.networks import Calibrated, Classifier, build_network
from edge_export.learn.training.checkpoint import load_weights, save_weights
from edge_export.learn.training.distill import Distillation, DistillationSet, Featured, distil, label_pool
from edge_export.learn.training.embedding import check_embedding, embedding_to_onnx, fit_embedding
from edge_export.learn.training.forest import fit_forest
from edge_export.learn.training.history import Curve, load_curve
from edge_export.learn.training.loop import fit_labels, start
from edge_export.learn.training.ridge import fit_rocket
from edge_export.learn.training.task import TrainingTask, score_of
from edge_export.learn.training.teachers import OnnxTeacher, TorchTeacher
from edge_export.learn.training.teachers import Teacher as Answering
from edge_export.recipe.feature_spec import FrontEnd
from edge_export.recipe.network_spec import ClosedForm, Embedding, Forest, Rocket, TeacherFamily
from edge_export.recipe.recipe import TeacherRecipe
from edge_export.step_cache import Say, StepCache
from edge_runtime.clock import SystemClock
from edge_runtime.errors import ConfigError
from edge_runtime.model.tuning.timing.machine import available_cores


@dataclass(frozen=True, slots=True, kw_only=True)
class CloudTeacher:
    """The cloud's model.

    Attributes:
        answers: contexts with log-probabilities.
        at: the ONNX graph at a temperature, from windows with their context to probabilities.
        step: names what it came from, for the steps that depend on it.
        members: its networks, where it was trained here.
        chosen: family and seed of each of them.
        tried: validation score by candidate, in the recipe's order.
        curves: histories of all networks that were trained for it.
    """

    answers: Answering
    at: Callable[[float], onnx.ModelProto]
    step: str
    members: tuple[nn.Module, ...] = ()
    chosen: tuple[tuple[TeacherFamily, int], ...] = ()
    tried: tuple[float, ...] = ()
    curves: tuple[Curve, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Student:
    """The device's network, trained.

    Attributes:
        network: answers (batch, channels, samples) with logits.
        step: name of the step that made it.
        blank: builds the same network untrained.
        curve: its history.
    """

    network: nn.Module
    step: str
    blank: Callable[[], nn.Module]
    curve: tuple[Curve, ...] = ()


@dataclass(frozen=True, slots=True)
class _Member:
    """A network of a teacher, trained, and its history."""

    network: nn.Module
    curve: tuple[Curve, ...]


class SoftLabels:
    """The teacher's answers to training windows, computed at their first use.

    Args:
        task: draws the windows.
        teacher: answers them.
    """

    def __init__(self, task: TrainingTask, teacher: CloudTeacher) -> None:
        student = task.recipe.student
        self._task = task
        self._teacher = teacher
        self.distillation = Distillation(
            pool=student.pool,
            temperature=student.temperature,
            teacher_share=student.teacher_share,
            method=student.method,
            ranking=student.ranking,
            hints=student.hints,
        )

    @functools.cached_property
    def pool(self) -> DistillationSet:
        """The windows with both answers."""
        task = self._task
        start(task.recipe.seed)
        return label_pool(
            self._teacher.answers,
            # A seed that no member of the teacher has had: it has not seen these very windows.
            task.sampler(task.recipe.seed + 1000),
            size=self.distillation.pool,
            samples=task.contract.window,
            hints=self._hints(),
        )

    def _hints(self) -> Featured | None:
        if not self.distillation.hints:
            return None
        if any(isinstance(family, ClosedForm) for family, _ in self._teacher.chosen):
            raise ConfigError("student.hints: a rocket or an embedding shows no features over time; leave hints out")
        if not self._teacher.members:
            raise ConfigError("student.hints: a given teacher shows no features; train one, or leave hints out")
        featured: Featured = self._teacher.members[0]
        return featured


def check_networks(task: TrainingTask, front: FrontEnd, student: FrontEnd) -> None:
    """Build every network once, before an hour is spent on the first of them.

    Args:
        task: names the networks.
        front: what the teacher's candidates see.
        student: what the student sees.

    Raises:
        ConfigError: one does not fit its window, or an embedding is of no use.
    """
    recipe, contract = task.recipe, task.contract
    channels = len(contract.channels)
    for family in recipe.teacher.candidates:
        network = build_network(family, front, channels=channels, samples=contract.history, classes=task.classes)
        check_embedding(network, task.validation.contexts[spread(len(task.validation), NEIGHBOURS)])
    build_network(recipe.student.network, student, channels=channels, samples=contract.window, classes=task.classes)


def fit_teacher(task: TrainingTask, front: FrontEnd, steps: StepCache, say: Say) -> CloudTeacher:
    """Train the recipe's candidates, and the members of ensembles of the best one; take the smallest that is as good.

    As good is what lacks at most ``within`` of the best of all, an ensemble being larger than any single network.
    """
    recipe = task.recipe
    families = recipe.teacher.candidates
    choices: list[Sequence[tuple[TeacherFamily, int]]] = [[(family, recipe.seed)] for family in families]
    found = list(_train_members(task, front, [choice[0] for choice in choices], steps, say))
    networks = [each.network for each in found]
    tried = [score_of(network, task.validation.contexts, task) for network in networks]
    for place, (family, reached) in enumerate(zip(families, tried, strict=True)):
        say(f"  teacher candidate {place + 1} ({_named(family)}): {reached:.4f}")
    chosen = smallest_within(tried, recipe.teacher.within)
    ensembles: list[Sequence[nn.Module]] = [[network] for network in networks]
    wanted = _ensemble(recipe.teacher, families[chosen], recipe.seed)
    ensemble = _train_members(task, front, wanted, steps, say)
    found += ensemble
    members = [each.network for each in ensemble]
    for number in range(2, len(members) + 1):
        choices.append(wanted[:number])
        ensembles.append(members[:number])
        tried.append(score_of(Calibrated(members[:number]), task.validation.contexts, task))
        say(f"  {number} of candidate {chosen + 1}: {tried[-1]:.4f}")
    taken = smallest_within(tried, recipe.teacher.within)
    made = _trained_teacher(
        task, ensembles[taken], step=f"teacher {taken}", chosen=tuple(choices[taken]), tried=tuple(tried)
    )
    # The first member of an ensemble is the candidate that it was chosen by.
    curves = {curve.name: curve for each in found for curve in each.curve}
    return replace(made, curves=tuple(curves.values()))


def _ensemble(recipe: TeacherRecipe, family: TeacherFamily, seed: int) -> list[tuple[TeacherFamily, int]]:
    """List the members of the largest ensemble of a family; none where a single network is all there is to try."""
    if recipe.members == 1 or isinstance(family, Embedding):
        return []
    return [(family, seed + number) for number in range(recipe.members)]


def refit_teacher(task: TrainingTask, front: FrontEnd, first: CloudTeacher, steps: StepCache, say: Say) -> CloudTeacher:
    """Train the networks of a teacher again, on more groups; a given teacher stays as it is."""
    if not first.chosen:
        return first
    members = _train_members(task, front, first.chosen, steps, say)
    networks = [member.network for member in members]
    return _trained_teacher(task, networks, step=first.step, chosen=first.chosen, tried=first.tried)


def _trained_teacher(
    task: TrainingTask,
    members: Sequence[nn.Module],
    *,
    step: str,
    chosen: tuple[tuple[TeacherFamily, int], ...],
    tried: tuple[float, ...],
) -> CloudTeacher:
    channels, samples = len(task.contract.channels), task.contract.history

    def at(temperature: float) -> onnx.ModelProto:
        if any(isinstance(family, Embedding) for family, _ in chosen):
            (network,) = members
            return embedding_to_onnx(network, temperature)
        return to_onnx(Calibrated(members, temperature), channels=channels, samples=samples)

    return CloudTeacher(
        answers=TorchTeacher(network=Calibrated(members), output="probabilities"),
        at=at,
        step=step,
        members=tuple(members),
        chosen=chosen,
        tried=tried,
    )


NEIGHBOURS = 8
"""Validation windows that a given teacher, or an embedding, is asked about together and one by one."""


def given_teacher(task: TrainingTask, path: Path, cache: Path) -> CloudTeacher:
    """Load an ONNX file as a teacher.

    Args:
        task: what it is to answer.
        path: the file.
        cache: folder where its answers are kept.

    Raises:
        ConfigError: it cannot be read, or does not answer such windows.
    """
    output = task.recipe.teacher.given
    if not output:
        raise ConfigError('--teacher: the recipe trains its own; say [teacher] given = "logits" or "probabilities"')
    content = path.read_bytes()
    try:
        model = onnx.load_model_from_string(content)
    except DecodeError as error:
        raise ConfigError(f"{path.name}: not an ONNX file: {error}") from error
    answers = OnnxTeacher(model=content, output=output, classes=task.classes, cache=cache)
    answers.answer(task.validation.contexts[:1])
    answers.check_alone(task.validation.contexts[spread(len(task.validation), NEIGHBOURS)])
    ended = canonicalise(model if output == "probabilities" else with_softmax(model))
    return CloudTeacher(
        answers=answers,
        # Probabilities that come from elsewhere than a softmax (an ensemble's mean) stay as they are.
        at=lambda temperature: with_temperature(ended, temperature) if ends_in_softmax(ended) else ended,
        step=hashlib.sha256(content).hexdigest(),
    )


def _named(family: TeacherFamily) -> str:
    """Name a family and its size, or its file."""
    size = family.file.name if isinstance(family, Embedding) else f"width {family.width:g}"
    return f"{type(family).__name__} {size}"


def smallest_within(scores: Sequence[float], within: float) -> int:
    """Find the first candidate, smallest first, that lacks at most `within` of the best score."""
    return next(place for place, score in enumerate(scores) if score >= max(scores) - within)


def _train_members(
    task: TrainingTask, front: FrontEnd, wanted: Sequence[tuple[TeacherFamily, int]], steps: StepCache, say: Say
) -> tuple[_Member, ...]:
    """Train networks of these families and seeds, each in a process of its own where there are cores for it.

    One thread trains one network: with more, sums would be added up in another order, and the weights differ.
    """
    missing = [
        (family, seed)
        for family, seed in wanted
        if not steps.folder_of("teacher", _member_inputs(task, front, family, seed)).is_dir()
    ]
    if len(missing) > 1 and (cores := available_cores()) > 1:
        jobs = [(task, front, family, seed, steps.folder, steps.versions) for family, seed in missing]
        with ProcessPoolExecutor(min(cores, len(missing)), mp_context=multiprocessing.get_context("spawn")) as pool:
            for lines in pool.map(_train_in_child, jobs):
                for line in lines:
                    say(line)
        steps = steps.quietly()
    return tuple(_teacher_member(task, front, family, seed, steps) for family, seed in wanted)


def _train_in_child(job: tuple[TrainingTask, FrontEnd, TeacherFamily, int, Path, dict[str, str]]) -> list[str]:
    """Leave one network among the finished steps; what would have been said."""
    task, front, family, seed, folder, versions = job
    lines: list[str] = []
    _teacher_member(task, front, family, seed, StepCache(folder, versions, lines.append, SystemClock()))
    return lines


def _teacher_member(task: TrainingTask, front: FrontEnd, family: TeacherFamily, seed: int, steps: StepCache) -> _Member:
    recipe, contract = task.recipe, task.contract
    channels, samples = len(contract.channels), contract.history

    def network() -> Classifier:
        return build_network(family, front, channels=channels, samples=samples, classes=task.classes)

    def make(folder: Path) -> None:
        start(seed)
        sampler = task.sampler(seed)
        if isinstance(family, Rocket):
            trained: nn.Module = fit_rocket(network(), *sampler.draw(family.windows), seed=seed)
        elif isinstance(family, Embedding):
            trained = fit_embedding(network(), *task.known(family.windows, seed))
        else:
            assert recipe.teacher.training is not None, "the recipe was checked"
            history = task.history(recipe.teacher.training, task.validation.contexts, epoch=task.windows)
            trained = fit_labels(network(), sampler, recipe.teacher.training, history=history)
            history.save(folder)
        save_weights(trained, folder / "weights.npz")

    folder = steps.run("teacher", _member_inputs(task, front, family, seed), make)
    start(seed)
    curve = load_curve(folder, f"teacher, {_named(family)}, seed {seed}")
    return _Member(load_weights(network(), folder / "weights.npz"), curve)


def _member_inputs(task: TrainingTask, front: FrontEnd, family: TeacherFamily, seed: int) -> dict[str, object]:
    training = task.recipe.teacher.training
    kind = type(family).__name__
    return {**_inputs(task, front), "family": family, "kind": kind, "seed": seed, "training": training}


def fit_student(
    task: TrainingTask, front: FrontEnd, teacher: CloudTeacher, soft_labels: SoftLabels, steps: StepCache
) -> Student:
    """Train the device's network, behind its own front end, on the teacher's answers and the labels."""
    recipe, contract = task.recipe, task.contract
    student = recipe.student

    def network() -> nn.Module:
        return build_network(
            student.network, front, channels=len(contract.channels), samples=contract.window, classes=task.classes
        )

    def make(folder: Path) -> None:
        pool = soft_labels.pool
        start(recipe.seed)
        if isinstance(student.network, Forest):
            grown = network(), pool, student.network
            trained: nn.Module = fit_forest(*grown, teacher_share=student.teacher_share, seed=recipe.seed)
        elif isinstance(student.network, Rocket):
            drawn = slice(student.network.windows)
            targets = pool.targets(student.teacher_share)[drawn]
            trained = fit_rocket(network(), pool.x[drawn], targets, seed=recipe.seed)
        else:
            assert student.training is not None, "the recipe was checked"
            history = task.history(student.training, task.validation.x, epoch=len(pool.y))
            trained = distil(
                network(), pool, soft_labels.distillation, student.training, seed=recipe.seed, history=history
            )
            history.save(folder)
        save_weights(trained, folder / "weights.npz")

    inputs = {
        **_inputs(task, front),
        "student": student,
        "kind": type(student.network).__name__,
        "teacher": [teacher.step, recipe.teacher, recipe.seed],
    }
    folder = steps.run("student", inputs, make)
    start(recipe.seed)
    trained = load_weights(network(), folder / "weights.npz")
    curve = load_curve(folder, f"student, {type(student.network).__name__}")
    return Student(network=trained, step=folder.name, blank=network, curve=curve)


def _inputs(task: TrainingTask, front: FrontEnd) -> dict[str, object]:
    """List the inputs that every network's training depends on."""
    recipe = task.recipe
    return {
        "data": task.data,
        "window": recipe.window,
        "groups": task.train.groups,
        "split": replace(recipe.split, refit=False, folds=0),  # the first fit is the same with them and without
        "split_seed": recipe.seed,
        "augmentation": recipe.augmentation,
        "balance": recipe.balance,
        "front_end": orjson.dumps(front).decode(),
    }
