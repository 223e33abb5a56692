"""Where a device under test lives: sensors and a broker before it, a cloud behind it, the oracle all around.

Nothing here is ever killed. Each message of a sensor makes exactly one window and each window is hard, so a message, a
case in the outbox, a question to the cloud and a correction in the file are the same thing four times, under one id,
and the tensor that the cloud is asked about says which.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
import orjson

from edge_runtime.base.oip import Array, OipTensor
from edge_runtime.clock import SimulatedClock
from edge_runtime.manifest import GateSpec
from edge_runtime.operate.server.batcher import ServedModel
from edge_runtime.operate.server.server import ServeConfig, Server
from edge_runtime.store.durable.outbox import HardCase, Outbox, OutboxConfig, OutboxCounts
from edge_runtime.store.durable.outbox.read_only_copy import Snapshot
from edge_runtime.tools.demo.broker.broker import Broker
from edge_runtime.tools.demo.broker.session import ClientSession
from tests.faults.device import Device, Devices
from tests.faults.oracle import History, Verdict, missing
from tests.integration.running import Message, Publisher, payload, subscribed, until
from tests.models import tiny_bundle
from tests.mosquitto import free_port

CHANNELS, WINDOW, RATE_HZ = 3, 16, 50.0
LABELS = ("rest", "walk", "run")
KEYS = 2
FIRST_SLOT = int(1_700_000_000 * RATE_HZ) // WINDOW * WINDOW
EVERYTHING = 2**30

APP = """
drain_timeout_s = 20.0
[model]
bundle = "watch.edge"
unsigned = "allow"
variant = "onnx-fp32"
[broker.b]
url = "{broker}"
client_id = "under-test"
[[source]]
type = "mqtt"
broker = "b"
topics = ["watch/+/imu"]
[[sink]]
type = "jsonl"
path = "{answers}"
[gate]
threshold = 1.1
[cloud]
url = "{cloud}"
model = "teacher"
timeout_s = 5.0
[escalation]
max_batch = 4
[outbox]
path = "{outbox}"
max_bytes = {max_bytes}
"""


def sample(number: int) -> Array:
    """(CHANNELS, WINDOW): the window of message `number`, and of no other."""
    window = np.zeros((CHANNELS, WINDOW), np.float32)
    window[0], window[1], window[2] = number, number % 1009, np.arange(WINDOW)
    return window


def name(number: int) -> str:
    """The id that the device gives to the window of message `number`."""
    return f"watch-{number % KEYS}@{FIRST_SLOT + number // KEYS * WINDOW}"


def message(number: int) -> Message:
    """Message `number` as its sensor sends it."""
    stamps = (FIRST_SLOT + number // KEYS * WINDOW + np.arange(WINDOW)) / RATE_HZ
    return Message(f"watch-{number % KEYS}", payload(stamps, sample(number).T))


class Site:
    """Broker, cloud, sensors and oracle; a context manager.

    Args:
        folder: the device's, with its bundle and ``app.toml``.
        max_bytes: of the outbox.
        disk: where outbox and answers are; None for `folder`.
    """

    def __init__(self, folder: Path, *, max_bytes: int = 2**20, disk: Path | None = None) -> None:
        self.folder = folder
        self.disk = disk or folder
        self.history = History()
        self.corrected: dict[str, int] = {}
        self.answered: set[str] = set()
        self.refused: set[str] = set()
        """Hard, and published as final: the device has said that there will be no correction."""
        self._max_bytes = max_bytes
        self._sent = 0
        self._ids: dict[bytes, str] = {}
        self._read = 0
        self._resources = ExitStack()

    @property
    def outbox(self) -> Path:
        return self.disk / "outbox.db"

    @property
    def answers(self) -> Path:
        return self.folder / "answers.jsonl"

    def __enter__(self) -> Site:
        with ExitStack() as stack:
            stack.enter_context(_acknowledgements(self._acknowledged))
            self._broker = stack.enter_context(Broker())
            model = ServedModel(
                name="teacher",
                inputs=(OipTensor("x", "FP32", (-1, CHANNELS, WINDOW)),),
                outputs=(OipTensor("p", "FP32", (-1, len(LABELS))),),
                predict=self._answer,
            )
            self.cloud = Server({"teacher": model}, ServeConfig(port=free_port(), drain_s=1.0))
            stack.enter_context(self.cloud)
            self._publisher = stack.enter_context(Publisher(self._broker.port))
            tiny_bundle(self.folder / "watch.edge", hop=WINDOW, name="watch", gate=GateSpec(threshold=0.6))
            (self.folder / "app.toml").write_text(
                APP.format(
                    broker=self._broker.url, cloud=self.cloud.url, outbox=self.outbox, answers=self.answers,
                    max_bytes=self._max_bytes,
                )
            )  # fmt: skip
            self._resources = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._resources.close()

    def introduce(self, devices: Devices) -> None:
        """Let a device subscribe once, so that the broker keeps its session from then on."""
        with devices.start(self.folder) as device:
            self.subscribed(device)

    def subscribed(self, device: Device) -> None:
        """Wait until a device receives what the sensors send from now on, or has ended."""
        until(lambda: subscribed(self._broker, device.errors()) or not device.running(), device.errors)

    # -- what goes in ------------------------------------------------------------------------------------------------

    def publish(self, count: int) -> list[str]:
        """The sensors send so many messages more; returns their ids once the broker has them."""
        numbers = range(self._sent, self._sent + count)
        self._sent += count
        for number in numbers:
            sent = message(number)
            self._ids[sent.payload] = name(number)
            self.history.attempt(name(number), sample(number).tobytes())
            self._publisher.send([sent])
        self._publisher.flush()
        return [name(number) for number in numbers]

    def publish_rubbish(self, payload: bytes) -> None:
        """A message that is none."""
        self._publisher.publish("watch/0/imu", payload, 1)
        self._publisher.flush()

    def restart_broker(self) -> None:
        """It goes away and comes back, with what it kept."""
        self._broker.stop()
        self._broker.start()

    def begin_with(self, count: int) -> list[HardCase]:
        """Forget everything; so many readings were accepted in an earlier life. Returns their cases."""
        self.history, self.corrected = History(), {}
        self.answers.unlink(missing_ok=True)
        self._read, self._sent = 0, count
        self._ids = {message(number).payload: name(number) for number in range(count)}
        for number in range(count):
            self.history.attempt(name(number), sample(number).tobytes())
            self.history.acknowledge(name(number))
        meta = orjson.dumps({"start": 0.0, "end": 0.0, "label": "rest", "confidence": 0.5, "hard": True})
        return [HardCase(name(n), "watch", 0.0, 60.0, 0, 0.5, sample(n).tobytes(), meta) for n in range(count)]

    def feed(self, count: int, at_once: int = 1) -> None:
        """Messages, some at a time, when the device has acknowledged and answered those before."""
        for _ in range(0, count, at_once):
            ids = set(self.publish(at_once))
            until(lambda ids=ids: ids <= self.history.acknowledged and ids <= self.answers_read(), self.history.verdict)  # type: ignore[misc]

    @property
    def outstanding(self) -> int:
        """Messages sent whose correction is not there yet."""
        self.read_answers()
        return self._sent - len(self.corrected)

    def _acknowledged(self, sent: bytes) -> None:
        if sent in self._ids:  # and not rubbish
            self.history.acknowledge(self._ids[sent])

    # -- what comes out ----------------------------------------------------------------------------------------------

    def _answer(self, inputs: dict[str, Array]) -> dict[str, Array]:
        for tensor in inputs["x"]:
            self.history.deliver(name(int(tensor[0, 0])), tensor.astype("<f4").tobytes())
        return {"p": np.tile(np.array([0.25, 0.5, 0.25], np.float32), (len(inputs["x"]), 1))}

    def read_answers(self) -> None:
        """Read on in the file of answers; a line that was cut short by a kill is left out."""
        if not self.answers.exists():
            return
        with self.answers.open("rb") as file:
            file.seek(self._read)
            lines = file.read()
        whole = lines.rfind(b"\n") + 1
        self._read += whole
        for line in lines[:whole].splitlines():
            try:
                answer = orjson.loads(line)
            except orjson.JSONDecodeError:
                continue
            if answer["route"] == "cloud":
                self.corrected[answer["id"]] = self.corrected.get(answer["id"], 0) + 1
            else:
                self.answered.add(answer["id"])
                if answer["hard"] and answer["route"] == "local":  # final messages among them
                    self.refused.add(answer["id"])

    def answers_read(self) -> set[str]:
        """Ids of the device's own answers, after reading on."""
        self.read_answers()
        return self.answered

    def settled(self) -> bool:
        """Whether everything that was ever sent is acknowledged and corrected."""
        self.read_answers()
        sent = set(self._ids.values())
        return sent <= self.corrected.keys() and sent <= self.history.acknowledged

    # -- judgement ---------------------------------------------------------------------------------------------------

    def outbox_copy(self, *, damaged: bool = False) -> tuple[OutboxCounts, set[str]]:
        """The ledger, and the ids that are queued or dead; of a copy, so that the device finds what it left.

        Args:
            damaged: it may be; what can be salvaged counts.
        """
        copy = self.folder / "copy"
        shutil.rmtree(copy, ignore_errors=True)
        copy.mkdir()
        copied: dict[int, Path] = {}
        for file in self.disk.glob("outbox.db*"):
            inode = file.stat().st_ino
            if inode in copied:  # two names of one file mean something: that a salvage has decided
                (copy / file.name).hardlink_to(copied[inode])
            else:
                copied[inode] = Path(shutil.copy(file, copy))
        if not (copy / self.outbox.name).exists():
            (copy / self.outbox.name).touch()
        clock = SimulatedClock()
        with Outbox(OutboxConfig(path=copy / self.outbox.name, live_share=0.0), clock) as outbox:
            assert damaged or outbox.damage == []
            clock.advance(3_600.0)  # whatever waits for another try is due
            ids = {case.id for case in outbox.lease(10_000, EVERYTHING)}
            ids |= {letter.case.id for letter in outbox.dead_letters()}
            counts = outbox.counts()
        assert missing(counts) == 0, counts
        return counts, ids

    def drained(self) -> bool:
        """Whether nothing waits in the outbox any more; of a copy that the running device may write beside."""
        with Snapshot(OutboxConfig(path=self.outbox)) as snapshot:
            return snapshot.ledger.queued + snapshot.ledger.dead == 0

    def check(self, where: object, *, damaged: bool = False) -> Verdict:
        """After a kill: whatever was acknowledged is corrected, or waits in the outbox, which is whole."""
        counts, inside = self.outbox_copy(damaged=damaged)
        self.read_answers()
        assert len(inside) == counts.queued + counts.dead, (where, counts)
        verdict = self.history.verdict(elsewhere=inside)
        assert verdict.valid, f"{where}: {verdict}"
        gone = self.history.acknowledged - self.corrected.keys() - inside
        assert not gone, f"{where}: neither corrected nor in the outbox: {sorted(gone)[:5]}"
        orphans = self.answered - self.refused - self.corrected.keys() - inside
        assert not orphans, f"{where}: promised a correction that cannot come: {sorted(orphans)[:5]}"
        return verdict

    def run(self, device: Device, more: int = 0) -> int:
        """Let it run until it is killed, or everything is settled and it has ended; returns its exit code.

        Args:
            device: running already.
            more: messages that the sensors send one by one meanwhile, each when the one before is acknowledged.
        """
        told = False

        def over() -> bool:
            nonlocal told, more
            if more and set(self._ids.values()) <= self.history.acknowledged:
                more -= 1
                self.publish(1)
            if not told and not more and self.settled():
                told = True
                device.stop()
            return not device.running()

        until(over, lambda: f"{self.history.verdict()}\n{device.errors()}")
        assert device.code is not None
        return device.code


class _acknowledgements:  # noqa: N801 - used like a function
    """Within, the embedded broker reports the payload of every message that a subscriber acknowledges."""

    def __init__(self, report: Callable[[bytes], None]) -> None:
        self._report = report

    def __enter__(self) -> None:
        self._original = original = ClientSession.acknowledged
        report = self._report

        def acknowledged(self: ClientSession, kind: int, packet_id: int, reason_code: int) -> None:
            delivery: Any = self._in_flight.get(packet_id)
            original(self, kind, packet_id, reason_code)
            if delivery is not None and self._in_flight.get(packet_id) is not delivery:
                report(delivery.message.payload)

        ClientSession.acknowledged = acknowledged  # type: ignore[method-assign]

    def __exit__(self, *_: object) -> None:
        ClientSession.acknowledged = self._original  # type: ignore[method-assign]
