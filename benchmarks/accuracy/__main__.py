"""Command that measures accuracy on groups left out: ``python -m benchmarks.accuracy [SET ...] --data ../shared``.

Out-of-fold answers take minutes a fold and are kept in ``--cache``. Without the shared data, ``--seglearn WHEEL`` runs
the one set that comes in a Python package.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import numpy as np
from edge_export.data.dataset import Int64
from edge_export.recipe.recipe import load

from benchmarks.accuracy.answers import FILES, answers_of
from benchmarks.accuracy.peers import Peer, SpeechEmbedding, fold_by_fold, forest, rocket
from benchmarks.accuracy.scoring import FEW
from benchmarks.accuracy.sets import SETS, Set
from benchmarks.accuracy.table import Line, lines, ways


def main() -> int:
    """Print a table for each set."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.accuracy", description=__doc__)
    parser.add_argument("sets", nargs="*", metavar="SET", help=f"of {', '.join(SETS)}; default: all that have data")
    parser.add_argument("--data", type=Path, help="the shared data and models")
    parser.add_argument("--seglearn", type=Path, metavar="WHEEL", help="seglearn-1.2.5-py3-none-any.whl")
    parser.add_argument("--cache", type=Path, default=Path("build/accuracy"))
    options = parser.parse_args()
    chosen = [SETS[name] for name in options.sets] or list(SETS.values())
    for one in chosen:
        if options.data is None and not (one.public and options.seglearn):
            print(f"{one.name}: left out, since its data is not there (--data FOLDER)")
            continue
        _measure(one, options.data, options.seglearn, options.cache / one.name)
    return 0


def _measure(one: Set, shared: Path | None, wheel: Path | None, cache: Path) -> None:
    recipe = load(one.recipe)
    given = answers_of(one.recipe, one.folders(shared or Path(), wheel), cache, _say, folds=one.folds)
    answered: dict[str, Int64] = {
        name: _kept(cache / f"{name.split()[0]}.npy", lambda peer=peer: fold_by_fold(given.windows, given.fold, peer))
        for name, peer in _peers(one, shared, recipe.window.rate_hz).items()
    }
    ours, asked = ways(recipe, given, FILES[-1])
    answered |= ours
    groups = len(np.unique(given.windows.group))
    print(f"\n### {one.name}: {len(given.windows):,} windows of {groups} {one.groups}, {given.fold.max() + 1} folds\n")
    if groups < FEW:
        print(f"{groups} {one.groups} are too few to say what the next one gets.\n")
    print("| way | accuracy, next one | macro F1 | near borders | events F1 | over the device as of today | asked |")
    print("|---|---|---|---|---|---|---|")
    for line in lines(given.windows, recipe.window.hop, answered, asked, len(recipe.classes)):
        print(_row(line))
    sys.stdout.flush()


def _kept(file: Path, make: object) -> Int64:
    """Return a peer's answers, made once."""
    if not file.exists():
        assert callable(make)
        np.save(file, make())
    found: Int64 = np.load(file)
    return found


def _peers(one: Set, shared: Path | None, rate_hz: float) -> dict[str, Peer]:
    peers: dict[str, Peer] = {"forest on statistics": forest, "MiniRocket and ridge": rocket}
    if one.kind == "sound" and shared is not None:
        peers["embedding of speech and logistic regression"] = SpeechEmbedding(
            shared / "models" / "openwakeword-frontend", rate_hz
        )
    return peers


def _row(line: Line) -> str:
    mean, low, high = line.gain
    asked = f"{line.asked:.1%}" if line.asked else ""
    gain = "" if mean == low == high == 0 else f"{mean:+.3f} ({low:+.3f} to {high:+.3f})"
    scores = " | ".join(f"{score:.3f}" for score in (line.macro_f1, line.tolerant, line.events))
    return f"| {line.name} | {line.accuracy} | {scores} | {gain} | {asked} |"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
