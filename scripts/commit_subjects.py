"""Commit subjects: ``area: verb object`` in at most 72 characters, in words that a later reader would search.

    python -m scripts.commit_subjects

Looks at every commit after `BASE`, merges too (``merge: import contracts``). One after `BODIES` that changes more than
`SMALL` lines has a body that says why. Does nothing where there is no git checkout, or where it is too shallow.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from scripts.baselines import CHECKOUT

BASE = "7d68005ada3b87ef7173f4379056607583198c30"
"""The last commit before this rule."""
BODIES = "34189d48c05c5b640e9d2964c650e581759965d9"
"""The last commit before the rule on bodies."""
MOST = 72
SMALL = 30
_SHAPE = re.compile(r"(merge: \S|[a-z][\w./ ,-]*: [a-z][a-z-]* \S).*[^.]")


def wrong(subject: str) -> str:
    """Return what is wrong with a subject; empty if nothing is."""
    if len(subject) > MOST:
        return f"{len(subject)} characters, at most {MOST} are allowed"
    if not _SHAPE.fullmatch(subject):
        return "not of the form 'area: verb object' in lower case, without a full stop"
    return ""


def subjects(checkout: Path = CHECKOUT, base: str = BASE) -> list[tuple[str, str]]:
    """Return (short hash, subject) of the commits after `base`; empty where git cannot tell."""
    command = ["git", "-C", str(checkout), "log", "--ancestry-path", "--format=%h %s", f"{base}..HEAD"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError:
        return []
    if done.returncode:
        return []
    return [(line.partition(" ")[0], line.partition(" ")[2]) for line in done.stdout.splitlines()]


def bare(checkout: Path = CHECKOUT, base: str = BODIES) -> list[str]:
    """Return the short hashes of commits after `base` that change more than `SMALL` lines and say nothing of why."""
    log = [
        "git",
        "-C",
        str(checkout),
        "log",
        "--no-merges",
        "--shortstat",
        "--format=%x00%h%x01%b%x01",
        f"{base}..HEAD",
    ]
    done = subprocess.run(log, capture_output=True, text=True, check=False)
    found = []
    for entry in done.stdout.split("\0")[1:] if not done.returncode else []:
        commit, body, changed = entry.split("\1")
        if not body.strip() and sum(map(int, re.findall(r"(\d+) (?:ins|del)", changed))) > SMALL:
            found.append(commit)
    return found


def main() -> int:
    """Print what is wrong with each commit."""
    code = 0
    for commit in bare():
        print(f"commit_subjects: {commit} changes over {SMALL} lines: say why in a body", file=sys.stderr)
        code = 1
    for commit, subject in subjects():
        if why := wrong(subject):
            print(f"commit_subjects: {commit} {subject!r}: {why}", file=sys.stderr)
            code = 1
    return code


if __name__ == "__main__":
    sys.exit(main())
