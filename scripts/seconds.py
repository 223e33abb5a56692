"""Seconds of CPU of the test suites: the ceiling of each, and the budgets of `make test` and ``.ci/run``.

    python -m scripts.seconds

``scripts/baselines/seconds.txt`` has an entry ``SUITE:FILE`` for each test file of `LISTED_S` and more, and
``SUITE:others`` for the rest. A suite's ceiling is the sum of its entries; ``tests/cpu_seconds.py`` holds its runs
against it; a suite that is not recorded only says what it took. This check holds the sums against the budgets. To
record a suite, rounded up:

    make test-faults ARGS=--write-seconds
"""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Mapping

from scripts.baselines import FOLDER, read

BASELINE = FOLDER / "seconds.txt"
LISTED_S = 5
"""Test files that take less share one entry."""
SLACK = 1.3
"""Runs of one commit differ by less than this."""
BUDGETS = {
    "make test": (("test",), 490),
    ".ci/run": (("test-all", "test-export", "test-faults", "test-page", "test-ray", "test-arm"), 2820),
}
"""Suites that run one after the other, and the CPU seconds that they may take together. Two cores do 120 a minute; the
clock's 4 and 25 minutes hold the setting up and `make check`, too."""
_WORK_S = 0.06
"""What `_work` takes on the machine that the file was written on."""


def ceilings(listed: Mapping[str, int]) -> dict[str, int]:
    """Return the CPU seconds of each suite."""
    sums: dict[str, int] = {}
    for entry, spent_s in listed.items():
        suite = entry.partition(":")[0]
        sums[suite] = sums.get(suite, 0) + spent_s
    return sums


def over_budget(listed: Mapping[str, int]) -> list[str]:
    """Return what is recorded with more than its budget: a line each."""
    sums, found = ceilings(listed), []
    for name, (suites, budget_s) in BUDGETS.items():
        total_s = sum(sums.get(suite, 0) for suite in suites)
        if total_s > budget_s:
            found.append(f"seconds: {name}: {total_s} s of CPU, the budget is {budget_s}: make tests cheaper")
    return found


def faults(
    suite: str, files: Mapping[str, float], total_s: float, *, slower: float, listed: Mapping[str, int] | None = None
) -> list[str]:
    """Hold a run against its ceiling.

    Args:
        suite: the name of the run.
        files: seconds of CPU by test file.
        total_s: seconds of the whole run, which holds collecting, too.
        slower: the factor by which this machine needs more than the one that the ceiling was written on.
        listed: entries of the baseline.

    Returns:
        Nothing where the run keeps its ceiling; else a line that says so, and the files that grew the most.
    """
    listed = read(BASELINE) if listed is None else listed
    allowed_s = ceilings(listed).get(suite, math.inf) * SLACK * slower
    if total_s <= allowed_s:
        return []
    grown = {name: files[name] - listed.get(f"{suite}:{name}", LISTED_S) * slower for name in files}
    worst = sorted(grown, key=lambda name: -grown[name])[:5]
    return [
        f"{suite}: {total_s:.0f} s of CPU, at most {allowed_s:.0f} are allowed here (scripts/baselines/seconds.txt)",
        *(f"  {name}: {files[name]:.0f} s, {grown[name]:.0f} more than listed" for name in worst if grown[name] > 0),
    ]


def write(suite: str, files: Mapping[str, float], total_s: float) -> None:
    """Replace the entries of a suite, rounded up."""
    text = BASELINE.read_text("utf-8").splitlines()
    large = {f"{suite}:{name}": math.ceil(spent_s) for name, spent_s in files.items() if spent_s >= LISTED_S}
    large[f"{suite}:others"] = max(0, math.ceil(total_s - sum(large.values())))
    others = [line for line in text if not line.startswith(("#", f"{suite}:"))]
    entries = sorted([*others, *(f"{name} {spent_s}" for name, spent_s in large.items())])
    BASELINE.write_text("\n".join([*(line for line in text if line.startswith("#")), *entries]) + "\n", "utf-8")


def slower() -> float:
    """Return the factor by which this machine needs more CPU for the same work; at least 1."""
    return max(1.0, min(_work() for _ in range(5)) / _WORK_S)


def _work() -> float:
    """Seconds of CPU of some dictionaries and strings."""
    began = time.process_time()
    table = {str(number): number for number in range(100_000)}
    sum(table[str(number)] for number in range(100_000))
    return time.process_time() - began


def main() -> int:
    """Print the sums, and hold them against the budgets."""
    listed = read(BASELINE)
    sums = ceilings(listed)
    for name, (suites, budget_s) in BUDGETS.items():
        print(f"{name}: {sum(sums.get(suite, 0) for suite in suites)} of {budget_s} s of CPU")
    found = over_budget(listed)
    for fault in found:
        print(fault, file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
