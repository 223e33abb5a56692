"""An application under test: in a thread of this process or as a process of its own, with whoever talks to it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import orjson
import paho.mqtt.client as paho
from paho.mqtt.enums import CallbackAPIVersion, MQTTErrorCode, MQTTProtocolVersion
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from edge_runtime.app.application import App
from edge_runtime.app.config import AppConfig, parse
from edge_runtime.model.bundle.bundle import open_bundle
from edge_runtime.model.bundle.load import load_engine
from edge_runtime.model.engines.base import EngineOptions
from edge_runtime.model.serving.loading import Model
from edge_runtime.tools.demo.broker.broker import Broker
from tests.mosquitto import Mosquitto, has_subscriptions

ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 60.0
"""How long anything may take before a test gives up: a bound for a loaded machine, never a measure."""

Floats = npt.NDArray[np.float32]
Times = npt.NDArray[np.float64]
Answer = dict[str, Any]


def until(condition: Callable[[], object], what: object = "", seconds: float = PATIENCE_S) -> None:
    """Wait for a condition; `what` (or what it returns) is in the message when it does not come about."""
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise AssertionError(f"did not come about in {seconds:g} s: {what() if callable(what) else what}")
        time.sleep(0.01)


# -- sensor data -------------------------------------------------------------------------------------------------------


class Stream(NamedTuple):
    """What one sensor measured."""

    key: str
    t: Times
    values: Floats


class Message(NamedTuple):
    """A part of it on its way."""

    key: str
    payload: bytes


def streams(keys: int, samples: int, *, channels: int = 3, rate_hz: float = 50.0, seed: int = 0) -> list[Stream]:
    """Random walks, with stamps a little off the grid, each key beginning at a time of its own."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(keys):
        t = 1_700_000_000.0 + 0.37 * i + (np.arange(samples) + rng.uniform(-0.1, 0.1, samples)) / rate_hz
        values = np.clip(np.cumsum(rng.normal(0, 0.5, (samples, channels)), axis=0), -4, 4).astype(np.float32)
        made.append(Stream(f"watch-{i}", t, values))
    return made


def payload(t: Times, values: Floats, key: str = "") -> bytes:
    """Our own JSON, one stamp for each sample."""
    document = {"t": t.tolist(), "values": values.astype(np.float64).tolist()} | ({"key": key} if key else {})
    return orjson.dumps(document)


def cut(stream: Stream, sizes: Callable[[], int]) -> list[Message]:
    """A stream in messages of these sizes."""
    messages, at = [], 0
    while at < len(stream.t):
        end = at + sizes()
        messages.append(Message(stream.key, payload(stream.t[at:end], stream.values[at:end])))
        at = end
    return messages


def interleave(rng: np.random.Generator, parts: Sequence[list[Message]]) -> list[Message]:
    """All messages in an order that keeps each part's own."""
    left = [list(reversed(part)) for part in parts]
    out = []
    while any(left):
        some = [part for part in left if part]
        out.append(some[int(rng.integers(len(some)))].pop())
    return out


def write_recording(path: Path, recorded: Sequence[Stream], samples: int = 40) -> Path:
    """The streams as a JSONL recording, one key after another in turns."""
    rng = np.random.default_rng(1)
    lines = interleave(rng, [cut(stream, lambda: samples) for stream in recorded])
    documents = [orjson.dumps({"key": line.key} | orjson.loads(line.payload)) for line in lines]
    path.write_bytes(b"\n".join(documents) + b"\n")
    return path


# -- answers -----------------------------------------------------------------------------------------------------------


def answers(path: Path) -> list[Answer]:
    """The lines of a JSONL sink; a line that is being written is left out."""
    if not path.exists():
        return []
    *whole, _ = path.read_bytes().split(b"\n")
    return [orjson.loads(line) for line in whole]


def predictions(path: Path) -> list[Answer]:
    """Without the corrections."""
    return [answer for answer in answers(path) if answer["route"] != "cloud"]


def corrections(path: Path) -> list[Answer]:
    """The others."""
    return [answer for answer in answers(path) if answer["route"] == "cloud"]


def ids(found: Sequence[Answer]) -> list[str]:
    """Sorted, with repeats."""
    return sorted(answer["id"] for answer in found)


def assert_same_answers(found: Sequence[Answer], expected: Sequence[Answer]) -> None:
    """Same windows, ids and labels in the same order per key; scores within 1e-6."""
    assert expected, "nothing to compare with"
    assert ids(found) == ids(expected)
    exact = ("id", "key", "label", "hard", "model", "variant", "route")
    for key in {answer["key"] for answer in expected}:
        ours = [answer for answer in found if answer["key"] == key]
        theirs = [answer for answer in expected if answer["key"] == key]
        assert [[a[name] for name in exact] for a in ours] == [[a[name] for name in exact] for a in theirs]
        for name in ("scores", "confidence", "start", "end"):
            a, b = np.array([x[name] for x in ours]), np.array([x[name] for x in theirs])
            assert np.abs(a - b).max() <= 1e-6, name


