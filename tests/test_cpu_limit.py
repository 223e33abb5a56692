"""The guard of the fast tests names what is slow and is not marked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

TESTS = """
import subprocess
import sys
import time

import pytest

BUSY = "import time\\nwhile time.process_time() < 0.4: pass"


def busy():
    until = time.process_time() + 0.4
    while time.process_time() < until:
        pass


def test_busy():
    busy()


def test_busy_child():
    subprocess.run([sys.executable, "-c", BUSY], check=True)


@pytest.mark.slow
def test_busy_and_marked():
    busy()


def test_waits():
    time.sleep(0.4)
"""


def outcomes(folder: Path, *options: str) -> str:
    """What pytest says of the tests, with the guard loaded."""
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    (folder / "test_it.py").write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-p", "tests.cpu_limit", "-p", "no:cacheprovider", "-rA", str(folder)]
    plain = {name: value for name, value in os.environ.items() if name != "CI"}  # where it is set, messages come twice
    done = subprocess.run(
        [*command, *options], cwd=ROOT, env=plain, capture_output=True, text=True, timeout=120, check=False
    )
    return done.stdout


def test_a_test_over_the_limit_is_named_unless_it_is_marked(tmp_path: Path) -> None:
    said = outcomes(tmp_path, "--cpu-limit", "0.3")
    assert "4 passed" in said
    assert re.findall(r"::(\w+) took .* s of CPU", said) == ["test_busy", "test_busy_child"]


def test_workers_tell_what_their_tests_took(tmp_path: Path) -> None:
    said = outcomes(tmp_path, "--cpu-limit", "0.3", "-n", "2")
    assert set(re.findall(r"::(\w+) took .* s of CPU", said)) == {"test_busy", "test_busy_child"}


def test_without_a_limit_nothing_is_said(tmp_path: Path) -> None:
    said = outcomes(tmp_path)
    assert "4 passed" in said
    assert "s of CPU" not in said
