"""Brokers: the connections of one application, which sources, sinks, updates and observers share."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from edge_runtime.app.config import AppConfig
from edge_runtime.io.sources.build import with_room
from edge_runtime.metrics import Metrics

if TYPE_CHECKING:
    from edge_runtime.io.mqtt.client import BrokerClient


class Brokers:
    """Clients of all brokers that the configuration names; each connects with the first that uses it.

    Args:
        config: the application's configuration.
        metrics: receives what the clients count.
        on_status: told of each part's status, besides the brokers; None: nothing else is.
    """

    def __init__(
        self,
        config: AppConfig,
        metrics: Metrics,
        on_status: Callable[[str, Mapping[str, object]], None] | None = None,
    ) -> None:
        self.clients = _clients(config, metrics)
        self._on_status = on_status
        self._held: list[BrokerClient] = []

    def hold(self) -> None:
        """Keep the connections until `release`, whichever source or sink closes last."""
        for client in self.clients.values():
            client.hold()
            self._held.append(client)

    def release(self, timeout_s: float) -> None:
        """Let what is queued and the last status reach the brokers, then disconnect. May be called twice."""
        held, self._held = self._held, []
        for client in held:
            client.close(timeout_s)

    def publish_status(self, part: str, status: Mapping[str, object]) -> None:
        """Publish the status of a part of the application on each broker."""
        if self._on_status is not None:
            self._on_status(part, status)
        for client in self.clients.values():
            client.publish_status(part, status)

    def publish_stats(self, document: bytes) -> None:
        """Publish figures on the retained topic ``$stats`` below each broker's status topic."""
        for client in self.clients.values():
            client.publish_below_status("$stats", document)


def _clients(config: AppConfig, metrics: Metrics) -> dict[str, BrokerClient]:
    """Build a client for each broker; MQTT is not imported where there is none."""
    if not config.broker:
        return {}
    from edge_runtime.io.mqtt.client import BrokerClient  # noqa: PLC0415

    brokers = dict(config.broker)
    if (home := config.home_assistant) is not None:
        brokers[home.broker] = home.with_status(brokers[home.broker], config.name)
    return {
        name: BrokerClient(with_room(broker, name, config.source), name, metrics, application=config.name)
        for name, broker in brokers.items()
    }
