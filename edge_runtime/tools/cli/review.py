"""``edge-runtime review``: look at kept cases, label them, write them as recordings, erase them."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from edge_runtime.errors import ConfigError, InputError
from edge_runtime.tools.cli.arguments import count, existing_file

if TYPE_CHECKING:
    from edge_runtime.store.cases.case import Case
    from edge_runtime.store.cases.store import CaseStore

_ACTIONS: Final = {
    "list": "list cases, and count what is labelled",
    "label": "label cases in the terminal, one after another",
    "export": "write the labelled cases to a CSV file, which edge-export build and auto read as labelled recordings",
    "erase": "erase the cases of a key, or all of them",
}
_EXAMPLE: Final = {"list": "", "label": "", "export": " --out reviewed.csv", "erase": " --key kitchen"}
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


def add(commands: Any) -> None:
    """Declare the command and its own subcommands."""
    parser = commands.add_parser(
        "review",
        help="label windows that an application kept, export or erase them",
        description="Look at the windows that an application with [cases] kept, and say what they are. Works while the "
        "application runs and when it does not.",
        epilog="example: edge-runtime review label app.toml",
    )
    actions = parser.add_subparsers(metavar="ACTION", required=True)
    for name, help_text in _ACTIONS.items():
        action = actions.add_parser(
            name,
            help=help_text,
            description=f"{help_text[0].upper()}{help_text[1:]}.",
            epilog=f"example: edge-runtime review {name} app.toml{_EXAMPLE[name]}",
        )
        action.add_argument("config", type=existing_file, metavar="APP.toml", help="the application's configuration")
        action.set_defaults(run=run, action=name)
        if name in ("list", "label"):
            action.add_argument("--key", default="", help="of this key alone")
            action.add_argument("--limit", type=count, default=50, metavar="N", help="at most (default: 50)")
        elif name == "export":
            action.add_argument("--out", type=Path, required=True, metavar="FILE", help="new CSV file")
        else:
            which = action.add_mutually_exclusive_group(required=True)
            which.add_argument("--key", help="whose cases")
            which.add_argument("--all", action="store_true", help="every case")


def run(options: argparse.Namespace) -> int:
    """Open the file of the cases, and do what was asked."""
    from edge_runtime.app.config import load_config  # noqa: PLC0415
    from edge_runtime.store.cases.store import CaseStore  # noqa: PLC0415 - SQLite, when needed

    whole = load_config(options.config)
    config = whole.cases
    if config is None or config.keep == "nothing":
        raise ConfigError(f'{options.config} keeps no cases; add [cases] with path = "cases.db"')
    if not config.path.exists():
        raise ConfigError(f"no case was kept yet: {config.path} does not exist")
    store = CaseStore(config.path, config.max_bytes, config.max_days)
    try:
        found = _DO[options.action](store, options)
    finally:
        store.close()
    if options.action == "erase" and (outbox := whole.outbox) is not None and outbox.path.exists():
        from edge_runtime.clock import SystemClock  # noqa: PLC0415
        from edge_runtime.store.durable.outbox.control import fold  # noqa: PLC0415

        fold(outbox, SystemClock(), _ANSWER_S)
    return found


def _list(store: CaseStore, options: argparse.Namespace) -> int:
    for one in store.summaries("all", options.limit, options.key):
        print(f"{one['start']:.2f}  {one['why']:8}  {one['label'] or '-':20}  {_clean(one['id'])}")
    counts = store.counts()
    print(
        f"{counts['open']} open, {counts['labelled']} labelled, {counts['aside']} put aside; "
        f"{counts['bytes'] / 1e6:.1f} MB"
    )
    return 0


def _label(store: CaseStore, options: argparse.Namespace) -> int:
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
    print(f"{done} labelled, {store.counts()['open']} open")
    return 0


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


def _export(store: CaseStore, options: argparse.Namespace) -> int:
    from edge_runtime.store.cases.export import export  # noqa: PLC0415

    print(f"{export(store, options.out)} labelled cases in {options.out}")
    return 0


def _erase(store: CaseStore, options: argparse.Namespace) -> int:
    print(f"erased {store.erase(None if options.all else options.key)} cases")
    return 0


_DO: Final = {"list": _list, "label": _label, "export": _export, "erase": _erase}
