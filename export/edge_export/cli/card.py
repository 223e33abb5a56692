"""``edge-export card``: the draft of a model's card."""

from __future__ import annotations

import argparse
from typing import Any

from edge_export.cli.pack import model_path
from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli.arguments import output_file


def add(commands: Any) -> None:
    """Declare the command."""
    parser = commands.add_parser(
        "card",
        help="draft the card of a model that someone else trained",
        description=(
            "Read a model file and write the draft of its card: inputs, outputs, labels, states and guesses of signal, "
            "front end and task. Each guess is marked, and each place where a person must write."
        ),
        epilog="example: edge-export card model.onnx -o card.toml",
    )
    parser.add_argument("model", type=model_path, metavar="MODEL", help="an .onnx or .tflite file")
    parser.add_argument("-o", "--out", type=output_file, metavar="CARD.toml", help="write it here (default: print it)")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the draft, and say how much is left to do."""
    try:
        from edge_export.package.card.draft import draft  # noqa: PLC0415 - numpy and the rest, only when needed
    except ImportError as error:
        raise ConfigError(f'{error.name} is missing: pip install "edge-export[train]"') from error
    text = draft(options.model)
    if options.out is None:
        print(text, end="")
        return 0
    if options.out.exists():
        raise ConfigError(f"{options.out}: is there already; name another file, or remove it")
    try:
        options.out.write_text(text, "utf-8")
    except OSError as error:
        raise ConfigError(f"{options.out}: cannot be written: {error.strerror}") from error
    fill, guessed = text.count("# fill in: "), text.count("# guessed: ")
    print(f"{options.out}: guesses to check: {guessed}; places to fill in: {fill}")
    return 0
