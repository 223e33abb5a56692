"""``edge-runtime review``: look at kept cases, label them, write them as recordings, erase them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from edge_runtime.errors import ConfigError, InputError
from edge_runtime.tools.cli import arguments
from edge_runtime.tools.cli.arguments import AppFile, Count
from edge_runtime.tools.cli.options import option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, aside, command, family

if TYPE_CHECKING:
    from edge_runtime.app.config import AppConfig
    from edge_runtime.store.cases.case import Case
    from edge_runtime.store.cases.store import CaseStore

_WHY: Final = {
    "hard": "the device was unsure",
    "audit": "the cloud checks some trusted answers",
    "suspect": "its readings are suspect",
    "random": "drawn at random",
    "differ": "a new model says something else",
}
_BLOCKS: Final = "▁▂▃▄▅▆▇█"
_COLUMNS: Final = 60
_ANSWER_S: Final = 10.0
"""Time that an application has to empty the log of its outbox."""


family(
    __name__,
    "review",
    "label windows that an application kept, export or erase them",
    "Look at the windows that an application with [cases] kept, and say what they are. Works while the "
    "application runs and when it does not.",
    "review label app.toml",
)


@dataclass(frozen=True, kw_only=True)
class ReviewOptions(CommandOptions):
    app: AppFile = arguments.app()

    @contextmanager
    def opened(self) -> Iterator[tuple[CaseStore, AppConfig]]:
        """Lend the cases of the application.

        Raises:
            ConfigError: it keeps none, or has kept none yet.
        """
        from edge_runtime.app.config import load_config  # noqa: PLC0415
        from edge_runtime.store.cases.store import CaseStore  # noqa: PLC0415 - SQLite, when needed

        whole = load_config(self.app)
        config = whole.cases
        if config is None or config.keep == "nothing":
            raise ConfigError(f'{self.app} keeps no cases; add [cases] with path = "cases.db"')
        if not config.path.exists():
            raise ConfigError(f"no case was kept yet: {config.path} does not exist")
        with closing(CaseStore(config.path, config.max_bytes, config.max_days)) as store:
            yield store, whole


@dataclass(frozen=True, kw_only=True)
class ReviewListOptions(ReviewOptions):
    key: str = option("of this key alone", "")
    limit: Count = option("at most", 50, "N")


@dataclass(frozen=True, kw_only=True)
class ReviewExportOptions(ReviewOptions):
    out: Path = option("new CSV file", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class ReviewEraseOptions(ReviewOptions):
    key: str | None = option("whose cases", None, one_of="which!")
    all: bool = option("every case", default=False, one_of="which!")


@command("review list", "list cases, and count what is labelled")
def _list(options: ReviewListOptions) -> CommandAnswer:
    with options.opened() as (store, _):
        found, counts = list(store.summaries("all", options.limit, options.key)), store.counts()
    lines = [f"{one['start']:.2f}  {one['why']:8}  {one['label'] or '-':20}  {_clean(one['id'])}" for one in found]
    lines.append(
        f"{counts['open']} open, {counts['labelled']} labelled, {counts['aside']} put aside; "
        f"{counts['bytes'] / 1e6:.1f} MB"
    )
    return CommandAnswer({"counts": counts, "cases": found}, lines)


@command("review label", "label cases in the terminal, one after another")
def _label(options: ReviewListOptions) -> CommandAnswer:
    with options.opened() as (store, _), aside(options):
        found = store.summaries("open", options.limit, options.key)
        done = 0
        for case in store.each(one["id"] for one in found):
            print(_drawn(case))
            answer = _asked(case)
            if answer is None:
                break
            try:
                store.label(case.id, answer, "command")
            except InputError as error:  # the application goes on meanwhile, and cases make room
                print(f"not noted: {_clean(str(error))}")
                continue
            done += 1
        left = store.counts()["open"]
    return CommandAnswer({"labelled": done, "open": left}, f"{done} labelled, {left} open")


def _asked(case: Case) -> str | None:
    """Ask until there is a usable answer; None to stop."""
    choices = case.contract.choices
    print("  ".join(f"{at} {label}" for at, label in enumerate(choices, 1)))
    while True:
        print("number, or Enter to stop: ", end="", flush=True)
        line = sys.stdin.readline().strip()
        if not line:
            return None
        if line.isdecimal() and 1 <= int(line) <= len(choices):
            return choices[int(line) - 1]


def _drawn(case: Case) -> str:
    """Draw a window: a line for each channel. What the device and the cloud said is not shown: it would lead."""
    lines = [f"\n{_clean(case.key)}, {len(case.samples) / case.contract.rate_hz:.3g} s, kept: {_WHY[case.why]}"]
    width = max(len(channel.name) for channel in case.contract.channels)
    for channel, values in zip(case.contract.channels, case.samples.T.tolist(), strict=True):
        low, high = min(values), max(values)
        thinned = values[:: max(1, len(values) // _COLUMNS)]
        scale = (len(_BLOCKS) - 1) / ((high - low) or 1.0)
        curve = "".join(_BLOCKS[int((value - low) * scale)] for value in thinned)
        lines.append(f"{channel.name:{width}}  {curve}  {low:.3g} to {high:.3g} {channel.unit}")
    return "\n".join(lines)


def _clean(text: str) -> str:
    """Take out what a terminal would obey."""
    return "".join(character if character.isprintable() else "�" for character in text)


@command(
    "review export",
    "write the labelled cases to a CSV file, which edge-export build and auto read as labelled recordings",
)
def _export(options: ReviewExportOptions) -> CommandAnswer:
    from edge_runtime.store.cases.export import export  # noqa: PLC0415

    with options.opened() as (store, _):
        number = export(store, options.out)
    return CommandAnswer({"file": options.out, "cases": number}, f"{number} labelled cases in {options.out}")


@command("review erase", "erase the cases of a key, or all of them")
def _erase(options: ReviewEraseOptions) -> CommandAnswer:
    with options.opened() as (store, whole):
        number = store.erase(None if options.all else options.key)
    if (outbox := whole.outbox) is not None and outbox.path.exists():
        from edge_runtime.clock import SystemClock  # noqa: PLC0415
        from edge_runtime.store.durable.outbox.control import fold  # noqa: PLC0415

        fold(outbox, SystemClock(), _ANSWER_S)
    return CommandAnswer({"erased": number}, f"erased {number} cases")
