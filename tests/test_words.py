"""Words of the product: retired terms, banned words and docstrings that open with a question, counted per file.

The counts in ``words_baseline.json`` may only shrink: more than its count fails a file, and so does less, until the
baseline is lowered by ``python -m tests.test_words``, which prints what it raises, if anything.
"""

from __future__ import annotations

import ast
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parent.parent
BASELINE: Final = Path(__file__).with_name("words_baseline.json")
BANNED: Final = re.compile(
    r"\b(?:nobody|somebody|whoever|so many|so manieth|anew|spoilt|by itself|lets? go|goes its way|stands at)\b",
    re.IGNORECASE,
)
RETIRED: Final = re.compile(
    r"\b(?:Link(?=\()|line-ups?|Lineup|rungs?|Rung|levers?|Lever|vitals|Vitals|JournalConfig|JournalFile|dialler|Dialler"
    r"|Reception|Depot|depot|Surroundings|end_turn|each_turn|after_turn|model_rung|journal_(?!mode|size_limit)\w+"
    r"|Lessons|lessons|Shipment|Sets(?=\()|read_sets|Judged|Survey|Wishes|Novelty|novelty"
    r"|Disturbance|Disturbed|GateFigures|gate_figures)\b"
)
QUESTION: Final = re.compile(r"(?:What|How|Who|Whose|Which|Whether|Why|When|Where)\b")
IN_QUOTES: Final = re.compile(rf'"""\s*{QUESTION.pattern}')

CLEAN: Final = (
    "README.md",
    "benchmarks/",
    "docs/",
    "examples/",
    "export/edge_export/build.py",
    "export/edge_export/cli/",
    "export/edge_export/data/",
    "export/edge_export/metrics.py",
    "export/edge_export/package/",
    "export/edge_export/recipe/splits.py",
    "export/edge_export/step_cache.py",
    "export/edge_export/graph/tflite/",
    "scripts/",
)
"""Rooms without a fault: the baseline may list none of their files again."""


def counts(text: str, *, python: bool) -> dict[str, int]:
    """Count banned words, retired terms and, in Python, docstrings that open with a question."""
    found = {"banned": len(BANNED.findall(text)), "retired": len(RETIRED.findall(text))}
    found["questions"] = sum(1 for _ in questions(text)) if python else 0
    return {name: count for name, count in found.items() if count}


def questions(source: str) -> Iterator[str]:
    """Yield the first lines of docstrings that open with a question word."""
    if not IN_QUOTES.search(source):
        return  # parsing every file takes three seconds
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            first = (ast.get_docstring(node) or "").partition("\n")[0]
            if QUESTION.match(first):
                yield first


def product() -> dict[str, dict[str, int]]:
    """Count over all files of the product: code, tools and documents, without tests and the changelog."""
    listed = subprocess.run(
        ["git", "ls-files", "*.py", "*.md", "*.toml"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode:
        pytest.skip("not a git checkout")
    found = {}
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if name.startswith(("tests/", "locks/")) or name == "CHANGELOG.md" or not path.is_file():
            continue
        if one := counts(path.read_text("utf-8"), python=path.suffix == ".py"):
            found[name] = one
    return found


def changes(found: dict[str, dict[str, int]], known: dict[str, dict[str, int]]) -> list[str]:
    """Compare counts with the baseline, a line for each difference."""
    lines = []
    for name in sorted({*found, *known}):
        for kind in ("banned", "retired", "questions"):
            here, listed = found.get(name, {}).get(kind, 0), known.get(name, {}).get(kind, 0)
            if here > listed:
                lines.append(f"{name}: {here} {kind}, {listed} allowed: see docs/glossary.md and CONTRIBUTING.md")
            elif here < listed:
                lines.append(f"{name}: {here} {kind}, {listed} listed: lower the baseline: python -m tests.test_words")
    return lines


@pytest.mark.slow
def test_no_file_has_more_banned_words_than_its_baseline() -> None:
    differences = changes(product(), json.loads(BASELINE.read_text("utf-8")))
    assert not differences, "\n" + "\n".join(differences)


def test_rooms_without_a_fault_have_no_baseline_entry() -> None:
    listed = [name for name in json.loads(BASELINE.read_text("utf-8")) if name.startswith(CLEAN)]
    assert not listed, f"mend these files instead of listing them: {', '.join(listed)}"


def test_every_room_without_a_fault_has_files() -> None:
    names = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False
    ).stdout.splitlines()
    assert [room for room in CLEAN if names and not any(name.startswith(room) for name in names)] == []


def test_banned_words_retired_terms_and_questions_are_found() -> None:
    text = '"""What this is."""\n\n\ndef f() -> None:\n    """Whether nobody begins anew."""\n    x = Lineup\n'
    assert counts(text, python=True) == {"banned": 2, "retired": 1, "questions": 2}
    assert counts("A clean page with a whole sentence.", python=False) == {}


def test_a_count_above_and_one_below_the_baseline_are_both_named() -> None:
    more, less = changes({"a.py": {"banned": 2}, "b.md": {}}, {"a.py": {"banned": 1}, "b.md": {"retired": 3}})
    assert "a.py: 2 banned, 1 allowed" in more
    assert "b.md: 0 retired, 3 listed: lower the baseline" in less


if __name__ == "__main__":
    now = product()
    before = json.loads(BASELINE.read_text("utf-8")) if BASELINE.exists() else {}
    print("\n".join(line for line in changes(now, before) if "allowed" in line))
    rows = [f"{json.dumps(name)}: {json.dumps(one)}" for name, one in sorted(now.items())]  # a line each, to merge well
    BASELINE.write_text("{\n" + ",\n".join(rows) + "\n}\n", "utf-8")
