"""Option ``--cpu-limit``: keeps the fast tests fast. CPU time is counted, so a busy machine fails nothing."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--cpu-limit",
        type=float,
        metavar="SECONDS",
        help="CPU time of a test that is not marked slow; more is a failure",
    )


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None]:
    before_s = _cpu_s()
    yield
    spent_s = _cpu_s() - before_s
    limit_s = item.config.getoption("--cpu-limit")
    if limit_s is not None and spent_s > limit_s and item.get_closest_marker("slow") is None:
        pytest.fail(f"took {spent_s:.1f} s of CPU: make it cheaper, or mark it: @pytest.mark.slow", pytrace=False)


def _cpu_s() -> float:
    """Seconds of CPU of this process and of the child processes that it has waited for."""
    return sum(os.times()[:4])
