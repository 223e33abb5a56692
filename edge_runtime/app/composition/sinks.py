"""Sinks of one application, each behind a guard."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, Any

from edge_runtime.app.config import AppConfig
from edge_runtime.clock import Clock
from edge_runtime.io.sinks import Described, Sink
from edge_runtime.io.sinks.build import SinkParts, build_sink
from edge_runtime.io.sinks.guard import MOST_UNACKED, SinkGuard, SinkPolicy, bounds_of
from edge_runtime.io.sources import Source
from edge_runtime.metrics import Metrics

if TYPE_CHECKING:
    from edge_runtime.io.mqtt.client import BrokerClient

log = logging.getLogger(__name__)


class Sinks:
    """Sinks that the configuration names, and those of the program.

    Args:
        config: the application's configuration.
        own: sinks of the program; a `policy` that one has is its `SinkPolicy`.
        sources: sources whose readings wait for them.
        clients: brokers by name.
        metrics: receives their counts.
        clock: wall and monotonic time.
        describe: what answers may hold.
        on_status: told which sinks are stalled, when that changes.
    """

    def __init__(
        self,
        config: AppConfig,
        own: Sequence[Sink],
        sources: Sequence[Source],
        *,
        clients: Mapping[str, BrokerClient],
        metrics: Metrics,
        clock: Clock,
        describe: Callable[[], Described],
        on_status: Callable[[str, Mapping[str, object]], None],
    ) -> None:
        self._on_status = on_status
        policies = [*config.sink, *(getattr(sink, "policy", SinkPolicy()) for sink in own)]
        limits = [
            clients[broker].config.receive_maximum
            if (broker := getattr(part, "broker", None)) is not None
            else getattr(source, "most_unacked", MOST_UNACKED)
            for source, part in zip_longest(sources, config.source)
        ]
        bounds = bounds_of(policies, limits)
        names = [*(f"sink[{i}]" for i in range(len(config.sink))), *(sink.name for sink in own)]
        counted = [metrics.of_sink(name) for name in names]
        built = [
            build_sink(
                part,
                SinkParts(
                    name=name, broker_clients=clients, metrics=figures, clock=clock, describe=describe,
                    state=config.counters_file,
                ),
            )
            for part, name, figures in zip(config.sink, names, counted, strict=False)
        ]  # fmt: skip
        self.guards = [
            SinkGuard(sink, bound, figures, clock, self._changed)
            for sink, bound, figures in zip((*built, *own), bounds, counted, strict=True)
        ]

    @property
    def idle(self) -> bool:
        """Every answer is handed over, or dropped and counted."""
        return all(guard.idle for guard in self.guards)

    def log_who_waits(self) -> None:
        """Log which sinks acknowledgements wait for, where they do not wait for all."""
        required = [guard.name for guard in self.guards if guard.required]
        others = [guard.name for guard in self.guards if not guard.required]
        if others:
            text = "sinks: acknowledgements wait for %s and not for %s; required under [[sink]] says so for each"
            log.info(text, ", ".join(required) or "none", ", ".join(others))

    def status(self) -> list[dict[str, Any]]:
        """Return the state of each as plain values."""
        return [guard.status() for guard in self.guards]

    def blocking(self) -> str:
        """Name the sinks that readings wait for without bound, and that take nothing; empty where there is none."""
        return ", ".join(guard.name for guard in self.guards if guard.blocks)

    def _changed(self) -> None:
        self._on_status("sinks", {"stalled": [guard.name for guard in self.guards if guard.stalled_s]})
