"""Command line of the scripts that write a page of docs/ from the code."""

from __future__ import annotations

import sys
from pathlib import Path


def print_or_write(page: Path, text: str) -> None:
    """Print a page, or write it where the command line says ``--write``."""
    if sys.argv[1:] == ["--write"]:
        page.write_text(text, "utf-8")
    else:
        sys.stdout.write(text)
