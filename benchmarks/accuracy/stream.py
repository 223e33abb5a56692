"""Words in a stream: ``python -m benchmarks.accuracy.stream --data ../shared [--steps 600]``.

Trains the recipe spoken-digits as it is, and with a class of nothing (some minutes each), and lays clips of speakers
who were not trained on into a stream: digits, pauses and other words. An event rule for each digit is the plain one
(probability 0.5 in one window), or chosen on the stream of validation speakers by a budget of false alarms.
"""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
from edge_export.choose.models import make_models
from edge_export.choose.selection.timing import answers
from edge_export.data.dataset import Dataset, Float32, Float64, Recording
from edge_export.data.labels import cut, label_windows, stamps
from edge_export.data.readers import WavReader
from edge_export.metrics import REFERENCE
from edge_export.package.pack import VariantSource
from edge_export.recipe.recipe import Recipe, load
from edge_export.recipe.splits import Splits, read_splits
from edge_export.step_cache import StepCache, code_digest

from benchmarks.accuracy.nothing import extent, nothing_clips
from benchmarks.accuracy.place import HISS
from benchmarks.accuracy.sets import SETS
from benchmarks.report import Report
from edge_runtime.answer.events.operating_point import SearchGrid, choose, sweep, upper_bound
from edge_runtime.answer.events.trial import (
    NOTHING,
    KeyAnswers,
    Outcome,
    Span,
    Trial,
    begins,
    judge,
    prepare,
    smooth_all,
)
from edge_runtime.clock import SystemClock
from edge_runtime.event_rule import EventRule

NAME: Final = "nothing"
WORDS: Final = ("bed", "bird", "cat", "dog", "down", "go", "happy", "house", "left", "marvin", "no", "off", "on",
    "right", "sheila", "stop", "tree", "up", "wow", "yes")  # fmt: skip
HOP: Final = 2000
"""Samples from one window of the stream to the next, a quarter of a window."""
PAUSE_S: Final = (0.5, 5.0)
"""Least and longest pause between words."""
PER_HOUR: Final = 60.0
"""False alarms an hour that the rules of all digits may make together on validation speakers."""


class Stream(NamedTuple):
    """Clips laid into background, with where each word lies."""

    values: Float32
    truth: list[tuple[int, Span]]
    """Class and seconds of each clip, other words included."""


def lay(clips: Dataset, seed: int = 0) -> Stream:
    """Lay the words of clips into noise, in random order, with pauses."""
    random = np.random.default_rng(seed)
    parts: list[Float32] = []
    truth: list[tuple[int, Span]] = []
    at = 0
    for index in random.permutation(len(clips.recordings)).tolist():
        clip = clips.recordings[index]
        begin, end = extent(clip.values)
        pause = round(random.uniform(*PAUSE_S) * clips.rate_hz)
        parts += [np.zeros((pause, 1), np.float32), clip.values[begin:end]]
        at += pause
        truth.append((clip.label, (at / clips.rate_hz, (at + end - begin) / clips.rate_hz)))
        at += end - begin
    values = np.concatenate(parts)
    return Stream((values + random.normal(0, HISS, values.shape)).astype(np.float32), truth)


def trials(recipe: Recipe, source: VariantSource, stream: Stream, digits: int) -> list[Trial]:
    """Answer all windows of a stream; a trial for each digit."""
    contract = dataclasses.replace(recipe.window.contract(), hop=HOP)
    recording = Recording(name="stream", group="stream", label=0, values=stream.values)
    windows = cut(contract, recording, stamps(recording, contract.rate_hz))
    scores: Float64 = answers(source, np.stack([window.samples.T for window in windows])).astype(np.float64)
    start = np.array([window.start for window in windows])
    end = start + contract.window / contract.rate_hz
    return [
        prepare(
            KeyAnswers(start, end, scores[:, digit]),
            [span for label, span in stream.truth if label == digit],
            gap_s=contract.window / contract.rate_hz,
            merge_s=0.0,
        )
        for digit in range(digits)
    ]


def outcome(rules: list[EventRule], tried: list[Trial]) -> Outcome:
    """Sum misses and false alarms over the digits; the hours are the mean, since all digits share one stream."""
    each = [
        judge(trial, begins(rule, trial, smooth_all(rule, trial))) for rule, trial in zip(rules, tried, strict=True)
    ]
    total = sum(each, NOTHING)
    return total._replace(hours=total.hours / len(tried))


