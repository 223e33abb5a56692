"""No engine opens a socket, or a file that it was not told to open."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edge_runtime.model import engines
from tests import models

ROOT = Path(__file__).resolve().parents[4]

LOAD_AND_RUN = """
import sys
import numpy as np
from edge_runtime.model import engines
from edge_runtime.model.engines.base import EngineOptions
from edge_runtime.model.engines import onnx as onnx_engine
engine = engines.load(sys.argv[2], open(sys.argv[1], "rb").read(), EngineOptions())
for n in (1, 1, 40):
    engine.run(np.zeros((n, *engine.inputs[0].shape[1:]), np.float32))
engine.close()
"""
NOISY = """
import socket, sys
socket.socket().close()
open(sys.argv[1] + ".written", "w").close()
"""


def _traced(code: str, engine: str, tmp_path: Path) -> tuple[list[str], str]:
    """Sockets opened and files created or opened for writing by a program, and the whole trace."""
    model = tmp_path / "model"
    model.write_bytes(models.tiny_onnx_classifier() if engine == "onnxruntime" else models.tiny_tflite(int8=True))
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    trace = tmp_path / "trace"
    # Neither the variable under test nor CI, which has the same effect, may come from outside.
    kept = {k: v for k, v in os.environ.items() if k in {"PATH", "LD_LIBRARY_PATH", "LANG"}}
    environment = {**kept, "HOME": str(home), "PYTHONPATH": str(ROOT), "PYTHONDONTWRITEBYTECODE": "1"}
    syscalls = "trace=network,open,openat,openat2,creat,mkdir,mkdirat,rename,renameat2,unlink"
    command = ["strace", "-f", "-qq", "-o", str(trace), "-e", syscalls, sys.executable, "-c", code, str(model), engine]
    subprocess.run(command, check=True, env=environment, cwd=tmp_path)
    text = trace.read_text()
    noise = []
    for line in text.splitlines():
        call = re.match(r"\d+\s+(\w+)\(", line)
        if call is None:
            continue
        if call[1].startswith("open") and not re.search(r"O_WRONLY|O_RDWR|O_CREAT|O_TMPFILE", line):
            continue
        # Library loaders open devices and /proc files read-write; those are not files that stay.
        if call[1].startswith("open") and re.search(r'"/(dev|proc)/', line):
            continue
        noise.append(line)
    return noise + [str(path) for path in home.rglob("*")], text


@pytest.fixture
def strace() -> None:
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    if subprocess.run(["strace", "-qq", "true"], capture_output=True, check=False).returncode:
        pytest.skip("strace may not trace here")


@pytest.mark.usefixtures("strace")
@pytest.mark.parametrize("engine", ["onnxruntime", "litert", "tflite-runtime"])
def test_loading_and_running_opens_no_socket_and_writes_no_file(tmp_path: Path, engine: str) -> None:
    if not models.usable(engine):
        pytest.skip(f"{engine} is not installed")
    noise, trace = _traced(LOAD_AND_RUN, engine, tmp_path)
    assert engines.find(engine).package in trace, "the library was not traced"
    assert noise == []


@pytest.mark.usefixtures("strace")
def test_the_trace_sees_a_socket_and_a_file(tmp_path: Path) -> None:
    noise, _ = _traced(NOISY, "none", tmp_path)
    assert any("socket(" in line for line in noise)
    assert any(".written" in line for line in noise)