# -- the application ---------------------------------------------------------------------------------------------------


def load_model(bundle: Path, variant: str) -> Model:
    """A loaded bundle, without the child process that tries it first: that has tests of its own."""
    opened = open_bundle(bundle)
    return Model(opened, opened.variant(variant), load_engine(opened, variant, EngineOptions(), probe_first=False))


class Running:
    """An application on a thread of this process."""

    def __init__(self, config: AppConfig, model: Model) -> None:
        self.app = App(config, model=model)
        self.drained: bool | None = None
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name="application", daemon=True)

    def _run(self) -> None:
        try:
            self.drained = self.app.run()
        except BaseException as error:
            self._error = error

    @property
    def counts(self) -> Counter[str]:
        return self.app.metrics.counts

    @property
    def dropped(self) -> Counter[str]:
        return self.app.metrics.dropped

    @property
    def connected(self) -> bool:
        return all(value for name, value in self.app.metrics.gauges.items() if name.startswith("connected"))

    def state(self) -> str:
        """For messages."""
        outbox = self.app.outbox.counts() if self.app.outbox is not None else None
        return f"{dict(self.counts)} {dict(self.dropped)} {self.app.metrics.gauges} {outbox}"

    def until(self, condition: Callable[[], object], seconds: float = PATIENCE_S) -> None:
        until(lambda: condition() or self._error is not None, self.state, seconds)
        if self._error is not None:
            raise self._error

    def stop(self) -> bool:
        """Drain and end; whether everything was handed over."""
        self.app.stop()
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive(), "the application does not end"
        if self._error is not None:
            raise self._error
        assert self.drained is not None
        return self.drained

    def __enter__(self) -> Running:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._thread.is_alive():
            self.app.stop()
            self._thread.join(PATIENCE_S)


def running(text: str, folder: Path, model: Model) -> Running:
    """An application as its TOML file describes it."""
    return Running(parse(text, folder / "app.toml"), model)


# -- processes ---------------------------------------------------------------------------------------------------------


