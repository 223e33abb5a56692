"""Accuracy and macro F1 of the candidates, with confidence intervals that allow for few groups.

Windows of one person resemble one another, so the number of windows says too little about the uncertainty. Two
intervals are computed, both at 95 %; the report gives the lower of their lower ends and the higher of their upper ends:

- the *bootstrap by group* draws whole groups (persons, machines, recordings) with replacement: honest about how much
  groups differ, too narrow where there are only a handful;
- *Wilson's* takes windows as independent: too narrow where groups differ, right about few windows and about scores
  near 0 and 1.

What a candidate loses against the reference is measured on pairs: both answer the same windows of the same drawn
groups, so what is hard for both cancels.

Sources: Efron and Tibshirani, An Introduction to the Bootstrap (1993), section 13.3 (percentile interval); Field and
Welsh, Bootstrapping clustered data, J. R. Statist. Soc. B 69 (2007); Wilson, J. Am. Stat. Assoc. 22 (1927).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from edge_runtime.errors import ConfigError
from edge_runtime.io.recordings.score import table_accuracy, table_macro_f1
from edge_runtime.signal.drift.agreement import wilson

Floats = npt.NDArray[np.floating[Any]]
Integers = npt.NDArray[np.integer[Any]]

REFERENCE = "onnx-fp32"
"""Name of the unquantised student, which the other candidates are compared with."""
RESAMPLES = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluation:
    """One candidate's answers against the labels and against the reference. Shares, from 0 to 1.

    Attributes:
        name: of the candidate.
        windows: evaluated.
        groups: they come from.
        accuracy: share of windows answered right.
        low: lower end of its interval.
        high: upper end.
        macro_f1: F1 averaged over the classes, each counting the same.
        f1_low: lower end of its interval, by group.
        f1_high: upper end.
        drop: accuracy of the reference less that of this one; negative where this one is better.
        drop_low: lower end of the interval of the drop, by group.
        drop_high: upper end.
        f1_drop: the same difference of macro F1.
        flips: share of windows on which this one and the reference name different classes.
    """

    name: str
    windows: int
    groups: int
    accuracy: float
    low: float
    high: float
    macro_f1: float
    f1_low: float
    f1_high: float
    drop: float
    drop_low: float
    drop_high: float
    f1_drop: float
    flips: float


def evaluate(
    probabilities: Mapping[str, Floats],
    labels: Integers,
    groups: Sequence[str] | npt.NDArray[Any] | None = None,
    *,
    reference: str = REFERENCE,
    seed: int = 0,
    resamples: int = RESAMPLES,
) -> tuple[Evaluation, ...]:
    """Evaluate candidates on windows of groups that none was trained on.

    Args:
        probabilities: (n, classes) answers by name of the candidate.
        labels: (n,) classes.
        groups: (n,) group of each window; None takes every window as a group.
        reference: the candidate that the others are compared with.
        seed: the bootstrap's seed.
        resamples: drawn by the bootstrap.

    Returns:
        One evaluation per candidate, in their order.

    Raises:
        ConfigError: the reference is missing, there are no windows, shapes do not fit, or answers are not finite.
    """
    if reference not in probabilities:
        raise ConfigError(f"nothing to compare with: '{reference}' is not among {', '.join(probabilities) or 'none'}")
    labels = np.asarray(labels)
    n = len(labels)
    if not n:
        raise ConfigError("no windows to evaluate on; hold out at least one group")
    classes = _classes(probabilities, labels)
    group_of = np.arange(n) if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    if group_of.shape != (n,):
        raise ConfigError(f"{n} labels but groups of shape {group_of.shape}; give one group per window")
    count = int(group_of.max()) + 1
    drawn = _draw(count, resamples, seed)
    tables = {name: _confusion(p.argmax(axis=1), labels, group_of, count, classes) for name, p in probabilities.items()}
    base, chosen = tables[reference], probabilities[reference].argmax(axis=1)
    base_drawn = table_accuracy(_drawn_tables(drawn, base))
    return tuple(
        _evaluated(name, tables[name], base, drawn, base_drawn, float((p.argmax(axis=1) != chosen).mean()))
        for name, p in probabilities.items()
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Gain of one set of answers over another on the same windows.

    Attributes:
        score: of the second.
        gain: the second's less the first's.
        low: lower end of the gain's interval, by group.
        high: upper end.
        groups: they come from.
        groups_gained: of which the accuracy is higher.
        groups_lost: of which it is lower.
    """

    score: float
    gain: float
    low: float
    high: float
    groups: int
    groups_gained: int
    groups_lost: int


