"""Option ``--cpu-limit``: names the tests that should be marked slow, after the run.

It fails none: how much CPU time the same work takes depends on the machine and on what runs beside it.
"""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest

SPENT = "cpu_s"
"""Property of a test's report: seconds of CPU."""


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-limit",
        type=float,
        metavar="SECONDS",
        help="name the tests that took more CPU time and are not marked slow",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    before_s = _cpu_s()
    try:
        yield
    finally:
        if item.get_closest_marker("slow") is None:
            item.user_properties.append((SPENT, _cpu_s() - before_s))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    limit_s = config.getoption("--cpu-limit")
    if limit_s is None:
        return
    for reports in terminalreporter.stats.values():
        for report in reports:
            spent_s = dict(getattr(report, "user_properties", ())).get(SPENT, 0.0)
            if getattr(report, "when", "") == "call" and spent_s > limit_s:
                terminalreporter.write_line(
                    f"{report.nodeid} took {spent_s:.1f} s of CPU: make it cheaper, or mark it: @pytest.mark.slow"
                )


def _cpu_s() -> float:
    """Seconds of CPU of this process and of the child processes that it has waited for."""
    return sum(os.times()[:4])
