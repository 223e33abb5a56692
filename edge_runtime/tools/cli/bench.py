"""``edge-runtime bench``: what the runtime costs on this machine."""

from __future__ import annotations

from dataclasses import dataclass

from edge_runtime.errors import ConfigError
from edge_runtime.tools.cli import arguments
from edge_runtime.tools.cli.arguments import BundlePath, OutputFile
from edge_runtime.tools.cli.options import option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command


@dataclass(frozen=True, kw_only=True)
class BenchOptions(CommandOptions):
    bundle: BundlePath = arguments.bundle()
    variant: str = arguments.variant()
    rounds: int = option("rounds of turns", 9)
    messages: int = option("messages in each turn", 1024)
    plot: OutputFile | None = option("write a plot", None, "FILE.svg")


@command(
    "bench",
    "the runtime's overhead on this machine",
    "Measure, in turns and on one core, the bare engine call, a loop written by hand (paho, numpy, one "
    "run per window, publish) and this runtime, with the bundle's own model, over a connection on this machine. "
    "Prints what was measured, then ends; Ctrl-C ends it at once.",
    "bench examples/exercise-watch/watch.edge --plot bench.svg",
)
def run(options: BenchOptions) -> CommandAnswer:
    """Measure; exit code 1 when the two programs' answers differ."""
    from edge_runtime.tools.bench import BenchConfig, bench  # noqa: PLC0415 - numpy and the rest, only when needed

    try:
        config = BenchConfig(
            bundle=options.bundle, variant=options.variant, rounds=options.rounds, messages=options.messages
        )
    except ValueError as error:
        raise ConfigError(f"bench: {error}") from error
    result = bench(config)
    if options.plot is not None:
        try:
            options.plot.write_text(result.svg(), "utf-8")
        except OSError as error:
            raise ConfigError(f"--plot {options.plot}: cannot be written: {error.strerror}") from error
    return CommandAnswer(result.plain(), result.text(), int(result.labels_differ))
