"""Plan of a recording: which sources, brokers and channels, from an application's file or from sources alone."""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edge_runtime.app.config import load_config, parse_as, read_text
from edge_runtime.base.system import toml
from edge_runtime.errors import ConfigError
from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.io.sources.build import SourceConfig, brings_parts
from edge_runtime.manifest import Channel, InputContract
from edge_runtime.model.bundle.bundle import open_bundle

if TYPE_CHECKING:
    from edge_runtime.app.config import AppConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SourcesConfig:
    """A file with brokers and sources, and no model: what ``edge-runtime listen --out`` makes without a bundle."""

    broker: dict[str, BrokerConfig] = field(default_factory=dict)
    source: tuple[SourceConfig, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordingPlan:
    """Everything that a recorder needs to know."""

    sources: tuple[SourceConfig, ...]
    brokers: Mapping[str, BrokerConfig]
    contract: InputContract
    rate_known: bool
    """False: the contract's rate is a stand-in, since nothing states one."""

    @property
    def parts(self) -> bool:
        """Return whether messages may bring some of the channels."""
        return any(brings_parts(source) for source in self.sources)


def load_plan(path: Path, units: Mapping[str, str], rate_hz: float = 0.0) -> RecordingPlan:
    """Read a configuration for recording.

    1. The model of an application says which channels there are, and their units; its sources convert to these.
    2. Without a model, the sources' own mappings do, with the units that they state.
    3. `units` names channels that no mapping names, and units that none states.

    Args:
        path: an application, or a file with brokers and sources alone.
        units: unit by channel name.
        rate_hz: samples per second; 0: the model's, or what the sources state.

    Raises:
        ConfigError: one line with file and what to do.
    """
    text = read_text(path)
    try:
        has_model = "model" in toml.loads(text)
    except toml.TOMLDecodeError as error:
        raise ConfigError(f"{path}: not valid TOML: {error}") from error
    config: AppConfig | SourcesConfig
    if has_model:
        config = application = load_config(path)
        with open_bundle(application.model.bundle) as bundle:
            contract, known = bundle.manifest.input, True
    else:
        config = parse_as(SourcesConfig, text, path, base=path.parent)
        contract, known = _contract_of(path, config.source, units, rate_hz)
    sources = tuple(_alone(source) for source in config.source if source.type != "recording")
    if not sources:
        raise ConfigError(f"{path}: needs a [[source]] that is live; recordings are files already")
    for source in sources:
        if source.type == "mqtt" and source.broker not in config.broker:
            raise ConfigError(f"{path}: broker '{source.broker}' has no [broker.{source.broker}]")
    brokers = {name: _beside(broker) for name, broker in config.broker.items()}
    return RecordingPlan(sources=sources, brokers=brokers, contract=contract, rate_known=known)


def _alone(source: SourceConfig) -> SourceConfig:
    """Take a source out of the group that shares its messages: a recording must not take any away."""
    return dataclasses.replace(source, share="") if source.type == "mqtt" and source.share else source


def _beside(broker: BrokerConfig) -> BrokerConfig:
    """Connect beside the application: with a session of its own that leaves nothing behind, and no status."""
    return dataclasses.replace(
        broker,
        client_id=f"edge-runtime-record-{os.getpid()}",
        clean_start=True,
        session_expiry_s=0,
        status_topic="",
    )


def _contract_of(
    path: Path, sources: tuple[SourceConfig, ...], said: Mapping[str, str], rate_hz: float
) -> tuple[InputContract, bool]:
    """Return the channels that sources map, and whether their rate is known."""
    stated: dict[str, str] = {}
    rates = [rate_hz]
    for source in sources:
        codec: Any = getattr(source, "codec", None)
        mapped: Any = getattr(source, "channels", ())
        stated |= dict.fromkeys([*mapped, *getattr(codec, "channels", ()), *getattr(codec, "order", ())], "")
        stated |= getattr(codec, "units", {})
        rates.append(getattr(codec, "rate_hz", 0.0))
    stated |= said
    stated.pop("-", None)
    if not stated:
        raise ConfigError(
            f"{path}: which channels? it has neither a model nor channels under [source.codec]; name them in order: "
            "--channel ax=m/s2 --channel ay=m/s2"
        )
    rate = max(rates)
    channels = tuple(Channel(name=name, unit=unit or "1") for name, unit in stated.items())
    return InputContract(channels=channels, rate_hz=rate or 1.0, window=1, hop=1), rate > 0
