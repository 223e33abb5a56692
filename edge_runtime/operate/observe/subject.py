"""Subject: what an application lets be seen of itself, as functions, so that nothing here knows the application."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from edge_runtime.base.system.loop import Loop
from edge_runtime.clock import Clock
from edge_runtime.event_rule import EventRule
from edge_runtime.manifest import Manifest
from edge_runtime.metrics import Metrics
from edge_runtime.model.tasks.answered import Tap
from edge_runtime.signal.drift.alarm import Alarm
from edge_runtime.signal.drift.by_channel import KeyDrift
from edge_runtime.signal.windowing.window import Window

if TYPE_CHECKING:
    from edge_runtime.store.cases.store import CaseStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """An application, as observers see it. What is a function is called on the application's loop, but for `outbox`."""

    name: str
    loop: Loop
    clock: Clock
    metrics: Metrics
    manifest: Callable[[], Manifest]
    backend: Callable[[], Mapping[str, Any]]
    """Variant, engine and fallback chain that answer, as plain values."""
    governor: Callable[[], Mapping[str, Any] | None]
    update: Callable[[], Mapping[str, Any] | None]
    suspects: Callable[[], Mapping[str, str]]
    """Keys whose readings are suspect, and why: ``stuck``, ``rate,unit``."""
    alarms: Callable[[], Sequence[Alarm]]
    """Alarms of drift that are on, the oldest first."""
    drift: Callable[[str], KeyDrift | None]
    """How far a key is from an alarm of drift, by channel; None where there is nothing to compare with."""
    explain: Callable[[Window], Mapping[str, Any]]
    """Explain the answer to a window (`edge_runtime.model.serving.explain`); raises `EdgeError`."""
    tap: Callable[[Tap], None]
    """Have a function called with what is answered (`edge_runtime.answer.pipeline.Pipeline.tap`)."""
    reset: Callable[[Sequence[str]], int]
    """Let the states of keys begin again; returns how many had some."""
    outbox: Callable[[], Mapping[str, Any] | None]
    """Counts of the outbox, None without one; from any thread, and it may wait for a disk."""
    lifetime: Callable[[], Mapping[str, Any] | None]
    """Counters of all runs, None where none are kept; from any thread."""
    rules: Callable[[], Sequence[EventRule]]
    """Rules by which answers become events now."""
    install: Callable[[], bool]
    """Start the bundle that was fetched and verified and waits to be asked for; whether there is one."""
    restart: Callable[[], None]
    """End in order, with the exit code that has the service started again."""
    publish_stats: Callable[[bytes], None]
    """Publish figures on the retained topic ``$stats`` below each broker's status topic."""
    cases: Callable[[], CaseStore | None] = lambda: None
    """The file of kept cases, from any thread; None where none are kept."""
    fold_outbox: Callable[[], None] = lambda: None
    """Empty the outbox's log (`edge_runtime.store.durable.outbox.Outbox.fold`), from any thread."""
    sinks: Callable[[], Sequence[Mapping[str, Any]]] = tuple
    """Each sink: what waits for it, since when it takes nothing, what it dropped."""
    cloud: str = ""
    """Address of the cloud, without what is secret; empty without one."""
