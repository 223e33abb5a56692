"""The order in which test files are handed out."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

SLOW = "import pytest\n@pytest.mark.slow\ndef test_{name}(): pass\n"
FAST = "def test_{name}(): pass\n"


def test_files_with_most_slow_tests_come_first_and_the_others_keep_their_order(tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    (tmp_path / "test_a.py").write_text(FAST.format(name="a"))
    (tmp_path / "test_b.py").write_text(FAST.format(name="plain") + SLOW.format(name="b"))
    (tmp_path / "test_c.py").write_text(FAST.format(name="c"))
    (tmp_path / "test_d.py").write_text(SLOW.format(name="d") + SLOW.format(name="e"))
    options = ["-p", "tests.long_files_first", "-p", "no:cacheprovider", "--collect-only", "-q"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=120, check=True,
    )  # fmt: skip
    found = [line.rpartition("::")[2] for line in done.stdout.splitlines() if "::" in line]
    assert found == ["test_d", "test_e", "test_plain", "test_b", "test_a", "test_c"]
