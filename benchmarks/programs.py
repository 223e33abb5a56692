"""The programs under test, each a process of its own on the first core; the load runs on the last one."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from benchmarks import models
from benchmarks.load import Load, Outcome, Traffic

Payload = Literal["raw", "json"]


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Settings that all programs of one comparison share."""

    folder: Path
    net: str = "cnn_m"
    payload: Payload = "raw"
    qos: int = 0
    mqtt5: bool = False
    """MQTT 3.1.1 unless set: the client of the hand-written loop is 1.6 times slower with 5."""
    tflite: bool = False
    keys: int | None = None
    """Expected, all new at once; None: the bounds of a configuration that says nothing."""

    @property
    def model(self) -> Path:
        """The network as an ONNX file."""
        path = self.folder / f"{self.net}.onnx"
        if not path.exists():
            path.write_bytes(models.onnx_int8(self.net))
        return path

    @property
    def bundle(self) -> Path:
        """The same as a bundle."""
        path = self.folder / f"{self.net}{'-tflite' if self.tflite else ''}.edge"
        if not path.exists():
            models.bundle(path, self.net, tflite=models.tflite_int8(self.net) if self.tflite else None)
        return path


@dataclass(frozen=True)
class Program:
    """Something that answers messages."""

    name: str
    kind: Literal["edge-runtime", "handwritten", "peer"]
    budget_ms: float = 0.0
    queue: bool = False
    decoder: str = ""
    """JSON parser of the hand-written loop: ``json`` or ``orjson``."""
    observers: Literal["", "none", "hanging", "flooding"] = ""
    """Who looks at edge-runtime (`benchmarks.observer_clients`); empty: nothing listens."""

    def command(self, setting: Setting, port: int) -> list[str]:
        if self.kind == "edge-runtime":
            path = setting.folder / f"app-{port}.toml"
            text = application(setting, port, self.budget_ms)
            if self.observers:
                text += f'\n[observe]\nlisten = "127.0.0.1:{_page_port(port)}"\n'
            path.write_text(text, encoding="utf-8")
            return [sys.executable, "-m", "edge_runtime", "run", str(path)]
        net = models.NETS[setting.net]
        return [
            sys.executable, "-m", "benchmarks.peers.paho_loop", "--port", str(port), "--model", str(setting.model),
            "--window", str(net.window), "--channels", str(net.channels),
            "--payload", self.decoder or setting.payload, "--qos", str(setting.qos),
            *["--mqtt5"] * setting.mqtt5, *["--queue"] * self.queue,
        ]  # fmt: skip


def application(setting: Setting, port: int, budget_ms: float) -> str:
    """The configuration of the program under test: source and sink on one broker, every answer local."""
    codec = 'type = "raw"\ntime = "f64"' if setting.payload == "raw" else 'type = "json"'
    return f"""
[model]
bundle = "{setting.bundle}"
unsigned = "allow"
latency_budget_ms = {budget_ms}

[broker.bench]
url = "mqtt://127.0.0.1:{port}"
protocol = "{"5" if setting.mqtt5 else "3.1.1"}"
{f"max_held_bytes = {max(8 * 2**20, setting.keys * 8192)}" if setting.keys else ""}

[window]
max_keys = {setting.keys or 10_000}

[[source]]
type = "mqtt"
broker = "bench"
topics = ["sensors/+/raw"]
qos = {setting.qos}

[source.codec]
{codec}

[[sink]]
type = "mqtt"
broker = "bench"
topic = "results/{{key}}"
qos = {setting.qos}
"""


@contextmanager
def on_first_core() -> Iterator[None]:
    """Processes started within run on the first of our cores; we ourselves go to the last one, before and after."""
    cores = sorted(_cores or os.sched_getaffinity(0))
    _cores[:] = cores
    os.sched_setaffinity(0, {cores[0]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, {cores[-1]})


_cores: list[int] = []


@contextmanager
def started(command: Sequence[str]) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command on the first core; end it by SIGTERM."""
    with tempfile.TemporaryFile() as errors:
        with on_first_core():
            process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=errors)
        try:
            yield process
        except Exception as error:
            errors.seek(0)
            said = errors.read().decode(errors="replace").strip().splitlines()[-12:]
            raise RuntimeError("\n".join([f"{' '.join(command[:5])} ...: {error}", *said])) from error
        finally:
            process.terminate()
            try:
                process.wait(15)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def measure(
    program: Program,
    setting: Setting,
    traffic: Traffic,
    *,
    warm_up: int,
    rate: float | None = None,
    until: int | None = None,
) -> Outcome:
    """One run of one program."""
    with Load(qos=setting.qos) as load, started(program.command(setting, load.port)) as process:
        load.wait_for_subscriber(alive=lambda: process.poll() is None)
        with looking(program, _page_port(load.port)):
            return load.run(traffic, process.pid, warm_up=warm_up, rate=rate, until=until)


@contextmanager
def looking(program: Program, port: int) -> Iterator[None]:
    """The program's observers, on our own core."""
    if program.observers in {"", "none"}:
        yield
        return
    command = [sys.executable, "-m", "benchmarks.observer_clients", program.observers, str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        try:
            if process.stdout.readline() != b"there\n":
                raise RuntimeError("the observers did not come")
            yield
        finally:
            process.kill()


def _page_port(port: int) -> int:
    """A port for the page beside the load's, the same each time it is asked for."""
    return _page_ports.setdefault(port, _free_port())


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        port: int = sock.getsockname()[1]
        return port


_page_ports: dict[int, int] = {}


def bare_us(setting: Setting, calls: int) -> float:
    """CPU of one plain batch-1 call, microseconds, on the core that the programs run on."""
    with on_first_core():
        command = [sys.executable, "-m", "benchmarks.bare", str(setting.model), setting.net, str(calls)]
        done = subprocess.run(command, capture_output=True, check=True)
    return float(done.stdout)
