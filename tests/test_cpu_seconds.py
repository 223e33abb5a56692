"""Guards of CPU: slow tests that are not marked are named, and a suite above its ceiling fails."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from scripts import seconds

pytest_plugins = ["pytester"]

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
    command = [sys.executable, "-m", "pytest", "-p", "tests.cpu_seconds", "-p", "no:cacheprovider", "-rA", str(folder)]
    plain = {name: value for name, value in os.environ.items() if name != "CI"}  # where it is set, messages come twice
    done = subprocess.run(
        [*command, *options], cwd=ROOT, env=plain, capture_output=True, text=True, timeout=120, check=False
    )
    return done.stdout


@pytest.mark.slow
def test_a_test_over_the_limit_is_named_unless_it_is_marked(tmp_path: Path) -> None:
    said = outcomes(tmp_path, "--cpu-limit", "0.3")
    assert "4 passed" in said
    assert re.findall(r"::(\w+) took .* s of CPU", said) == ["test_busy", "test_busy_child"]


@pytest.mark.slow
def test_workers_tell_what_their_tests_took(tmp_path: Path) -> None:
    said = outcomes(tmp_path, "--cpu-limit", "0.3", "-n", "2")
    assert set(re.findall(r"::(\w+) took .* s of CPU", said)) == {"test_busy", "test_busy_child"}


@pytest.mark.slow
def test_without_a_limit_nothing_is_said(tmp_path: Path) -> None:
    said = outcomes(tmp_path)
    assert "4 passed" in said
    assert "s of CPU" not in said


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_seconds_of_all_processes_are_those_of_the_suite(tmp_path: Path, workers: str) -> None:
    said = outcomes(tmp_path, "--suite", "not-recorded", "-n", workers)
    found = re.search(r"not-recorded: (\d+) s of CPU", said)
    assert found
    assert int(found[1]) >= 1


LISTED = {"test:tests/test_a.py": 10, "test:others": 20, "test-all:others": 100}


def test_a_run_fails_above_its_ceiling_and_what_grew_is_named(pytester: pytest.Pytester) -> None:
    (pytester.path / "seconds.txt").write_text("some:others 0\n")
    pytester.makepyfile("def test_it():\n    sum(range(10**6))\n")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(seconds, "BASELINE", pytester.path / "seconds.txt")
        found = pytester.runpytest_inprocess("-p", "tests.cpu_seconds", "-p", "no:cacheprovider", "--suite", "some")
    found.assert_outcomes(passed=1)
    assert found.ret == pytest.ExitCode.TESTS_FAILED
    found.stdout.fnmatch_lines(["some: * s of CPU, at most 0 are allowed here (scripts/baselines/seconds.txt)"])


def test_a_run_may_take_its_ceiling_and_some_more_on_a_slower_machine() -> None:
    files = {"tests/test_a.py": 20.0, "tests/test_b.py": 16.0}
    assert seconds.ceilings(LISTED) == {"test": 30, "test-all": 100}
    assert seconds.faults("test", files, 38.0, slower=1.0, listed=LISTED) == []
    assert seconds.faults("test", files, 60.0, slower=2.0, listed=LISTED) == []
    assert seconds.faults("test", files, 40.0, slower=1.0, listed=LISTED) == [
        "test: 40 s of CPU, at most 39 are allowed here (scripts/baselines/seconds.txt)",
        "  tests/test_b.py: 16 s, 11 more than listed",
        "  tests/test_a.py: 20 s, 10 more than listed",
    ]


def test_a_suite_is_recorded_rounded_up_and_the_others_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "seconds.txt"
    path.write_text("# head\ntest:gone 7\ntest-all:others 100\n")
    monkeypatch.setattr(seconds, "BASELINE", path)
    seconds.write("test", {"tests/test_a.py": 9.2, "tests/test_b.py": 4.9}, 20.5)
    assert path.read_text() == "# head\ntest-all:others 100\ntest:others 11\ntest:tests/test_a.py 10\n"


def test_more_than_the_budget_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seconds, "BUDGETS", {"make test": (("test",), 29), "push": (("test-all", "faults"), 100)})
    assert seconds.over_budget(LISTED) == ["seconds: make test: 30 s of CPU, the budget is 29: make tests cheaper"]
