"""Lines of the product by room: all of them, and those that hold code (neither blank nor a comment alone).

    python -m scripts.lines

A room past 4,000 lines or a file past 400 is marked: a question at review, not an error.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

from scripts.baselines import CHECKOUT, PRODUCT, product_files

ROOM_LINES = 4000
FILE_LINES = 400


def count(path: Path) -> tuple[int, int]:
    """Return all lines of a file, and those that hold code or text of a docstring."""
    lines = path.read_text("utf-8").splitlines()
    return len(lines), sum(bool(line.strip()) and not line.lstrip().startswith("#") for line in lines)


def room_of(path: Path, checkout: Path = CHECKOUT) -> str:
    """Return the folder right below a package; the package itself for its own files."""
    relative = path.relative_to(checkout).as_posix()
    package = next(package for package in PRODUCT if relative.startswith(f"{package}/"))
    inner = relative.removeprefix(f"{package}/").split("/")
    return f"{package}/{inner[0]}" if len(inner) > 1 else package


def main() -> int:
    """Print the table."""
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
    return 0


if __name__ == "__main__":
    sys.exit(main())
