"""States of the application itself: its figures, and its updates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import orjson

from edge_runtime.io.mqtt.outbound_queue import Message
from edge_runtime.operate.observe.home_assistant.names import Topics, readable
from edge_runtime.operate.observe.subject import Subject

FIGURES_S: Final = 10.0
UPDATE_S: Final = 1.0
"""Time between two looks at the figures, and at the updates; what has not changed is not published again."""
_QUIET: Final = frozenset({"idle", "ready"})
_SUMMARY: Final = 250


class ApplicationStates:
    """Makes the messages of the application's topics.

    Args:
        subject: the application.
        topics: the application's topics.
    """

    def __init__(self, subject: Subject, topics: Topics) -> None:
        self._subject = subject
        self._topics = topics
        self._sent: dict[str, bytes] = {}
        self._next: dict[str, float] = {}

    def messages(self, now: float, *, again: bool = False) -> list[Message]:
        """Make those that are due; all of them with `again`.

        Args:
            now: monotonic seconds.
            again: also what has not changed.
        """
        if again:
            self._sent.clear()
            self._next.clear()
        found = []
        for name, every_s, make in (("stats", FIGURES_S, self._figures), ("update", UPDATE_S, self._update)):
            if now < self._next.get(name, now):
                continue
            self._next[name] = now + every_s
            document = make()
            payload = b"" if document is None else orjson.dumps(document, default=str)
            if payload and self._sent.get(name) != payload:
                self._sent[name] = payload
                found.append(Message(self._topics.own(name).encode(), payload, b"", 1, retain=True))
        return found

    def _figures(self) -> dict[str, Any]:
        metrics, backend = self._subject.metrics, self._subject.backend()
        counts = metrics.counts
        asked = counts["cloud_cases_total"] / max(1, counts["predictions_total"])
        return {
            "model": readable(self._subject.manifest().model),
            "variant": backend.get("variant"),
            "engine": backend.get("engine"),
            "shown": int(metrics.gauges.get("home_assistant_keys", 0)),
            "dropped": sum(metrics.dropped.values()),
            "share": round(100 * min(1.0, asked), 1),
            "temperature": metrics.gauges.get("temperature_celsius"),
        }

    def _update(self) -> dict[str, Any] | None:
        status = self._subject.update()
        return None if status is None else update_state(status)


def update_state(status: Mapping[str, Any]) -> dict[str, Any]:
    """Say what an update entity shows of the status of updates (docs/updates.md).

    >>> update_state({"running": "watch/1", "state": "ready", "candidate": None, "ready": "watch/2", "last": ""})
    {'installed_version': '1', 'latest_version': '2', 'title': 'watch', 'in_progress': False, 'release_summary': ''}
    """
    running = str(status["running"])
    latest = str(status.get("ready") or status.get("candidate") or running)
    found = {
        "installed_version": running.rpartition("/")[2],
        "latest_version": latest.rpartition("/")[2],
        "title": readable(running.rpartition("/")[0]),
        "in_progress": status["state"] not in _QUIET,
        "release_summary": readable(str(status.get("note") or status.get("last") or ""), _SUMMARY),
    }
    if status["state"] == "fetching" and status.get("size"):
        found["update_percentage"] = round(100 * status.get("bytes", 0) / status["size"])
    return found
