"""Report: one picture of a running application as plain values, for ``watch``, ``status`` and the page.

`Report.live` runs on the application's loop and touches memory only; `Report.complete` adds what may wait for a disk
or a sensor, on the observers' thread. docs/observe.md has the fields.
"""

from __future__ import annotations

import math
import os
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from edge_runtime._version import __version__
from edge_runtime.base.hardware.readings import Board
from edge_runtime.manifest import Channel, Manifest
from edge_runtime.operate.observe.drops import COUNTS, reason_of
from edge_runtime.operate.observe.live import KeyView, Live
from edge_runtime.operate.observe.process import process_figures
from edge_runtime.operate.observe.subject import Subject
from edge_runtime.signal.windowing.window import Window
from edge_runtime.types import Correction, Event, Float32

RATES_OVER_S: Final = 10.0
"""Time over which rates are taken."""
MOST_KEYS: Final = 200
MOST_ALARMS: Final = 50
MOST_POINTS: Final = 400
"""Points of a channel that are given of a window; longer windows are thinned to the extremes of equal spans."""
_MOST_CHANNELS: Final = 16
_DISK_S: Final = 1.0
"""Shortest time between two looks at the outbox and the board."""
_RATED: Final = (
    "messages_total",
    "samples_total",
    "windows_total",
    "predictions_total",
    "hard_total",
    "cloud_cases_total",
)


@dataclass(frozen=True, slots=True)
class Query:
    """Part of the keys that a caller wants to see."""

    keys: int = 50
    filter: str = ""


