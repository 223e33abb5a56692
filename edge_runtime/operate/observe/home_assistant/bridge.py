"""Bridge to Home Assistant: a sink that shows each key as a device, over the application's own broker connection.

1. A device's discovery message comes before its first state, and again after each change of what it says, when Home
   Assistant starts, and when the broker was away. A state whose meaning has changed waits for `SETTLE_S` behind it.
2. A key has one state in `HomeAssistantConfig.interval_s`, the last one. Events and corrections are sent at once.
3. Nothing is queued while the broker is away or slow: states are the last ones when it is back, and events that came
   meanwhile are counted as dropped; the sinks have them.
4. A key that is silent is unavailable, and after `HomeAssistantConfig.retire_s` gone; so is one that an earlier run
   has left at the broker.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import orjson

from edge_runtime.base.system.barrier import Barrier
from edge_runtime.base.system.loop import Loop, Timer
from edge_runtime.io.mqtt.client import BrokerClient
from edge_runtime.io.mqtt.outbound_queue import Message
from edge_runtime.io.mqtt.packets import Publish
from edge_runtime.manifest import Manifest
from edge_runtime.operate.observe.home_assistant.application import ApplicationStates
from edge_runtime.operate.observe.home_assistant.commands import Commands
from edge_runtime.operate.observe.home_assistant.config import HomeAssistantConfig
from edge_runtime.operate.observe.home_assistant.discovery import Discovery
from edge_runtime.operate.observe.home_assistant.entities import Entity, Shown, application_entities, entities_of
from edge_runtime.operate.observe.home_assistant.keys import NEVER, ShownKey, ShownKeys
from edge_runtime.operate.observe.home_assistant.labels import Label, label_sink
from edge_runtime.operate.observe.home_assistant.names import identifier
from edge_runtime.operate.observe.home_assistant.states import label_of, state_of
from edge_runtime.operate.observe.live import agrees
from edge_runtime.operate.observe.subject import Subject
from edge_runtime.types import Answer, Correction, Done, Event, Prediction

log = logging.getLogger(__name__)

TICK_S: Final = 0.25
SETTLE_S: Final = 1.0
"""Time that Home Assistant has to take in a discovery message that changes entities, before states that need it."""
BIRTHS_S: Final = 10.0
"""Shortest time between two answers to Home Assistant's birth message, which anybody may send."""
SILENT_S: Final = 60.0
"""Least silence after which a key is unavailable; of long windows, three times their length."""
MOST_WAITING: Final = 2000
"""Own messages on their way, beyond which states wait."""
_MOST_SEEN: Final = 1000
MOST_EXTRA: Final = 32
"""Labels that answers have and the bundle does not name: those of the cloud, and of answers on their way at a swap."""


