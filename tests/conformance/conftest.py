"""Real servers as child processes, on free ports of the loopback address."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from edge_runtime.base.oip import Array, OipTensor
from edge_runtime.operate.server.batcher import ServedModel
from edge_runtime.operate.server.server import ServeConfig, Server
from tests.conformance import environments
from tests.conformance.servers import known_models as known

START_S = 90.0  # the slowest takes 3 s on an idle machine


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("conformance").addoption(
        "--broker-port",
        type=int,
        help="of an MQTT broker on this machine, to be tried too (tests/conformance/test_brokers.py)",
    )


@dataclass(frozen=True)
class RealServer:
    """A server that offers the known models."""

    name: str
    http: str


def need(environment: str) -> Path:
    """The interpreter of an environment; skips with the command that makes it."""
    if not environments.is_ready(environment):
        if lack := environments.lacks(environment):
            pytest.skip(lack)
        pytest.skip(f"no environment {environment!r}; make it with: {environments.command_for(environment)}")
    return environments.python_of(environment)


def free_ports() -> tuple[int, int]:
    """Two ports that were free a moment ago."""
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        return first.getsockname()[1], second.getsockname()[1]


@contextmanager
def running(name: str, log: Path) -> Iterator[RealServer]:
    """Start a server, wait until its models are ready, and kill it with all its children at the end."""
    python = need(name)
    http, grpc = free_ports()
    libraries = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_config_var('LIBDIR'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    environment = {
        "PATH": os.environ["PATH"],
        "HOME": str(log.parent),  # where some of them leave caches
        "TMPDIR": str(log.parent),
        "LD_LIBRARY_PATH": libraries,  # Triton's Python backend looks for libpython, and dies without it
    }
    script = Path(__file__).parent / "servers" / f"serve_{name}.py"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [python, script, str(http), str(grpc)],
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            env=environment,
            start_new_session=True,
        )
    try:
        url = f"http://127.0.0.1:{http}"
        for model in (known.LINEAR, known.TYPES):
            wait_ready(f"{url}/v2/models/{model}/ready", process, log)
        yield RealServer(name, url)
    finally:
        # The whole group, and not politely: Triton ignores SIGTERM while it waits for its Python stubs.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def wait_ready(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    """Wait for status 200.

    Raises:
        RuntimeError: the server ended or took too long; with the end of its log.
    """
    deadline = time.monotonic() + START_S
    while process.poll() is None and time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.1)
    raise RuntimeError(f"{url} did not become ready; the log ends with:\n{log.read_text(errors='replace')[-3000:]}")


@contextmanager
def running_ours() -> Iterator[RealServer]:
    """Our own server with the same models."""

    def types(inputs: dict[str, Array]) -> dict[str, Array]:
        return {f"out_{name}": inputs[f"in_{name}"] for name in known.TYPED}

    def linear(inputs: dict[str, Array]) -> dict[str, Array]:
        return {"scores": np.asarray(known.linear(inputs["window"]))}

    models = (
        ServedModel(
            name=known.LINEAR,
            inputs=(OipTensor("window", "FP32", (-1, known.CHANNELS, known.SAMPLES)),),
            outputs=(OipTensor("scores", "FP32", (-1, known.CLASSES)),),
            predict=linear,
            max_batch=64,
        ),
        ServedModel(
            name=known.TYPES,
            inputs=tuple(OipTensor(f"in_{name}", name, (-1, 3)) for name in known.TYPED),
            outputs=tuple(OipTensor(f"out_{name}", name, (-1, 3)) for name in known.TYPED),
            predict=types,
            max_batch=64,
        ),
    )
    with Server({model.name: model for model in models}, ServeConfig(port=0)) as server:
        yield RealServer("edge-runtime", server.url)


@pytest.fixture(scope="session", params=["edge-runtime", "triton", "mlserver", "kserve"])
def real_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealServer]:
    """One after the other, each server of the suite."""
    with ExitStack() as stack:
        if request.param == "edge-runtime":
            yield stack.enter_context(running_ours())
        else:
            log = tmp_path_factory.mktemp(request.param) / "log.txt"
            yield stack.enter_context(running(request.param, log))
