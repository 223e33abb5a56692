"""``edge-runtime time``: the hidden command that ``edge-export measure`` starts on another machine over ssh."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from edge_runtime.errors import ConfigError
from edge_runtime.model.tuning.timing.interleaved import TimingPlan
from edge_runtime.tools.cli import arguments
from edge_runtime.tools.cli.arguments import BundlePath, Count
from edge_runtime.tools.cli.options import option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command


@dataclass(frozen=True, kw_only=True)
class TimeOptions(CommandOptions):
    bundle: BundlePath = arguments.bundle()
    rounds: int = option("turns of each", TimingPlan().rounds)
    block_ms: float = option("length of a turn", TimingPlan().block_s * 1e3)
    threads: tuple[Count, ...] = option("threads to measure with (default: one, and all cores)", (), "N", words="+")


@command(
    "time",
    "",
    "Time every variant of a bundle that runs on this machine, in turns, on the bundle's windows.",
    "time watch.edge --json",
)
def run(options: TimeOptions) -> CommandAnswer:
    """Measure."""
    from edge_runtime.model.bundle.bundle import open_bundle  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_runtime.model.tuning.timing.measure import measure_bundle, table  # noqa: PLC0415

    try:
        plan = TimingPlan(rounds=options.rounds, block_s=options.block_ms / 1e3)
    except ValueError as error:
        raise ConfigError(str(error)) from error
    with open_bundle(options.bundle) as bundle:
        found = measure_bundle(bundle, threads=options.threads or None, plan=plan)
    return CommandAnswer(orjson.loads(found.to_json()), table(found))
