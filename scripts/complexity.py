"""Complexity: functions whose cognitive complexity is above 15, and files that ruff's limits are off for.

    python -m scripts.complexity [--write]

The functions stand in scripts/baselines/complexity.txt with their complexity, as complexipy counts it (G. A. Campbell,
Cognitive Complexity, 2018). The files stand in pyproject.toml under ``per-file-ignores``; one that needs its line no
longer is an error, since ruff has no such check.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import complexipy

from edge_runtime.base.system import toml
from scripts.baselines import CHECKOUT, PRODUCT, check, product_files

MOST = 15
LIMITS = ("C901", "PLR0913")
"""Branches of a function, and its arguments."""


def complex_functions(files: Iterable[Path], root: Path = CHECKOUT) -> dict[str, int]:
    """Return the complexity of each function that has more than `MOST`, by ``path::name``."""
    found: dict[str, int] = {}
    for path in files:
        for function in complexipy.file_complexity(str(path), with_plans=False).functions:
            if function.complexity > MOST:
                name = f"{path.relative_to(root)}::{function.name}"
                found[name] = max(function.complexity, found.get(name, 0))
    return found


def excused(settings: Mapping[str, Iterable[str]]) -> set[tuple[str, str]]:
    """Return (file, rule) of each limit that is off for one file, out of ``per-file-ignores``."""
    return {(path, rule) for path, rules in settings.items() if "*" not in path for rule in rules if rule in LIMITS}


def per_file_ignores() -> dict[str, list[str]]:
    """Return the ``per-file-ignores`` of pyproject.toml."""
    ignores: dict[str, list[str]] = _lint()["per-file-ignores"]
    return ignores


def beyond_limits() -> set[tuple[str, str]]:
    """Return (file, rule) of each limit of pyproject.toml that a file does not keep, as ruff finds it."""
    lint = _lint()
    options = [
        f"lint.mccabe.max-complexity={lint['mccabe']['max-complexity']}",
        f"lint.pylint.max-args={lint['pylint']['max-args']}",
        'target-version="py311"',
    ]
    command = [sys.executable, "-m", "ruff", "check", "--isolated", "--exit-zero", "--output-format", "json"]
    command += ["--select", ",".join(LIMITS), *(part for option in options for part in ("--config", option)), *PRODUCT]
    answer = subprocess.run(command, cwd=CHECKOUT, capture_output=True, check=True).stdout
    return {(str(Path(one["filename"]).relative_to(CHECKOUT)), one["code"]) for one in json.loads(answer)}


def _lint() -> dict[str, Any]:
    lint: dict[str, Any] = toml.loads((CHECKOUT / "pyproject.toml").read_text("utf-8"))["tool"]["ruff"]["lint"]
    return lint


def main() -> int:
    """Compare both with their lists."""
    advice = f"more complex than {MOST} or than listed; split it, or make it a table"
    code = check("complexity", complex_functions(product_files()), advice=advice, arguments=sys.argv[1:])
    for path, rule in sorted(excused(per_file_ignores()) - beyond_limits()):
        print(f"complexity: {path} keeps {rule}: take it out of per-file-ignores in pyproject.toml", file=sys.stderr)
        code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
