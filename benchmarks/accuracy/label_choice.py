"""Choices of the windows that people label: which few of a field's windows teach a network the most.

Each choice sees what a device knows of a window: whose it is, when it came, what the network answers and its features,
and no label. It returns places of windows, for each person as many as its budget says.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from edge_export.choose.surround.hold import decide, fit_hold
from edge_export.data.dataset import Float32, Int64, spread

from edge_runtime.answer.gate.audit import audited

AUDIT_SHARE = 0.05
NEAR = 2
"""Windows to either side of a chosen one that overlap with it or say the same; they come last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """Windows of a field, key by key and in the order of time, as devices see them.

    Attributes:
        person: (n,) whose; the key of the stream.
        answers: (n, classes) probabilities of the network.
        features: (n, width) of the network, before its last layer.
        known: (m, width) features of the windows that the network was trained on.
        hard_share: of each person's windows that the device's gate calls hard.
        share: of each person's windows that get a label.
    """

    person: npt.NDArray[np.str_]
    answers: Float32
    features: Float32
    known: Float32
    hard_share: float
    share: float

    def streams(self) -> list[tuple[str, Int64, int]]:
        """Return each person with the places of his windows, and how many of them get a label."""
        found = []
        for person in np.unique(self.person).tolist():
            own = np.flatnonzero(self.person == person)
            found.append((person, own, max(1, round(self.share * len(own)))))
        return found

    @property
    def margin(self) -> Float32:
        """(n,) the first answer's probability less the second's."""
        two = np.sort(self.answers, axis=1)[:, -2:]
        found: Float32 = two[:, 1] - two[:, 0]
        return found


Choice = Callable[[Seen, np.random.Generator], Int64]


def at_random(seen: Seen, rng: np.random.Generator) -> Int64:
    """Draw windows of each person."""
    return np.concatenate([rng.choice(own, budget, replace=False) for _, own, budget in seen.streams()])


def kept(seen: Seen) -> list[tuple[Int64, int]]:
    """Return what the case library keeps of each person, in the order of time: hard windows, and audits of the others.

    The gate holds its share, and begins at what the scores of the other people say.
    """
    trust = seen.answers.max(axis=1)
    found = []
    for person, own, budget in seen.streams():
        fitted = fit_hold(trust[seen.person != person], seen.hard_share)
        hard = decide(trust[own], fitted, seen.hard_share, person)
        audits = np.array([audited(f"{person}@{place}", AUDIT_SHARE) for place in own.tolist()])
        found.append((own[hard | audits], budget))
    return found


def oldest_cases(seen: Seen, rng: np.random.Generator) -> Int64:
    """Label what the library keeps from the oldest on."""
    del rng
    return np.concatenate([cases[:budget] for cases, budget in kept(seen)])


def drawn_cases(seen: Seen, rng: np.random.Generator) -> Int64:
    """Label what the library keeps in a random order."""
    return np.concatenate([rng.permutation(cases)[:budget] for cases, budget in kept(seen)])


def least_margin(seen: Seen, rng: np.random.Generator) -> Int64:
    """Label the windows of each person whose two first answers are nearest (Scheffer et al. 2001)."""
    del rng
    return np.concatenate([own[np.argsort(seen.margin[own])][:budget] for _, own, budget in seen.streams()])


def least_margin_by_answer(seen: Seen, rng: np.random.Generator) -> Int64:
    """Label as many windows of each answer, those of the least margin first, and none beside another."""
    del rng
    found = []
    for _, own, budget in seen.streams():
        order = _apart(np.argsort(seen.margin[own]))
        found.append(own[by_turns(seen.answers[own].argmax(axis=1), order)[:budget]])
    return np.concatenate(found)


def drawn_by_answer(seen: Seen, rng: np.random.Generator) -> Int64:
    """Label as many windows of each answer, in a random order."""
    found = []
    for _, own, budget in seen.streams():
        found.append(own[by_turns(seen.answers[own].argmax(axis=1), rng.permutation(len(own)))[:budget]])
    return np.concatenate(found)


def cases_by_answer(seen: Seen, rng: np.random.Generator) -> Int64:
    """Label as many of each answer among what the library keeps, in a random order."""
    found = []
    for cases, budget in kept(seen):
        order = by_turns(seen.answers[cases].argmax(axis=1), rng.permutation(len(cases)))
        found.append(cases[order[:budget]])
    return np.concatenate(found)


def farthest(seen: Seen, rng: np.random.Generator) -> Int64:
    """Label the windows of each person farthest from those known and chosen (k-centre, Sener and Savarese 2018).

    The features are brought to one scale by those of the windows that the network was trained on.
    """
    del rng
    scale = seen.known.std(axis=0) + 1e-6
    known = seen.known[spread(len(seen.known), 500)] / scale
    found: list[int] = []
    for _, own, budget in seen.streams():
        features = seen.features[own] / scale
        distance = np.min([np.square(features - one).sum(axis=1) for one in known], axis=0)
        for _ in range(budget):
            place = int(distance.argmax())
            found.append(int(own[place]))
            distance = np.minimum(distance, np.square(features - features[place]).sum(axis=1))
            distance[place] = -1.0
    return np.array(found, np.int64)


def by_turns(answered: Int64, order: Int64) -> Int64:
    """Reorder windows so that each answer has its turn, those of one answer staying in their order.

    >>> by_turns(np.array([0, 0, 0, 1, 2]), np.arange(5)).tolist()
    [0, 3, 4, 1, 2]
    """
    turn: dict[int, int] = {}
    turns = []
    for place in order.tolist():
        turns.append(turn.get(int(answered[place]), 0))
        turn[int(answered[place])] = turns[-1] + 1
    found: Int64 = order[np.argsort(turns, kind="stable")]
    return found


def _apart(order: Int64) -> Int64:
    """Put windows beside one that comes before them to the end."""
    taken = np.zeros(len(order), bool)
    first: list[int] = []
    last: list[int] = []
    for place in order.tolist():
        beside = taken[max(0, place - NEAR) : place + NEAR + 1].any()
        (last if beside else first).append(place)
        taken[place] = not beside
    return np.array([*first, *last], np.int64)


def whole_stretches(stretch: Int64, person: Sequence[str], share: float, rng: np.random.Generator) -> Int64:
    """Draw a share of each person's stretches, and label all their windows.

    Args:
        stretch: (n,) number of the stretch of one label that a window lies in.
        person: (n,) whose.
        share: of the stretches, at least one of each person.
        rng: of the draw.
    """
    of = {int(one): whose for one, whose in zip(stretch.tolist(), person, strict=True)}
    found: list[int] = []
    for _, mine in itertools.groupby(sorted(of, key=lambda one: (of[one], one)), key=of.__getitem__):
        numbers = np.array(list(mine))
        found += rng.choice(numbers, max(1, round(share * len(numbers))), replace=False).tolist()
    return np.flatnonzero(np.isin(stretch, found))
