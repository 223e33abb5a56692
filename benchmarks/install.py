"""Size of an installation: the package with one engine in a fresh environment, weighed and run there.

Each environment is made from a wheel of this checkout, so that nothing of the development environment is counted.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.footprint import RATE, STREAMS, demo_like
from benchmarks.keys import resident_bytes
from benchmarks.load import Load
from benchmarks.programs import Setting, application, on_first_core, started
from benchmarks.report import Goal, Report

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE = ROOT / "examples" / "exercise-watch"
SLIM = ROOT / "scripts" / "slim"

ENGINES = {
    "onnxruntime": ("onnx", ("numpy", "onnxruntime"), "onnx-fp32", 70.0),
    "litert": ("tflite", ("numpy", "ai-edge-litert"), "tflite-int8", 55.0),
}
"""Extra, what is large in it, variant of the demo's bundle, and the goal for the process in MB."""

_WEIGH = """
import importlib.metadata as m, json, os
sizes = {}
for d in m.distributions():
    for f in d.files or ():
        name = d.metadata["Name"]
        path = d.locate_file(f)
        sizes.setdefault(name, 0)
        if os.path.exists(path) and f.suffix != ".pyc":
            sizes[name] += os.stat(path).st_size
print(json.dumps(sizes))
"""
_IMPORT = """
import time
import numpy, orjson, paho.mqtt.client
began = time.process_time()
import edge_runtime.app.application
import edge_runtime.io.sources.mqtt, edge_runtime.io.sinks.mqtt, edge_runtime.io.mqtt.batched
import edge_runtime.model.engines.{module}
print((time.process_time() - began) * 1e3)
"""
_COLUMNS = (
    "engine", "packages", "MB on disk", "of it large", "MB slim", "import ours ms", "first answer s", "MB at rest",
    "MB streaming", "idle CPU %",
)  # fmt: skip
_NOTES = (
    "MB on disk: installed files without .pyc; large: numpy and the engine; slim: after scripts/slim",
    "first answer: from starting the command to the answer to a window from standard input, with the trial in a child",
    "process; page cache warm; least of the rounds",
)
_INSTALLERS = {"pip", "setuptools", "wheel"}


def install(quick: bool) -> Iterator[Report]:
    """Size, start and idle figures for both engines."""
    rounds = 3 if quick else 9
    title = f"what a device gets, in fresh environments; {STREAMS} watches, {RATE / STREAMS:g} messages/s each"
    report = Report(title, _COLUMNS, notes=list(_NOTES))
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = _wheel(folder)
        for engine, (extra, large, variant, limit) in ENGINES.items():
            python = _environment(folder / engine, f"{wheel}[{extra}]")
            sizes = {key: value / 1e6 for key, value in _told(python, _WEIGH).items() if key not in _INSTALLERS}
            module = "onnx" if extra == "onnx" else "litert"
            _told(python, _IMPORT.format(module=module))  # writes the bytecode
            import_ms = [float(_told(python, _IMPORT.format(module=module))) for _ in range(rounds)]
            first_s = min(_first_answer(python, folder, variant) for _ in range(rounds))
            rest, streaming, idle = _memory(python, folder, engine, 4 if quick else 10)
            slim = _slim(python, sizes)
            _first_answer(python, folder, variant)  # it still runs
            report.rows.append((
                engine, len(sizes) - 1, sum(sizes.values()), sum(sizes[key] for key in large), slim,
                statistics.median(import_ms), first_s, rest / 1e6, streaming / 1e6, idle,
            ))  # fmt: skip
            heaviest_first = sorted(sizes.items(), key=lambda item: -item[1])
            report.notes.append(f"{engine}: " + ", ".join(f"{key} {size:.2g}" for key, size in heaviest_first))
            needed = sum(sizes[key] for key in ("edge-runtime", "paho-mqtt", "orjson"))
            report.goals += [
                Goal(f"MB of our device code, paho-mqtt and orjson, {engine}", needed, 3.0, at_most=True),
                Goal(f"seconds to the first answer, {engine}", first_s, 0.5, at_most=True),
                Goal(f"MB of the process with the stream, {engine}", streaming / 1e6, limit, at_most=True),
                Goal(f"% of a core without readings, {engine}", idle, 0.5, at_most=True),
                Goal(f"ms of CPU to import our own modules, {engine}", statistics.median(import_ms), 50.0,
                     at_most=True),
            ]  # fmt: skip
    yield report


