"""``edge-export build``: a recipe and recordings in, bundles and metrics out."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from edge_export.cli.sign import add_key, signing_key
from edge_runtime.clock import SystemClock
from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli.arguments import existing_file


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "build",
        help="make bundles by a recipe",
        description=(
            "Read recordings, train teacher and student, quantise, measure, set the gate, judge on unseen groups, and "
            "write a bundle per architecture. Finished steps are kept in OUT/cache and not done again."
        ),
        epilog="example: edge-export build examples/activity-watch/recipe.toml --data har=recordings/ -o out/",
    )
    parser.add_argument("recipe", type=existing_file, metavar="RECIPE", help="the TOML file")
    add_data(parser)
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder to write into; made if missing")
    parser.add_argument(
        "--teacher",
        type=existing_file,
        metavar="MODEL.onnx",
        help="the teacher, where the recipe says that it is given",
    )
    add_key(parser)
    parser.set_defaults(run=run)


def add_data(parser: argparse.ArgumentParser) -> None:
    """Declare the folders of a recipe's data."""
    parser.add_argument(
        "--data",
        type=named_folder,
        action="append",
        default=[],
        metavar="KEY=FOLDER",
        help="where the recordings of a [[data]] table of the recipe lie; may be repeated",
    )


def named_folder(text: str) -> tuple[str, Path]:
    """``KEY=FOLDER``.

    Raises:
        argparse.ArgumentTypeError: it is not.
    """
    key, equals, folder = text.partition("=")
    if not equals or not key or not folder:
        raise argparse.ArgumentTypeError(f"{text}: write KEY=FOLDER, for example har=recordings/")
    return key, Path(folder)


def run(options: argparse.Namespace) -> int:
    """Build, and print the figures that matter."""
    from edge_export.recipe.recipe import load  # noqa: PLC0415 - torch and the rest, only when needed

    recipe = load(options.recipe)
    try:
        from edge_export.build import build  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(f'{error.name} is missing: pip install "edge-export[train]"') from error
    figures = build(
        recipe,
        dict(options.data),
        options.out,
        say=_say,
        clock=SystemClock(),
        teacher=options.teacher,
        signer=signing_key(options),
    )
    test = figures["test"]
    _say(f"\non test groups {', '.join(figures['groups']['test'])}, which nothing was chosen by:")
    for name, judged in test["judged"].items():
        interval = f"{judged['low']:.3f} to {judged['high']:.3f}"
        _say(f"  {name:<16} accuracy {judged['accuracy']:.4f} ({interval})  macro F1 {judged['macro_f1']:.4f}")
    for line in headline(figures):
        _say(line)
    gate = test["gate"]
    _say(f"  with cloud       accuracy {gate['combined_accuracy']:.4f}, {gate['forwarded']:.1%} forwarded")
    for finding in figures["verdict"]:
        _say(f"{'' if finding['good'] else '! '}{finding['says']}")
    _say(f"the report: {options.out / 'report.html'}")
    return 0


def headline(figures: dict[str, Any]) -> list[str]:
    """Return accuracy at the device's bytes and microseconds, and the best that is known beside it, a line each."""
    from edge_export.report.figures import BuildMetrics  # noqa: PLC0415 - as the build

    known = BuildMetrics(figures)
    best = known.best_known()
    return [f"  {known.device}: {known.headline()}", *([f"  best known: {best}"] if best else [])]


def _say(line: str) -> None:
    print(line, file=sys.stdout, flush=True)