def environment(**more: str) -> dict[str, str]:
    """For child processes: nothing of ours but what they need, no byte code written, warnings as they are for users."""
    kept = {name: value for name, value in os.environ.items() if name in {"PATH", "LD_LIBRARY_PATH", "LANG", "TMPDIR"}}
    return kept | {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONPATH": str(ROOT), "HOME": "/nonexistent"} | more


class Finished(NamedTuple):
    """A command that has ended."""

    code: int
    out: str
    err: str


def command(*arguments: str | Path, cwd: Path | None = None, timeout_s: float = PATIENCE_S) -> Finished:
    """Run ``edge-runtime`` to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "edge_runtime", *map(str, arguments)],
        capture_output=True, text=True, timeout=timeout_s, cwd=cwd, env=environment(), check=False,
    )  # fmt: skip
    return Finished(done.returncode, done.stdout, done.stderr)


def subscribed(broker: Broker | Mosquitto, said: str, clients: int = 1) -> bool:
    """Whether an application receives what is published from now on: it says that it is connected a moment earlier.

    Args:
        broker: that it is connected to.
        said: what it has written to standard error.
        clients: how many of its connections subscribe to something.
    """
    found = dict(re.findall(rf"connected to \S+:{broker.port}\b\S* with MQTT \S+ as '(\S+)'(, session resumed)?", said))
    return sum(bool(kept) or has_subscriptions(broker, one) for one, kept in found.items()) >= clients


class Process:
    """``edge-runtime``, or another program, as a process of its own, its output in files of `folder`."""

    def __init__(
        self,
        folder: Path,
        *arguments: str | Path,
        name: str = "process",
        program: Sequence[str] = ("-m", "edge_runtime"),
    ) -> None:
        self._out, self._err = folder / f"{name}.out", folder / f"{name}.err"
        with self._out.open("wb") as out, self._err.open("wb") as err:
            self._process = subprocess.Popen(
                [sys.executable, *program, *map(str, arguments)],
                stdin=subprocess.DEVNULL, stdout=out, stderr=err, env=environment(PYTHONUNBUFFERED="1"), cwd=folder,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def out(self) -> str:
        return self._out.read_text("utf-8", "replace")

    @property
    def err(self) -> str:
        return self._err.read_text("utf-8", "replace")

    def says(self, text: str, seconds: float = PATIENCE_S) -> None:
        """Wait until it has written this to one of its outputs."""
        until(lambda: text in self.err + self.out or self._process.poll() is not None, lambda: self.err, seconds)
        assert text in self.err + self.out, f"ended with {self._process.poll()}: {self.err}"

    def subscribed(self, broker: Broker | Mosquitto, clients: int = 1) -> None:
        """Wait until it receives what is published from now on; see the function of this name."""
        until(lambda: subscribed(broker, self.err, clients) or not self.running(), lambda: self.err)
        assert self.running(), f"ended with {self._process.poll()}: {self.err}"

    def running(self) -> bool:
        return self._process.poll() is None

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self, seconds: float = PATIENCE_S) -> int:
        return self._process.wait(seconds)

    def kill(self) -> None:
        """SIGKILL, and wait for the end of it."""
        self._process.kill()
        self._process.wait(PATIENCE_S)

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process.poll() is None:
            self.kill()


# -- other people's programs -------------------------------------------------------------------------------------------


@contextmanager
def started(*command: str | Path, folder: Path) -> Iterator[None]:
    """Another program, until the end of the block."""
    with (folder / "program.log").open("wb") as log:
        process = subprocess.Popen([*map(str, command)], stdout=log, stderr=log, cwd=folder)
        try:
            yield
        finally:
            process.terminate()
            process.wait(PATIENCE_S)


def read(url: str) -> str:
    """A page; empty while nobody answers."""
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


# -- who else is on the broker -----------------------------------------------------------------------------------------


class Publisher:
    """A sensor: a paho client that keeps what the broker has not taken, and connects again by itself."""

    def __init__(self, port: int, *, version: str = "5", topic: str = "watch/{key}/imu") -> None:
        self._topic = topic
        protocol = MQTTProtocolVersion.MQTTv5 if version == "5" else MQTTProtocolVersion.MQTTv311
        extra: dict[str, Any] = {"clean_session": False} if version != "5" else {}
        self._client = paho.Client(CallbackAPIVersion.VERSION2, "sensor", protocol=protocol, **extra)
        self._client.reconnect_delay_set(1, 1)
        self.sent = self._taken = 0
        self._client.on_publish = self._on_publish
        if version == "5":
            properties = Properties(PacketTypes.CONNECT)  # type: ignore[no-untyped-call]
            properties.SessionExpiryInterval = 3600
            self._client.connect("127.0.0.1", port, clean_start=False, properties=properties)
        else:
            self._client.connect("127.0.0.1", port)
        self._client.loop_start()
        until(self._client.is_connected, "the publisher does not connect")

    def _on_publish(self, *_: object) -> None:
        self._taken += 1

    def publish(self, topic: str, payload: bytes, qos: int) -> None:
        """Publish one message; returns before the broker has taken it."""
        self.sent += 1
        info = self._client.publish(topic, payload, qos)
        assert info.rc in {MQTTErrorCode.MQTT_ERR_SUCCESS, MQTTErrorCode.MQTT_ERR_NO_CONN}

    def send(self, messages: Sequence[Message], qos: int = 1) -> None:
        """Publish messages on the topics of their keys."""
        for message in messages:
            self.publish(self._topic.format(key=message.key), message.payload, qos)

    def reach(self, app: Running) -> None:
        """Wait until the application receives from this publisher; costs some empty messages, refused as ``empty``."""

        before = app.dropped["empty"]

        def arrived() -> bool:
            self.send([Message("nobody", b"")], 0)
            time.sleep(0.02)
            return app.dropped["empty"] > before

        app.until(arrived)

    def flush(self) -> None:
        """Wait until the broker has taken everything."""
        until(lambda: self._taken >= self.sent, lambda: f"{self._taken} of {self.sent} messages taken")

    def close(self) -> None:
        self._client.disconnect()
        self._client.loop_stop()

    def __enter__(self) -> Publisher:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


@contextmanager
def listening(port: int, topic: str, *, client_id: str = "listener") -> Iterator[list[Answer]]:
    """What is published meanwhile, in order, repeats included; QoS 1, with a session that outlives the connection."""
    heard: list[Answer] = []
    ready = threading.Event()
    client = paho.Client(CallbackAPIVersion.VERSION2, client_id, clean_session=False, protocol=paho.MQTTv311)
    client.reconnect_delay_set(1, 1)
    client.on_message = lambda _client, _user, message: heard.append(orjson.loads(message.payload))
    client.on_connect = lambda *_: client.subscribe(topic, 1)  # type: ignore[assignment] # paho types four shapes
    client.on_subscribe = lambda *_: ready.set()
    client.connect("127.0.0.1", port)
    client.loop_start()
    try:
        assert ready.wait(PATIENCE_S)
        yield heard
    finally:
        client.disconnect()
        client.loop_stop()
