"""Silence reporter: logs when no readings come, when they make no windows, and when clocks disagree."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import Clock
from edge_runtime.io.sources import Deliver
from edge_runtime.io.sources.build import SourceConfig
from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.operate.observe.clocks import Clocks
from edge_runtime.operate.observe.drops import EVERY_S, LONGEST_S, reason_of
from edge_runtime.operate.observe.unfinished import UnfinishedWindows
from edge_runtime.signal.windowing.window import KeyState
from edge_runtime.types import Done, Reading

log = logging.getLogger(__name__)

WAITING: Final = 8
"""Lines that wait for their look; the oldest is left out where there are more."""


@dataclass(slots=True)
class _Watched:
    """A source and what is known of its silence."""

    where: str
    hint: str
    gauge: str
    """Of its broker's connection; empty where there is none."""
    heard: float
    """Monotonic time of the last reading, or of the beginning."""
    patience_s: float
    fresh: bool = False
    """It delivered since the last look."""
    warned_s: float = 0.0
    """Length of the silence when it was last logged; 0 where it was not."""


class SilenceReporter:
    """Watches what sources deliver, and what becomes of it.

    1. A source is silent when it has delivered no reading for its patience; that is logged once, and again each time
       the silence has doubled, at the latest after `LONGEST_S`.
    2. When readings come again, that is logged, and the patience becomes twice the silence that ended: a sensor that
       sends once an hour is mentioned once or twice, not each hour.
    3. While a broker is away, the client says so; the silence begins when it is back.
    4. The line has what arrived since the last reading and was refused, with an example, or else how to look.
    5. Readings that make no window are explained by `UnfinishedWindows`, clocks that disagree by `Clocks`.
    6. What arrives for other workers breaks a silence, too: a worker may have no key of its own.
    7. Where readings wait for a sink that takes nothing, the line names the sink, and not the sensors.
    8. A look logs one line; others that are due wait for the next looks, at most `WAITING` of them.

    Args:
        metrics: what arrived, and what was refused.
        clock: monotonic time.
        after_s: the first patience, seconds; 0 watches nothing.
        blocking: names the sinks that readings wait for and that take nothing.
    """

    def __init__(
        self, metrics: Metrics, clock: Clock, after_s: float, blocking: Callable[[], str] = lambda: ""
    ) -> None:
        self._metrics = metrics
        self._clock = clock
        self._after_s = after_s
        self._blocking = blocking
        self._watched: list[_Watched] = []
        self._dropped: Counter[str] = Counter()
        self._messages = 0
        self._foreign = 0
        self._unfinished = UnfinishedWindows(metrics, after_s, clock.monotonic())
        self._clocks = Clocks()
        self._lines: deque[str] = deque(maxlen=WAITING)

    def watch(self, config: SourceConfig | str, deliver: Deliver) -> Deliver:
        """Return what the source is to deliver to, which takes note and passes on.

        Args:
            config: the source's configuration; the name alone of an object that a program passed.
            deliver: takes the readings.
        """
        if not self._after_s or (not isinstance(config, str) and config.type in {"recording", "stdin"}):
            return deliver
        where, hint, gauge = _described(config)
        one = _Watched(where, hint, gauge, self._clock.monotonic(), self._after_s)
        self._watched.append(one)

        def noted(readings: Sequence[Reading], received: float, done: Done | None) -> None:
            if one.warned_s:
                self._end(one, received)
            one.heard, one.fresh = received, True
            deliver(readings, received, done)

        return noted

    def start(
        self, loop: Loop, contract: Callable[[], InputContract], states: Callable[[], Sequence[KeyState]]
    ) -> None:
        """Look every `EVERY_S`, or as often as the first patience.

        Args:
            loop: the application's loop.
            contract: what a window is; an update may change it.
            states: what is held for each key.
        """
        if self._watched:
            self._snapshot()
            every_s = min(self._after_s, EVERY_S)
            loop.call_every(every_s, lambda: self.report(self._clock.monotonic(), contract(), states))

    def report(self, now: float, contract: InputContract, states: Callable[[], Sequence[KeyState]]) -> None:
        """Log the first line that is due (rule 8), at monotonic second `now`."""
        self._look_at_sources(now)
        for line in (
            self._unfinished.line(now, contract, states),
            self._clocks.line(now, self._clock.wall(), states),
        ):
            if line:
                self._lines.append(line)
        if self._lines:
            log.warning("%s", self._lines.popleft())

    def _look_at_sources(self, now: float) -> None:
        foreign = self._metrics.counts["foreign_messages_total"]
        others, self._foreign = foreign > self._foreign, foreign
        for one in self._watched:
            if one.gauge and (others or not self._metrics.gauges.get(one.gauge, 1.0)):
                one.heard = now  # rules 3 and 6
                continue
            silent_s = now - one.heard
            if silent_s >= max(one.patience_s, min(2 * one.warned_s, one.warned_s + LONGEST_S)):  # rule 1
                one.warned_s = silent_s
                self._lines.append(f"source: no readings for {silent_s:.0f} s from {one.where}: {self._instead(one)}")
        if all(one.fresh for one in self._watched):
            self._snapshot()
        for one in self._watched:
            one.fresh = False

    def _end(self, one: _Watched, now: float) -> None:
        silent_s = now - one.heard
        log.info("source: readings came again from %s: silent_s=%.0f", one.where, silent_s)
        one.warned_s, one.patience_s = 0.0, max(one.patience_s, 2 * silent_s)  # rule 2

    def _instead(self, one: _Watched) -> str:
        """Describe what came in place of readings (rule 4)."""
        if blocking := self._blocking():  # rule 7
            return f"they wait for {blocking}, which takes no answers: look after it, or set patience_s under [[sink]]"
        refused = self._metrics.dropped - self._dropped
        parts = [f"{name} {count}" for name, count in refused.most_common() if reason_of(name).component == "source"]
        messages = self._metrics.counts["messages_total"] - self._messages
        if not parts:
            return (
                f"{messages} messages came, without samples"
                if messages
                else f"nothing arrived in that time. {one.hint}"
            )
        first = parts[0].split(" ", maxsplit=1)[0]
        example = self._metrics.examples.get(first, "")
        return (
            f"what arrived was refused: {', '.join(parts)}: {reason_of(first).advice}"
            f"{f'; the last one: {example}' if example else ''}"
        )

    def _snapshot(self) -> None:
        self._dropped = Counter(self._metrics.dropped)
        self._messages = self._metrics.counts["messages_total"]


def _described(config: SourceConfig | str) -> tuple[str, str, str]:
    """Return where readings should come from, what to look at if none do, and the gauge of its connection."""
    if isinstance(config, str):
        return f"the source {config}", "The program that passed it delivered none.", ""
    if config.type != "mqtt":
        return f"the {config.type} source", "Look at the sensor and its cable.", ""
    topics = ", ".join(one for one, _ in config.filters())
    hint = (
        "Compare topics with what the sensors publish: edge-runtime run --check APP.toml --seconds 10 shows what comes "
        "there, and on other topics. "
        f"The broker of [broker.{config.broker}] must be the one that they publish to"
    )
    return f"topics {topics} of broker {config.broker}", hint, f'connected{{broker="{config.broker}"}}'
