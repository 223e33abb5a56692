"""Status of all workers: one retained topic on each broker that has one, and the same facts for who looks in.

It is ``degraded`` if one worker is: not ready, with an outbox that takes nothing, with a model that failed, or stepped
down by the governor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from edge_runtime.app.config import AppConfig
from edge_runtime.app.workers.child import Child
from edge_runtime.base.system.loop import Loop
from edge_runtime.metrics import Metrics

if TYPE_CHECKING:
    from edge_runtime.io.mqtt.client import BrokerClient


def trouble(child: Child) -> str:
    """Return in a few words why a worker is degraded; empty where it is well."""
    if not child.ready:
        return "not running" if child.pid is None else "starting"
    outbox, model, governor = (child.parts.get(name, {}) for name in ("outbox", "model", "governor"))
    if not outbox.get("accepting", True):
        return f"outbox: {outbox.get('failure_reason', '')}"
    if stalled := child.parts.get("sinks", {}).get("stalled"):
        return f"sinks: {', '.join(stalled)} takes no answers"
    if failed := model.get("failed"):
        return "model: " + ", ".join(f"{name}: {why}" for name, why in failed.items())
    return f"governor: stepped down: {governor.get('reason', '')}" if governor.get("level") else ""


def facts_of(children: Sequence[Child], restarts: Mapping[int, int]) -> dict[str, Any]:
    """Return how the workers are, as plain values: each by its number."""
    each = {str(child.worker): trouble(child) for child in children}
    return {
        "state": "degraded" if any(each.values()) else "well",
        "ready": sum(child.ready for child in children),
        "of": len(children),
        "restarts": sum(restarts.values()),
        "degraded": {worker: why for worker, why in each.items() if why},
    }


def parts_of(children: Sequence[Child]) -> dict[str, Mapping[str, Any]]:
    """Return the status of each part, from the first worker that is degraded and has one, else from the first."""
    found: dict[str, Mapping[str, Any]] = {}
    for child in sorted(children, key=lambda one: not trouble(one)):
        for name, facts in child.parts.items():
            found.setdefault(name, facts)
    return found


class StatusTopic:
    """The parent's connections, which have no subscriptions: one to each broker with a status topic.

    Args:
        config: this machine's configuration.
        metrics: receives what the clients count.
    """

    def __init__(self, config: AppConfig, metrics: Metrics) -> None:
        self._clients: list[BrokerClient] = []
        self._shown: dict[str, Mapping[str, Any]] = {}
        for name, broker in config.broker.items():
            if broker.status_topic:
                from edge_runtime.io.mqtt.client import BrokerClient  # noqa: PLC0415 - MQTT, only where it is used

                client_id = f"{broker.session_name(name, config.name)}-workers"
                own = replace(broker, client_id=client_id, clean_start=True, session_expiry_s=0)
                self._clients.append(BrokerClient(own, name, metrics))

    def open(self, loop: Loop) -> None:
        """Connect, and keep trying while a broker is away."""
        for client in self._clients:
            client.open(loop)

    def show(self, facts: Mapping[str, Any], parts: Mapping[str, Mapping[str, Any]]) -> None:
        """Publish what has changed."""
        for name, one in {"workers": facts, **parts}.items():
            if self._shown.get(name) != one:
                self._shown[name] = one
                for client in self._clients:
                    client.publish_status(name, one)

    def close(self, timeout_s: float) -> None:
        """Say ``offline``, and disconnect."""
        for client in self._clients:
            client.close(timeout_s)
