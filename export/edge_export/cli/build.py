"""``edge-export build``: a recipe and recordings in, bundles and metrics out."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from edge_export.cli.sign import Signing
from edge_runtime.clock import SystemClock
from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli.arguments import ExistingFile
from edge_runtime.tools.cli.options import operand, option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, aside, command

if TYPE_CHECKING:
    from edge_export.recipe.recipe import Recipe


def named_folder(text: str) -> tuple[str, Path]:
    """``KEY=FOLDER``.

    Raises:
        argparse.ArgumentTypeError: it is not.
    """
    key, equals, folder = text.partition("=")
    if not equals or not key or not folder:
        raise argparse.ArgumentTypeError(f"{text}: write KEY=FOLDER, for example har=recordings/")
    return key, Path(folder)


NamedFolder = Annotated[tuple[str, Path], named_folder]
recipe_data = partial(
    option, "where the recordings of a [[data]] table of the recipe lie; may be repeated", (), "KEY=FOLDER"
)


@dataclass(frozen=True, kw_only=True)
class BuildOptions(CommandOptions):
    recipe: ExistingFile = operand("the TOML file", "RECIPE")
    data: tuple[NamedFolder, ...] = recipe_data()
    out: Path = option("folder to write into; made if missing", metavar="FOLDER")
    teacher: ExistingFile | None = option("the teacher, where the recipe says that it is given", None, "MODEL.onnx")
    signing: Signing


@command(
    "build",
    "make bundles by a recipe",
    "Read recordings, train teacher and student, quantise, measure, set the gate, judge on unseen groups, and write a "
    "bundle per architecture. Finished steps are kept in OUT/cache and not done again.",
    "build examples/activity-watch/recipe.toml --data har=recordings/ -o out/",
)
def run(options: BuildOptions) -> CommandAnswer:
    """Build, and tell the figures that matter."""
    from edge_export.recipe.recipe import load  # noqa: PLC0415 - torch and the rest, only when needed

    with aside(options):
        return built(load(options.recipe), dict(options.data), options.out, options.signing, options.teacher)


def built(
    recipe: Recipe, folders: dict[str, Path], out: Path, signing: Signing, teacher: Path | None = None
) -> CommandAnswer:
    """Build by a recipe, and print the figures that matter; they are the answer, too."""
    try:
        from edge_export.build import build  # noqa: PLC0415
    except ImportError as error:
        raise ConfigError(f'{error.name} is missing: pip install "edge-export[train]"') from error
    figures = build(recipe, folders, out, say=_say, clock=SystemClock(), teacher=teacher, signer=signing.load())
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
    _say(f"the report: {out / 'report.html'}")
    return CommandAnswer(figures)


def headline(figures: dict[str, Any]) -> list[str]:
    """Return accuracy at the device's bytes and microseconds, and the best that is known beside it, a line each."""
    from edge_export.report.figures import BuildMetrics  # noqa: PLC0415 - as the build

    known = BuildMetrics(figures)
    best = known.best_known()
    return [f"  {known.device}: {known.headline()}", *([f"  best known: {best}"] if best else [])]


def _say(line: str) -> None:
    print(line, flush=True)