def paired(
    before: Integers,
    after: Integers,
    labels: Integers,
    groups: Sequence[str] | npt.NDArray[Any],
    *,
    metric: Literal["accuracy", "macro_f1"] = "accuracy",
) -> Paired:
    """Compare two sets of answers to the same windows.

    Args:
        before: (n,) classes answered.
        after: the same of the other.
        labels: (n,) classes.
        groups: (n,).
        metric: the measure of which gains are told.
    """
    group_of = np.unique(np.asarray(groups), return_inverse=True)[1]
    count, classes = int(group_of.max()) + 1, int(max(before.max(), after.max(), labels.max())) + 1
    one, other = (_confusion(answers, labels, group_of, count, classes) for answers in (before, after))
    measure = table_accuracy if metric == "accuracy" else table_macro_f1
    drawn = _draw(count, RESAMPLES, 0)
    score = float(measure(other.sum(axis=0)))
    gain = score - float(measure(one.sum(axis=0)))
    low, high = _interval(measure(_drawn_tables(drawn, other)) - measure(_drawn_tables(drawn, one)), gain)
    by_group = table_accuracy(other) - table_accuracy(one)
    return Paired(
        score=score,
        gain=gain,
        low=low,
        high=high,
        groups=count,
        groups_gained=int((by_group > 0).sum()),
        groups_lost=int((by_group < 0).sum()),
    )


def _classes(probabilities: Mapping[str, Floats], labels: Integers) -> int:
    classes = next(iter(probabilities.values())).shape[-1]
    for name, answers in probabilities.items():
        if answers.shape != (len(labels), classes):
            raise ConfigError(f"{name} answers with shape {answers.shape}, expected ({len(labels)}, {classes})")
        if not np.isfinite(answers).all():
            raise ConfigError(f"{name} answers with NaN or infinity; do not ship it")
    if labels.min() < 0 or labels.max() >= classes:
        raise ConfigError(f"labels run from {labels.min()} to {labels.max()}, the candidates know {classes} classes")
    return int(classes)


def _evaluated(name: str, table: Floats, base: Floats, drawn: Floats, base_drawn: Floats, flips: float) -> Evaluation:
    windows = int(table.sum())
    accuracy, f1 = float(table_accuracy(table.sum(axis=0))), float(table_macro_f1(table.sum(axis=0)))
    tables = _drawn_tables(drawn, table)
    accuracies = table_accuracy(tables)
    by_group, f1_interval = _interval(accuracies, accuracy), _interval(table_macro_f1(tables), f1)
    drop = float(table_accuracy(base.sum(axis=0))) - accuracy
    drop_interval = _interval(base_drawn - accuracies, drop)
    independent = wilson(round(accuracy * windows), windows)
    return Evaluation(
        name=name,
        windows=windows,
        groups=len(table),
        accuracy=accuracy,
        low=min(by_group[0], independent[0]),
        high=max(by_group[1], independent[1]),
        macro_f1=f1,
        f1_low=f1_interval[0],
        f1_high=f1_interval[1],
        drop=drop,
        drop_low=drop_interval[0],
        drop_high=drop_interval[1],
        f1_drop=float(table_macro_f1(base.sum(axis=0))) - f1,
        flips=flips,
    )


def _draw(groups: int, resamples: int, seed: int) -> Floats:
    """Draw groups with replacement: (resamples, groups), how often each one was drawn."""
    random = np.random.default_rng(seed)
    return random.multinomial(groups, np.full(groups, 1 / groups), size=resamples).astype(np.float64)


def _confusion(answers: Integers, labels: Integers, group_of: Integers, groups: int, classes: int) -> Floats:
    """Count answers by group: (groups, classes, classes), rows are labels, columns answers."""
    place = (group_of * classes + labels) * classes + answers
    counts = np.bincount(place, minlength=groups * classes * classes)
    return counts.reshape(groups, classes, classes).astype(np.float64)


def _drawn_tables(drawn: Floats, table: Floats) -> Floats:
    classes = table.shape[-1]
    return (drawn @ table.reshape(len(table), -1)).reshape(len(drawn), classes, classes)


def _interval(values: Floats, estimate: float) -> tuple[float, float]:
    """Take the percentile interval; widen it to hold the estimate where few groups make it lopsided."""
    low, high = np.quantile(values, [0.025, 0.975])
    return min(float(low), estimate), max(float(high), estimate)
