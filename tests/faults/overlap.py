"""Streams under test: windows of several messages that overlap, with context, of several keys, some hard and some not.

What `site.Site` cannot see by its construction (there a message is a window and a case) is seen here: a message belongs
to several windows, a window to several messages, and the cloud's answer depends on every sample of the context. A run
without interruptions, the *control*, says what every answer has to be.

Broker, sensors, cloud and listener are never killed; mosquitto is the broker, and the listener keeps a session.
`tests.faults.everything` adds all that an application may have beside them.
"""

from __future__ import annotations

import random
import re
import threading
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple

import numpy as np
import orjson
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion

from edge_runtime.base.oip import Array, OipTensor
from edge_runtime.errors import InputError
from edge_runtime.manifest import GateSpec
from edge_runtime.operate.server.batcher import ServedModel
from edge_runtime.operate.server.server import ServeConfig, Server
from edge_runtime.store.durable.outbox import OutboxConfig
from edge_runtime.store.durable.outbox.read_only_copy import Snapshot
from edge_runtime.store.durable.outbox.schema import Ledger
from tests.faults.device import Device, Devices
from tests.integration.running import PATIENCE_S, Answer, Message, Publisher, payload, subscribed, until
from tests.models import tiny_bundle
from tests.mosquitto import Mosquitto

CHANNELS, WINDOW, HOP, CONTEXT, RATE_HZ = 3, 16, 8, 48, 50.0
LABELS = ("rest", "walk", "run")
KEYS = 3
PART = 5
"""Samples in a message: a window takes four messages or five, and most messages belong to two windows."""
FIRST = int(1_700_000_000 * RATE_HZ) // WINDOW * WINDOW
SCALE = 2.0**-16
"""Of the numbers in the last channel, which say which sample it is; small enough not to decide the answers."""

Durability = Literal["window", "reading"]

SOURCE = """
[[source]]
type = "mqtt"
broker = "b"
topics = ["watch/+/{topic}"]
qos = {mode.qos}
{codec}
"""

APP = """
name = "street"
durability = "{mode.durability}"
drain_timeout_s = 30.0
[model]
bundle = "watch.edge"
unsigned = "allow"
variant = "onnx-fp32"
[broker.b]
url = "{broker}"
client_id = "under-test"
protocol = "{mode.version}"
{sources}
[[sink]]
type = "mqtt"
broker = "b"
topic = "answers/{{key}}"
qos = {mode.qos}
[cloud]
url = "{cloud}"
model = "teacher"
timeout_s = 5.0
[escalation]
max_batch = 4
[outbox]
path = "outbox.db"
max_bytes = 4194304
[reading_log]
path = "journal.db"
"""


class Mode(NamedTuple):
    """How a device under test is set up."""

    durability: Durability
    qos: Literal[1, 2]
    version: Literal["5", "3.1.1"]


def samples(key: int, count: int) -> Array:
    """(count, CHANNELS): the first samples of a key; the last channel says whose and which they are."""
    values = np.random.default_rng((key, 7)).standard_normal((100_000, CHANNELS)).astype(np.float32)[:count]
    values[:, 2] = (key * 100_000 + np.arange(count)) * SCALE
    return values


def message(number: int) -> Message:
    """Message `number`: of one key after another, the next samples of each."""
    key, first = number % KEYS, number // KEYS * PART
    at = np.arange(first, first + PART)
    return Message(f"watch-{key}", payload((FIRST + at) / RATE_HZ, samples(key, first + PART)[first:]))


@dataclass
class Heard:
    """What came out of a device, or of a row of them with one outbox, in the order in which it came."""

    answers: list[Answer] = field(default_factory=list)

    def firsthand(self) -> list[Answer]:
        """The device's answers, repeats too, without final messages."""
        return [a for a in self.answers if a["route"] != "cloud" and "final" not in a]

    def own(self) -> dict[str, Answer]:
        """The device's answers, the last one for each window, without final messages."""
        return {a["id"]: a for a in self.firsthand()}

    def corrections(self) -> dict[str, Answer]:
        return {a["id"]: a for a in self.answers if a["route"] == "cloud"}

    def provisional(self) -> set[str]:
        """Windows for which some message has promised that another one will follow."""
        return {a["id"] for a in self.answers if a["route"] == "provisional"}

    def closed(self) -> set[str]:
        return {a["id"] for a in self.answers if a["route"] == "cloud" or "final" in a}

    def repeats(self) -> int:
        """The device's answers that had come before."""
        return len(self.firsthand()) - len(self.own())

    def out_of_order(self) -> list[str]:
        """Windows whose first answer came after that to a later window of the same key."""
        latest: dict[str, float] = {}
        seen: set[str] = set()
        late = []
        for answer in self.firsthand():
            if answer["id"] in seen:
                continue
            seen.add(answer["id"])
            if answer["start"] < latest.get(answer["key"], 0.0):
                late.append(answer["id"])
            latest[answer["key"]] = max(answer["start"], latest.get(answer["key"], 0.0))
        return late