class Report:
    """Builds the picture.

    Args:
        subject: the application.
        live: its answers.
        board: sensors to read; None where the governor reads them, or there are none.
    """

    def __init__(self, subject: Subject, live: Live, board: Board | None = None) -> None:
        self._subject = subject
        self._live = live
        self._board = board
        self._began = subject.clock.monotonic()
        self._began_wall = subject.clock.wall()
        self._samples: deque[tuple[float, dict[str, int]]] = deque(maxlen=64)
        self._looked = -math.inf
        self._outbox: Mapping[str, Any] | None = None
        self._sensors: dict[str, Any] = {}

    # -- on the application's loop -------------------------------------------------------------------------------------

    def live(self, query: Query) -> dict[str, Any]:
        """Take what the loop knows, at once; the keys are copied here, and described by `complete`."""
        subject = self._subject
        counts, gauges = subject.metrics.counts, subject.metrics.gauges
        now = subject.clock.wall()
        shown, total = self._live.keys(min(query.keys, MOST_KEYS), query.filter)
        suspects = subject.suspects()
        return {
            "at": now,
            "app": self._app(),
            "backend": dict(subject.backend()),
            "rates": self._rates(),
            "keys": [(key, view.copy(), now, suspects.get(key, "")) for key, view in shown],
            "keys_found": total,
            "events": [_event(event) for event in list(self._live.events)[-20:]],
            "corrections": [
                {
                    "id": one.id, "key": one.key, "end": one.end, "label": one.label,
                    "device": one.supersedes if isinstance(one, Correction) else one.label,
                    "reason": "" if isinstance(one, Correction) else one.reason,
                }
                for one in list(self._live.corrections)[-20:]
            ],
            "alarms": [asdict(alarm) for alarm in subject.alarms()[:MOST_ALARMS]],
            "cloud": {
                "url": subject.cloud,
                "reachable": gauges.get("cloud_reachable"),
                "cases": counts["cloud_cases_total"],
                "failures": counts["cloud_failures_total"],
                "corrections": counts["corrections_total"],
                "agreed": self._live.agreed,
            },
            "governor": _plain(subject.governor()),
            "update": _plain(subject.update()),
            "sinks": [dict(sink) for sink in subject.sinks()],
            "brokers": {
                name.partition('"')[2].rstrip('"}'): bool(value)
                for name, value in gauges.items()
                if name.startswith("connected{")
            },
        }  # fmt: skip

    def key(self, key: str) -> dict[str, Any] | None:
        """Describe one key with its last window, and keep its windows from now on; None where it is not held."""
        view = self._live.view(key)
        if view is None or view.last is None:
            return None
        window = self._live.look_at(key)
        manifest = self._subject.manifest()
        found: dict[str, Any] = _key(key, view, self._subject.clock.wall(), self._subject.suspects().get(key, ""))
        found |= {
            "steps": [list(step) for step in view.steps],
            "scores": list(view.last.scores)[:64],
            "labels": list(getattr(manifest.output, "labels", ()))[:64],
            "answer": view.last.__dict__ if len(view.last.scores) <= 64 else None,
            "window": None,
            "drift": None if (drift := self._subject.drift(key)) is None else asdict(drift),
        }
        if window is not None:
            found["window"] = drawn(window, manifest)
        return found

    def _app(self) -> dict[str, Any]:
        subject, manifest = self._subject, self._subject.manifest()
        contract = manifest.input
        return {
            "name": subject.name,
            "version": __version__,
            "pid": os.getpid(),
            "started": self._began_wall,
            "uptime_s": round(subject.clock.monotonic() - self._began, 1),
            "model": manifest.model,
            "labels": list(getattr(manifest.output, "labels", ()))[:200],
            "task": getattr(manifest.output, "type", "classification"),
            "window_s": contract.window / contract.rate_hz,
            "hop_s": contract.hop / contract.rate_hz,
            "rate_hz": contract.rate_hz,
            "cases": subject.cases() is not None,
        }

    def _rates(self) -> dict[str, float]:
        """Rates over the last `RATES_OVER_S`, a second, and the shares of answers that were hard and that were sent."""
        now = self._subject.clock.monotonic()
        counts = {name: self._subject.metrics.counts[name] for name in _RATED}
        self._samples.append((now, counts))
        while len(self._samples) > 2 and now - self._samples[1][0] >= RATES_OVER_S:
            self._samples.popleft()
        before_at, before = self._samples[0]
        seconds = max(now - before_at, 1e-9)
        if seconds < 0.05:  # the first look: since the start
            seconds, before = max(now - self._began, 1e-9), dict.fromkeys(_RATED, 0)
        fresh = {name: counts[name] - before[name] for name in _RATED}
        rates = {f"{name.removesuffix('_total')}_per_s": round(n / seconds, 2) for name, n in fresh.items()}
        answers = max(1, counts["predictions_total"])
        return rates | {
            "hard_share": round(counts["hard_total"] / answers, 4),
            "cloud_share": round(counts["cloud_cases_total"] / answers, 4),
        }

    # -- on the observers' thread --------------------------------------------------------------------------------------

    def complete(self, found: dict[str, Any]) -> dict[str, Any]:
        """Describe the keys, and add the counters, latencies, the outbox and the board."""
        now = self._subject.clock.monotonic()
        if now - self._looked >= _DISK_S:
            self._looked = now
            self._outbox = self._subject.outbox()
            self._sensors = self._read_board()
        snapshot = self._subject.metrics.snapshot()
        return found | {
            "keys": [_key(*one) for one in found["keys"]],
            "latency_ms": snapshot["latency_ms"],
            "counts": snapshot["counts"],
            "gauges": snapshot["gauges"],
            "drops": drops_of(snapshot["dropped"], snapshot["counts"], self._subject.metrics.examples),
            "outbox": self._outbox,
            "board": self._sensors,
            "process": process_figures(),
        }

    def _read_board(self) -> dict[str, Any]:
        if self._board is None:
            gauges = self._subject.metrics.gauges
            names = {"temperature_c": "temperature_celsius", "power_w": "power_watts", "throttled": "throttled"}
            return {short: gauges[name] for short, name in names.items() if name in gauges}
        sensors = self._board.read()
        found = {
            "temperature_c": sensors.temperature,
            "power_w": sensors.watts,
            "battery_percent": sensors.battery,
            "throttled": ", ".join(sensors.throttled),
        }
        return {name: value for name, value in found.items() if value is not None}


