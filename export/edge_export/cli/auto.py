"""``edge-export auto``: a recipe from a folder of recordings, and the bundles built by it."""

from __future__ import annotations

import argparse
import re
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from edge_export.cli.sign import Signing
from edge_runtime.clock import SystemClock
from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli.arguments import Count, ExistingFile, Factor, Seconds, TimeUnit
from edge_runtime.tools.cli.options import operand, option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, aside, command

if TYPE_CHECKING:
    from collections.abc import Mapping

    from edge_export.recipe.auto import RecipeDraft

RECIPE = "recipe.toml"


def unit(text: str) -> tuple[str, str]:
    """``CHANNEL=UNIT``, or a unit for all channels that have none.

    Raises:
        argparse.ArgumentTypeError: it is neither.
    """
    channel, equals, name = text.rpartition("=")
    if not name or (equals and not channel):
        raise argparse.ArgumentTypeError(f"{text}: write UNIT or CHANNEL=UNIT, for example ax=g")
    return channel or "*", name


Unit = Annotated[tuple[str, str], unit]


@dataclass(frozen=True, kw_only=True)
class AutoOptions(CommandOptions):
    folder: Path = operand("folder of recordings", "FOLDER")
    out: Path = option("folder to write into; made if missing", metavar="FOLDER")
    target: tuple[str, ...] = option("what it is for; may be repeated (default: cpu)", (), "NAME")
    recipe_only: bool = option("write the recipe, check it, and stop", default=False)
    name: str = option("name of the model (default: the folder's)", "")
    label: str = option("pattern over paths that finds the class", "", "REGEX", one_of="labels")
    label_column: str = option("column or array with the class", "", "COLUMN", one_of="labels")
    labels: ExistingFile | None = option(
        "table with the columns file and label, for WAV files", None, "FILE.csv", one_of="labels"
    )
    group: str = option("pattern over paths that finds the person, machine or session", "", "REGEX", one_of="groups")
    group_column: str = option("column with the group of each row", "", "COLUMN", one_of="groups")
    group_files: bool = option("each file is of another person, machine or session", default=False, one_of="groups")
    time_column: str = option("column or array with the stamps", "", "COLUMN")
    time_unit: TimeUnit | None = option("unit of the stamps (default: by the column)", None)
    rate: Factor | None = option("samples per second of files without stamps", None, "HZ")
    channels: str = option("columns to use (default: all with numbers)", "", "A,B,...")
    unit: tuple[Unit, ...] = option("unit of a channel, or of all; may be repeated", (), "[CHANNEL=]UNIT")
    window: Seconds = option("length of a window", 0.0, "S")
    max_bytes: Count | None = option("largest model file that may ship", None, "N")
    max_latency_ms: Factor | None = option("longest time per window that may ship", None, "MS")
    max_forwarded: Factor = option("share of windows for the cloud", 0.1, "SHARE")
    source: str = option("where the recordings come from, for the report", "own recordings")
    licence: str = option("licence of the recordings, for the report", "not stated")
    signing: Signing


@command(
    "auto",
    "write a recipe from a folder of recordings, and build it",
    "Look at every recording of a folder (WAV, CSV, Parquet, NPZ or JSON lines), find classes, groups, rate and "
    "lengths, write a recipe that says what was decided and why, and build it. The class of a file is its folder, "
    "unless said otherwise; recordings of one person or machine are never in two sets. What files do not tell is asked "
    "for, with the option that answers.",
    "auto recordings/ --target raspberry-pi-4 --unit g -o out/",
    renamed={"--time": "--time-column"},
)
def run(options: AutoOptions) -> CommandAnswer:
    """Decide, write, check and build."""
    with aside(options):
        return _run(options)


def _run(options: AutoOptions) -> CommandAnswer:
    from edge_export.recipe.auto import Hints, infer_recipe, scan_folder  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_export.recipe.auto.infer import Order  # noqa: PLC0415
    from edge_export.recipe.auto.verify import verify  # noqa: PLC0415
    from edge_export.recipe.recipe import TARGETS, load  # noqa: PLC0415

    targets = tuple(dict.fromkeys(options.target or ("cpu",)))
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
            time=options.time_column,
            time_unit=options.time_unit or "",
            rate_hz=options.rate or 0.0,
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
    document = {
        "recipe": path,
        "decisions": [asdict(decision) for decision in draft.decisions],
        "windows": counts,
        "figures": None,
    }
    if not options.recipe_only:
        from edge_export.cli.build import built  # noqa: PLC0415 - as above

        document["figures"] = built(recipe, {name: options.folder}, options.out, options.signing).document
    return CommandAnswer(document)


def _say(draft: RecipeDraft) -> None:
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
