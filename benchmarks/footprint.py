"""Footprint of a process: memory, time to import, files and sockets."""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson

from benchmarks.keys import resident_bytes
from benchmarks.load import Load, Traffic, cpu_seconds, raw
from benchmarks.programs import Setting, application, on_first_core, started
from benchmarks.report import Goal, Report, spread

STREAMS, SAMPLES, RATE = 4, 10, 20.0
"""Like the demo: a few watches, a message every fifth of a second each."""

_BASE = """
import os, resource, time
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
import numpy, orjson, paho.mqtt.client
"""
_ENGINE = {
    "onnxruntime": """
import onnxruntime
options = onnxruntime.SessionOptions()
options.intra_op_num_threads = 1
session = onnxruntime.InferenceSession(open({model!r}, "rb").read(), options)
session.run(None, {{"x": numpy.zeros((1, 6, 128), numpy.float32)}})
""",
    "litert": """
from ai_edge_litert.interpreter import Interpreter
session = Interpreter(model_content=open({model!r}, "rb").read(), num_threads=1)
session.allocate_tensors()
session.set_tensor(session.get_input_details()[0]["index"], numpy.zeros((1, 6, 128), numpy.float32))
session.invoke()
""",
}
_OURS = """
began = time.process_time()
import edge_runtime.app.application
import edge_runtime.io.sources.mqtt, edge_runtime.io.sinks.mqtt, edge_runtime.io.mqtt.batched
import edge_runtime.model.engines.{module}
spent = time.process_time() - began
"""
_TELL = """
import json
rss = next(int(line.split()[1]) * 1024 for line in open("/proc/self/status") if line.startswith("VmRSS:"))
print(json.dumps({"rss": rss, "import_s": globals().get("spent", 0.0)}))
"""


def footprint(quick: bool) -> Iterator[Report]:
    """Memory and import time, what waiting costs, then silence."""
    rounds = 3 if quick else 5
    with tempfile.TemporaryDirectory() as name:
        yield _memory(Path(name), rounds, 4 if quick else 10)
        yield _idle(Path(name), 20 if quick else 60)
        yield _silence(Path(name))


def _memory(folder: Path, rounds: int, seconds: int) -> Report:
    report = Report(
        f"memory and import: a demo-like stream ({STREAMS} watches, {RATE / STREAMS:g} messages/s each), cnn_s int8",
        ("engine", "libraries MB", "our modules MB", "running MB", "our import ms"),
        notes=[
            f"least / median / most of {rounds} rounds",
            "libraries: numpy, orjson, paho and the engine with the model loaded and run once",
        ],
    )
    for engine, module, limit in (("onnxruntime", "onnx", 65.0), ("litert", "litert", 52.0)):
        setting = Setting(folder=folder, net="cnn_s", tflite=engine == "litert")
        model = setting.model if engine == "onnxruntime" else _tflite(setting)
        base = _BASE + _ENGINE[engine].format(model=str(model))
        libraries, modules, running, imports = [], [], [], []
        for _ in range(rounds):
            libraries.append(_told(base)["rss"] / 1e6)
            told = _told(base + _OURS.format(module=module))
            modules.append(told["rss"] / 1e6)
            imports.append(1e3 * told["import_s"])
            running.append(_running(setting, seconds) / 1e6)
        ours = [whole - own for whole, own in zip(modules, libraries, strict=True)]
        report.rows.append((engine, *(spread(values, 1) for values in (libraries, ours, running)), spread(imports)))
        report.goals += [
            Goal(f"MB of the running process, {engine}", statistics.median(running), limit, at_most=True),
            Goal(f"MB of our own modules, {engine}", statistics.median(ours), 5.0, at_most=True),
            Goal(f"ms of CPU to import our own modules, {engine}", statistics.median(imports), 50.0, at_most=True),
        ]
    return report


def _tflite(setting: Setting) -> Path:
    from benchmarks import models  # noqa: PLC0415 - needs the export toolchain's writer

    path = setting.folder / f"{setting.net}.tflite"
    path.write_bytes(models.tflite_int8(setting.net))
    return path


def _told(program: str) -> dict[str, float]:
    with on_first_core():
        done = subprocess.run([sys.executable, "-c", program + _TELL], capture_output=True, check=True)
    found: dict[str, float] = orjson.loads(done.stdout.splitlines()[-1])
    return found


