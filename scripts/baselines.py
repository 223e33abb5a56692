"""Baselines: lists of known faults under scripts/baselines/, which may only shrink.

A check holds what it found against its baseline: a fault that is not listed fails, and so does a listed one that is
gone or smaller. ``--write`` writes the shorter list; it refuses a longer one.

A line is an entry, or an entry and a number; what follows a ``#`` is a comment, which ``--write`` keeps.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

CHECKOUT = Path(__file__).resolve().parents[1]
FOLDER = CHECKOUT / "scripts/baselines"
PRODUCT = ("edge_runtime", "devices/edge_devices", "export/edge_export")
"""Folders of what is installed."""


def product_files(checkout: Path = CHECKOUT) -> list[Path]:
    """Every Python file of the product, sorted."""
    return sorted(path for folder in PRODUCT for path in (checkout / folder).rglob("*.py"))


def read(path: Path) -> dict[str, int]:
    """Entries of a baseline with their numbers; 1 where a line has none.

    Raises:
        SystemExit: a line is neither.
    """
    entries: dict[str, int] = {}
    for line in path.read_text("utf-8").splitlines():
        match line.partition("#")[0].split():
            case []:
                continue
            case [entry]:
                entries[entry] = 1
            case [entry, number] if number.isdecimal():
                entries[entry] = int(number)
            case _:
                raise SystemExit(f"{path}: {line!r} is not an entry, or an entry and a number")
    return entries


def compare(found: Mapping[str, int], listed: Mapping[str, int]) -> tuple[list[str], list[str]]:
    """Return what is new or larger than listed, and what is gone or smaller: a line each."""

    def line(entry: str) -> str:
        before, now = listed.get(entry), found.get(entry)
        return entry if before is None or now is None else f"{entry}: {now}, listed with {before}"

    worse = [line(entry) for entry in sorted(found) if found[entry] > listed.get(entry, 0)]
    better = [line(entry) for entry in sorted(listed) if found.get(entry, 0) < listed[entry]]
    return worse, better


def check(name: str, found: Mapping[str, int], *, advice: str, arguments: list[str]) -> int:
    """Hold what a check found against ``scripts/baselines/NAME.txt``, and print each difference.

    Args:
        name: of the check's module and of its baseline.
        found: entries with their numbers.
        advice: what to do about a fault that is not listed.
        arguments: of the command line; ``--write`` shrinks the file to what was found.

    Returns:
        The exit code: 0 where both are equal, else 1.
    """
    path = FOLDER / f"{name}.txt"
    listed = read(path)
    if "--write" in arguments:
        return _write(path, found, listed)
    worse, better = compare(found, listed)
    for entry in worse:
        print(f"{name}: {entry}: {advice}", file=sys.stderr)
    for entry in better:
        print(
            f"{name}: {entry}: no longer needed in {path.relative_to(CHECKOUT)}; run: make baselines",
            file=sys.stderr,
        )
    return 1 if worse or better else 0


def _write(path: Path, found: Mapping[str, int], listed: Mapping[str, int]) -> int:
    """Write what was found; a file that was renamed may replace an entry, but neither number nor sum may grow."""
    if len(found) > len(listed) or sum(found.values()) > sum(listed.values()):
        print(f"{path.name}: would grow from {len(listed)} to {len(found)} entries; mend what is new", file=sys.stderr)
        return 1
    lines = path.read_text("utf-8").splitlines()
    comments = {line.split()[0]: line[line.index("#") :] for line in lines if "#" in line and line[0] != "#"}
    head = [line for line in lines if line.startswith("#")]
    for entry in sorted(found):
        number = f" {found[entry]}" if found[entry] != 1 else ""
        head.append(f"{entry}{number}  {comments.get(entry, '')}".rstrip())
    path.write_text("\n".join(head) + "\n", "utf-8")
    return 0
