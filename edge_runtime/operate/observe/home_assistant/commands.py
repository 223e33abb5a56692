"""Commands from Home Assistant: refused unless named, whole, and not too frequent.

1. A message that the broker kept is no command: it would be obeyed at every start.
2. Its topic names a command that the configuration allows, of the application or of a key that is shown.
3. Its payload is the command's own name; of ``label``, a text of 1 to 250 characters that can be seen.
4. It comes not sooner than the command's pause allows.
5. Whether it can be done is decided by what does it: `install` starts nothing that was not verified.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Mapping
from typing import Final

from edge_runtime.clock import Clock
from edge_runtime.io.mqtt.packets import Publish
from edge_runtime.io.mqtt.wire import RETAIN
from edge_runtime.metrics import Metrics
from edge_runtime.operate.observe.home_assistant.names import IDENTIFIER, MAX_STATE, Topics, readable

log = logging.getLogger(__name__)

Act = Callable[[str, str], bool]
"""Does a command: identifier of the key (empty: of the application), text; returns whether it could be done."""

PAUSE_S: Final[Mapping[str, float]] = {"install": 10.0, "restart": 60.0, "reset": 0.2, "label": 0.2}
OF_APPLICATION: Final = frozenset({"install", "restart"})


class Commands:
    """Takes the messages of the command topics.

    Args:
        allowed: commands that are obeyed.
        topics: the application's topics.
        acts: what does each command.
        metrics: counts them.
        clock: monotonic time.
    """

    def __init__(
        self, allowed: Collection[str], topics: Topics, acts: Mapping[str, Act], metrics: Metrics, clock: Clock
    ) -> None:
        self._allowed = frozenset(allowed)
        self._topics = topics
        self._acts = acts
        self._metrics = metrics
        self._clock = clock
        self._not_before: dict[str, float] = {}

    @property
    def filters(self) -> list[tuple[str, int]]:
        """Topic filters to listen to, none where nothing is allowed. QoS 0: the broker keeps no command for later."""
        own, of_key = self._topics.own("set", "+"), self._topics.of("+", "set", "+")
        return [(own, 0), (of_key, 0)] if self._allowed else []

    def obey(self, publish: Publish) -> None:
        """Obey a message, or count why not."""
        topic, payload, _, _, flags, _ = publish
        dropped = self._metrics.dropped
        key, name = self._parted(topic.decode("utf-8", "replace"))
        if flags & RETAIN:
            if payload:
                dropped["command_retained"] += 1  # rule 1
            return
        if name not in self._allowed or (name in OF_APPLICATION) != (not key):
            dropped["command_not_allowed"] += 1  # rule 2
            return
        text = _text(name, payload)
        if not text:
            dropped["command_malformed"] += 1  # rule 3
            return
        now = self._clock.monotonic()
        if now < self._not_before.get(name, now):
            dropped["command_too_often"] += 1  # rule 4
            return
        self._not_before[name] = now + PAUSE_S[name]
        if not self._acts[name](key, text):
            dropped["command_not_possible"] += 1  # rule 5
            return
        self._metrics.counts["home_assistant_commands_total"] += 1
        log.info("home_assistant: obeyed a command: command=%s key=%s", name, key or "none")

    def _parted(self, topic: str) -> tuple[str, str]:
        """Return the key's identifier and the command of a topic; two empty texts where it is none."""
        levels = topic.removeprefix(f"{self._topics.base}/").split("/")
        if len(levels) == 2 and levels[0] == "set":
            return "", levels[1]
        if len(levels) == 4 and levels[::2] == ["keys", "set"] and IDENTIFIER.fullmatch(levels[1]):
            return levels[1], levels[3]
        return "", ""


def _text(name: str, payload: bytes) -> str:
    """Return the text of a command; empty where the payload is not what it should be."""
    try:
        text = payload[: 4 * MAX_STATE + 1].decode()
    except UnicodeDecodeError:
        return ""
    if name == "label":
        return text if text == readable(text, MAX_STATE) else ""
    return text if text == name else ""
