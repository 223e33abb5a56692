"""Command that measures accuracy on groups left out: ``python -m benchmarks.accuracy [SET ...] --data ../shared``.

Out-of-fold answers take minutes a fold and are kept in ``--cache``. Without the shared data, ``--seglearn WHEEL`` and
``--aeon WHEEL`` run the sets that come in a Python package.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
from edge_export.choose.surround.cross_fit import Folds, OutOfFold
from edge_export.data.dataset import Int64
from edge_export.learn.training.baseline import RandomForest
from edge_export.package.bundles import TEACHER as TEACHER_FILE

from benchmarks.accuracy import headline
from benchmarks.accuracy.answers import FILES, answers_of, recipe_of, say
from benchmarks.accuracy.cost import Cost, network_costs, peer_cost
from benchmarks.accuracy.peers import Peer, Rocket, SpeechEmbedding, fit_without, fold_by_fold
from benchmarks.accuracy.scoring import FEW
from benchmarks.accuracy.sets import PACKAGES, SETS, Set
from benchmarks.accuracy.table import DEVICE, TEACHER, Line, lines, ways
from edge_runtime.errors import ConfigError

Answered = dict[str, Int64]


@dataclass(frozen=True, kw_only=True)
class Options:
    """Choices of the command line."""

    data: Path | None
    wheels: dict[str, Path]
    cache: Path
    seeds: int
    small_teacher: bool


def main() -> int:
    """Print a table for each set, and one headline for all."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(SETS)}; default: all that have data")
    parser.add_argument("--data", type=Path, help="the shared data and models")
    for package, needed in PACKAGES.items():
        parser.add_argument(f"--{package}", type=Path, metavar="WHEEL", help=f"pip download --no-deps {needed}")
    parser.add_argument("--cache", type=Path, default=Path("build/accuracy"))
    parser.add_argument("--seeds", type=int, default=1, help="trainings of each network and peer; default 1")
    parser.add_argument(
        "--small-teacher", action="store_true", help="each recipe's first teacher alone, to spare hours"
    )
    given = parser.parse_args()
    wheels = {name: getattr(given, name) for name in PACKAGES if getattr(given, name)}
    options = Options(
        data=given.data, wheels=wheels, cache=given.cache, seeds=given.seeds, small_teacher=given.small_teacher
    )
    head = []
    for one in [SETS[name] for name in given.sets] or list(SETS.values()):
        try:
            head.append(_measure(one, options))
        except ConfigError as error:
            print(error)
    print("\n## At these bytes and microseconds, beside others\n", headline.HEAD, *head, sep="\n")
    return 0


def _measure(one: Set, options: Options) -> str:
    """Print the table of a set; return its row of the headline."""
    recipe, cache = recipe_of(one.recipe, small_teacher=options.small_teacher), options.cache / one.name
    folders = one.folders(options.data, options.wheels, cache)
    peers = _peers(one, options.data, recipe.window.rate_hz)
    found: dict[str, list[float]] = {}
    first: list[Line] = []
    folds = Folds(one.folds, one.apart)
    for seed in range(options.seeds):
        given = answers_of(recipe, folders, cache, say, folds=folds, seed=seed)
        judged = [int(given.fold.max())] if one.apart else sorted({*given.fold.tolist()})
        answered = _peers_answers(given, peers, cache, seed=seed, judged=judged)
        ours, asked = ways(recipe, given, FILES[-1], judged=judged, stream=not one.no_stream)
        kept = np.isin(given.fold, judged)
        table = lines(
            given.windows.at(kept),
            recipe.window.hop,
            {name: each[kept] for name, each in (answered | ours).items()},
            {name: each[kept] for name, each in asked.items()},
            len(recipe.classes),
        )
        first = first or table
        for line in table:
            found.setdefault(line.name, []).append(line.accuracy.mean)
        if not seed:
            costs = _costs(given, peers, network_costs(recipe, folders, cache, say), judged)
            names = [line.name for line in table if line.name not in {*peers, TEACHER}]
            print(f"\n### {one.name}: {kept.sum():,} windows of {_origin(one, given, kept)}\n")
            print("Best known: {:.3f} ({}).\n".format(*headline.best_known(one, table, names)))
            _print(table, costs, stream=not one.no_stream)
    return headline.row(one, first, names, costs, found)


