"""Known senders: programs and devices whose documentation says in which units they send."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from edge_runtime.tools.listen.fields import TopicFields


@dataclass(frozen=True, slots=True)
class Sender:
    """A program or device that many people have."""

    name: str
    topic: str
    """Regular expression that its topics fit."""
    fields: frozenset[str] = frozenset()
    """Fields that its messages have; last steps of their paths."""
    units: Mapping[str, str] = field(default_factory=dict)
    """Unit by quantity (`edge_runtime.tools.listen.names`), as its documentation says."""
    page: str = ""
    """Where it says so."""
    hint: str = ""
    """What its users should know."""
    without_gravity: str = ""
    """What its users should know where an acceleration comes without gravity."""


_METRIC: Final = {"temperature": "Cel", "humidity": "%RH", "pressure": "hPa", "light": "lx"}

SENDERS: Final = (
    Sender(
        "Sensor Logger",
        r".",
        frozenset(("messageId", "sessionId", "deviceId")),
        {"acceleration": "m/s2", "rotation rate": "rad/s", "magnetic field": "uT", "gravity": "m/s2"},
        "https://github.com/tszheichoi/awesome-sensor-logger",
        "its accelerometer leaves gravity out; totalacceleration has it",
        "no gravity in it, as the accelerometer of Sensor Logger: log Total Acceleration if the model saw gravity",
    ),
    Sender(
        "Tasmota",
        r"(^|/)tele/.*SENSOR$|/tele/SENSOR$",
        frozenset(("Time",)),
        _METRIC,
        "https://tasmota.github.io/docs/MQTT/",
        "its Time is local time without an offset: set Timezone 0, or the stamps are hours off",
    ),
    Sender(
        "Zigbee2MQTT",
        r"^zigbee2mqtt/",
        frozenset(("linkquality",)),
        _METRIC,
        "https://www.zigbee2mqtt.io/guide/usage/exposes.html",
        "last_seen under advanced: in its configuration gives messages a time",
    ),
    Sender(
        "OwnTracks",
        r"^owntracks/",
        frozenset(("_type",)),
        {"speed": "km/h", "altitude": "m"},
        "https://owntracks.org/booklet/tech/json/",
    ),
)


def sender_of(seen: TopicFields) -> Sender | None:
    """Recognise who sent the messages of a topic; None where nothing is known."""
    last = {path.replace("]", ".").rsplit(".", 1)[-1] for path in seen.fields}
    for sender in SENDERS:
        if re.search(sender.topic, seen.topic) and sender.fields <= last:
            return sender
    return None
