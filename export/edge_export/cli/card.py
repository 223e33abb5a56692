"""``edge-export card``: the draft of a card, from a model file."""

from __future__ import annotations

import argparse
from typing import Any

from edge_export.cli.pack import model_path
from edge_runtime.cli.arguments import output_file
from edge_runtime.errors import ConfigError


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "card",
        help="draft the card of a model that someone else trained",
        description=(
            "Read a model file, run it on noise, and write the card that edge-export pack takes: signal, front end, "
            "states and task, with a comment at each guess and at all that only a person can say."
        ),
        epilog="example: edge-export card model.tflite -o card.toml",
    )
    parser.add_argument("model", type=model_path, metavar="MODEL", help="an .onnx or .tflite file")
    parser.add_argument("-o", "--out", type=output_file, metavar="CARD.toml", help="file to write; else it is printed")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write or print the draft."""
    try:
        from edge_export.card.draft import FILL_IN, GUESS, draft  # noqa: PLC0415 - onnx and the rest, only when needed
    except ImportError as error:
        raise ConfigError(f'{error.name} is missing: pip install "edge-export[train]"') from error
    text = draft(options.model)
    if options.out is None:
        print(text, end="")
        return 0
    if options.out.exists():
        raise ConfigError(f"{options.out} is there already; name another file, or delete it")
    options.out.write_text(text, "utf-8")
    body = text.split("\n", 1)[1]
    print(f"{options.out}: {body.count(GUESS)} guesses to read, {body.count(FILL_IN)} things to fill in")
    print(f"next: edge-export pack {options.model} --card {options.out} -o {options.model.stem}.edge")
    return 0