def _peers_answers(given: OutOfFold, peers: dict[str, Peer], cache: Path, *, seed: int, judged: list[int]) -> Answered:
    """Return the answers of peers, made once."""
    answered: Answered = {}
    for name, peer in peers.items():
        file = cache / f"{name.split()[0]}{f'-{seed}' if seed else ''}.npy"
        if not file.exists():
            np.save(file, fold_by_fold(given.windows, given.fold, peer, seed=seed, judged=judged))
        answered[name] = np.load(file)
    return answered


def _costs(given: OutOfFold, peers: dict[str, Peer], networks: dict[str, Cost], judged: list[int]) -> dict[str, Cost]:
    """Return the costs of each row's model; a peer's are of the last fold's."""
    left: npt.NDArray[np.bool_] = given.fold == judged[-1]
    costs = {
        name: peer_cost(fit_without(given.windows, left, peer, seed=0), given.windows.x[left])
        for name, peer in peers.items()
    }
    return costs | {TEACHER: networks[TEACHER_FILE], DEVICE: networks[FILES[-1]]}


def _origin(one: Set, given: OutOfFold, kept: npt.NDArray[np.bool_]) -> str:
    """Return whose windows they are, and which rows have no meaning for them."""
    groups = len(np.unique(given.windows.group[kept]))
    told = f"{groups} {one.groups}, {given.fold.max() + 1} folds"
    if one.apart:
        told = f"the {one.groups}\n\nTrained on {(~kept).sum():,} others. The split does not say whose they are."
    elif groups < FEW:
        told += f"\n\n{groups} {one.groups} are too few to say what the next one gets."
    if one.no_stream:
        told += f"\n\nNo row over time, and no share for every key: {one.no_stream}."
    return told


def _print(table: list[Line], costs: dict[str, Cost], *, stream: bool) -> None:
    columns = ["way", "accuracy, next one", "macro F1", *(["near borders", "events F1"] if stream else [])]
    columns += ["over the device as of today", "asked", "bytes", "us"]
    print(f"| {' | '.join(columns)} |")
    print("|---" * len(columns) + "|")
    for line in table:
        print(f"| {' | '.join(_row(line, costs.get(line.name, costs[DEVICE]), stream=stream))} |")
    sys.stdout.flush()


def _peers(one: Set, shared: Path | None, rate_hz: float) -> dict[str, Peer]:
    peers: dict[str, Peer] = {"forest on statistics": RandomForest, "MiniRocket and ridge": Rocket}
    if one.kind == "sound" and shared is not None:
        peers["embedding of speech and logistic regression"] = SpeechEmbedding(
            shared / "models" / "openwakeword-frontend", rate_hz
        )
    return peers


def _row(line: Line, cost: Cost, *, stream: bool) -> list[str]:
    mean, low, high = line.gain
    gain = "" if line.name == DEVICE or mean == low == high == 0 else f"{mean:+.3f}"
    alone = line.accuracy.groups == 1
    return [
        line.name,
        f"{line.accuracy.mean:.3f}" if alone else str(line.accuracy),
        f"{line.macro_f1:.3f}",
        *([f"{line.tolerant:.3f}", f"{line.events:.3f}"] if stream else []),
        f"{gain} ({low:+.3f} to {high:+.3f})" if gain and not alone else gain,
        f"{line.asked:.1%}" if line.asked else "",
        f"{cost.size:,}",
        f"{cost.us:,.0f}",
    ]


if __name__ == "__main__":
    sys.exit(main())
