"""``edge-runtime demo``: the main job on real recordings, with everything it needs."""

from __future__ import annotations

import dataclasses
import logging
import sys
from dataclasses import dataclass
from pathlib import Path

from edge_runtime.errors import ConfigError
from edge_runtime.model.bundle.shipped import FOLDER
from edge_runtime.tools.cli.arguments import Factor, Seconds
from edge_runtime.tools.cli.options import option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command


@dataclass(frozen=True, kw_only=True)
class DemoOptions(CommandOptions):
    broker: str = option("use this broker instead of the embedded one", "", "URL")
    speed: Factor = option("times real time", 5.0)
    outage: tuple[Seconds, Seconds] = option("stop the server for a while", (0.0, 0.0), ("AFTER", "SECONDS"))
    folder: Path = option("the demo's files (default: the package's own)", FOLDER)
    state: Path = option("folder for the outbox", Path("out/demo"))
    listen: str = option("show the application's page there, for example at 127.0.0.1:9464", "", "ADDRESS:PORT")


@command(
    "demo",
    "the main job on real smartwatch recordings, with broker and cloud",
    "Start an embedded broker and a server with a large model, play real smartwatch recordings from "
    "several watches at once, answer them with a small int8 model, forward the hard cases, publish the "
    "corrections, and print a summary, then end. Ctrl-C drains within 10 s.",
    "demo --broker mqtt://localhost:1883",
    "demo --speed 1 --listen 127.0.0.1:9464",
)
def run(options: DemoOptions) -> CommandAnswer:
    """Run it; exit code 1 when the counts do not balance or, at the end of the recordings, a correction is missing."""
    from edge_runtime.tools.demo.run import Demo, table  # noqa: PLC0415 - numpy and the rest, only when needed
    from edge_runtime.tools.demo.run import run as run_demo  # noqa: PLC0415

    if not (options.folder / "app.toml").exists():
        raise ConfigError(f"--folder {options.folder}: the demo's files (app.toml and what it names) are not there")
    if not options.verbose:
        logging.getLogger().setLevel(logging.WARNING)  # the view tells what the log would; a line would tear it
    demo = Demo(
        folder=options.folder,
        broker=options.broker,
        speed=options.speed,
        outage=options.outage,
        state=options.state,
        listen=options.listen,
    )
    outcome = run_demo(demo, sys.stderr if options.json else sys.stdout)
    return CommandAnswer(dataclasses.asdict(outcome), f"\n{table(outcome)}", int(not outcome.complete))
