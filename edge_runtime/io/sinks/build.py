"""From a sink's configuration to the sink."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from edge_runtime.clock import Clock
from edge_runtime.io.sinks import Described, Sink
from edge_runtime.metrics import Metrics
from edge_runtime.schema import OneOf, Packaged

if TYPE_CHECKING:
    from edge_runtime.io.mqtt.client import BrokerClient
    from edge_runtime.io.sinks.guard import SinkPolicy
    from edge_runtime.io.sinks.jsonl import JsonlSinkConfig
    from edge_runtime.io.sinks.mqtt import MqttSinkConfig
    from edge_runtime.io.sinks.stdout import StdoutSinkConfig
    from edge_runtime.io.sinks.webhook import WebhookSinkConfig

    @dataclass(frozen=True, slots=True, kw_only=True)
    class _OtherConfig(SinkPolicy):
        """Settings of a sink of another package, told apart by whatever name it has."""

        type: Literal["of another package"]

    SinkConfig = MqttSinkConfig | JsonlSinkConfig | StdoutSinkConfig | WebhookSinkConfig | _OtherConfig
else:
    SinkConfig = OneOf(
        "type", "", "edge_runtime.sinks",
        mqtt="edge_runtime.io.sinks.mqtt:MqttSinkConfig",
        jsonl="edge_runtime.io.sinks.jsonl:JsonlSinkConfig",
        sparkplug=Packaged("edge_devices.integrations.sparkplug:SparkplugSinkConfig", "pip install edge-devices"),
        stdout="edge_runtime.io.sinks.stdout:StdoutSinkConfig",
        webhook="edge_runtime.io.sinks.webhook:WebhookSinkConfig",
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkParts:
    """Parts of the application that a sink is made of; one of another package by its ``make_sink(config, parts)``.

    Such a module may have ``check_broker(config, broker, users)`` too, which raises ValueError for a broker that the
    sink cannot use; `users` names the broker of each part of the application once for each use.

    Attributes:
        name: the sink's name in messages and metrics.
        broker_clients: brokers by name.
        metrics: receives its counts.
        clock: source of time.
        describe: what answers may hold.
        state: a file of state, beside which a sink keeps its own; None: nothing is kept.
    """

    name: str
    broker_clients: Mapping[str, BrokerClient]
    metrics: Metrics
    clock: Clock
    describe: Callable[[], Described]
    state: Path | None


def build_sink(config: SinkConfig, parts: SinkParts) -> Sink:
    """Make a sink. It opens nothing before `Sink.open`.

    Raises:
        ConfigError: a file that it names cannot be read.
    """
    name, metrics, clock = parts.name, parts.metrics, parts.clock
    if config.type == "mqtt":
        from edge_runtime.io.sinks.mqtt import MqttSink  # noqa: PLC0415 - only what the application names

        return MqttSink(config, parts.broker_clients[config.broker], metrics, name=name)
    if config.type == "jsonl":
        from edge_runtime.io.sinks.jsonl import JsonlSink  # noqa: PLC0415

        return JsonlSink(config, metrics, name=name)
    if config.type == "stdout":
        from edge_runtime.io.sinks.stdout import StdoutSink  # noqa: PLC0415

        return StdoutSink(config, metrics, clock, name=name)
    if config.type == "webhook":
        from edge_runtime.io.sinks.webhook import WebhookSink  # noqa: PLC0415

        return WebhookSink(config, metrics, clock, name=name)
    found: Any = SinkConfig
    made: Sink = found.module(config.type).make_sink(config, parts)
    return made
