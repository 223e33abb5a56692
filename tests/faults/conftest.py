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
from dataclasses import dataclass, field
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")
PUSH_SEED = 20261121


@dataclass(frozen=True)
class Tier:
    """How much is tried: `tier(push, long)` is one of the two."""

    long: bool

    def __call__(self, push: int, long: int) -> int:
        return long if self.long else push


@dataclass
class Figures:
    """What was measured, by row of docs/reliability.md; printed at the end of the run."""

    lines: list[str] = field(default_factory=list)

    def note(self, row: str, text: str) -> None:
        self.lines.append(f"{row:<4}{text}")


_FIGURES = pytest.StashKey[Figures]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("faults")
    group.addoption("--seed", type=int, help="of every random fault test (default: fixed; with --long a new one)")
    group.addoption("--long", action="store_true", help="the long tier: many more cases, and the tests marked long")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: only in the long tier (--long, make soak)")
    config.stash[_FIGURES] = Figures()
    if config.getoption("--seed") is None:
        config.option.seed = random.SystemRandom().randrange(2**32) if config.getoption("--long") else PUSH_SEED


def pytest_report_header(config: pytest.Config) -> str:
    tier = "long" if config.getoption("--long") else "push"
    return f"faults: tier {tier}, seed {config.getoption('--seed')} (again with --seed {config.getoption('--seed')})"


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not config.getoption("--long"):
        for item in items:
            if item.get_closest_marker("long"):
                item.add_marker(pytest.mark.skip(reason="long tier: make soak"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    if lines := config.stash[_FIGURES].lines:
        terminalreporter.section(f"figures, seed {config.getoption('--seed')}")
        for line in lines:
            terminalreporter.line(line)


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


@pytest.fixture
def tier(request: pytest.FixtureRequest) -> Tier:
    """Every push, or the long tier."""
    return Tier(bool(request.config.getoption("--long")))


class Note:
    """Notes a figure under a row, with the seconds that the test took so far."""

    def __init__(self, figures: Figures) -> None:
        self._figures = figures
        self._began = time.monotonic()

    def __call__(self, row: str, text: str) -> None:
        self._figures.note(row, f"{text} ({time.monotonic() - self._began:.0f} s)")


@pytest.fixture
def note(request: pytest.FixtureRequest) -> Note:
    """``note("R2", "5,012 images, 0 lost")``: a line of the summary."""
    return Note(request.config.stash[_FIGURES])


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
