"""``edge-export auto``: a recipe from a folder of recordings, and the bundles built by it."""

from __future__ import annotations

import argparse
import re
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_runtime.clock import SystemClock
from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli.arguments import count, existing_file, factor, seconds

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_export.recipe.auto import Draft

RECIPE = "recipe.toml"


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "auto",
        help="write a recipe from a folder of recordings, and build it",
        description=(
            "Look at every recording of a folder (WAV, CSV, Parquet, NPZ or JSON lines), find classes, groups, rate "
            "and lengths, write a recipe that says what was decided and why, and build it. The class of a file is its "
            "folder, unless said otherwise; recordings of one person or machine are never in two sets. What files do "
            "not tell is asked for, with the option that answers."
        ),
        epilog="example: edge-export auto recordings/ --target raspberry-pi-4 --unit g -o out/",
    )
    parser.add_argument("folder", type=Path, metavar="DATA", help="folder of recordings")
    parser.add_argument("-o", "--out", type=Path, required=True, help="folder to write into; made if missing")
    parser.add_argument(
        "--target", action="append", default=[], metavar="NAME", help="what it is for; may be repeated (default: cpu)"
    )
    parser.add_argument("--recipe-only", action="store_true", help="write the recipe, check it, and stop")
    parser.add_argument("--name", default="", help="name of the model (default: the folder's)")
    labels = parser.add_mutually_exclusive_group()
    labels.add_argument("--label", default="", metavar="REGEX", help="pattern over paths that finds the class")
    labels.add_argument("--label-column", default="", metavar="COLUMN", help="column or array with the class")
    labels.add_argument(
        "--labels", type=existing_file, metavar="FILE.csv", help="table with the columns file and label, for WAV files"
    )
    groups = parser.add_mutually_exclusive_group()
    groups.add_argument(
        "--group", default="", metavar="REGEX", help="pattern over paths that finds the person, machine or session"
    )
    groups.add_argument("--group-column", default="", metavar="COLUMN", help="column with the group of each row")
    groups.add_argument(
        "--group-files", action="store_true", help="each file is of another person, machine or session than all others"
    )
    parser.add_argument("--time", default="", metavar="COLUMN", help="column or array with the stamps")
    parser.add_argument(
        "--time-unit", choices=("s", "ms", "us", "ns", "iso8601"), default="", help="unit of the stamps"
    )
    parser.add_argument("--rate", type=factor, default=0.0, metavar="HZ", help="samples per second")
    parser.add_argument("--channels", default="", metavar="A,B,...", help="columns to use (default: all with numbers)")
    parser.add_argument(
        "--unit", type=unit, action="append", default=[], metavar="[CHANNEL=]UNIT", help="unit of a channel, or of all"
    )
    parser.add_argument("--window", type=seconds, default=0.0, metavar="S", help="length of a window")
    parser.add_argument("--max-bytes", type=count, metavar="N", help="largest model file that may ship")
    parser.add_argument("--max-latency-ms", type=factor, metavar="MS", help="longest time per window that may ship")
    parser.add_argument(
        "--max-forwarded", type=factor, default=0.1, metavar="SHARE", help="of windows for the cloud (default: 0.1)"
    )
    parser.add_argument("--source", default="own recordings", help="where the recordings come from, for the report")
    parser.add_argument("--licence", default="not stated", help="licence of the recordings, for the report")
    parser.add_argument("--key", type=existing_file, metavar="KEY.pem", help="private key that signs the bundles")
    parser.set_defaults(run=run)


def unit(text: str) -> tuple[str, str]:
    """``CHANNEL=UNIT``, or a unit for all channels that have none.

    Raises:
        argparse.ArgumentTypeError: it is neither.
    """
    channel, equals, name = text.rpartition("=")
    if not name or (equals and not channel):
        raise argparse.ArgumentTypeError(f"{text}: write UNIT or CHANNEL=UNIT, for example ax=g")
    return channel or "*", name


def run(options: argparse.Namespace) -> int:
    """Decide, write, check and build."""
    from edge_export.recipe.auto import Hints, infer_recipe, scan_folder  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_export.recipe.auto.infer import Order  # noqa: PLC0415
    from edge_export.recipe.auto.verify import verify  # noqa: PLC0415
    from edge_export.recipe.recipe import TARGETS, load  # noqa: PLC0415

    targets = tuple(dict.fromkeys(options.target or ["cpu"]))
    for target in targets:
        if target not in TARGETS:
            raise ConfigError(f"--target {target}: unknown; one of: {', '.join(TARGETS)}")
    if options.max_forwarded >= 1:
        raise ConfigError("--max-forwarded is a share below 1, for example 0.1")
    name = options.name or _plain(options.folder.resolve().name)
    if options.out.resolve() == options.folder.resolve() or options.folder.resolve() in options.out.resolve().parents:
        raise ConfigError(f"--out {options.out}: lies among the recordings, which would be read as such; name another")
    found = scan_folder(
        options.folder,
        Hints(
            label=options.label,
            label_column=options.label_column,
            labels=options.labels,
            group=options.group,
            group_column=options.group_column,
            group_files=options.group_files,
            time=options.time,
            time_unit=options.time_unit,
            rate_hz=options.rate,
            channels=tuple(filter(None, (part.strip() for part in options.channels.split(",")))),
            units=dict(options.unit),
        ),
    )
    draft = infer_recipe(
        found,
        Order(
            name=name,
            targets=targets,
            created=datetime.fromtimestamp(SystemClock().wall(), timezone.utc).date().isoformat(),
            max_bytes=options.max_bytes,
            max_latency_ms=options.max_latency_ms,
            max_forwarded=options.max_forwarded,
            window_s=options.window,
            source=options.source,
            licence=options.licence,
        ),
    )
    _say(draft)
    path = options.out / RECIPE
    try:
        options.out.mkdir(parents=True, exist_ok=True)
        path.write_text(draft.text, "utf-8")
    except OSError as error:
        raise ConfigError(f"cannot write {path}: {error.strerror}") from error
    recipe = load(path)
    counts = verify(recipe, options.folder, print)
    _tell(counts)
    print(f"{path}: written, and it fits the recordings")
    if options.recipe_only:
        return 0
    from edge_export.cli import main  # noqa: PLC0415 - which imports this module

    arguments = ["build", str(path), "--data", f"{name}={options.folder}", "-o", str(options.out)]
    return main([*arguments, *(["--key", str(options.key)] if options.key else [])])


def _say(draft: Draft) -> None:
    width = max(len(decision.subject) for decision in draft.decisions)
    for decision in draft.decisions:
        print(f"{decision.subject:<{width}}  {decision.choice}")
        print(f"{'':<{width}}    {decision.reason}")


def _tell(counts: Mapping[str, Mapping[str, int]]) -> None:
    for name, of in counts.items():
        print(f"{name}: {sum(of.values())} windows; {', '.join(f'{label} {number}' for label, number in of.items())}")


def _plain(text: str) -> str:
    """Turn a folder's name into a model's."""
    return re.sub(r"[^a-z0-9._-]+", "-", text.lower()).strip("-._")[:64] or "model"
