"""``edge-runtime status``: one look into a running application, for a person or as JSON."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from edge_runtime.tools.cli.arguments import Count
from edge_runtime.tools.cli.options import option
from edge_runtime.tools.cli.program import CommandAnswer, CommandOptions, command
from edge_runtime.tools.cli.running import Running


@dataclass(frozen=True, kw_only=True)
class StatusOptions(CommandOptions):
    running: Running
    limit: Count = option("keys that are shown, at most 200", 50, "N")
    filter: str = option("keys with this text in their name alone", "", "TEXT")


@command(
    "status",
    "one look into a running application",
    "Print how a running application is: its keys, rates, drops with what to do, outbox, cloud and "
    "board. docs/observe.md has the fields of --json. Exit code 1 if it does not run.",
    "status app.toml",
    "status http://kitchen:9464 --token-file page-token --json",
    renamed={"--keys": "--limit"},
)
def run(options: StatusOptions) -> CommandAnswer:
    """Ask once."""
    report = options.running.asker().report(options.limit, options.filter)
    return CommandAnswer(report, _lines(report, options.filter))


def _lines(report: dict[str, Any], filter_text: str) -> Iterator[str]:
    """Draw the view of ``watch`` once, as high as it needs to be."""
    from edge_runtime.operate.watch.screen import Painter, ViewState, draw  # noqa: PLC0415

    rows = len(report["keys"]) + 4 * len(report["drops"]) + 30
    paint = Painter(colours=False)
    keys = draw(report, None, ViewState(filter=filter_text), 100, rows, paint)[:-1]
    drops = draw(report, None, ViewState(page="drops"), 100, rows, paint)[:-1] if report["drops"] else []
    head = next(at for at, line in enumerate(keys) if line.startswith(("key", "no key")) or not line.strip())
    yield from filter(None, (line.rstrip() for line in [*keys, *drops[head:]]))
