"""Cells that a spreadsheet would run as a formula: made harmless in every CSV file that is written, and read back.

Names of streams come from all who may send readings, and a person opens the file with a spreadsheet. A cell that begins
as a formula gets an apostrophe in front, which makes it text there (OWASP, CSV Injection); a number stays as it is. A
cell that begins like that with apostrophes gets one more, so that `unguarded` gives back what was written.
"""

from __future__ import annotations

import re

_FORMULA = re.compile("'*[-=+@\t\r\n\uff0d\uff1d\uff0b\uff20]")
"""The last four: the same signs in full width."""


def guarded(cell: str) -> str:
    """Make a cell harmless."""
    if not _FORMULA.match(cell):
        return cell
    try:
        float(cell)
    except ValueError:
        return f"'{cell}"
    return cell


def unguarded(cell: str) -> str:
    """Return what `guarded` was given."""
    return cell[1:] if cell[:1] == "'" and _FORMULA.match(cell) else cell
