"""From a sink's configuration to the sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from edge_runtime.clock import Clock
from edge_runtime.io.sinks import Described, Sink
from edge_runtime.metrics import Metrics
from edge_runtime.schema import OneOf

if TYPE_CHECKING:
    from edge_runtime.io.mqtt.client import BrokerClient
    from edge_runtime.io.sinks.jsonl import JsonlSinkConfig
    from edge_runtime.io.sinks.mqtt import MqttSinkConfig
    from edge_runtime.io.sinks.sparkplug import SparkplugSinkConfig
    from edge_runtime.io.sinks.stdout import StdoutSinkConfig
    from edge_runtime.io.sinks.webhook import WebhookSinkConfig

    SinkConfig = MqttSinkConfig | JsonlSinkConfig | SparkplugSinkConfig | StdoutSinkConfig | WebhookSinkConfig
else:
    SinkConfig = OneOf(
        mqtt="edge_runtime.io.sinks.mqtt:MqttSinkConfig",
        jsonl="edge_runtime.io.sinks.jsonl:JsonlSinkConfig",
        sparkplug="edge_runtime.io.sinks.sparkplug:SparkplugSinkConfig",
        stdout="edge_runtime.io.sinks.stdout:StdoutSinkConfig",
        webhook="edge_runtime.io.sinks.webhook:WebhookSinkConfig",
    )


def build_sink(
    config: SinkConfig,
    *,
    name: str,
    broker_clients: Mapping[str, BrokerClient],
    metrics: Metrics,
    clock: Clock,
    describe: Callable[[], Described],
    state: Path | None,
) -> Sink:
    """Make a sink. It opens nothing before `Sink.open`.

    Args:
        config: the sink's type and settings.
        name: the sink's name in messages and metrics.
        broker_clients: brokers by name.
        metrics: receives its counts.
        clock: source of time.
        describe: what answers may hold.
        state: a file of state, beside which a sink keeps its own; None: nothing is kept.

    Raises:
        ConfigError: a file that it names cannot be read.
    """
    if config.type == "mqtt":
        from edge_runtime.io.sinks.mqtt import MqttSink  # noqa: PLC0415 - only what the application names

        return MqttSink(config, broker_clients[config.broker], metrics, name=name)
    if config.type == "sparkplug":
        from edge_runtime.io.sinks.sparkplug import SparkplugSink  # noqa: PLC0415
        from edge_runtime.io.sinks.sparkplug_bdseq import file_beside  # noqa: PLC0415

        kept = None if state is None else file_beside(state, config.group, config.node)
        client = broker_clients[config.broker]
        return SparkplugSink(config, client, metrics, clock, describe=describe, bd_seq_file=kept, name=name)
    if config.type == "jsonl":
        from edge_runtime.io.sinks.jsonl import JsonlSink  # noqa: PLC0415

        return JsonlSink(config, metrics, name=name)
    if config.type == "stdout":
        from edge_runtime.io.sinks.stdout import StdoutSink  # noqa: PLC0415

        return StdoutSink(config, metrics, clock, name=name)
    from edge_runtime.io.sinks.webhook import WebhookSink  # noqa: PLC0415

    return WebhookSink(config, metrics, clock, name=name)
