"""Set-up that was interrupted goes on when it is asked again."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).resolve().parents[1]


@pytest.mark.slow
def test_an_environment_whose_pip_was_cut_off_gets_a_new_one_and_keeps_the_rest(tmp_path: Path) -> None:
    """pip replaces itself first; Ctrl-C there left one that ended in an ImportError, in every later `make`, too."""
    shutil.copy(CHECKOUT / "Makefile", tmp_path)
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks/build.txt").touch()
    environment = tmp_path / "environment"
    venv.create(environment, with_pip=False)
    packages = environment / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    for file in ("pip/__init__.py", "pip-99.0.dist-info/METADATA", "numpy/__init__.py"):
        (packages / file).parent.mkdir()
        (packages / file).write_text("Metadata-Version: 2.1\nName: pip\nVersion: 99.0\n" if "METADATA" in file else "")

    made = subprocess.run(
        ["make", "VENV=environment", f"PYTHON={sys.executable}", "new=:", "environment/.build"],
        cwd=tmp_path,
        # Without what the make that runs the tests has set.
        env={name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS")},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )

    assert made.returncode == 0, made.stdout + made.stderr
    works = subprocess.run(
        [environment / "bin/python", "-m", "pip", "install", "--help"], capture_output=True, timeout=300, check=False
    )
    assert works.returncode == 0
    assert (packages / "numpy/__init__.py").exists()
