"""Plugin: seconds of CPU that tests take, their child processes included.

``--cpu-limit SECONDS`` names tests that should be marked slow. It fails none.

``--suite NAME`` holds the whole run against its ceiling in ``scripts/baselines/seconds.txt``, and fails it above: a
suite gets slower by a second at a time, and no single test is to blame. It counts CPU, not the clock, so what else runs
on the machine matters little; on a slower processor the ceiling is as much higher. ``--write-seconds`` records what the
files of the suite took.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Generator

import pytest

from scripts import seconds

_BEFORE = pytest.StashKey[float]()


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("seconds of CPU")
    group.addoption(
        "--cpu-limit",
        type=float,
        metavar="SECONDS",
        help="name the tests that took more CPU time and are not marked slow",
    )
    group.addoption("--suite", metavar="NAME", help="fail where the run takes more CPU time than its recorded ceiling")
    group.addoption("--write-seconds", action="store_true", help="record what the files of --suite took")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Seconds(config), "seconds")


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    item.config.stash[_BEFORE] = _cpu_s()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    now = _cpu_s()
    report.__dict__["cpu_s"] = now - item.config.stash[_BEFORE]  # pytest-xdist hands on what an extra attribute holds
    item.config.stash[_BEFORE] = now
    return report


class Seconds:
    """Sums up what the reports say, which may come from other processes, and judges at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._limit_s: float | None = config.getoption("--cpu-limit")
        self._suite: str | None = config.getoption("--suite")
        self._write: bool = config.getoption("--write-seconds")
        self._files: Counter[str] = Counter()
        self._unmarked: list[tuple[str, float]] = []
        self._session: pytest.Session | None = None

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        spent_s = float(getattr(report, "cpu_s", 0.0))
        self._files[report.nodeid.partition("::")[0]] += spent_s  # type: ignore[assignment]
        if self._limit_s and report.when == "call" and spent_s > self._limit_s and "slow" not in report.keywords:
            self._unmarked.append((report.nodeid, spent_s))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for test, spent_s in self._unmarked:
            terminalreporter.write_line(
                f"{test} took {spent_s:.1f} s of CPU: make it cheaper, or mark it: @pytest.mark.slow"
            )
        if self._suite is None or self._session is None:
            return
        total_s = _cpu_s()  # by now the processes of pytest-xdist have ended, so they count
        if self._write:
            seconds.write(self._suite, self._files, total_s)
        faults = seconds.faults(self._suite, self._files, total_s, slower=seconds.slower())
        for line in faults or [f"{self._suite}: {total_s:.0f} s of CPU"]:
            terminalreporter.write_line(line, red=bool(faults))
        if faults and self._session.exitstatus == pytest.ExitCode.OK:
            self._session.exitstatus = pytest.ExitCode.TESTS_FAILED


def _cpu_s() -> float:
    """Seconds of CPU of this process and of the child processes that it has waited for."""
    return sum(os.times()[:4])
