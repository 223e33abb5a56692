"""``edge-export measure``: variants timed here or on another machine, and the times written into their bundle."""

from __future__ import annotations

from dataclasses import dataclass

import orjson

from edge_export.cli.sign import Signing
from edge_runtime.tools.cli import arguments
from edge_runtime.tools.cli.arguments import BundlePath, Count, OutputFile, Seconds
from edge_runtime.tools.cli.options import option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command


@dataclass(frozen=True, kw_only=True)
class MeasureOptions(CommandOptions):
    bundle: BundlePath = arguments.bundle()
    device: str = option("as ssh takes it, for example pi@kitchen (default: this machine)", "", "HOST")
    python: str = option("interpreter on the other machine that has edge-runtime", "python3")
    out: OutputFile | None = option("write another bundle (default: replace this one)", None, "OUT.edge")
    dry_run: bool = option("print the figures and leave the bundle as it is", default=False)
    name: str = option("name of the machine in the bundle (default: the board's own)", "")
    rounds: Count = option("turns of every variant", 61)
    wait: Seconds = option("how long the other machine may take", 600.0, "SECONDS")
    signing: Signing


@command(
    "measure",
    "time a bundle's variants, here or on another machine",
    "Time every variant of a bundle that runs on this machine, or over ssh on another one, in turns and on one thread "
    "and all; and write the figures into the bundle under the name of the machine. The other machine needs Python and "
    "edge-runtime with an engine. A signed bundle is signed again, so it needs its key.",
    "measure watch.edge --device pi@kitchen --key release.pem",
    renamed={"--timeout": "--wait"},
)
def run(options: MeasureOptions) -> CommandAnswer:
    """Measure, and write the figures down."""
    from edge_export.choose.selection.remote import measure_on, record  # noqa: PLC0415
    from edge_runtime.model.bundle.bundle import open_bundle  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_runtime.model.tuning.timing import TimingPlan, measure_bundle  # noqa: PLC0415
    from edge_runtime.model.tuning.timing.measure import table  # noqa: PLC0415

    signer, by = None, ""
    if not options.dry_run:
        signer, by = options.signing.again(options.bundle, "figures", ", or --dry-run to leave it as it is")
    plan = TimingPlan(rounds=options.rounds)
    if options.device:
        found = measure_on(options.device, options.bundle, python=options.python, plan=plan, timeout_s=options.wait)
    else:
        with open_bundle(options.bundle) as bundle:
            found = measure_bundle(bundle, plan=plan)
    document, lines = orjson.loads(found.to_json()), [table(found)]
    if options.dry_run:
        return CommandAnswer({"file": None, "measured": document}, lines)
    written = record(options.bundle, found, machine=options.name, signer=signer, out=options.out)
    lines.append(f"{written}: holds these figures as {(options.name or found.machine.label)!r}; {by}")
    return CommandAnswer({"file": written, "measured": document}, lines)
