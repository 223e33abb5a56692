"""The demo's live view: a table that redraws itself on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import sys
from typing import TextIO

from edge_runtime.base.system.printing import raw
from edge_runtime.metrics import Metrics
from edge_runtime.tools.demo.tally import DemoTally

BOLD, DIM, RED, GREEN, YELLOW, PLAIN = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"


class View:
    """Draws what is going on.

    Args:
        tally: answers so far.
        metrics: latency, counts, drops.
        watches: rows of the table.
        out: stream to draw on.
        live: redraw in place; False prints a line each time.
    """

    def __init__(
        self,
        tally: DemoTally,
        metrics: Metrics,
        watches: list[str],
        *,
        out: TextIO = sys.stdout,
        live: bool | None = None,
    ) -> None:
        self._tally = tally
        self._metrics = metrics
        self._watches = watches
        self._out = raw(out)
        self.live = out.isatty() if live is None else live
        self._drawn = 0

    def draw(self, share_played: float, queued: int, *, cloud_up: bool) -> None:
        """Show the state of things: how much has been played, how many hard cases wait."""
        totals = self._totals(share_played, queued, cloud_up=cloud_up)
        if not self.live:
            self._out.write(totals + "\n")
            self._out.flush()
            return
        lines = [f"{BOLD}{'':10}{'does':7}{'device says':16}{'cloud says':12}{PLAIN}"]
        lines += [self._row(watch) for watch in self._watches]
        lines += ["", *totals.split(" | ")]
        if self._drawn:
            self._out.write(f"\x1b[{self._drawn}A")
        self._out.write("".join(f"\x1b[2K{line}\n" for line in lines))
        self._out.flush()
        self._drawn = len(lines)

    def _row(self, watch: str) -> str:
        seen = self._tally.latest.get(watch)
        if seen is None:
            return f"{watch:10}{DIM}...{PLAIN}"
        colour = GREEN if seen.local == seen.truth else RED
        row = f"{watch:10}{seen.truth:7}{colour}{seen.local:5}{PLAIN} {seen.confidence:4.0%}      "
        if seen.route != "provisional":
            return row
        if seen.corrected is None:
            return row + f"{YELLOW}asked{PLAIN}"
        return row + f"{GREEN if seen.corrected == seen.truth else RED}{seen.corrected}{PLAIN}"

    def _totals(self, share_played: float, queued: int, *, cloud_up: bool) -> str:
        counts, total = self._metrics.counts, self._metrics.stages["total"]
        windows, state = counts["predictions_total"], "up" if cloud_up else "DOWN"
        forwarded = self._tally.provisional / max(1, len(self._tally.windows))
        return " | ".join(
            (
                f"played {share_played:4.0%}, {counts['messages_total']} messages, {windows} windows",
                f"latency p50 {total.quantile(0.5) * 1e3:.2f} ms, p99 {total.quantile(0.99) * 1e3:.2f} ms",
                f"cloud {state}: {forwarded:.1%} forwarded, {self._tally.corrected} corrected, {queued} waiting",
            )
        )
