"""From a source's configuration to the source."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edge_runtime.clock import Clock
from edge_runtime.codecs.config import CodecConfig, load_codec
from edge_runtime.manifest import InputContract
from edge_runtime.metrics import Metrics
from edge_runtime.schema import OneOf
from edge_runtime.sources import Source
from edge_runtime.sources.decoding import Decoder

if TYPE_CHECKING:
    from edge_runtime.mqtt.client import BrokerClient
    from edge_runtime.sources.alsa import AlsaConfig
    from edge_runtime.sources.iio import IioConfig
    from edge_runtime.sources.mqtt import MqttSourceConfig
    from edge_runtime.sources.recording import RecordingConfig
    from edge_runtime.sources.serial import SerialConfig
    from edge_runtime.sources.stdin import StdinConfig

    SourceConfig = MqttSourceConfig | RecordingConfig | StdinConfig | SerialConfig | IioConfig | AlsaConfig
else:
    SourceConfig = OneOf(
        mqtt="edge_runtime.sources.mqtt:MqttSourceConfig",
        recording="edge_runtime.sources.recording:RecordingConfig",
        stdin="edge_runtime.sources.stdin:StdinConfig",
        serial="edge_runtime.sources.serial:SerialConfig",
        iio="edge_runtime.sources.iio:IioConfig",
        alsa="edge_runtime.sources.alsa:AlsaConfig",
    )


def build_source(
    config: SourceConfig,
    *,
    name: str,
    contract: InputContract,
    broker_clients: Mapping[str, BrokerClient],
    metrics: Metrics,
    clock: Clock,
) -> Source:
    """Make a source. It opens nothing before `Source.open`.

    Args:
        config: which one.
        name: as it appears in messages and metrics.
        contract: channels and rate that its codec must produce.
        broker_clients: brokers by name.
        metrics: receives its counts.
        clock: where time comes from.

    Raises:
        ConfigError: the codec's library is missing, or its settings do not fit the channels.
    """

    def decoder(codec: CodecConfig) -> Decoder:
        return Decoder(load_codec(codec, contract.channels, rate_hz=contract.rate_hz), metrics, clock)

    if config.type == "mqtt":
        from edge_runtime.sources.mqtt import MqttSource  # noqa: PLC0415 - only what the application names

        broker_client = broker_clients[config.broker]
        return MqttSource(config, broker_client, decoder(config.codec), metrics, clock=clock, name=name)
    if config.type == "recording":
        from edge_runtime.sources.recording import RecordingSource  # noqa: PLC0415

        return RecordingSource(config, contract, metrics, clock, name=name)
    if config.type == "serial":
        from edge_runtime.sources.serial import SerialSource  # noqa: PLC0415

        return SerialSource(config, decoder(config.codec), metrics, clock, name=name)
    if config.type == "iio":
        from edge_runtime.sources.iio import IioSource  # noqa: PLC0415

        return IioSource(config, contract, metrics, clock, name=name)
    if config.type == "alsa":
        from edge_runtime.sources.alsa import AlsaSource  # noqa: PLC0415

        return AlsaSource(config, contract, metrics, clock, name=name)
    from edge_runtime.sources.stdin import StdinSource  # noqa: PLC0415

    return StdinSource(config, decoder(config.codec), clock=clock, name=name)
