"""Lines of the product by room: all of them, and those that hold code (neither blank nor a comment alone).

    python -m scripts.lines

A room past 4,000 lines or a file past 400 is marked: a question at review, not an error.

The ceiling: ``scripts/baselines/lines.txt`` has a number for each wing and package, for the tests, and for the words of
docs, README and changelog. More is an error, and so is less by more than `SLACK`: ``make baselines`` lowers it. To
raise it, edit the file in the commit that needs it, and say in its body ``lines: +N because ...``.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from scripts.baselines import CHECKOUT, FOLDER, PRODUCT, product_files, read

ROOM_LINES = 4000
FILE_LINES = 400
SLACK = 100
"""Lines, or words, below the ceiling that need no lower one."""
CEILING = FOLDER / "lines.txt"


def count(path: Path) -> tuple[int, int]:
    """Return all lines of a file, and those that hold code or text of a docstring."""
    lines = path.read_text("utf-8").splitlines()
    return len(lines), sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in lines)


def room_of(path: Path, checkout: Path = CHECKOUT, depth: int = 2) -> str:
    """Return the folder of a room, right below a wing; of a wing or package themselves for their own files."""
    relative = path.relative_to(checkout).as_posix()
    package = next(package for package in PRODUCT if relative.startswith(f"{package}/"))
    inner = relative.removeprefix(f"{package}/").split("/")[:-1]
    return "/".join([package, *inner[:depth]])


def sizes(checkout: Path = CHECKOUT) -> dict[str, int]:
    """Count what has a ceiling."""
    found = Counter(dict.fromkeys(PRODUCT, 0))
    for path in product_files(checkout):
        found[room_of(path, checkout, depth=1)] += count(path)[0]
    found["tests"] = sum(count(path)[0] for path in (checkout / "tests").rglob("*.py"))
    pages = [*(checkout / "docs").rglob("*.md"), checkout / "README.md", checkout / "CHANGELOG.md"]
    found["words"] = sum(len(path.read_text("utf-8").split()) for path in pages)
    return dict(found)


def ceiling(found: Mapping[str, int], listed: Mapping[str, int]) -> list[str]:
    """Return what is above its ceiling, or far below it: a line each."""
    above = [
        f"lines: {name}: {found[name]}, the ceiling is {listed.get(name, 0)}: before adding, look for what can go"
        for name in found
        if found[name] > listed.get(name, 0)
    ]
    return above + [
        f"lines: {name}: {found[name]}, the ceiling is {listed[name]}; run: make baselines"
        for name in found
        if name in listed and found[name] < listed[name] - SLACK
    ]


def main(arguments: list[str]) -> int:
    """Print the table, and hold the sizes against their ceiling; with ``--write``, lower it."""
    found, listed = sizes(), read(CEILING)
    if "--write" in arguments:
        head = [line for line in CEILING.read_text("utf-8").splitlines() if line.startswith("#")]
        lower = [f"{name} {min(size, listed.get(name, size))}" for name, size in found.items()]
        CEILING.write_text("\n".join([*head, *lower]) + "\n", "utf-8")
        return 0
    total: Counter[str] = Counter()
    held: Counter[str] = Counter()
    long: list[tuple[int, str]] = []
    for path in product_files():
        room = room_of(path)
        lines, code = count(path)
        total[room] += lines
        held[room] += code
        if lines > FILE_LINES:
            long.append((lines, str(path.relative_to(CHECKOUT))))
    print(f"{'room':34}{'lines':>8}{'code':>8}")
    for room in sorted(total):
        mark = f"  more than {ROOM_LINES}" if total[room] > ROOM_LINES else ""
        print(f"{room:34}{total[room]:>8}{held[room]:>8}{mark}")
    print(f"{'all':34}{total.total():>8}{held.total():>8}")
    for lines, name in sorted(long, reverse=True):
        print(f"{name}: {lines} lines, more than {FILE_LINES}")
    print("\n".join(f"{name} {size} of {listed.get(name, 0)}" for name, size in sorted(found.items())))
    faults = ceiling(found, listed)
    for fault in faults:
        print(fault, file=sys.stderr)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
