"""Files that a message, a hard case and a recipe pass: ``python -m benchmarks.traces [message] [hard] [build]``.

*message*: readings that complete one window, from the broker's socket to the answer on it. *hard*: the same when the
cloud is asked, to its correction. Both run the application of ``examples/exercise-watch`` in this process, beside a
mosquitto and ``edge-runtime serve`` in others, and count the files of ours that each of many messages entered: what a
timer did meanwhile is in some of them only.

*build* counts how often a recipe on its way through ``edge-export build`` goes back to a file that it had left: of the
functions that take the recipe or a part of it, by their first calls. It needs the training environment.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
import struct
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType
from typing import Any, Final

import numpy as np

from benchmarks.report import Goal, Report
from edge_runtime.app.application import App
from edge_runtime.app.config import AppConfig, load_config
from edge_runtime.io.codecs.raw import RawConfig
from edge_runtime.io.sources.mqtt import MqttSourceConfig
from edge_runtime.model.bundle.bundle import open_bundle
from tests.integration.running import Process
from tests.mosquitto import Mosquitto

CHECKOUT: Final = Path(__file__).parents[1]
EXAMPLE: Final = CHECKOUT / "examples/exercise-watch"
MESSAGES: Final = 30
SETTLE_S: Final = 0.3
"""After an answer: what is acknowledged and forgotten because of it belongs to its message."""
PATIENCE_S: Final = 60.0
GOALS: Final = {"message": 20, "hard": 45, "build": 30}


def ours(path: str, package: str) -> str:
    """Return a file's path below the package, or nothing."""
    _, found, inner = path.rpartition(f"/{package}/")
    return inner if found else ""


@dataclass
class Files:
    """Files entered, while it is the profiler of a thread and `on`."""

    on: bool = False
    entered: set[str] = field(default_factory=set)

    def __call__(self, frame: FrameType, event: str, _function: object) -> None:
        if self.on and event == "call" and (name := ours(frame.f_code.co_filename, "edge_runtime")):
            self.entered.add(name)


def served(folder: Path, stack: ExitStack) -> str:
    """Serve the example's large model in a process of its own; return its URL."""
    arguments = ("serve", EXAMPLE / "teacher.edge", "--allow-unsigned", "--port", "0")
    process = stack.enter_context(Process(folder, *arguments, name="cloud"))
    process.says("http://")
    return next(word for word in process.out.split() if word.startswith("http"))


def configured(folder: Path, broker: str, cloud: str, *, hard: bool) -> AppConfig:
    """Return the example's application between these two, that asks the cloud always or never."""
    config = load_config(EXAMPLE / "app.toml")
    (source,) = config.source
    assert isinstance(source, MqttSourceConfig)
    return replace(
        config,
        broker={name: replace(one, url=broker) for name, one in config.broker.items()},
        source=(replace(source, codec=RawConfig(time="f64")),),
        gate=replace(config.gate, threshold=2.0 if hard else 0.0, max_share=1.0),
        cloud=replace(config.cloud, url=cloud) if config.cloud else None,
        outbox=replace(config.outbox, path=folder / "outbox.db") if config.outbox else None,
    )


def payloads(bundle: Path) -> Iterator[bytes]:
    """Messages of one stream, a window's hop each, made of the golden windows."""
    with open_bundle(bundle) as opened:
        contract = opened.manifest.input
        golden, _ = opened.golden(opened.manifest.variants[0].name)
    signal = np.ascontiguousarray(golden.transpose(0, 2, 1).reshape(-1, len(contract.channels)), dtype="<f4")
    first = round((time.time() - 600.0) * contract.rate_hz)
    for i in itertools.count():
        at = np.arange(i * contract.hop, (i + 1) * contract.hop)
        yield struct.pack("<d", (first + at[0]) / contract.rate_hz) + signal[at % len(signal)].tobytes()


