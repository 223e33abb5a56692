"""Duplicates: runs of six lines that stand in the product more than once.

    python -m scripts.duplicates [--write]

Lines are compared without their indentation; imports, comments, blank lines and lone brackets do not count. An entry
is the files that share text (``a.py=b.py``; ``a.py`` alone repeats itself), its number that of shared runs.
"""

from __future__ import annotations

import ast
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

from scripts.baselines import CHECKOUT, check, product_files

RUN = 6
_LEAST = 4
"""Characters of a line that counts."""


def duplicates(files: Iterable[Path], root: Path = CHECKOUT) -> dict[str, int]:
    """Return the number of shared runs by the files that share them."""
    places: defaultdict[tuple[str, ...], list[str]] = defaultdict(list)
    for path in files:
        lines = list(_lines(path))
        for start in range(len(lines) - RUN + 1):
            places[tuple(lines[start : start + RUN])].append(str(path.relative_to(root)))
    return Counter("=".join(sorted(set(names))) for names in places.values() if len(names) > 1)


def _lines(path: Path) -> Iterator[str]:
    text = path.read_text("utf-8")
    imports = {
        number
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    for number, line in enumerate(text.splitlines(), 1):
        bare = line.strip()
        if len(bare) >= _LEAST and not bare.startswith("#") and number not in imports:
            yield bare


def main() -> int:
    """Compare what is repeated with the baseline."""
    advice = "the same six lines stand there more than once; write them once"
    return check("duplicates", duplicates(product_files()), advice=advice, arguments=sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
