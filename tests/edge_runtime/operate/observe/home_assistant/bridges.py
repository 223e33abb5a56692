"""A bridge to Home Assistant on a clock that tests move, over a broker client that keeps what is published."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import orjson

from edge_runtime.clock import SimulatedClock, SystemClock
from edge_runtime.event_rule import EventRule
from edge_runtime.io.mqtt.config import BrokerConfig
from edge_runtime.io.mqtt.outbound_queue import Message
from edge_runtime.io.mqtt.topics import TopicFilter
from edge_runtime.io.mqtt.wire import RETAIN
from edge_runtime.manifest import AnyOutput, Channel, InputContract, Manifest, Variant
from edge_runtime.manifest.outputs import OutputContract
from edge_runtime.metrics import Metrics
from edge_runtime.operate.observe.home_assistant.bridge import TICK_S, HomeAssistant
from edge_runtime.operate.observe.home_assistant.config import HomeAssistantConfig
from edge_runtime.operate.observe.subject import Subject
from edge_runtime.types import Correction, Done, Event, Prediction

_ids = itertools.count()


def manifest(output: AnyOutput | None = None, version: int = 1, events: tuple[EventRule, ...] = ()) -> Manifest:
    made = Manifest(
        schema_version=2,
        name="tiny",
        version=version,
        input=InputContract(channels=(Channel(name="x", unit="1"),), rate_hz=10.0, window=10, hop=10),
        output=output or OutputContract(labels=("rest", "walk")),
        variants=(
            Variant(name="v", file="v.onnx", format="onnx", precision="fp32", size=1, sha256="0" * 64, golden="g"),
        ),
        golden_inputs="g",
        files=(),
    )
    return replace(made, events=events)


def prediction(key: str = "phone", label: str = "rest", **more: Any) -> Prediction:
    made = Prediction(
        id=f"{key}@{next(_ids)}", key=key, start=1.0, end=2.0, label=label, confidence=0.9, scores=[0.9, 0.1],
        route="local", hard=False, model="tiny/1", variant="v", latency_ms=0.1,
    )  # fmt: skip
    return replace(made, **more)


def correction(of: Prediction, label: str) -> Correction:
    kept = {name: getattr(of, name) for name in ("id", "key", "start", "end")}
    return Correction(
        **kept, label=label, confidence=1.0, scores=[0.0, 1.0], route="cloud", hard=True, model="teacher/1",
        variant="cloud", latency_ms=9.0, supersedes=of.label, late=False,
    )  # fmt: skip


def event(kind: Any = "start", key: str = "phone", name: str = "fall") -> Event:
    return Event(
        id="e", key=key, event=name, kind=kind, label="walk", start=1.0, end=None, peak=0.9, windows=1, evidence=["a"],
        reason="", route="local", model="tiny/1",
    )  # fmt: skip


class FakeClient:
    """Keeps messages; hands over what a test says that others have published."""

    def __init__(self) -> None:
        self.config = BrokerConfig(url="mqtt://127.0.0.1:1", status_topic="edge/status")
        self.connected = True
        self.answers = True
        """Whether the broker acknowledges."""
        self.messages: list[Message] = []
        self.owed: list[Done] = []
        self.listeners: list[tuple[list[str], Callable[[Any], None], Any]] = []

    def listen(self, filters: Sequence[tuple[str, int]], take: Callable[[Any], None], barrier: Any) -> Any:
        self.listeners.append(([one for one, _ in filters], take, barrier))
        return self.listeners[-1]

    def unsubscribe(self, subscription: Any) -> None:
        assert self.connected
        self.listeners.remove(subscription)

    def open(self, _loop: Any, *, publish_qos: int = 0) -> None:
        assert publish_qos == 1

    def close(self, _timeout_s: float) -> None:
        self.connected = False

    def publish(self, messages: Sequence[Message], done: Done | None = None) -> None:
        assert self.connected, "nothing is queued while the broker is away"
        self.messages += messages
        if done is not None:
            self.owed.append(done)
        if self.answers:
            self.acknowledge()

    def acknowledge(self) -> None:
        owed, self.owed = self.owed, []
        for done in owed:
            done()


class FakeLoop:
    clock = SystemClock()

    def __init__(self) -> None:
        self.every: list[Callable[[], object]] = []

    def call_every(self, seconds: float, callback: Callable[[], object]) -> Any:
        assert seconds == TICK_S
        self.every.append(callback)
        return self

    def cancel(self) -> None:
        self.every.clear()


class Bridge:
    """The bridge under test.

    Args:
        cloud: address of a cloud.
        more: settings of the table.
    """

    def __init__(
        self, *, cloud: str = "", update: dict[str, Any] | None = None, rules: tuple[EventRule, ...] = (), **more: Any
    ) -> None:
        self.config = HomeAssistantConfig(broker="b", device_id="pi", **more)
        self.clock = SimulatedClock()
        self.metrics = Metrics()
        client: Any = FakeClient()
        self.client = client
        loop: Any = FakeLoop()
        self.loop = loop
        self.manifest = manifest()
        self.rules = rules
        self.done: list[object] = []
        self.ready = False

        def install() -> bool:
            self.done.append("install")
            return self.ready

        def reset(keys: Sequence[str]) -> int:
            self.done.append(list(keys))
            return len(keys)

        self.subject = Subject(
            name="gym", loop=loop, clock=self.clock, metrics=self.metrics, manifest=lambda: self.manifest,
            backend=lambda: {"variant": "v", "engine": "e"}, governor=lambda: None, update=lambda: update,
            suspects=dict, alarms=list, drift=lambda _: None, explain=lambda _: {}, tap=lambda _: None, reset=reset,
            outbox=lambda: None, lifetime=lambda: None, rules=lambda: self.rules, install=install,
            restart=lambda: self.done.append("restart"), cloud=cloud, publish_stats=lambda _: None,
        )  # fmt: skip
        self.bridge = HomeAssistant(self.config, self.subject, client)

    def open(self) -> Bridge:
        self.bridge.open(self.loop)
        self.pass_s(TICK_S)
        return self

    def send(self, *answers: Any) -> None:
        self.bridge.send(answers, None)

    def pass_s(self, seconds: float) -> None:
        """Let time pass, with the ticks in it."""
        for _ in range(round(seconds / TICK_S)):
            self.clock.sleep(TICK_S)
            for callback in list(self.loop.every):
                callback()

    def take(self) -> list[tuple[str, bytes, bool]]:
        """What was published since the last call: topic, payload, retained."""
        taken = [(one.topic.decode(), one.payload, one.retain) for one in self.client.messages]
        self.client.messages.clear()
        return taken

    def topics(self) -> list[str]:
        return [topic for topic, _, _ in self.take()]

    def states(self, key: str = "phone") -> list[dict[str, Any]]:
        topic = f"edge-runtime/pi/gym/keys/{key}/state"
        return [orjson.loads(payload) for one, payload, _ in self.take() if one == topic]

    def receive(self, topic: str, payload: bytes, *, retained: bool = False) -> None:
        """Hand over a message as the broker does."""
        for filters, take, barrier in self.client.listeners:
            if any(TopicFilter(one).matches(topic.encode()) for one in filters):
                message = (topic.encode(), payload, 0, 1, RETAIN if retained else 0, None)
                barrier.call(lambda take=take, message=message: take(message))
                return

    @property
    def failures(self) -> int:
        return self.metrics.dropped["home_assistant_internal_error"]
