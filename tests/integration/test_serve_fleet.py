"""A fleet before `edge-runtime serve`: many callers, idle ones, slow ones and silent ones, in processes of their own.

What is counted is who was answered. No figure here depends on how fast the machine is.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import orjson
import pytest

from tests import models
from tests.integration.running import PATIENCE_S, Process, environment

CROWD = Path(__file__).with_name("crowd.py")
FILES = 6000


@pytest.fixture(scope="module", autouse=True)
def _files() -> Iterator[None]:
    """Open files for a thousand connections, in this process and its children."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < FILES:
        pytest.skip(f"the system allows {hard} open files, {FILES} are needed")
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, FILES), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return models.tiny_bundle(tmp_path_factory.mktemp("bundle") / "tiny.edge", hop=1)


@contextmanager
def serving(bundle: Path, folder: Path, *options: str) -> Iterator[tuple[Process, int]]:
    """The command, and its port; started with few open files allowed, as many systems do."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    try:
        process = Process(folder, "serve", bundle, "--allow-unsigned", "--port", "0", *options)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    with process:
        process.says("serving tiny on http://127.0.0.1:")
        url = next(word for word in process.out.split() if word.startswith("http"))
        yield process, urlsplit(url).port or 0


class Crowd:
    """Clients of a kind, in a process; see `crowd.py`."""

    def __init__(self, port: int, kind: str, number: int) -> None:
        self._process = subprocess.Popen(
            [sys.executable, CROWD, str(port), kind, str(number)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        assert self._line() == {"ready": number}

    def ask(self, what: str) -> dict[str, Any]:
        """Have something done, and return what came of it."""
        assert self._process.stdin is not None
        self._process.stdin.write(what + "\n")
        self._process.stdin.flush()
        return self._line()

    def _line(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line: dict[str, Any] = orjson.loads(self._process.stdout.readline() or "{}")
        return line

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def crowds(port: int, kinds: Sequence[tuple[str, int]]) -> Iterator[list[Crowd]]:
    made: list[Crowd] = []
    try:
        for kind, number in kinds:
            made.append(Crowd(port, kind, number))
        yield made
    finally:
        for crowd in made:
            crowd.end()


def resident_mb(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmRSS:")[2].split()[0]) / 1024


def threads(pid: int) -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


@pytest.mark.slow
def test_a_thousand_kept_connections_cost_no_thread_and_none_is_starved(bundle: Path, tmp_path: Path) -> None:
    with serving(bundle, tmp_path) as (process, port):
        before = threads(process.pid)
        with crowds(port, [("kept", 1000)]) as (fleet,):
            for _ in range(3):
                assert fleet.ask("all") == {"answered": 1000}
            assert threads(process.pid) <= before + 2
        assert process.running(), process.err


@pytest.mark.slow
def test_slow_and_silent_callers_deny_no_other(bundle: Path, tmp_path: Path) -> None:
    with serving(bundle, tmp_path) as (process, port):
        with crowds(port, [("drip", 500), ("silent", 500), ("kept", 20)]) as (slow, _, honest):
            slow.ask("start")
            for _ in range(5):
                assert honest.ask("all") == {"answered": 20}
                assert honest.ask("new") == {"answered": 20}
        assert process.running(), process.err


@pytest.mark.slow
def test_callers_that_take_all_places_deny_no_other(bundle: Path, tmp_path: Path) -> None:
    with serving(bundle, tmp_path, "--max-connections", "64") as (_, port):
        with crowds(port, [("silent", 500), ("drip", 200), ("kept", 1)]) as (_, slow, honest):
            slow.ask("start")
            for _ in range(20):
                assert honest.ask("new") == {"answered": 1}


@pytest.mark.slow
def test_slow_bodies_cost_bounded_memory(bundle: Path, tmp_path: Path) -> None:
    """Two hundred callers that announce as much as they dare, send most of it, and stop."""
    with serving(bundle, tmp_path) as (process, port):
        with crowds(port, [("kept", 1), ("bodies", 200)]) as (honest, bodies):
            assert honest.ask("all") == {"answered": 1}
            before = resident_mb(process.pid)
            sent = bodies.ask("16000000")  # more than any request of this model
            assert sent["refused"] == 200
            sent = bodies.ask("60000")
            assert sent["sent"] >= 200 * 40_000
            end = time.monotonic() + PATIENCE_S
            while honest.ask("new") != {"answered": 1}:
                assert time.monotonic() < end
            assert resident_mb(process.pid) - before < 64
            assert honest.ask("all") == {"answered": 1}
