"""The programs of the comparison: how each is started, and what it needs."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from benchmarks.peers.environments import FOLDER, ROOT, command_for, is_ready, python_of
from benchmarks.programs import Program, Setting

HERE: Final = Path(__file__).parent
BASE: Final = "paho loop"
CPP: Final = FOLDER / "peer-cpp" / "loop"


@dataclass(frozen=True)
class Peer(Program):
    """A program that another client carries."""

    start: Callable[[int, Path], list[str]] = lambda _port, _model: []

    def command(self, setting: Setting, port: int) -> list[str]:
        return self.start(port, setting.model)


def _python(name: str) -> Callable[[int, Path], list[str]]:
    module = f"benchmarks.peers.{name.removeprefix('peer-')}_loop"
    return lambda port, model: [
        "env", f"PYTHONPATH={ROOT}", str(python_of(name)), "-m", module, "--port", str(port), "--model", str(model)
    ]  # fmt: skip


def _node_js(port: int, model: Path) -> list[str]:
    modules = FOLDER / "peer-mqttjs" / "node_modules"
    return ["env", f"NODE_PATH={modules}", "node", str(HERE / "loop.js"), "--port", str(port), "--model", str(model)]


def _node_red(port: int, model: Path) -> list[str]:
    modules = FOLDER / "peer-node-red" / "node_modules"
    return [
        "env", f"NODE_PATH={modules}", f"BENCH_PORT={port}", f"BENCH_MODEL={model}",
        "node", str(modules / "node-red" / "red.js"), "--userDir", str(model.parent / "node-red"),
        "--settings", str(HERE / "node_red" / "settings.js"), str(HERE / "node_red" / "flow.json"),
    ]  # fmt: skip


def _cpp(port: int, model: Path) -> list[str]:
    return [str(CPP), "--port", str(port), "--model", str(model), "--library", str(onnx_library())]


def onnx_library() -> Path:
    """The shared library in our own environment's ONNX Runtime."""
    found = find_spec("onnxruntime")
    assert found is not None
    assert found.origin is not None
    return next((Path(found.origin).parent / "capi").glob("libonnxruntime.so.*"))


ENVIRONMENTS: Final[dict[str, tuple[str, Callable[[int, Path], list[str]]]]] = {
    "gmqtt": ("peer-gmqtt", _python("peer-gmqtt")),
    "aiomqtt": ("peer-aiomqtt", _python("peer-aiomqtt")),
    "FastStream": ("peer-faststream", _python("peer-faststream")),
    "Bytewax": ("peer-bytewax", _python("peer-bytewax")),
    "mqtt.js": ("peer-mqttjs", _node_js),
    "Node-RED": ("peer-node-red", _node_red),
}


def build_cpp() -> str:
    """Compile the C++ program; returns why it could not be, one line."""
    compiler = shutil.which("g++")
    if compiler is None:
        return "needs g++, which is not on the path"
    source = HERE / "loop.cpp"
    if CPP.is_file() and CPP.stat().st_mtime >= source.stat().st_mtime:
        return ""
    CPP.parent.mkdir(parents=True, exist_ok=True)
    command = [compiler, "-O2", "-o", str(CPP), str(source), "-lmosquitto", "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return f"g++ could not build it: {done.stderr.strip().splitlines()[0]}" if done.returncode else ""


def available() -> tuple[list[Program], dict[str, str]]:
    """Return what can be run here, ours and the hand-written loop first, and why the others cannot."""
    programs: list[Program] = [Program("edge-runtime", "edge-runtime"), Program(BASE, "handwritten")]
    missing: dict[str, str] = {}
    if why := build_cpp():
        missing["C++ libmosquitto"] = why
    else:
        programs.append(Peer("C++ libmosquitto", "peer", start=_cpp))
    for name, (environment, start) in ENVIRONMENTS.items():
        if is_ready(environment):
            programs.append(Peer(name, "peer", start=start))
        else:
            missing[name] = f"not installed; {Path(sys.executable).name} {command_for(environment).partition(' ')[2]}"
    return programs, missing
