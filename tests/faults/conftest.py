"""What every fault test may ask for: a seed, a tier, and a place for its figures.

::

    make test-faults                          every push: a fixed seed, so that two runs of one commit do the same
    make test-faults ARGS="--seed 7 -k kill"
    make soak                                 the long tier: a new seed, printed, and marked tests too
"""

from __future__ import annotations

import random
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
PUSH_SEED = 20261121


class Figures:
    """What was measured, by row of docs/reliability.md; printed at the end of the run.

    The lines travel in the tests' reports, since a test may run in another process than the summary (pytest-xdist).
    """

    PROPERTY = "figure"

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._lines: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "teardown":
            self._lines += [str(line) for name, line in report.user_properties if name == self.PROPERTY]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._lines:
            terminalreporter.section(f"figures, seed {self._config.getoption('--seed')}")
            for line in self._lines:
                terminalreporter.line(line)


def pytest_addoption(parser: pytest.Parser) -> None:
    help_text = "of every random fault test (default: fixed; with --long a new one)"
    parser.getgroup("faults").addoption("--seed", type=int, help=help_text)


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Figures(config), "figures")
    if config.getoption("--seed") is None:
        config.option.seed = random.SystemRandom().randrange(2**32) if config.getoption("--long") else PUSH_SEED


def pytest_report_header(config: pytest.Config) -> str:
    tier = "long" if config.getoption("--long") else "push"
    return f"faults: tier {tier}, seed {config.getoption('--seed')} (again with --seed {config.getoption('--seed')})"


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """Of this run; shown when the test fails."""
    seed: int = request.config.getoption("--seed")
    print(f"seed {seed}")
    return seed


@pytest.fixture
def rng(seed: int) -> random.Random:
    """Seeded with `seed`."""
    return random.Random(seed)


@pytest.fixture
def memory() -> Iterator[Path]:
    """An empty folder in memory, for thousands of files whose flushing proves nothing."""
    with tempfile.TemporaryDirectory(prefix="edge-faults-", dir=MEMORY if MEMORY.is_dir() else None) as folder:
        yield Path(folder)


class Note:
    """Notes a figure under a row, with the seconds that the test took so far."""

    def __init__(self, test: pytest.Item) -> None:
        self._test = test
        self._began = time.monotonic()

    def __call__(self, row: str, text: str) -> None:
        line = f"{row:<4}{text} ({time.monotonic() - self._began:.0f} s)"
        self._test.user_properties.append((Figures.PROPERTY, line))


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Note:
    """``note("R2", "5,012 images, 0 lost")``: a line of the summary."""
    return Note(request.node)


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 1 MiB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", disk], capture_output=True, text=True, check=False
    )
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here (needs root): {mounted.stderr.strip()}")
    yield disk
    subprocess.run(["umount", disk], check=True)