def chosen(plain: list[EventRule], tried: list[Trial]) -> list[EventRule]:
    """Choose each digit's rule by its part of the budget; the plain one where no rule keeps to it."""
    rules: list[EventRule] = []
    for rule, trial in zip(plain, tried, strict=True):
        point = choose(sweep(rule, {"stream": [trial]}, SearchGrid()), ["stream"], PER_HOUR / len(plain))
        rules.append(rule if point is None else point.rule)
    return rules


def recipes(steps: int) -> tuple[Recipe, Recipe]:
    """Return the recipe as it is, and with a class of nothing, both with the same speakers held out."""
    recipe = load(SETS["spoken-digits"].recipe)
    split = dataclasses.replace(
        recipe.split,
        train=("fsdd/george", "fsdd/lucas", "commands/[0-4a-f]*", "commands/[678]*"),
        validation=("fsdd/jackson", "commands/9*"),
        test=("fsdd/theo", "commands/5*"),
    )
    fsdd, commands = recipe.data
    assert recipe.teacher.training is not None
    assert recipe.student.training is not None
    assert isinstance(commands, WavReader)
    teacher = dataclasses.replace(
        recipe.teacher,
        candidates=recipe.teacher.candidates[:1],
        training=dataclasses.replace(recipe.teacher.training, steps=steps // 2),
    )
    training = dataclasses.replace(recipe.student.training, steps=steps)
    student = dataclasses.replace(recipe.student, training=training)
    before = dataclasses.replace(recipe, split=split, teacher=teacher, student=student)
    others = {**commands.label_names, **dict.fromkeys(WORDS, NAME)}
    return before, dataclasses.replace(
        before,
        classes=(*recipe.classes, NAME),
        data=(fsdd, dataclasses.replace(commands, label_names=others)),
    )


def filled(recipe: Recipe, splits: Splits) -> Splits:
    """Add clips of nothing, made of the words of each set, to training and validation."""

    def more(clips: Dataset) -> Dataset:
        made = nothing_clips(clips.recordings, recipe.classes.index(NAME))
        return dataclasses.replace(clips, recordings=(*clips.recordings, *made))

    train, validation = more(splits.recordings.train), more(splits.recordings.validation)
    return dataclasses.replace(
        splits,
        recordings=dataclasses.replace(splits.recordings, train=train, validation=validation),
        train=label_windows(train, recipe.window.contract()),
        validation=label_windows(validation, recipe.window.contract()),
        digest=f"{splits.digest} and nothing",
    )


def main() -> int:
    """Train, lay, ask, print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.stream", description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the shared data")
    parser.add_argument("--steps", type=int, default=600, help="of the student; the teacher has half as many")
    parser.add_argument("--cache", type=Path, default=Path("build/stream"))
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    folders = SETS["spoken-digits"].folders(options.data, {}, options.cache)
    report = Report("Digits in a stream", ("training, rule", "digits", "missed", "false alarms", "per hour", "at most"))
    before, after = recipes(options.steps)
    read = read_splits(after, folders, print)
    streams = [lay(part) for part in (read.recordings.validation, read.recordings.test)]
    plain = [EventRule(name=digit, label=digit) for digit in before.classes]

    def rows(name: str, recipe: Recipe, splits: Splits) -> None:
        cache = StepCache(options.cache, {"code": code_digest()}, print, SystemClock())
        models = make_models(recipe, splits, cache, print)
        source = {each.name: each for each in models.candidates.sources()}[REFERENCE]
        validation, test = (trials(recipe, source, stream, len(plain)) for stream in streams)
        for kind, rules in (("plain", plain), ("chosen", chosen(plain, validation))):
            got = outcome(rules, test)
            report.rows.append(
                (f"{name}, {kind}", got.happened, got.missed, got.false, f"{got.per_hour:.0f}",
                 f"{upper_bound(got.false) / got.hours:.0f}")
            )  # fmt: skip

    rows("digits alone", before, read_splits(before, folders, print))
    rows("with nothing", after, filled(after, read))
    print(report.text())
    return 0


if __name__ == "__main__":
    main()
