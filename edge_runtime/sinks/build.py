"""From a sink's configuration to the sink."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edge_runtime.clock import Clock
from edge_runtime.metrics import Metrics
from edge_runtime.schema import OneOf
from edge_runtime.sinks import Sink

if TYPE_CHECKING:
    from edge_runtime.mqtt.client import BrokerClient
    from edge_runtime.sinks.jsonl import JsonlSinkConfig
    from edge_runtime.sinks.mqtt import MqttSinkConfig
    from edge_runtime.sinks.stdout import StdoutSinkConfig
    from edge_runtime.sinks.webhook import WebhookSinkConfig

    SinkConfig = MqttSinkConfig | JsonlSinkConfig | StdoutSinkConfig | WebhookSinkConfig
else:
    SinkConfig = OneOf(
        mqtt="edge_runtime.sinks.mqtt:MqttSinkConfig",
        jsonl="edge_runtime.sinks.jsonl:JsonlSinkConfig",
        stdout="edge_runtime.sinks.stdout:StdoutSinkConfig",
        webhook="edge_runtime.sinks.webhook:WebhookSinkConfig",
    )


def build_sink(
    config: SinkConfig, *, name: str, broker_clients: Mapping[str, BrokerClient], metrics: Metrics, clock: Clock
) -> Sink:
    """Make a sink. It opens nothing before `Sink.open`.

    Args:
        config: which one.
        name: as it appears in messages and metrics.
        broker_clients: brokers by name.
        metrics: receives its counts.
        clock: where time comes from.

    Raises:
        ConfigError: a file that it names cannot be read.
    """
    if config.type == "mqtt":
        from edge_runtime.sinks.mqtt import MqttSink  # noqa: PLC0415 - only what the application names

        return MqttSink(config, broker_clients[config.broker], metrics, name=name)
    if config.type == "jsonl":
        from edge_runtime.sinks.jsonl import JsonlSink  # noqa: PLC0415

        return JsonlSink(config, metrics, name=name)
    if config.type == "stdout":
        from edge_runtime.sinks.stdout import StdoutSink  # noqa: PLC0415

        return StdoutSink(config, metrics, clock, name=name)
    from edge_runtime.sinks.webhook import WebhookSink  # noqa: PLC0415

    return WebhookSink(config, metrics, clock, name=name)
