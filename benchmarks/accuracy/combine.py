"""Ways to join what a network says of a window with what it says of copies of it, and the choice among them.

1. A way names the copies, how answers are joined, and how much one of a copy weighs beside the window's own.
2. Each way is fitted to the folds that are not judged: a temperature for the windows that were asked about again.
3. There, that way is chosen whose answers have the least cross-entropy; none, where no way has less than the network
   alone. A temperature alone is tried, too: where it is enough, copies are not worth their passes.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
import numpy.typing as npt
from edge_export.choose.evaluation.calibration import at_temperature, fit_temperature, log_probabilities
from edge_export.choose.surround.log_linear import cross_entropy
from edge_export.choose.surround.over_time import Streams
from edge_export.data.dataset import Float32, Float64, Int64

from benchmarks.accuracy.answers import FILES
from benchmarks.accuracy.copies import EARLIER, MIRRORED, STRENGTHS, VARIED
from edge_runtime.manifest.surround import OverTime
from edge_runtime.model.over_time import FORGET

Bools = npt.NDArray[np.bool_]
By = Literal["logs", "mean", "majority"]

WEIGHTS: Final = (0.25, 0.5, 1.0)
"""Of a copy's answer, the window's own having 1."""
FLOAT: Final = FILES[0]
"""The bundle's second variant, asked about the window itself."""
COUNTS: Final = (1, 2, 4)
FLOOR: Final = 1e-9
"""Least probability of an answer in the filter."""
ALL: Final = "whichever"
"""Family that every way is in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answers:
    """Answers to windows and to their copies.

    Attributes:
        own: (n, classes) calibrated probabilities.
        given: (n, classes) of each copy by name, at the same temperature, and (n,) whether the copy is there.
        y: (n,) class indices.
    """

    own: Float32
    given: Mapping[str, tuple[Float32, Bools]]
    y: Int64


@dataclass(frozen=True, slots=True, kw_only=True)
class Way:
    """One way (rule 1).

    Attributes:
        family: of the copies.
        copies: names.
        by: mean of log-probabilities, mean of probabilities, or the label that most of them name.
        weight: of a copy.
    """

    family: str
    copies: tuple[str, ...]
    by: By = "logs"
    weight: float = 1.0

    def __str__(self) -> str:
        return f"{', '.join(self.copies)} by {self.by}" + (f" at {self.weight:g}" if self.by != "majority" else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Answers by a way, and what they cost on the folds that are not judged; no way: the network alone."""

    way: Way | None
    cost: float
    answers: Float32


def ways(names: Sequence[str]) -> list[Way]:
    """Return all ways to use copies of these names, few before many."""
    steps = dict.fromkeys(name.rpartition(" x ")[0] for name in names if name.startswith("earlier"))
    families: list[tuple[str, tuple[str, ...]]] = []
    for count in COUNTS:
        families += [("earlier", _numbered(step, min(count, EARLIER))) for step in steps]
        families += [("varied", _numbered(f"varied {strength}", min(count, VARIED))) for strength in STRENGTHS]
    families.append((FLOAT, (FLOAT,)))
    if MIRRORED in names:
        families.append(("varied", (MIRRORED,)))
    for count in COUNTS[1:]:
        mixed = _numbered(list(steps)[len(steps) // 2], count) if steps else ()
        families.append((ALL, (*mixed, *_numbered("varied 0.5", count), *({FLOAT, MIRRORED} & {*names}))))
    joined = [("logs", weight) for weight in WEIGHTS] + [("mean", weight) for weight in WEIGHTS] + [("majority", 1.0)]
    return [
        Way(family=family, copies=copies, by=by, weight=weight)  # type: ignore[arg-type]
        for (family, copies), (by, weight) in itertools.product(families, joined)
    ]


def join(way: Way, answers: Answers, rows: Bools) -> Float32:
    """Join the answers to some windows, (m, classes) probabilities; a copy that is not there has no say."""
    own = answers.own[rows].astype(np.float64)
    votes: list[tuple[Float64, Float64]] = [(own, np.ones((len(own), 1)))]
    for name in way.copies:
        given, there = answers.given[name]
        votes.append((given[rows].astype(np.float64), there[rows, None] * np.float64(way.weight)))
    total = sum(weight for _, weight in votes)
    if way.by == "logs":
        logs = sum(weight * log_probabilities(given.astype(np.float32)) for given, weight in votes) / total
        raw = np.exp(logs - np.max(logs, axis=1, keepdims=True))
    elif way.by == "mean":
        raw = sum(weight * given for given, weight in votes) / total
    else:  # the window's own answer decides between labels that as many name
        classes = np.eye(own.shape[1])
        raw = own + sum((weight > 0) * classes[given.argmax(axis=1)] for given, weight in votes)
    joined: Float32 = (raw / np.sum(raw, axis=1, keepdims=True)).astype(np.float32)
    return joined


def trials(
    answers: Answers, rest: Bools, probed: Bools, tried: Sequence[Way], then: Callable[[Float32], Float32]
) -> list[Trial]:
    """Answer all windows in every way (rule 2).

    Args:
        answers: of the network, calibrated without the fold that is judged.
        rest: (n,) windows of the folds that are not.
        probed: (n,) windows that are asked about again.
        tried: ways.
        then: what becomes of answers, (ways, n, classes): a filter over time, or nothing.
    """
    every = (None, Way(family="", copies=()), *tried)
    stack = np.repeat(answers.own[None], len(every), axis=0)
    fitted, known = rest[probed], answers.y[probed & rest]
    for after, way in zip(stack, every, strict=True):
        if way is not None:
            joined = join(way, answers, probed)
            after[probed] = at_temperature(joined, fit_temperature(joined[fitted], known))
    targets = np.eye(answers.own.shape[1])[answers.y[rest]]
    return [
        Trial(way=way, cost=float(cross_entropy(out[rest].astype(np.float64), targets).mean()), answers=out)
        for way, out in zip(every, then(stack), strict=True)
    ]


def filter_all(spec: OverTime, streams: Streams, stack: Float32) -> Float32:
    """Filter many answers to the same windows at once, (ways, n, classes), each by an `OverTimeFilter`.

    Args:
        spec: of the filter.
        streams: of the windows.
        stack: calibrated probabilities.
    """
    prior, step = np.array(spec.prior), np.array(spec.transition)
    likely = (np.maximum(stack, FLOOR) / prior) ** spec.weight
    hops, off = np.divmod(np.diff(streams.slot), streams.hop)
    follows = (streams.stream[1:] == streams.stream[:-1]) & (off == 0) & (hops > 0) & (hops <= FORGET)
    out: Float32 = np.empty_like(stack)
    state = np.broadcast_to(prior, (len(stack), len(prior)))
    for place in range(stack.shape[1]):
        if place and follows[place - 1]:
            for _ in range(int(hops[place - 1])):
                state = state @ step
        else:
            state = np.broadcast_to(prior, state.shape)
        raw = state * likely[:, place]
        state = raw / raw.sum(axis=1, keepdims=True)
        out[:, place] = state
    return out


def choose(found: Sequence[Trial], family: str) -> Trial:
    """Choose among the ways of a family, the network alone and a temperature alone (rule 3)."""
    best = min((one for one in found if _in(one.way, family)), key=lambda one: one.cost)
    return best if best.way is not None and best.way.copies else found[0]


def _in(way: Way | None, family: str) -> bool:
    return way is None or not way.copies or family in {ALL, way.family}


def _numbered(step: str, count: int) -> tuple[str, ...]:
    return tuple(f"{step} x {number}" for number in range(1, count + 1))
