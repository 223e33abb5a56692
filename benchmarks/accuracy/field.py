"""People of a flywheel's measurement, and networks that learn from some of their labels (see `flywheel`)."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from edge_export.choose.evaluation.calibration import at_temperature, fit_temperature
from edge_export.data.dataset import UNLABELLED, Dataset, Float32, Int64, Recording, Windows
from edge_export.learn.augment.sampler import Sampler
from edge_export.learn.augment.sampling import PlaceSampler
from edge_export.learn.networks import Calibrated, Classifier, build_network
from edge_export.learn.training.distill import Distillation, DistillationSet, distil, label_pool
from edge_export.learn.training.loop import answer, fit_labels, start
from edge_export.learn.training.task import front_end
from edge_export.recipe.recipe import Recipe
from edge_export.recipe.training_spec import Training
from torch import from_numpy, no_grad  # noqa: TID251 - the features of a network of the export toolchain

from benchmarks.accuracy import label_choice
from benchmarks.accuracy.label_choice import Choice, Seen

STEPS = 300
DRAWN = 0.2
"""Share of labelled windows of the field among those that training draws, see `edge_export.data.readers.spec`."""
POOL = 4096
SURE = 0.9
SHARE = 0.1
"""Of the field's windows that get a label."""

Scores = dict[str, dict[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class People:
    """Recordings of one split of people.

    Attributes:
        base: labelled.
        field: first half of the recordings of the field's people.
        later: second half of them; judged.
        new: of the others; judged.
    """

    base: Dataset
    field: Dataset
    later: Dataset
    new: Dataset


def split_people(dataset: Dataset, base: int, field: int, number: int) -> People:
    """Draw people; base has every class.

    Args:
        dataset: of all people.
        base: number of people.
        field: number of people.
        number: of the split.
    """
    rng = np.random.default_rng(number)
    while True:
        drawn = rng.permutation(sorted(dataset.groups)).tolist()
        of_base = dataset.only(drawn[:base])
        if len(_labels(of_base)) == len(dataset.classes):
            break
    first, second = halves(dataset.only(drawn[base : base + field]), rng)
    return People(base=of_base, field=first, later=second, new=dataset.only(drawn[base + field :]))


def halves(dataset: Dataset, rng: np.random.Generator) -> tuple[Dataset, Dataset]:
    """Halve people in time: each of their recordings where it has one label, else the recordings of each.

    Recordings of one label come in an order of their own for each person: people do not train by the alphabet.
    """
    first: list[Recording] = []
    second: list[Recording] = []
    for person in dataset.groups:
        own = [recording for recording in dataset.recordings if recording.group == person]
        if own[0].marks is not None:
            first += own[: len(own) // 2]
            second += own[len(own) // 2 :]
            continue
        for place in rng.permutation(len(own)).tolist():
            middle = len(own[place].values) // 2
            first.append(replace(own[place], values=own[place].values[:middle]))
            second.append(replace(own[place], values=own[place].values[middle:]))
    return replace(dataset, recordings=tuple(first)), replace(dataset, recordings=tuple(second))


def as_cases(windows: Windows, labels: Int64, places: Int64, share: float = 0.0) -> tuple[Recording, ...]:
    """Return windows as recordings of their own, as an export of reviewed cases has them.

    Args:
        windows: of the field.
        labels: (n,) of all windows.
        places: of the windows.
        share: of the draws of training; 0: each counts as a window of base.
    """
    x = windows.x
    return tuple(
        Recording(
            name=f"case-{place}", group=str(windows.group[place]), label=int(labels[place]), values=x[place].T,
            share=share,
        )
        for place in places.tolist()
    )  # fmt: skip


def _labels(dataset: Dataset) -> set[int]:
    found: set[int] = set()
    for recording in dataset.recordings:
        found |= {recording.label} if recording.marks is None else set(recording.marks.tolist())
    return found - {UNLABELLED}


class _Ends:
    """Sampler of windows without their history."""

    def __init__(self, sampler: Sampler, samples: int) -> None:
        self._sampler, self._samples = sampler, samples

    def draw(self, count: int) -> tuple[Float32, Int64]:
        contexts, y = self._sampler.draw(count)
        return np.ascontiguousarray(contexts[:, :, -self._samples :]), y


class Trial:
    """One split and seed: its people, and networks that learn from some of their labels.

    Args:
        recipe: of the networks.
        people: of the split.
        seed: of weights and draws.
    """

    def __init__(self, recipe: Recipe, people: People, seed: int) -> None:
        self.recipe, self.people, self.seed = recipe, people, seed
        self._contract = recipe.window.contract()
        self.field = self.recipe.window.cut(people.field)

    def with_base(self, recordings: tuple[Recording, ...]) -> Dataset:
        """Return the base's recordings and others."""
        return replace(self.people.base, recordings=(*self.people.base.recordings, *recordings))

    def sampler(self, dataset: Dataset, seed: int) -> Sampler:
        """Draw as a build does."""
        recipe = self.recipe
        return PlaceSampler(
            dataset, self._contract, rule=recipe.window.label, variation=recipe.augmentation, balance=recipe.balance,
            seed=seed,
        )  # fmt: skip

    def _network(self, dataset: Dataset, *, teacher: bool) -> Classifier:
        recipe, contract = self.recipe, self._contract
        start(self.seed)
        front = front_end(recipe, self.recipe.window.cut(dataset).x, whose="teacher" if teacher else "student")
        return build_network(
            recipe.teacher.candidates[0] if teacher else recipe.student.network, front,
            channels=len(contract.channels), samples=contract.history if teacher else contract.window,
            classes=len(recipe.classes),
        )  # fmt: skip

    def by_labels(self, dataset: Dataset) -> Classifier:
        """Train the device's network on labels."""
        network, sampler = self._network(dataset, teacher=False), self.sampler(dataset, self.seed)
        fit_labels(network, _Ends(sampler, self._contract.window), self._training(self.recipe.student.training))
        return network

    def by_teacher(self, dataset: Dataset, rest: tuple[Recording, ...] = ()) -> Classifier:
        """Train the teacher on labels, and the device's network by its answers to the same and to the rest (rule 3)."""
        recipe, samples = self.recipe, self._contract.window
        teacher = self._network(dataset, teacher=True)
        fit_labels(teacher, self.sampler(dataset, self.seed), self._training(recipe.teacher.training))
        asked = Calibrated([teacher])
        pool = label_pool(asked, self.sampler(dataset, self.seed + 1000), size=POOL, samples=samples)
        if rest:
            share = len(rest) / len(self.recipe.window.cut(dataset))
            unknown = replace(dataset, classes=("any",), recordings=rest)
            more = label_pool(asked, self.sampler(unknown, self.seed), size=round(share * POOL), samples=samples)
            pool = DistillationSet(
                x=np.concatenate([pool.x, more.x]),
                y=np.concatenate([pool.y, np.full(len(more.y), UNLABELLED, np.int64)]),
                teacher=np.concatenate([pool.teacher, more.teacher]),
            )
        stated = recipe.student
        how = Distillation(pool=POOL, temperature=stated.temperature, teacher_share=stated.teacher_share)
        network = self._network(dataset, teacher=False)
        distil(network, pool, how, self._training(stated.training), seed=self.seed)
        return network

    @staticmethod
    def _training(stated: Training | None) -> Training:
        assert stated is not None, "the recipes of these sets train by gradient"
        return replace(stated, steps=STEPS)

    @property
    def base_windows(self) -> int:
        """Windows of base."""
        return len(self._seen.known)

    @cached_property
    def everything(self) -> Dataset:
        """Base and the field's recordings, all labelled."""
        return self.with_base(self.people.field.recordings)

    @cached_property
    def base(self) -> Classifier:
        """The network that devices of the field have."""
        return self.by_labels(self.people.base)

    @cached_property
    def _seen(self) -> Seen:
        def features(x: Float32) -> Float32:
            with no_grad():
                found: Float32 = self.base.features(from_numpy(x)).mean(dim=-1).numpy()
            return found

        return Seen(
            person=self.field.group, answers=_answers(self.base, self.field.x), features=features(self.field.x),
            known=features(self.recipe.window.cut(self.people.base).x),
            hard_share=self.recipe.gate.max_forwarded, share=SHARE,
        )  # fmt: skip

    def choose(self, choice: Choice) -> Int64:
        """Choose the windows that get a label."""
        return choice(self._seen, np.random.default_rng(self.seed))

    def stretches(self) -> Int64:
        """Choose a tenth of the stretches of one label, with all their windows."""
        y, recording = self.field.y, self.field.recording
        number = np.cumsum(np.r_[False, (np.diff(y) != 0) | (np.diff(recording) != 0)])
        return label_choice.whole_stretches(number, self.field.group.tolist(), SHARE, np.random.default_rng(self.seed))

    def labelled(self, places: Int64, share: float = DRAWN) -> Dataset:
        """Return base and the windows that got a label."""
        return self.with_base(as_cases(self.field, self.field.y, places, share))

    def rest(self, places: Int64) -> Int64:
        """Return the places of all other windows."""
        return np.setdiff1d(np.arange(len(self.field)), places)

    def pseudo(self, places: Int64, network: Classifier) -> Dataset:
        """Return base, what got a label, and what the network is sure of after these labels (rule 3).

        The temperature is that of the base network on the labelled windows, which it had not seen.
        """
        temperature = fit_temperature(self._seen.answers[places], self.field.y[places])
        answers = at_temperature(_answers(network, self.field.x), temperature)
        rest = self.rest(places)
        sure = rest[answers[rest].max(axis=1) >= SURE]
        found = as_cases(self.field, answers.argmax(axis=1), sure)
        return self.with_base((*as_cases(self.field, self.field.y, places, DRAWN), *found))

    def judge(self, network: Classifier) -> Scores:
        """Return the accuracy on each person: of the new ones, and of the field's later halves."""
        found: Scores = {}
        for name, dataset in (("new", self.people.new), ("later", self.people.later)):
            windows = self.recipe.window.cut(dataset)
            right = _answers(network, windows.x).argmax(axis=1) == windows.y
            found[name] = {person: float(right[windows.group == person].mean()) for person in dataset.groups}
        return found


def _answers(network: Classifier, x: Float32) -> Float32:
    return answer(Calibrated([network]).eval(), x)