def publish(broker: int, trace: Files, stop: Callable[[], None], found: list[set[str]], *, hard: bool) -> None:
    """Publish messages one by one, each after the answer of the one before, and take down the files of each."""
    import paho.mqtt.client as paho  # noqa: PLC0415 - heavy
    from paho.mqtt.enums import CallbackAPIVersion  # noqa: PLC0415

    answered = threading.Semaphore(0)
    wanted = b'"supersedes"' if hard else b'"label"'

    def on_message(_client: Any, _userdata: Any, message: paho.MQTTMessage) -> None:
        if wanted in message.payload:
            answered.release()

    client = paho.Client(CallbackAPIVersion.VERSION2)
    client.on_message = on_message
    client.connect("127.0.0.1", broker)
    client.subscribe("edge/+/prediction", 1)
    client.loop_start()
    try:
        for i, payload in enumerate(payloads(EXAMPLE / "watch.edge")):
            trace.entered = set()
            trace.on = True
            client.publish("watch/w1/imu", payload, 1)
            # The first ones fill windows, contexts and caches.
            if not answered.acquire(timeout=PATIENCE_S if found else 1.0):
                if found or i > MESSAGES:
                    raise RuntimeError("an answer is missing")
                continue
            time.sleep(SETTLE_S)
            trace.on = False
            if i >= MESSAGES // 2:
                found.append(trace.entered)
            if len(found) == MESSAGES:
                return
    finally:
        client.loop_stop()
        stop()


def passed(*, hard: bool) -> list[str]:
    """Return the files that every message entered."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        broker = stack.enter_context(Mosquitto())
        cloud = served(folder, stack)
        trace, found = Files(), list[set[str]]()
        threading.setprofile(trace)
        sys.setprofile(trace)
        try:
            app = App(configured(folder, broker.url, cloud, hard=hard))
            publisher = threading.Thread(
                target=publish, args=(broker.port, trace, app.stop, found), kwargs={"hard": hard}
            )
            publisher.start()
            app.run()
            publisher.join()
        finally:
            sys.setprofile(None)
            threading.setprofile(None)
        app.close()
    if len(found) < MESSAGES:
        raise RuntimeError(f"{len(found)} of {MESSAGES} messages were answered")
    return sorted(set.intersection(*found))


@dataclass
class Returns:
    """First calls of functions that take the recipe or a part of it, while it is the profiler of a thread."""

    seen: set[object] = field(default_factory=set)
    route: list[str] = field(default_factory=list)

    def __call__(self, frame: FrameType, event: str, _function: object) -> None:
        code = frame.f_code
        if event != "call" or code in self.seen or not (name := ours(code.co_filename, "edge_export")):
            return
        given = itertools.islice(frame.f_locals.values(), code.co_argcount + code.co_kwonlyargcount)
        if any(part_of_recipe(value) for value in given):
            self.seen.add(code)
            if not self.route or self.route[-1] != name:
                self.route.append(name)

    @property
    def count(self) -> int:
        """Moves to a file that was left before."""
        return len(self.route) - len(set(self.route))


def part_of_recipe(value: object) -> bool:
    """Return true for the recipe, and for each of its tables; the windows that it splits are none."""
    wing, _, module = type(value).__module__.rpartition(".")
    return dataclasses.is_dataclass(value) and wing == "edge_export.recipe" and module != "splits"


def built() -> Returns:
    """Build the recipe of the tests' waves, and follow it."""
    from edge_export.cli import main as edge_export  # noqa: PLC0415 - needs the training environment

    from tests.edge_export.waves import RECIPE, write_waves  # noqa: PLC0415

    returns = Returns()
    with tempfile.TemporaryDirectory() as folder:
        recipe, data = Path(folder, "recipe.toml"), Path(folder, "waves")
        recipe.write_text(RECIPE)
        write_waves(data)
        sys.setprofile(returns)
        try:
            failed = edge_export(["build", str(recipe), "--data", f"waves={data}", "-o", str(Path(folder, "out"))])
        finally:
            sys.setprofile(None)
    if failed:
        raise RuntimeError("the build failed")
    return returns


def report(kind: str, files: Iterable[str], measured: int) -> Report:
    """Return a table of the files of a trace."""
    what = {
        "message": "files that a message passes",
        "hard": "files that a hard case passes",
        "build": "returns of a recipe's parts to a file they had left",
    }[kind]
    made = Report(what, ("file",), goals=[Goal(what, measured, GOALS[kind], at_most=True)])
    made.rows += [(name,) for name in files]
    return made


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.traces", description=__doc__.splitlines()[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="message, hard, build (default: the first two)")
    options = parser.parse_args()
    for kind in options.kinds or ("message", "hard"):
        if kind == "build":
            returns = built()
            print(report(kind, returns.route, returns.count).text())
        else:
            files = passed(hard=kind == "hard")
            print(report(kind, files, len(files)).text())
    return 0


if __name__ == "__main__":
    sys.exit(main())