def demo_like(seconds: int) -> Traffic:
    """The stream of a few watches."""
    # The first window completes with its 13th message; 40 messages a stream make the least of answers.
    return Traffic(STREAMS, max(40, round(seconds * RATE / STREAMS)), raw, samples=SAMPLES)


def _command(setting: Setting, load: Load) -> list[str]:
    path = setting.folder / f"app-{load.port}.toml"
    path.write_text(application(setting, load.port, 5.0), encoding="utf-8")
    return [sys.executable, "-m", "edge_runtime", "run", str(path)]


def _running(setting: Setting, seconds: int) -> int:
    """Resident set of the whole program while it answers."""
    traffic = demo_like(seconds)
    with Load() as load, started(_command(setting, load)) as process:
        load.wait_for_subscriber(alive=lambda: process.poll() is None)
        load.run(traffic, process.pid, warm_up=STREAMS, rate=RATE * 2)
        return resident_bytes(process.pid)


def _idle(folder: Path, seconds: int) -> Report:
    """CPU of an application that no message reaches, from two seconds after it subscribed."""
    report = Report(
        f"idle: connected and subscribed, no message for {seconds} s", ("engine", "CPU ms a second", "% of a core")
    )
    for engine in ("onnxruntime", "litert"):
        setting = Setting(folder=folder, net="cnn_s", tflite=engine == "litert")
        with Load() as load, started(_command(setting, load)) as process:
            load.wait_for_subscriber(alive=lambda process=process: process.poll() is None)  # type: ignore[misc]
            load.serve_for(2.0)
            before = cpu_seconds(process.pid)
            load.serve_for(seconds)
            spent = (cpu_seconds(process.pid) - before) / seconds
        report.rows.append((engine, 1e3 * spent, 100 * spent))
        report.goals.append(Goal(f"% of a core while idle, {engine}", 100 * spent, 0.1, at_most=True))
    return report


_SOCKET = re.compile(r"socket\((AF_INET6?|AF_UNIX|AF_NETLINK|AF_PACKET)")
_TARGET = re.compile(r"(?:connect|sendto|bind)\(.*sin6?_port=htons\((\d+)\).*?\"([0-9a-f.:]+)\"")
_WRITTEN = re.compile(r'openat?\((?:AT_FDCWD, )?"([^"]+)", [^)]*(?:O_WRONLY|O_RDWR|O_CREAT)')


def _silence(folder: Path) -> Report:
    """Files written and addresses spoken to, as the kernel saw them."""
    report = Report(
        "silence: what a run with one broker opens",
        ("engine", "internet sockets", "addresses", "files opened for writing"),
    )
    if shutil.which("strace") is None:
        report.notes.append("not measured: strace is not installed")
        return report
    traffic = demo_like(4)
    for engine in ("onnxruntime", "litert"):
        setting = Setting(folder=folder, net="cnn_s", tflite=engine == "litert")
        trace = folder / f"{engine}.strace"
        with Load() as load:
            command = ["strace", "-f", "-qq", "-o", str(trace), "-e", "trace=%network,open,openat,creat"]
            with started([*command, *_command(setting, load)]) as process:
                load.wait_for_subscriber(timeout_s=60, alive=lambda process=process: process.poll() is None)  # type: ignore[misc]
                load.run(traffic, process.pid, warm_up=STREAMS, rate=RATE * 2)
                # Telemetry of some engines waits for several seconds before it calls home.
                time.sleep(5)
            port = load.port
        seen = trace.read_text(errors="replace").splitlines()
        inet = sum(bool((m := _SOCKET.search(line)) and m[1].startswith("AF_INET")) for line in seen)
        strangers = _others(seen, port)
        written = sorted(
            {m[1] for line in seen if (m := _WRITTEN.search(line)) and not m[1].startswith(("/dev/null", "/dev/shm"))}
        )
        report.rows.append((engine, inet, ", ".join(strangers) or "the broker's alone", ", ".join(written) or "none"))
        report.goals += [
            Goal(f"addresses it was not told of, {engine}", len(strangers), 0, at_most=True),
            Goal(f"files it was not told of, {engine}", len(written), 0, at_most=True),
        ]
    return report


def _others(trace: Sequence[str], port: int) -> list[str]:
    found = {f"{m[2]}:{m[1]}" for line in trace if (m := _TARGET.search(line))}
    return sorted(found - {f"127.0.0.1:{port}"})
