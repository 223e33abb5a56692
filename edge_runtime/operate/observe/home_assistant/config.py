"""The table ``[home_assistant]``: what Home Assistant is shown, and what it may command."""

from __future__ import annotations

import dataclasses
import socket
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.io.mqtt.topics import validate_topic_name
from edge_runtime.io.mqtt.wire import MalformedPacket
from edge_runtime.operate.observe.home_assistant.names import Topics, topics_of

Command = Literal["install", "restart", "reset", "label"]

BINARY_CLASSES: Final = frozenset(
    (
        "battery", "battery_charging", "carbon_monoxide", "cold", "connectivity", "door", "garage_door", "gas", "heat",
        "light", "lock", "moisture", "motion", "moving", "occupancy", "opening", "plug", "power", "presence", "problem",
        "running", "safety", "smoke", "sound", "tamper", "update", "vibration", "window",
    )
)  # fmt: skip
"""Device classes of binary sensors (developers.home-assistant.io, "Binary sensor entity")."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HomeAssistantConfig:
    """Settings of what Home Assistant sees. It sees on the broker's `status_topic` when this application is gone.

    Raises:
        ValueError: a value makes no sense.
    """

    broker: str
    """Name of a ``[broker.NAME]`` table: the broker that Home Assistant uses."""
    prefix: str = "homeassistant"
    """Discovery prefix, as Home Assistant has it."""
    topic: str = ""
    """Topic below which states are published and commands taken. Empty: ``edge-runtime/`` and the device's name."""
    device_id: str = ""
    """Names this machine, with the application's name behind it. Empty: the host's name at the first start."""
    devices: Literal["key", "application"] = "key"
    """``key``: a device for each key, and one for the application. ``application``: one, with the entities of all."""
    max_keys: int = 100
    """Keys that are shown; in place of one that is silent, a new one is."""
    retire_s: float = 604_800.0
    """A key without an answer for so long disappears from Home Assistant."""
    interval_s: float = 1.0
    """Shortest time between two states of a key. Events and corrections do not wait."""
    classes: dict[str, str] = field(default_factory=dict)
    """Event or label to the device class of its binary sensor, as in ``{fall = "safety"}``."""
    commands: tuple[Command, ...] = ()
    """Commands that are obeyed: ``install`` a fetched and verified bundle (needs ``start = "asked"`` under [update]),
    ``restart``, ``reset`` the states of a key, ``label`` (needs `labels`)."""
    labels: Path | None = None
    """File for what people say through Home Assistant that a key's last answer should have been: a line of JSON each.
    Nothing uses them as they are: anybody who may publish can write one."""

    def __post_init__(self) -> None:
        for name in ("prefix", "topic"):
            try:
                if value := getattr(self, name):
                    validate_topic_name(value)
            except MalformedPacket as error:
                raise ValueError(f"{name} '{value}' is no topic: {error}") from error
        if not self.prefix or self.prefix.startswith("$") or self.topic.startswith("$"):
            raise ValueError("prefix and topic must not begin with $, and prefix must not be empty")
        most = 1000 if self.devices == "key" else 100
        if not 1 <= self.max_keys <= most:
            raise ValueError(f"max_keys must be 1 to {most:,} with devices = '{self.devices}'")
        if self.retire_s < 1:
            raise ValueError("retire_s must be at least 1")
        if not 0.5 <= self.interval_s <= 3600:
            raise ValueError("interval_s must be 0.5 to 3,600")
        if unknown := sorted(set(self.classes.values()) - BINARY_CLASSES):
            raise ValueError(
                f"classes: Home Assistant knows no device class '{unknown[0]}' of binary sensors; it knows "
                f"{', '.join(sorted(BINARY_CLASSES))}"
            )
        if ("label" in self.commands) != (self.labels is not None):
            raise ValueError("commands = ['label'] goes with labels, the file for them; set both or neither")

    @property
    def identity(self) -> str:
        """`device_id`, or the host's name."""
        return self.device_id or socket.gethostname()

    def topics(self, application: str) -> Topics:
        """Make the topics of an application."""
        return topics_of(self.prefix, self.topic, self.identity, application)

    def with_status(self, broker: BrokerConfig, application: str) -> BrokerConfig:
        """Return the settings of the broker with a status topic, ``status`` below ours where it has none."""
        if broker.status_topic:
            return broker
        return dataclasses.replace(broker, status_topic=self.topics(application).own("status"))
