"""Discovery messages: a device with all its entities in one retained message.

Home Assistant refuses the whole of a message with one entity that is not whole, so everything is made here, and every
text of others goes through `names`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import orjson

from edge_runtime._version import __version__
from edge_runtime.operate.observe.home_assistant.entities import Entity
from edge_runtime.operate.observe.home_assistant.names import Topics, readable, slug

_MOST_GONE: Final = 64


class Discovery:
    """Builds the messages, and remembers which entities each device has had, so that those that go are named.

    Args:
        topics: the application's topics.
        status_topic: status topic of its broker client.
        name: the application's name, for people.
    """

    def __init__(self, topics: Topics, status_topic: str, name: str) -> None:
        self._topics = topics
        self._status = {"t": status_topic, "val_tpl": "{{ value_json.status }}"}
        self._name = readable(name)
        self._had: dict[str, dict[str, str]] = {}
        """By device: the platform of each entity that it has had in the life of this process."""

    def forget(self, key: str) -> None:
        """Forget a device that is retired."""
        self._had.pop(self._topics.device_of(key), None)

    def of_key(self, key: str, text: str, entities: Iterable[Entity], model: str) -> bytes:
        """Make the message of a key's device.

        Args:
            key: its identifier.
            text: the key.
            entities: the key's entities.
            model: name and version of the bundle.
        """
        device = {**self._device(key, readable(text) or "(no key)", model), "sn": readable(text)}
        device["via_device"] = self._topics.device
        found = {one.name: self._placed(one, key, slug(text), one.title) for one in entities}
        return self._message(device, found, available=[self._status, self._available(key)])

    def of_application(
        self, entities: Iterable[Entity], keys: Sequence[tuple[str, str, Sequence[Entity]]], model: str
    ) -> bytes:
        """Make the message of the application's device.

        Args:
            entities: the application's entities.
            keys: identifier, text and entities of those that have no device of their own.
            model: name and version of the bundle.
        """
        found = {one.name: self._placed(one, "", slug(self._name), one.title) for one in entities}
        for key, text, shown in keys:
            for one in shown:
                placed = self._placed(one, key, slug(f"{self._name}_{text}"), f"{readable(text, 60)} {one.title}")
                placed |= {"avty": [self._status, self._available(key)], "avty_mode": "all"}
                found[f"{key}-{one.name}"] = placed
        return self._message(self._device("", self._name, model), found, available=[self._status])

    def _available(self, key: str) -> dict[str, str]:
        return {"t": self._topics.of(key, "availability")}

    def _device(self, key: str, name: str, model: str) -> dict[str, Any]:
        return {
            "ids": [self._topics.device_of(key)],
            "name": name,
            "mf": "edge-runtime",
            "mdl": readable(model.rpartition("/")[0]),
            "hw": readable(model),
            "sw": __version__,
        }

    def _placed(self, entity: Entity, key: str, slug_of_device: str, title: str) -> dict[str, Any]:
        """Give an entity its ids and topics."""
        topics = self._topics
        device = topics.device_of(key)
        placed: dict[str, Any] = {
            "p": entity.platform,
            "unique_id": f"{device}-{entity.name}",
            "def_ent_id": f"{entity.platform}.{slug_of_device}_{slug(entity.title)}",
            "name": title,
            **entity.fields,
        }

        def topic(*levels: str) -> str:
            return topics.of(key, *levels) if key else topics.own(*levels)

        if entity.state:
            placed["stat_t"] = topic(entity.state)
        if "json_attr_tpl" in placed:
            placed["json_attr_t"] = placed["stat_t"]
        if entity.command:
            placed["cmd_t"] = topic("set", entity.command)
        return placed

    def _message(
        self, device: Mapping[str, Any], entities: dict[str, dict[str, Any]], *, available: Sequence[Mapping[str, str]]
    ) -> bytes:
        """Put a message together; an entity that is gone stays in it as its platform alone, which removes it."""
        had = self._had.setdefault(device["ids"][0], {})
        gone = {name: {"p": platform} for name, platform in had.items() if name not in entities}
        had |= {name: entity["p"] for name, entity in entities.items()}
        for name in list(gone)[:-_MOST_GONE]:
            del gone[name], had[name]
        document = {
            "dev": device,
            "o": {"name": "edge-runtime", "sw": __version__},
            "avty": available,
            "avty_mode": "all",
            "qos": 1,
            "cmps": entities | gone,
        }
        return orjson.dumps(document)
