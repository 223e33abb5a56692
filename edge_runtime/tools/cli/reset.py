"""``edge-runtime reset``: let states of keys begin again, in a running application."""

from __future__ import annotations

from dataclasses import dataclass

from edge_runtime.tools.cli.options import operand
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command
from edge_runtime.tools.cli.running import Running


@dataclass(frozen=True, kw_only=True)
class ResetOptions(CommandOptions):
    running: Running
    keys: tuple[str, ...] = operand("a key, or several", "KEY")


@command(
    "reset",
    "let the states of keys begin again in a running application",
    "Have a running application forget what its model remembers of some keys, and how their sensors "
    "began (docs/drift.md).",
    "reset app.toml kitchen",
)
def run(options: ResetOptions) -> CommandAnswer:
    """Ask, and tell what was done."""
    done = options.running.asker().ask("/api/reset", {"keys": options.keys})["done"]
    asked = len(options.keys)
    return CommandAnswer(
        {"asked": asked, "done": done}, f"reset {done} of {asked} keys; the others had nothing to forget"
    )
