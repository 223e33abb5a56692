"""``edge-export card``: the draft of a model's card."""

from __future__ import annotations

from dataclasses import dataclass

from edge_export.cli.pack import ModelPath
from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli.arguments import OutputFile
from edge_runtime.tools.cli.options import operand, option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command


@dataclass(frozen=True, kw_only=True)
class CardOptions(CommandOptions):
    model: ModelPath = operand("an .onnx or .tflite file", "MODEL")
    out: OutputFile | None = option("write it here (default: print it)", None, "CARD.toml")


@command(
    "card",
    "draft the card of a model that someone else trained",
    "Read a model file and write the draft of its card: inputs, outputs, labels, states and guesses of signal, front "
    "end and task. Each guess is marked, and each place where a person must write.",
    "card model.onnx -o card.toml",
)
def run(options: CardOptions) -> CommandAnswer:
    """Write the draft, and say how much is left to do."""
    try:
        from edge_export.package.card.draft import draft  # noqa: PLC0415 - numpy and the rest, only when needed
    except ImportError as error:
        raise ConfigError(f'{error.name} is missing: pip install "edge-export[train]"') from error
    text = draft(options.model)
    fill, guessed = text.count("# fill in: "), text.count("# guessed: ")
    document = {"file": options.out, "card": text, "guessed": guessed, "to_fill_in": fill}
    if options.out is None:
        return CommandAnswer(document, text.removesuffix("\n"))
    if options.out.exists():
        raise ConfigError(f"{options.out}: is there already; name another file, or remove it")
    try:
        options.out.write_text(text, "utf-8")
    except OSError as error:
        raise ConfigError(f"{options.out}: cannot be written: {error.strerror}") from error
    return CommandAnswer(document, f"{options.out}: guesses to check: {guessed}; places to fill in: {fill}")