def drawn(window: Window, manifest: Manifest) -> dict[str, Any]:
    """Give a window as it is drawn: a thinned curve for each of its first 16 channels."""
    contract = manifest.input
    samples = window.samples.reshape(len(window.samples), -1)
    return {"id": window.id, "start": window.start} | drawn_samples(samples, contract.rate_hz, contract.channels)


def drawn_samples(samples: Float32, rate_hz: float, channels: Sequence[Channel]) -> dict[str, Any]:
    """Give samples, (n, n_channels), as they are drawn."""
    return {
        "rate_hz": rate_hz,
        "length": len(samples),
        "channels": [{"name": one.name, "unit": one.unit} for one in channels[:_MOST_CHANNELS]],
        "values": [thinned(column, MOST_POINTS) for column in samples.T[:_MOST_CHANNELS].tolist()],
    }


def stats_of(subject: Subject) -> dict[str, Any]:
    """Return the figures without keys and answers, for a message; from any thread, and it may wait for a disk."""
    snapshot = subject.metrics.snapshot()
    return {
        "at": subject.clock.wall(),
        "application": subject.name,
        "model": subject.manifest().model,
        "runtime": __version__,
        **snapshot,
        "outbox": subject.outbox(),
        "lifetime": subject.lifetime(),
        "process": process_figures(),
    }


def drops_of(
    dropped: Mapping[str, int], counts: Mapping[str, int], examples: Mapping[str, str]
) -> list[dict[str, Any]]:
    """Describe what was dropped, the most first, each with what to do."""
    losses = {name: n for name, n in dropped.items() if n} | {name: counts[name] for name in COUNTS if counts.get(name)}
    found = []
    for name, n in sorted(losses.items(), key=lambda item: -item[1]):
        reason = reason_of(name)
        found.append(
            {
                "reason": name, "count": n, "component": reason.component, "what": reason.what,
                "advice": reason.advice, "example": examples.get(name, "")[:200],
            }
        )  # fmt: skip
    return found


def thinned(values: list[float], most: int) -> list[float]:
    """Thin a curve to at most `most` points: the lowest and the highest of equal spans, in their order."""
    n = len(values)
    if n <= most:
        return [_short(value) for value in values]
    found: list[float] = []
    spans = most // 2
    for span in range(spans):
        part = values[span * n // spans : (span + 1) * n // spans]
        low, high = min(part), max(part)
        ends = (low, high) if part.index(low) <= part.index(high) else (high, low)
        found += map(_short, ends)
    return found


def _short(value: float) -> float:
    return float(f"{value:.5g}") if math.isfinite(value) else 0.0


def _key(key: str, view: KeyView, now: float, suspect: str) -> dict[str, Any]:
    last, step = view.last, view.steps[-1]
    assert last is not None
    seconds = max(now - view.first, 1e-9)
    return {
        "key": key,
        "id": last.id,
        "label": step.label,
        "confidence": round(step.confidence, 4),
        "number": step.number,
        "hard": step.hard,
        "route": last.route,
        "corrected": step.corrected,
        "suspect": suspect,
        "end": step.end,
        "age_s": round(max(0.0, now - view.seen), 2),
        "latency_ms": last.latency_ms,
        "windows": view.windows,
        "windows_per_s": round(view.windows / seconds, 3) if view.windows > 1 else 0.0,
        "history": [[one.label, round(one.confidence, 3), one.hard, one.corrected] for one in list(view.steps)[-40:]],
    }


def _event(event: Event) -> dict[str, Any]:
    return {
        "id": event.id, "key": event.key, "event": event.event, "kind": event.kind, "label": event.label,
        "start": event.start, "end": event.end, "peak": event.peak,
    }  # fmt: skip


def _plain(found: Mapping[str, Any] | None) -> dict[str, Any] | None:
    return None if found is None else dict(found)
