"""``edge-runtime watch``: live view of a running application in the terminal."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from edge_runtime.clock import SystemClock
from edge_runtime.tools.cli.options import option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command
from edge_runtime.tools.cli.running import Running


@dataclass(frozen=True, kw_only=True)
class WatchOptions(CommandOptions):
    running: Running
    no_colour: bool = option("also with NO_COLOR in the environment", default=False)


@command(
    "watch",
    "look into a running application: keys, answers, drops, outbox",
    "Show a running application in this terminal: each key with its last answers, rates, what was "
    "dropped and what to do about it, outbox, cloud and board. Works over ssh; needs no more than 80 columns. "
    "Keys: arrows choose, enter looks at one key and its window, w says why it got its answer, / filters, p "
    "pauses, d shows what was dropped, q leaves. With --json a line of what status prints, each second.",
    "watch app.toml",
)
def run(options: WatchOptions) -> CommandAnswer:
    """Watch until the person leaves."""
    from edge_runtime.errors import ConfigError  # noqa: PLC0415
    from edge_runtime.operate.watch.screen import Painter  # noqa: PLC0415
    from edge_runtime.operate.watch.terminal import Watcher  # noqa: PLC0415

    if options.json:
        return CommandAnswer(_reports(options.running))
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ConfigError("watch needs a terminal; for scripts there is --json, and: edge-runtime status APP --json")
    colours = not options.no_colour and "NO_COLOR" not in os.environ
    Watcher(options.running.asker(), SystemClock(), Painter(colours=colours)).run()
    return CommandAnswer(None)


def _reports(running: Running) -> Iterator[dict[str, Any]]:
    asker, clock = running.asker(), SystemClock()
    while True:
        yield asker.report()
        clock.sleep(1.0)