def same(a: Answer, b: Answer | None) -> bool:
    """Whether two answers say the same of a window; scores within 1e-6."""
    if b is None or (a["label"], a["hard"]) != (b["label"], b["hard"]):
        return False
    return bool(np.abs(np.array(a["scores"]) - b["scores"]).max() < 1e-6)


def place(id_: str) -> tuple[int, int]:
    """Key of a window, and its first sample. Clocks never step back here, so an id names no later epoch."""
    found = re.fullmatch(r"watch-(\d)@(\d+)", id_)
    assert found, f"{id_} is of another epoch"
    return int(found[1]), int(found[2]) - FIRST


def taught(tensors: Array) -> Array:
    """(n, labels): the cloud's answers, which depend on every sample of the context."""
    weights = np.cos(np.arange(tensors.shape[2]))  # a shorter context is another question
    a, b = tensors[:, 0], tensors[:, 1]
    z = np.stack([a @ weights, b @ weights, (a * b) @ weights], axis=1)
    e = np.exp((z - z.max(axis=1, keepdims=True)) / 4)
    return np.asarray(e / e.sum(axis=1, keepdims=True), np.float32)


def correction(id_: str) -> Answer:
    """What the cloud has to say of a window."""
    key, first = place(id_)
    context = samples(key, first + WINDOW)[max(0, first + WINDOW - CONTEXT) :]
    scores = taught(context.T[None].astype(np.float64))[0]
    return {"label": LABELS[int(scores.argmax())], "hard": True, "scores": scores.tolist()}


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What differs from the control."""

    missing: list[str]
    """Windows without any answer."""
    differing: list[str]
    """Windows with another answer of the device, or another gate decision, the first time or when it came again."""
    other_corrections: list[str]
    """Cases whose correction differs, and does not say that its context was short."""
    orphans: list[str]
    """Provisional answers that nothing has closed."""
    out_of_order: list[str]
    accepted_twice: int
    """Cases that the ledger has accepted beyond the distinct ones that were promised or asked."""
    repeats: int
    asked_again: int


def compare(
    control: Heard,
    heard: Heard,
    asked: Counter[str],
    ledger: Ledger,
    follow: Callable[[Answer], Answer | None] | None = None,
) -> Findings:
    """What an oracle that has seen both sides finds. Believes nothing that the device says of itself but its ledger.

    `follow` says the right answer in place of one, in the order heard, where kills may change what the control says.
    """
    assert control.answers
    wanted, found = control.own(), heard.own()
    corrected = heard.corrections()
    right = {id_: correction(id_) for id_ in corrected} if follow else control.corrections()
    cases = heard.provisional() | asked.keys()
    return Findings(
        missing=sorted(wanted.keys() - found.keys()),
        differing=sorted(
            {a["id"] for a in heard.firsthand() if not same(a, follow(a) if follow else wanted.get(a["id"]))}
        ),
        other_corrections=sorted(
            id_ for id_, one in corrected.items() if not one.get("context_short") and not same(one, right.get(id_))
        ),
        orphans=sorted(heard.provisional() - heard.closed()),
        out_of_order=heard.out_of_order(),
        accepted_twice=ledger.accepted - len(cases),
        repeats=heard.repeats(),
        asked_again=sum(asked.values()) - len(asked),
    )  # fmt: skip


class Street:
    """Sensors, broker, cloud and listener around devices that have one folder, one after the other."""

    hears: tuple[str, ...] = ("answers/#",)
    begun = WINDOW // HOP
    """Windows of a key that are begun at a time."""

    def __init__(self, folder: Path, mode: Mode) -> None:
        self.folder = folder
        self.mode = mode
        self.heard = Heard()
        self.asked: Counter[str] = Counter()
        self.cloud_is: Literal["well", "away", "refusing"] = "well"
        self.sent = 0
        self.codecs = {"imu": ""}
        """A source for each topic, with its line of the codec."""
        self.model: dict[str, Any] = {}
        """What the bundle has beyond the tiny one."""
        self.tables = ""
        """Further tables of the configuration."""
        self.before = 0
        """Messages sent before the running device started: what ends later, no other one has answered."""
        self._lock = threading.Lock()
        self._resources = ExitStack()

    def __enter__(self) -> Street:
        with ExitStack() as stack:
            self._broker = stack.enter_context(Mosquitto("max_queued_messages 100000", "max_inflight_messages 100"))
            model = ServedModel(
                name="teacher",
                inputs=(OipTensor("x", "FP32", (-1, CHANNELS, -1)),),
                outputs=(OipTensor("p", "FP32", (-1, len(LABELS))),),
                predict=self._teach,
            )
            self._cloud = stack.enter_context(Server({"teacher": model}, ServeConfig(port=0, drain_s=1.0)))
            self._listen(stack)
            self._publisher = stack.enter_context(Publisher(self._broker.port, version="5"))
            tiny_bundle(
                self.folder / "watch.edge", hop=HOP, name="watch", gate=GateSpec(threshold=0.75),
                input_contract={"context": CONTEXT}, **self.model,
            )  # fmt: skip
            sources = "".join(SOURCE.format(topic=t, codec=c, mode=self.mode) for t, c in self.codecs.items())
            (self.folder / "app.toml").write_text(
                APP.format(mode=self.mode, broker=self._broker.url, cloud=self._cloud.url, sources=sources)
                + self.tables
            )
            self._resources = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()

    def _listen(self, stack: ExitStack) -> None:
        client = paho.Client(CallbackAPIVersion.VERSION2, "listener", clean_session=False, protocol=paho.MQTTv311)
        ready = threading.Event()
        client.on_message = lambda _client, _user, got: self.hear(got.topic, got.payload)
        client.on_connect = lambda *_: client.subscribe([(one, 2) for one in self.hears])  # type: ignore[assignment]
        client.on_subscribe = lambda *_: ready.set()
        client.connect("127.0.0.1", self._broker.port)
        client.loop_start()
        stack.callback(client.loop_stop)
        stack.callback(client.disconnect)
        assert ready.wait(PATIENCE_S)

    def hear(self, topic: str, payload: bytes | bytearray) -> None:
        """Note what was published."""
        with self._lock:
            self.heard.answers.append(orjson.loads(payload))

    def _teach(self, inputs: dict[str, Array]) -> dict[str, Array]:
        """The cloud; counts which windows it was asked about."""
        if self.cloud_is == "away":
            raise RuntimeError("the cloud's machine is out of memory")
        if self.cloud_is == "refusing":
            raise InputError("wrong_shape", "a proxy in the way does not like the request")
        tensors = inputs["x"].astype(np.float64)
        for tensor in tensors:
            key, last = divmod(round(float(tensor[2, -1]) / SCALE), 100_000)
            self.asked[f"watch-{key}@{FIRST + last - WINDOW + 1}"] += 1
        return {"p": taught(tensors)}

    # -- what is done to it ------------------------------------------------------------------------------------------

    def publish(self, count: int) -> None:
        """The sensors send so many messages more; returns once the broker has them."""
        for number in range(self.sent, self.sent + count):
            self.send(number)
        self.sent += count
        self._publisher.flush()

    def send(self, number: int) -> None:
        """Publish message `number`."""
        self._publisher.send([message(number)], self.mode.qos)

    def introduce(self, devices: Devices) -> None:
        """Let a device subscribe once, so that the broker keeps its session from then on."""
        with devices.start(self.folder) as device:
            self.subscribed(device)
            device.stop()
            assert device.wait() == 0, device.errors()

    def subscribed(self, device: Device) -> None:
        """Wait until a device receives what the sensors send from now on, or has ended."""
        until(lambda: subscribed(self._broker, device.errors()) or not device.running(), device.errors)

    def look(self, *, stopped: bool) -> None:
        """Look at what a life has left beside the answers; it may have stopped in order."""

    def hear_more(self, device: Device, enough: int) -> None:
        """Wait until so many answers are heard in all, or the device has ended."""
        until(lambda: len(self.heard.answers) >= enough or not device.running(), device.errors)

    def drain(self, devices: Devices, last: set[str], *, patiently: bool = True) -> Device:
        """One more device, undisturbed, until the last windows are answered and nothing waits; it ends in order.

        Args:
            devices: where it comes from.
            last: ids of the last windows.
            patiently: wait for provisional answers to be closed, too; otherwise for the outbox alone.
        """
        with devices.start(self.folder) as device:

            def quiet() -> bool:
                assert device.running(), device.errors()
                with self._lock:
                    own, orphans = self.heard.own().keys(), self.heard.provisional() - self.heard.closed()
                return last <= own and not (orphans and patiently) and self.ledger().queued == 0 and self.settled()

            until(quiet, lambda: f"{self.ledger()}\n{device.errors()}")
            device.stop()
            assert device.wait() == 0, device.errors()
        return device

    def settled(self) -> bool:
        """What is beside the answers has come, too."""
        return True

    def ledger(self) -> Ledger:
        """Of the outbox, as it stands on the disk; the device may run."""
        with Snapshot(OutboxConfig(path=self.folder / "outbox.db")) as snapshot:
            ledger = snapshot.ledger
        total = ledger.delivered + ledger.queued + ledger.dead + sum(ledger.dropped().values())
        assert ledger.accepted == total, ledger
        return ledger


def last_windows(messages: int) -> set[str]:
    """The last window that each key completes with so many messages in all."""
    ends = {key: len(range(key, messages, KEYS)) * PART for key in range(KEYS)}
    return {f"watch-{key}@{FIRST + (end - WINDOW) // HOP * HOP}" for key, end in ends.items()}


def control(street: Street, messages: int) -> Heard:
    """What a device answers that nothing ever interrupts."""
    with Devices() as devices, street:
        street.introduce(devices)
        street.publish(messages)
        street.drain(devices, last_windows(messages))
        return street.heard


def chosen(rng: random.Random, options: dict[Any, int]) -> Any:
    """One of them, as often as it says."""
    return rng.choices(list(options), list(options.values()))[0]