class HomeAssistant:
    """A sink that keeps Home Assistant informed, on the loop's thread; it never fails and never holds anything up.

    Args:
        config: the table.
        subject: the application.
        broker_client: client of the broker that Home Assistant uses.
    """

    name = "home_assistant"

    def __init__(self, config: HomeAssistantConfig, subject: Subject, broker_client: BrokerClient) -> None:
        self._config = config
        self._subject = subject
        self._broker_client = broker_client
        self._metrics = subject.metrics
        self._clock = subject.clock
        self._barrier = Barrier("home_assistant", subject.metrics)
        self._topics = config.topics(subject.name)
        self._discovery = Discovery(self._topics, broker_client.config.status_topic, subject.name)
        self._application = ApplicationStates(subject, self._topics)
        self._keys = ShownKeys(config.max_keys)
        self._commands = Commands(
            config.commands,
            self._topics,
            {"install": self._install, "restart": self._restart, "reset": self._reset, "label": self._label},
            subject.metrics,
            subject.clock,
        )
        self._labels = None if config.labels is None else label_sink(config.labels, subject.metrics)
        self._manifest: Manifest | None = None
        self._rules: object = None
        self._entities: list[Entity] = []
        self._known: set[str | None] = set()
        self._extra: list[str] = []
        self._seen: set[str] = set()
        """Labels that are known to be among them, as answers spell them."""
        self._has_label = False
        self._silent_s = SILENT_S
        self._settled = NEVER
        """Monotonic time from which states may be published again."""
        self._told = False
        """Everything was published since the connection began."""
        self._asked = False
        """The broker was asked for what an earlier run has left."""
        self._announce = False
        """The application's discovery message has to be sent."""
        self._birth_due: float | None = None
        self._births_from = NEVER
        self._waiting = 0
        self._timer: Timer | None = None
        self._opened = False

    # -- as a sink -----------------------------------------------------------------------------------------------------

    def open(self, loop: Loop) -> None:
        """Listen and connect; see `edge_runtime.io.sinks.Sink`."""
        if self._labels is not None:
            self._labels.open(loop)
        listen = self._broker_client.listen
        listen([(self._topics.birth, 0)], self._receive_birth, self._barrier)
        if self._commands.filters:
            listen(self._commands.filters, self._commands.obey, self._barrier)
        self._listen_for_left()  # from the first message on: the session may hold echoes of an earlier run
        self._broker_client.open(loop, publish_qos=1)
        self._opened = True
        self._timer = loop.call_every(TICK_S, lambda: self._barrier.call(self._tick))

    def send(self, answers: Sequence[Answer], done: Done | None) -> None:
        """Show answers; the stream does not wait for it."""
        if done is not None:
            done()
        self._barrier.call(lambda: self._take(answers))

    def close(self, timeout_s: float) -> None:
        """See `edge_runtime.io.sinks.Sink`. Last states are published; that we are gone, the broker client says."""
        if not self._opened:
            return
        self._opened = False
        if self._timer is not None:
            self._timer.cancel()
        if self._ready:
            self._barrier.call(lambda: self._publish(self._due_states(NEVER)))
        if self._labels is not None:
            self._labels.close(timeout_s)
        self._broker_client.close(timeout_s)

    # -- answers -------------------------------------------------------------------------------------------------------

    @property
    def _ready(self) -> bool:
        """Return whether what is published now gets through (rule 3)."""
        return self._told and self._broker_client.connected and self._waiting < MOST_WAITING

    def _take(self, answers: Sequence[Answer]) -> None:
        now = self._clock.monotonic()
        self._follow_bundle()
        messages: list[Message] = []
        for answer in answers:
            if isinstance(answer, Prediction):
                self._predicted(answer, now, messages)
            elif isinstance(answer, Correction):
                self._corrected(answer, now, messages)
            elif isinstance(answer, Event):
                self._happened(answer, now, messages)
        self._publish(messages)

    def _predicted(self, answer: Prediction, now: float, messages: list[Message]) -> None:
        shown = self._keys.get(answer.key) or self._show(answer.key, now, messages)
        if shown is None:
            return
        self._keys.hear(shown, now)
        shown.last = answer
        shown.due = True
        self._know(answer)
        if not shown.online and self._ready:
            messages.append(self._available(shown, online=True))
        if self._may_send(shown, now):
            messages += self._states(shown, now)

    def _corrected(self, answer: Correction, now: float, messages: list[Message]) -> None:
        shown = self._keys.get(answer.key)
        if shown is None:
            return
        self._know(answer)
        document = {
            "event_type": "agreed" if agrees(answer) else "changed",
            "label": label_of(answer),
            "supersedes": answer.supersedes[:200],
            "id": answer.id,
            "late": answer.late,
        }
        self._at_once(self._topics.of(shown.id, "correction"), document, messages)
        if shown.correct(answer):
            shown.due = True
            if self._ready and now >= self._settled:
                messages += self._states(shown, now)

    def _happened(self, event: Event, now: float, messages: list[Message]) -> None:
        shown = self._keys.get(event.key)
        if shown is None:
            return
        shown.note(event, now)
        document = {
            "event_type": event.kind,
            "label": event.label,
            "id": event.id,
            "start": event.start,
            "end": event.end,
            "peak": event.peak,
            "windows": event.windows,
            "reason": event.reason,
            "evidence": event.evidence,
        }
        name = identifier(event.event)
        self._at_once(self._topics.of(shown.id, "events", name), document, messages)
        if self._ready:
            messages.append(self._during(shown, event.event, on=event.kind == "start"))

    def _at_once(self, topic: str, document: dict[str, Any], messages: list[Message]) -> None:
        """Add what is of now and not retained, or count that it could not be sent (rule 3)."""
        if self._ready:
            messages.append(_message(topic, document, retain=False))
        else:
            self._metrics.dropped["home_assistant_away"] += 1

    def _may_send(self, shown: ShownKey, now: float) -> bool:
        return self._ready and now >= self._settled and now - shown.sent >= self._config.interval_s

    # -- devices -------------------------------------------------------------------------------------------------------

    def _show(self, key: str, now: float, messages: list[Message]) -> ShownKey | None:
        """Show a new key, in place of a silent one where there are too many."""
        if self._keys.full:
            silent = next(self._keys.silent(now - self._silent_s), None)
            if silent is None:
                self._metrics.dropped["home_assistant_max_keys"] += 1
                return None
            self._retire(silent, messages)
        shown = self._keys.add(key, now)
        self._announce_key(shown, messages)
        return shown

    def _announce_key(self, shown: ShownKey, messages: list[Message]) -> None:
        if self._config.devices == "application":
            self._announce = True  # with the next tick; the state comes behind it
            self._settled = max(self._settled, self._clock.monotonic() + TICK_S)
        elif self._ready:
            messages.append(self._device(shown))

    def _device(self, shown: ShownKey) -> Message:
        assert self._manifest is not None
        document = self._discovery.of_key(shown.id, shown.key, self._entities, self._manifest.model)
        return Message(self._topics.discovery(shown.id).encode(), document, b"", 1, retain=True)

    def _application_device(self) -> Message:
        subject = self._subject
        apart = self._config.devices == "application"
        entities = application_entities(
            commands=self._config.commands,
            updates=subject.update() is not None,
            cloud=bool(subject.cloud),
            governor=subject.governor() is not None,
        )
        keys = [(one.id, one.key, self._entities) for one in self._keys] if apart else []
        document = self._discovery.of_application(entities, keys, subject.manifest().model)
        return Message(self._topics.discovery().encode(), document, b"", 1, retain=True)

    def _retire(self, shown: ShownKey, messages: list[Message]) -> None:
        self._keys.remove(shown)
        self._discovery.forget(shown.id)
        messages += self._gone(shown.id)
        if self._config.devices == "application":
            self._announce = True
        log.info("home_assistant: retired a key: key=%r", shown.key[:60])

    def _gone(self, name: str) -> list[Message]:
        """Make the messages after which neither Home Assistant nor the broker knows a key."""
        self._metrics.counts["home_assistant_retired_total"] += 1
        topics = [self._topics.of(name, "state"), self._topics.of(name, "availability"), self._topics.of(name, "said")]
        if self._config.devices == "key":
            topics.insert(0, self._topics.discovery(name))
        return [Message(topic.encode(), b"", b"", 1, retain=True) for topic in topics]

    def _follow_bundle(self) -> None:
        """See whether another bundle answers, and what entities it needs (rule 1)."""
        manifest, rules = self._subject.manifest(), self._subject.rules()
        if manifest is self._manifest and rules is self._rules:
            return
        first = self._manifest is None
        self._manifest, self._rules = manifest, rules
        self._extra.clear()
        window_s = (manifest.input.window + manifest.input.hop) / manifest.input.rate_hz
        self._silent_s = max(SILENT_S, 3 * window_s)
        self._make_entities(changed=not first)

    def _know(self, answer: Prediction | Correction) -> None:
        """See to it that an answer's label is among those that Home Assistant expects."""
        if not self._has_label or answer.label in self._seen:
            return
        label = label_of(answer)
        if label not in self._known and label is not None and len(self._extra) < MOST_EXTRA:
            self._extra.append(label)
            self._make_entities(changed=True)
        if label in self._known and len(self._seen) < _MOST_SEEN:
            self._seen.add(answer.label)

    def _make_entities(self, *, changed: bool) -> None:
        manifest = self._manifest
        assert manifest is not None
        labels = [*manifest.output.labels, *(["unknown"] if manifest.output.kind == "embedding" else []), *self._extra]
        shown = Shown(
            output=manifest.output,
            rules=self._subject.rules(),
            labels=labels,
            classes=self._config.classes,
            commands=self._config.commands,
            cloud=bool(self._subject.cloud),
            off_delay_s=math.ceil(self._silent_s),
        )
        self._entities = entities_of(shown)
        options = [set(one.fields.get("ops", ())) for one in self._entities if one.name == "label"]
        self._known = {None, *(options[0] if options else ())}
        self._has_label = bool(options)
        self._seen.clear()
        if changed:
            self._settled = self._clock.monotonic() + SETTLE_S
            if self._ready:
                self._publish(self._devices())

    def _devices(self) -> list[Message]:
        """Make the discovery messages of all devices, the application's first: the others name it."""
        self._announce = False
        keys = self._keys if self._config.devices == "key" and self._manifest is not None else ()
        return [self._application_device(), *map(self._device, keys)]

    # -- states --------------------------------------------------------------------------------------------------------

    def _states(self, shown: ShownKey, now: float) -> list[Message]:
        """Make the message of a key's state, and of open events, whose sensors would go off without (`off_dly`)."""
        assert self._manifest is not None
        messages = []
        if shown.last is not None:
            state = state_of(shown.last, self._manifest.output)
            messages.append(_message(self._topics.of(shown.id, "state"), state))
        shown.sent, shown.due = now, False
        for name, sent in shown.open.items():
            if now - sent >= self._silent_s / 3:
                shown.open[name] = now
                messages.append(self._during(shown, name, on=True))
        return messages

    def _due_states(self, now: float) -> list[Message]:
        return [
            message
            for shown in self._keys
            if shown.due and (now == NEVER or now - shown.sent >= self._config.interval_s)
            for message in self._states(shown, now)
        ]

    def _during(self, shown: ShownKey, event: str, *, on: bool) -> Message:
        topic = self._topics.of(shown.id, "during", identifier(event))
        return Message(topic.encode(), b"ON" if on else b"OFF", b"", 1)

    def _available(self, shown: ShownKey, *, online: bool) -> Message:
        shown.online = online
        topic = self._topics.of(shown.id, "availability")
        return Message(topic.encode(), b"online" if online else b"offline", b"", 1, retain=True)

    def _everything(self, now: float) -> list[Message]:
        """Make all messages: for Home Assistant that has just started, or a broker that knows nothing."""
        self._follow_bundle()
        messages = self._devices()
        messages += self._application.messages(now, again=True)
        for shown in self._keys:
            messages.append(self._available(shown, online=now - shown.heard < self._silent_s))
            messages += self._states(shown, now)
            messages += [self._during(shown, rule.name, on=rule.name in shown.open) for rule in self._subject.rules()]
        return messages

    # -- in time -------------------------------------------------------------------------------------------------------

    def _tick(self) -> None:
        now = self._clock.monotonic()
        if not self._broker_client.connected:
            self._told = False
            return
        self._ask_for_left()
        if not self._told or (self._birth_due is not None and now >= self._birth_due):
            self._told, self._birth_due = True, None
            self._births_from = now + BIRTHS_S
            self._publish(self._everything(now))
            return
        if not self._ready:
            return
        messages = [self._application_device()] if self._announce else []
        self._announce = False
        self._watch_silence(now, messages)
        if now >= self._settled:
            messages += self._due_states(now)
        self._publish(messages + self._application.messages(now))

    def _ask_for_left(self) -> None:
        """Have the broker send what it has kept of an earlier run's keys.

        It does so for a subscription that is new to it, and the session may have this one from before.
        """
        if not self._asked:
            self._asked = True
            self._broker_client.unsubscribe(self._for_left)
            self._listen_for_left()

    def _listen_for_left(self) -> None:
        kept = self._topics.of("+", "availability")
        self._for_left = self._broker_client.listen([(kept, 1)], self._receive_left, self._barrier)

    def _watch_silence(self, now: float, messages: list[Message]) -> None:
        """Say which keys are silent, and retire those that have long been (rule 4)."""
        for shown in list(self._keys.silent(now - min(self._silent_s, self._config.retire_s))):
            silent_s = now - shown.heard
            if silent_s >= self._config.retire_s:
                self._retire(shown, messages)
            elif shown.online and silent_s >= self._silent_s:
                messages.append(self._available(shown, online=False))
        for name in self._keys.take_left(now - self._config.retire_s):
            messages += self._gone(name)

    # -- from the broker -----------------------------------------------------------------------------------------------

    def _receive_birth(self, publish: Publish) -> None:
        if publish[1] == b"online" and self._birth_due is None:
            self._birth_due = max(self._clock.monotonic(), self._births_from)

    def _receive_left(self, publish: Publish) -> None:
        """Take what the broker has kept of a key's availability, perhaps from an earlier run."""
        if publish[1]:
            name = publish[0].decode("utf-8", "replace").split("/")[-2]
            self._keys.left(name, self._clock.monotonic())

    def _install(self, _key: str, _text: str) -> bool:
        return self._subject.install()

    def _restart(self, _key: str, _text: str) -> bool:
        self._subject.restart()
        return True

    def _reset(self, key: str, _text: str) -> bool:
        shown = self._keys.by_id(key)
        return shown is not None and self._subject.reset([shown.key]) > 0

    def _label(self, key: str, text: str) -> bool:
        shown = self._keys.by_id(key)
        if shown is None or shown.last is None or self._labels is None:
            return False
        self._labels.send([Label.of(shown.last, text, self._clock.wall())], None)
        self._publish([Message(self._topics.of(shown.id, "said").encode(), text.encode(), b"", 1, retain=True)])
        return True

    # -- to the broker -------------------------------------------------------------------------------------------------

    def _publish(self, messages: list[Message]) -> None:
        if not messages:
            return
        self._waiting += len(messages)
        self._metrics.gauges["home_assistant_keys"] = float(len(self._keys))
        self._broker_client.publish(messages, self._taken(len(messages)))

    def _taken(self, count: int) -> Callable[[], None]:
        def taken() -> None:
            self._waiting -= count

        return taken


def _message(topic: str, document: dict[str, Any], *, retain: bool = True) -> Message:
    return Message(topic.encode(), orjson.dumps(document, default=str), b"", 1, retain)