def _wheel(folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run([*command, "--disable-pip-version-check"], check=True)
    (wheel,) = folder.glob("edge_runtime-*.whl")
    return wheel


def _environment(folder: Path, requirement: str) -> Path:
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", requirement]
    subprocess.run(pip, check=True)
    return python


def _clean() -> dict[str, str]:
    """The caller's environment, without what would keep Python from keeping its bytecode."""
    return {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}


def _told(python: Path, program: str) -> Any:
    with on_first_core():
        done = subprocess.run(
            [str(python), "-c", program], capture_output=True, check=True, cwd=python.parent, env=_clean()
        )
    return json.loads(done.stdout.splitlines()[-1])


def _first_answer(python: Path, folder: Path, variant: str) -> float:
    """Seconds from starting the program to its first line of output."""
    path = folder / f"first-{variant}.toml"
    path.write_text(
        f'[model]\nbundle = "{EXAMPLE / "watch.edge"}"\nunsigned = "allow"\nvariant = "{variant}"\n'
        '[[source]]\ntype = "stdin"\n[[sink]]\ntype = "stdout"\n',
        encoding="utf-8",
    )
    values = [[0.01 * (i % 7), 0.1, 1.0, 0.0, 0.1, 0.2] for i in range(120)]
    message = json.dumps({"key": "w", "t": 1_700_000_000, "values": values}).encode() + b"\n"
    with on_first_core():
        began = time.monotonic()
        process = subprocess.Popen(
            [str(python), "-m", "edge_runtime", "run", str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, cwd=python.parent, env=_clean(),
        )  # fmt: skip
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(message)
    process.stdin.flush()
    line = process.stdout.readline()
    took = time.monotonic() - began
    _, said = process.communicate(timeout=60)
    if b'"label"' not in line:
        raise RuntimeError(f"no answer came: {said.decode(errors='replace')[-1000:]}")
    return took


def _memory(python: Path, folder: Path, engine: str, seconds: int) -> tuple[int, int, float]:
    """Resident bytes without and with the stream, and per cent of a core without it."""
    setting = Setting(folder=folder, net="cnn_s", tflite=engine == "litert")
    with Load() as load:
        path = folder / f"app-{load.port}.toml"
        path.write_text(application(setting, load.port, 5.0), encoding="utf-8")
        with started([str(python), "-m", "edge_runtime", "run", str(path)]) as process:
            load.wait_for_subscriber(timeout_s=60, alive=lambda: process.poll() is None)
            time.sleep(1)
            rest, idle = resident_bytes(process.pid), _busy(process.pid, seconds)
            load.run(demo_like(seconds), process.pid, warm_up=STREAMS, rate=RATE * 2)
            return rest, resident_bytes(process.pid), idle


def _busy(pid: int, seconds: int) -> float:
    began, cpu = time.monotonic(), _cpu_s(pid)
    time.sleep(seconds)
    return 100 * (_cpu_s(pid) - cpu) / (time.monotonic() - began)


def _cpu_s(pid: int) -> float:
    """CPU time of all threads; nanoseconds from the scheduler, where /proc/PID/stat counts hundredths."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text(encoding="ascii").split()[0]) for task in tasks) / 1e9


def _slim(python: Path, sizes: dict[str, float]) -> float:
    """MB on disk after the recipe for images."""
    subprocess.run(["sh", str(SLIM), str(python)], check=True, capture_output=True)
    left: dict[str, int] = _told(python, _WEIGH)
    return sum(left[key] / 1e6 for key in sizes)
